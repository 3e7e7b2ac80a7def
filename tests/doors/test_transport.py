"""The transport: the second Python door, for code that takes only an ``http_client``."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, entered, items

import cheapspec
from cheapspec.testing.faults import CloseAfterBody, Status


def over_transport(way: Doorway, **more: Any) -> Any:
    """A plain openai client whose HTTP client has our transport."""
    kind = cheapspec.AsyncTransport if way.door == "async" else cheapspec.Transport
    made = kind(way.http(), speculation=way.speculation(), **more)
    return way.plain(http_client=way.http(transport=made))


@pytest.mark.parametrize("stream", [False, True])
def test_a_plain_client_speculates_through_it(stream: bool, way: Doorway) -> None:
    """Text is the target's, facts are found by the reply, and closing the client closes the inner one."""

    async def scenario() -> None:
        async with entered(over_transport(way)) as client:
            reply = await call(client.chat.completions.create, **ASKED, stream=stream)
            if stream:
                chunks = [chunk async for chunk in items(reply)]
                assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
            else:
                assert reply.choices[0].message.content == ANSWER
            told = cheapspec.info(reply)
            assert told is not None
            assert told.decision == "speculate"

    way.run(scenario)


def test_other_routes_and_direct_replies_pass(way: Doorway) -> None:
    """Uploads, embeddings and direct replies go through; a direct reply's facts are found by its id."""

    async def scenario() -> None:
        async with entered(over_transport(way)) as client:
            assert (await call(client.embeddings.create, model="toy", input="x")).data
            with pytest.raises(openai.NotFoundError):
                await call(client.files.create, file=("a", b"b"), purpose="assistants")
            reply = await call(client.chat.completions.create, **{**ASKED, "temperature": 1})
            told = cheapspec.info(reply)
            assert told is not None
            assert (told.decision, told.reason) == ("direct", "top_p_unset")
            assert told.output_tokens == reply.usage.completion_tokens

    way.run(scenario)


def test_a_final_failure_is_not_repeated(way: Doorway) -> None:
    """After a paid call a lost answer is a 502 that the SDK does not repeat: attempts have one budget."""
    way.target.plan("score", Status(503, {"retry-after": "0"}))
    way.target.plan("direct", CloseAfterBody())

    async def scenario() -> None:
        async with entered(over_transport(way, max_retries=1)) as client:
            with pytest.raises(openai.InternalServerError) as raised:
                await call(client.with_options(max_retries=3).chat.completions.create, **ASKED)
            assert raised.value.status_code == 502

    way.run(scenario)
    assert way.purposes() == ["score", "direct"]


def test_time_outs_are_the_requests_own(way: Doorway) -> None:
    """The outer client's time-outs travel with the request into the inner client."""

    seen: list[Any] = []

    async def scenario() -> None:
        def hook(request: httpx2.Request) -> None:
            seen.append(request.extensions["timeout"])

        async def hook_async(request: httpx2.Request) -> None:
            hook(request)

        kind = cheapspec.AsyncTransport if way.door == "async" else cheapspec.Transport
        hooks = {"request": [hook_async if way.door == "async" else hook]}
        made = kind(way.http(event_hooks=hooks), speculation=way.speculation())
        async with entered(way.plain(http_client=way.http(transport=made), timeout=7.5)) as client:
            await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    assert len(seen) >= 2
    assert {told["read"] for told in seen} == {7.5}
