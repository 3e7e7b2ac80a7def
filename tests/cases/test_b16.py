"""B16: a caller who leaves ends the work that is done for him."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from casepair import Pair, servers

from cheapspec import AsyncOpenAI, OpenAI
from cheapspec.testing.faults import Hang, Say, Status

LONG = "one two three " * 200


@pytest.fixture
def slow(door: str) -> Iterator[Pair]:
    """A long answer whose hand-off takes its time."""
    with servers(door) as pair:
        pair.says(LONG, "one two three")
        pair.hand_off_after(1)
        pair.target.plan("continue", Say(LONG))
        pair.target.token_seconds = 0.02
        yield pair


def assert_closed(pair: Pair, purpose: str) -> None:
    """The server saw the hang-up within about a second, and wrote no token after it."""
    left = time.monotonic()
    [exchange] = pair.target.of(purpose)
    assert pair.target.wait_for(lambda: exchange.hung_up, 3.0), f"the {purpose} call went on"
    assert (exchange.hung_up_at or left) - left < 1.0
    written = exchange.tokens
    time.sleep(0.1)
    assert exchange.tokens == written < 300


def test_b16a_leaving_a_stream(slow: Pair) -> None:
    """Closing a stream after a few chunks closes the target's call; the row says cancelled, with its tokens."""
    if slow.door == "sync":
        with OpenAI(speculation=slow.speculation(), **slow.client_options()) as client:
            stream: Any = client.chat.completions.create(**slow.body(stream=True))
            for number, _ in enumerate(stream):
                if number == 4:
                    break
            stream.close()
            assert_closed(slow, "continue")
    else:
        asyncio.run(_leave_async(slow))
    last = slow.calls()[-1]
    assert (last.row.purpose, last.status) == ("continue", "cancelled")
    assert last.usage is not None
    assert last.usage.output_tokens > 0
    assert slow.row().info is not None


async def _leave_async(pair: Pair) -> None:
    async with AsyncOpenAI(speculation=pair.speculation(), **pair.client_options()) as client:
        stream: Any = await client.chat.completions.create(**pair.body(stream=True))
        number = 0
        async for _ in stream:
            number += 1
            if number == 5:
                break
        await stream.close()
        await asyncio.to_thread(assert_closed, pair, "continue")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("purpose", ["score", "continue", "direct"])
def test_b16bc_cancelled_before_the_first_byte(stream: bool, purpose: str) -> None:
    """A task cancelled while the target has not answered yet ends the call, streamed or not, and is booked."""
    with servers("async") as pair:
        pair.says(LONG, "one two three")
        pair.hand_off_after(0 if purpose == "direct" else 1)
        pair.target.plan(purpose, Hang(30.0))
        asyncio.run(_cancel(pair, stream, lambda: bool(pair.target.of(purpose))))
        assert_closed(pair, purpose)
        assert pair.row().info is not None or purpose == "direct"
        assert pair.calls()[-1].status in ("cancelled", "possibly_billed")
        assert pair.calls()[-1].row.purpose == purpose


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_b16_cancelled_while_the_draft_is_written(stream: bool) -> None:
    """The draft host sees the caller leave, too; the target is never asked to do paid work."""
    with servers("async") as pair:
        pair.says(LONG)
        pair.draft.token_seconds = 0.05
        asyncio.run(_cancel(pair, stream, lambda: any(exchange.tokens for exchange in pair.draft.of("draft"))))
        [exchange] = pair.draft.of("draft")
        assert pair.draft.wait_for(lambda: exchange.hung_up, 3.0)
        assert pair.paid == []


async def _cancel(pair: Pair, stream: bool, when: Callable[[], bool]) -> None:
    async with AsyncOpenAI(speculation=pair.speculation(), **pair.client_options()) as client:

        async def ask() -> None:
            reply: Any = await client.chat.completions.create(**pair.body(stream=stream))
            if stream:
                async for _ in reply:
                    pass

        asking = asyncio.create_task(ask())
        while not when():
            assert not asking.done(), asking
            await asyncio.sleep(0.01)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize("temperature", [0, 1], ids=["speculated", "direct"])
def test_b16d_streams_left_early_do_not_empty_the_pool(temperature: int) -> None:
    """With two connections in the pool, three streams left early do not keep a fourth call waiting."""
    with servers("sync") as pair:
        pair.says("one two three in Paris", "one two")
        limits = httpx2.Limits(max_connections=2)
        http = httpx2.Client(verify=False, limits=limits, timeout=httpx2.Timeout(10.0, pool=2.0))
        options = {**pair.client_options(), "timeout": httpx2.Timeout(10.0, pool=2.0), "max_retries": 0}
        with OpenAI(speculation=pair.speculation(), **{**options, "http_client": http}) as client:
            body = pair.body(temperature=temperature, seed=1, top_p=0.01)
            for _ in range(3):
                stream: Any = client.chat.completions.create(**body, stream=True)
                next(iter(stream))
                stream.close()
            assert client.chat.completions.create(**body).choices[0].message.content == "one two three in Paris"


@pytest.mark.parametrize("temperature", [0, 1], ids=["speculated", "direct"])
def test_b16e_error_replies_do_not_empty_the_pool(temperature: int) -> None:
    """Twenty streamed calls answered with 429 leave the pool free for the next."""
    with servers("sync") as pair:
        pair.says("one two three in Paris", "one two")
        for purpose in ("score", "continue", "direct"):
            pair.target.plan(purpose, Status(429), times=200)
        http = httpx2.Client(verify=False, limits=httpx2.Limits(max_connections=2))
        options = {**pair.client_options(), "timeout": httpx2.Timeout(10.0, pool=2.0), "max_retries": 0}
        with OpenAI(speculation=pair.speculation(), **{**options, "http_client": http}) as client:
            body = pair.body(temperature=temperature, seed=1, top_p=0.01)
            for _ in range(20):
                with pytest.raises(openai.RateLimitError):
                    client.chat.completions.create(**body, stream=True)
            pair.target._rules.clear()  # pyright: ignore[reportPrivateUsage]
            assert client.chat.completions.create(**body).choices[0].message.content == "one two three in Paris"


@pytest.mark.parametrize("left", ["at once", "after two chunks", "forgotten"])
def test_b16_leaving_a_direct_stream(left: str, slow: Pair) -> None:
    """The target sees it within a second; the row says cancelled, with an estimate of the tokens so far."""
    slow.target.plan("direct", Say(LONG))
    body = slow.body(stream=True, temperature=...)
    count = 0 if left == "at once" else 2

    async def scenario() -> None:
        async with AsyncOpenAI(speculation=slow.speculation(), **slow.client_options()) as client:
            stream: Any = await client.chat.completions.create(**body)
            for _ in range(count):
                await anext(stream)
            if left != "forgotten":
                await stream.close()
                await asyncio.to_thread(assert_closed, slow, "direct")
            del stream

    if slow.door == "async":
        asyncio.run(scenario())
    else:
        with OpenAI(speculation=slow.speculation(), **slow.client_options()) as client:
            stream: Any = client.chat.completions.create(**body)
            for _ in range(count):
                next(stream)
            if left != "forgotten":
                stream.close()
                assert_closed(slow, "direct")
            del stream
    gc.collect()
    assert slow.target.wait_for(lambda: slow.row().info is not None, 3.0)
    [call] = slow.calls()
    assert call.status == "cancelled"
    assert call.usage is not None
    assert call.usage.estimated
    assert (call.usage.output_tokens > 0) is (count > 0)
    assert call.cost_usd
