"""One budget of attempts, cooldown, the breaker and the ceilings: seen from the servers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, entered, items

import cheapspec
from cheapspec.drive import policy
from cheapspec.testing.faults import CloseAfterBody, Hang, MissingLogprobs, Status
from cheapspec.testing.server import refusing_url

AT_ONCE = {"retry-after": "0"}


def facts(reply: Any) -> tuple[str, str | None]:
    told = cheapspec.info(reply)
    assert told is not None
    return told.decision, told.reason


@pytest.mark.parametrize("stream", [False, True])
def test_after_a_paid_call_the_last_word_is_final(stream: bool, way: Doorway) -> None:
    """A scoring call was paid, then the target is down: max_retries repeats in all, and the SDK adds none."""
    way.target.plan("score", MissingLogprobs("absent"))
    way.target.plan("direct", Status(503, AT_ONCE))

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            with pytest.raises(openai.InternalServerError) as raised:
                await call(client.chat.completions.create, **ASKED, stream=stream)
            assert raised.value.response.headers["x-should-retry"] == "false"

    way.run(scenario)
    assert way.purposes() == ["score", "direct", "direct", "direct"]
    [row] = way.ledger.requests()
    assert [r.status for r in row.calls if r.row.billed] == ["ok", "failed", "failed", "failed"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_raised_error_after_a_paid_call_is_openais(stream: bool, way: Doorway) -> None:
    """A connection that is lost after a paid call is ``openai.APIConnectionError``, which the SDK does not repeat."""
    way.target.plan("score", MissingLogprobs("absent"))
    way.target.plan("direct", CloseAfterBody())

    async def scenario() -> None:
        async with entered(way.client(max_retries=0)) as client:
            with pytest.raises(openai.APIConnectionError) as raised:
                await call(client.chat.completions.create, **ASKED, stream=stream)
            assert type(raised.value) is openai.APIConnectionError

    way.run(scenario)
    assert way.purposes() == ["score", "direct"]


def test_retry_after_is_honoured(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause before the next call is what the server asked for."""
    pauses: list[float | None] = []
    failed = policy.Attempts.failed

    def watched(self: policy.Attempts, outcome: Any) -> float | None:
        pauses.append(failed(self, outcome))
        return pauses[-1]

    monkeypatch.setattr(policy.Attempts, "failed", watched)
    way.target.plan("score", Status(503, {"retry-after-ms": "30"}))

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            assert reply.choices[0].message.content == ANSWER

    way.run(scenario)
    assert pauses == [0.03]


def test_too_long_a_wait_is_not_waited(way: Doorway) -> None:
    """A server that asks for an hour is not asked again, and the SDK is told so."""
    way.target.plan("score", MissingLogprobs("absent"))
    way.target.plan("direct", Status(429, {"retry-after": "3600"}))

    async def scenario() -> None:
        async with entered(way.client(max_retries=3)) as client:
            with pytest.raises(openai.RateLimitError):
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    assert way.purposes() == ["score", "direct"]


def test_a_429_keeps_the_next_requests_direct(way: Doorway) -> None:
    """After a 429 on scoring the endpoint is left to direct calls for a while."""
    way.target.plan("score", Status(429, AT_ONCE), times=1)

    async def scenario() -> None:
        async with entered(way.client(max_retries=1)) as client:
            first = await call(client.chat.completions.create, **ASKED)
            second = await call(client.chat.completions.create, **ASKED)
            assert first.choices[0].message.content == second.choices[0].message.content == ANSWER
            assert facts(first)[0] == "direct"
            assert facts(second) == ("direct", "cooldown")

    way.run(scenario)
    assert way.purposes() == ["score", "direct", "direct"]


def test_an_sdk_retry_goes_direct(way: Doorway) -> None:
    """A request that the SDK repeats by itself is not speculated again."""
    way.target.plan("direct", Status(503, AT_ONCE), times=1)

    async def scenario() -> None:
        async with entered(way.client(max_retries=1)) as client:
            reply = await call(client.chat.completions.create, **{**ASKED, "temperature": 1})
            assert facts(reply) == ("direct", "retry")

    way.run(scenario)


def test_a_dead_draft_host_is_left_alone(way: Doorway) -> None:
    """After three failures the draft host is not asked for a while; the target answers all the time."""
    with refusing_url() as url:

        async def scenario() -> None:
            async with entered(way.client(way.speculation(draft_url=url))) as client:
                replies = [await call(client.chat.completions.create, **ASKED) for _ in range(5)]
                assert [facts(reply) for reply in replies] == [("direct", "no_draft")] * 5
                assert {reply.choices[0].message.content for reply in replies} == {ANSWER}

        way.run(scenario)
    drafts = [[call.row for call in row.calls if call.row.side == "draft"] for row in way.ledger.requests()]
    assert [bool(asked) for asked in drafts] == [True, True, True, False, False]


def test_a_full_draft_host_is_busy(way: Doorway) -> None:
    """With both places taken a third request goes direct with ``draft_busy``, soon."""
    way.draft.plan("draft", Hang(5.0), times=2)
    way.draft.plan("any", Hang(0.0))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(draft_timeout=4.0))) as client:

            async def ask() -> Any:
                if way.door == "sync":
                    return await asyncio.to_thread(client.chat.completions.create, **ASKED)
                return await client.chat.completions.create(**ASKED)

            waiting = [asyncio.create_task(ask()) for _ in range(2)]
            assert await asyncio.to_thread(way.draft.wait_for, lambda: len(way.draft.of("draft")) == 2, 5.0)
            assert facts(await ask()) == ("direct", "draft_busy")
            assert not any(task.done() for task in waiting)
            for task in waiting:
                assert facts(await task) == ("direct", "draft_deadline")

    way.run(scenario)


@pytest.mark.parametrize("setting", ["draft_timeout", "max_added_latency"])
def test_a_slow_draft_has_a_deadline(setting: str, way: Doorway) -> None:
    """``draft_timeout`` and ``max_added_latency`` bound the wait for a draft; 0 seconds veto it at once."""
    way.draft.plan("draft", Hang(30.0))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(**{setting: 0.2}))) as client:
            assert facts(await call(client.chat.completions.create, **ASKED)) == ("direct", "draft_deadline")
            again = await call(client.chat.completions.create, **ASKED)
            assert facts(again) == ("direct", "no_draft"), "the host still owes its first word"
        async with entered(way.client(way.speculation(max_added_latency=0))) as client:
            more = {"prediction": {"type": "content", "content": ANSWER}}
            assert facts(await call(client.chat.completions.create, **ASKED, **more)) == ("direct", "latency")

    way.run(scenario)


def test_a_failing_key_provider_is_the_callers_error(way: Doorway) -> None:
    """An error that is not HTTP's (no credentials, say) goes through at once, as with plain openai."""
    calls: list[int] = []

    def hook(request: Any) -> None:
        calls.append(1)
        raise openai.OpenAIError("no credentials")

    async def hook_async(request: Any) -> None:
        hook(request)

    async def scenario() -> None:
        hooks = {"request": [hook_async if way.door == "async" else hook]}
        async with entered(way.client(max_retries=2, http_client=way.http(event_hooks=hooks))) as client:
            with pytest.raises(openai.OpenAIError, match="no credentials"):
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    assert len(calls) == 1
    assert way.target.requests == []


def test_a_long_stream_passes_chunk_by_chunk_without_a_thread_for_each(way: Doorway) -> None:
    """A reply of many hundreds of tokens comes through whole (its memory is measured by the benchmarks)."""
    way.target.model.replies["Where?"] = "one two three " * 300

    async def scenario() -> None:
        async with entered(way.client()) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True, max_tokens=900)
            text = "".join([c.choices[0].delta.content or "" async for c in items(stream) if c.choices])
            assert len(text) > 4000
            assert str(way.target.model.replies["Where?"]).startswith(text)
            told = cheapspec.info(stream)
            assert told is not None
            assert told.decision == "speculate"

    way.run(scenario)
    assert threading.active_count() < 20
