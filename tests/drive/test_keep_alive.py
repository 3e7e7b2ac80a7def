"""A stream that takes long to begin is kept alive, and still ends as it must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, doorway

import cheapspec
from cheapspec.drive import aio
from cheapspec.testing.faults import CloseAfterBody, Hang, MissingLogprobs, Status


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Doorway]:
    """The async client; a tenth of a second counts as long."""
    monkeypatch.setattr(aio, "KEEP_ALIVE_SECONDS", 0.1)
    with doorway("async") as way:
        yield way


async def lines_of(client: Any) -> AsyncIterator[str]:
    create = client.chat.completions.with_streaming_response.create
    async with create(**ASKED, stream=True) as response:
        assert response.status_code == 200
        async for line in response.iter_lines():
            yield line


def test_comments_until_the_text_comes(slow: Doorway) -> None:
    """Status 200 and comments while the draft is written, then the speculated reply; the client reads it."""
    slow.draft.plan("draft", Hang(0.5))

    async def scenario() -> None:
        async with slow.client() as client:
            lines = [line async for line in lines_of(client)]
            assert sum(line.startswith(":") for line in lines) >= 2
            assert [line for line in lines if line][-1] == "data: [DONE]"
            stream = await client.chat.completions.create(**ASKED, stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
            assert text == ANSWER
            told = cheapspec.info(stream)
            assert told is not None
            assert told.decision == "speculate"

    slow.run(scenario)


def test_going_direct_after_the_status(slow: Doorway) -> None:
    """A request that goes direct after that gets the target's own events."""
    slow.draft.plan("draft", Hang(0.4))
    slow.draft.plan("any", Hang(0.0))

    async def scenario() -> None:
        async with slow.client(slow.speculation(draft_timeout=0.3)) as client:
            stream = await client.chat.completions.create(**ASKED, stream=True)
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
            assert text == ANSWER
            told = cheapspec.info(stream)
            assert told is not None
            assert (told.decision, told.reason) == ("direct", "draft_deadline")

    slow.run(scenario)


@pytest.mark.parametrize("fault", ["status", "cut"])
def test_an_error_after_the_status_is_an_event(fault: str, slow: Doorway) -> None:
    """An error of the target's that comes after status 200 raises an API error from the stream, without text."""
    slow.target.plan("score", Hang(0.3), MissingLogprobs("absent"))
    slow.target.plan("direct", Status(503, {"retry-after": "0"}) if fault == "status" else CloseAfterBody())

    async def scenario() -> None:
        async with slow.client() as client:
            stream = await client.chat.completions.create(**ASKED, stream=True)
            with pytest.raises(openai.APIError):
                async for chunk in stream:
                    assert not chunk.choices
        assert slow.purposes() == ["score", "direct"]

    slow.run(scenario)


def test_a_caller_who_leaves_while_waiting(slow: Doorway) -> None:
    """Closing the stream during the comments ends the calls that are under way and settles the books."""
    slow.target.plan("score", Hang(30.0))

    async def scenario() -> None:
        async with slow.client() as client:
            async for line in lines_of(client):
                assert line.startswith(":") or not line
                if slow.target.of("score"):  # leave in the middle of the scoring call, however slow the draft was
                    break
            [exchange] = slow.target.of("score")
            assert await asyncio.to_thread(slow.target.wait_for, lambda: exchange.hung_up, 2.0)

    slow.run(scenario)
    [row] = slow.ledger.requests()
    assert row.info is not None
    assert [call.status for call in row.calls if call.row.billed] == ["possibly_billed"]


def test_cancelling_before_the_status(slow: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled while it waits for the status leaves nothing open."""
    monkeypatch.setattr(aio, "KEEP_ALIVE_SECONDS", 30.0)
    slow.target.plan("score", Hang(30.0))

    async def scenario() -> None:
        async with slow.client() as client:
            asking = asyncio.create_task(client.chat.completions.create(**ASKED, stream=True))
            assert await asyncio.to_thread(slow.target.wait_for, lambda: bool(slow.target.of("score")), 5.0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            [row] = slow.ledger.requests()
            assert row.info is not None
            assert all(call.status != "open" for call in row.calls)
            [exchange] = slow.target.of("score")
            assert await asyncio.to_thread(slow.target.wait_for, lambda: exchange.hung_up, 2.0)

    slow.run(scenario)


def test_without_asyncio_everything_passes(slow: Doorway) -> None:
    """In another library's event loop the request goes to the target, without anything of ours."""
    sent: list[httpx2.Request] = []

    async def send(request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    request = httpx2.Request("POST", "http://h/v1/chat/completions", json={"a": 1}, headers={"x-cheapspec-a": "1"})
    runtime = slow.client()._cheapspec.runtime
    going = aio.handle(runtime, request, send, stream=False, max_retries=0)
    with pytest.raises(StopIteration) as ended:
        going.send(None)
    assert ended.value.value.status_code == 200
    assert "x-cheapspec-a" not in sent[0].headers
