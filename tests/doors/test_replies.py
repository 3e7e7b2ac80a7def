"""Every way of asking through the drop-in clients gives what openai's own client gives, speculated."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from doorway import ANSWER, ASKED, QUESTION, Doorway, call, entered, items
from pydantic import BaseModel

import cheapspec


class City(BaseModel):
    """What ``parse`` is asked for."""

    name: str


def assert_same(ours: Any, theirs: Any) -> None:
    """Text, end, role and counts are the target's own."""
    assert type(ours) is type(theirs)
    assert [choice.model_dump() for choice in ours.choices] == [choice.model_dump() for choice in theirs.choices] or (
        [(c.finish_reason, getattr(c, "text", None)) for c in ours.choices]
        == [(c.finish_reason, getattr(c, "text", None)) for c in theirs.choices]
        and getattr(ours.choices[0], "message", theirs.choices[0]).__class__
        is getattr(theirs.choices[0], "message", theirs.choices[0]).__class__
    )
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(ours.usage, name) == getattr(theirs.usage, name)
    assert ours.model == theirs.model
    assert ours.object == theirs.object


def test_chat_and_completion(way: Doorway) -> None:
    """Unstreamed replies of both routes have the target's text, end, usage and model."""

    async def scenario() -> None:
        client, plain = way.client(), way.plain()
        for ask, body in (
            ("chat", ASKED),
            ("", {"model": "toy", "prompt": "Once upon", "temperature": 0, "max_tokens": 12}),
        ):
            asked = [(one.chat if ask else one).completions.create for one in (client, plain)]
            ours, theirs = [await call(create, **body) for create in asked]
            told = cheapspec.info(ours)
            assert told is not None
            assert told.decision == "speculate", told
            assert_same(ours, theirs)
            if ask:
                assert ours.choices[0].message.content == theirs.choices[0].message.content == ANSWER
        for one in (client, plain):
            await call(one.close)

    way.run(scenario)


@pytest.mark.parametrize("asked_usage", [True, False, None])
def test_streams(way: Doorway, asked_usage: bool | None) -> None:
    """A streamed reply has one id, a role first, one finish reason, and usage only for who asked."""

    async def scenario() -> None:
        options = {} if asked_usage is None else {"stream_options": {"include_usage": asked_usage}}
        async with entered(way.client()) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True, **options)
            chunks = [chunk async for chunk in items(stream)]
            told = cheapspec.info(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
        assert chunks[0].choices[0].delta.role == "assistant"
        assert len({chunk.id for chunk in chunks}) == 1
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
        usages = [chunk.usage for chunk in chunks if chunk.usage]
        assert len(usages) == bool(asked_usage)
        assert told is not None
        assert told.decision == "speculate"
        last = cheapspec.info(chunks[-1])
        assert last is not None
        assert (last.request_id, last.paid_usd) == (told.request_id, told.paid_usd)

    way.run(scenario)


def test_the_stream_helper(way: Doorway) -> None:
    """``chat.completions.stream`` accumulates the speculated chunks into a final completion."""

    async def scenario() -> None:
        async with entered(way.client()) as client, entered(client.chat.completions.stream(**ASKED)) as stream:
            kinds = {event.type async for event in items(stream)}
            final = await call(stream.get_final_completion)
            assert final.choices[0].message.content == ANSWER
            assert {"chunk", "content.delta", "content.done"} <= kinds
            for held in (stream, final):
                told = cheapspec.info(held)
                assert told is not None
                assert told.decision == "speculate"

    way.run(scenario)


def test_parse(way: Doorway) -> None:
    """``parse`` asks for a schema: passed through with that reason, and parsed by openai's own code."""
    way.target.model.replies[QUESTION] = '{"name": "Paris"}'

    async def scenario() -> None:
        async with entered(way.client()) as client:
            reply = await call(client.chat.completions.parse, **ASKED, response_format=City)
        assert reply.choices[0].message.parsed == City(name="Paris")
        told = cheapspec.info(reply)
        assert told is not None
        assert (told.decision, told.reason) == ("bypass", "response_format")

    way.run(scenario)


def test_raw_and_streaming_responses(way: Doorway) -> None:
    """Raw responses are there with their headers; a streaming response can be read in pieces."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            raw = await call(client.chat.completions.with_raw_response.create, **ASKED)
            assert (await call(raw.parse)).choices[0].message.content == ANSWER
            assert raw.headers["x-cheapspec-decision"] == "speculate"
            assert raw.headers["x-request-id"].startswith("req-")
            assert raw.status_code == 200
            told = cheapspec.info(raw)
            assert told is not None
            assert told.decision == "speculate"
            streamed = client.chat.completions.with_streaming_response.create
            async with entered(streamed(**ASKED)) as response:
                whole = await call(response.parse)
                assert whole.choices[0].message.content == ANSWER
            async with entered(streamed(**ASKED, stream=True)) as response:
                lines = [line async for line in items(response.iter_lines())]
                assert lines[-2 if lines[-1] == "" else -1] == "data: [DONE]"

    way.run(scenario)


def test_copies_carry_or_replace_the_settings(way: Doorway) -> None:
    """``copy`` and ``with_options`` keep our settings and books unless new ones are given."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            carried = client.with_options(timeout=9, max_retries=1)
            replaced = client.copy(speculation=way.speculation(enabled=False))
            assert (carried.timeout, carried.max_retries) == (9, 1)
            decisions: list[str] = []
            for one in (client, carried, replaced, replaced.copy()):
                told = cheapspec.info(await call(one.chat.completions.create, **ASKED))
                assert told is not None
                decisions.append(told.decision)
            assert decisions == ["speculate", "speculate", "bypass", "bypass"]
        assert [request.info and request.info["decision"] for request in way.ledger.requests()] == decisions

    way.run(scenario)


def test_azure(way: Doorway) -> None:
    """The Azure twins speculate on a deployment's path, with Azure's key header and query on every call."""
    kind: Any = cheapspec.AsyncAzureOpenAI if way.door == "async" else cheapspec.AzureOpenAI

    async def scenario() -> None:
        options = {"azure_endpoint": way.target.url, "api_key": "azure-key", "api_version": "2026-01-01"}
        made = kind(speculation=way.speculation(), http_client=way.http(), max_retries=0, **options)
        async with entered(made) as client:
            for one in (client, client.with_options(timeout=9)):
                reply = await call(one.chat.completions.create, **ASKED)
                assert reply.choices[0].message.content == ANSWER
                told = cheapspec.info(reply)
                assert told is not None
                assert told.decision == "speculate"
        assert isinstance(made, openai.AsyncAzureOpenAI if way.door == "async" else openai.AzureOpenAI)
        for exchange in way.target.requests:
            assert exchange.path.startswith("/openai/deployments/toy/")
            assert exchange.headers["api-key"] == "azure-key"
            assert exchange.query == "api-version=2026-01-01"

    way.run(scenario)
