"""Clients through copies, pickles, processes, event loops, and the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, doorway, entered, items

import cheapspec
from cheapspec.core.effects import Answered, Event, HttpRequest
from cheapspec.drive.local import hosts
from cheapspec.testing.faults import Say

LONG = "one two three " * 150


def status_error(kind: type[openai.APIStatusError]) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://target/v1/chat/completions")
    response = httpx2.Response(429, request=request, headers={"x-request-id": "req-1"}, json={"error": {"code": "c"}})
    return kind("slow down", response=response, body={"code": "c", "message": "slow down"})


ERRORS: dict[str, Exception] = {
    "status": status_error(openai.RateLimitError),
    "connection": openai.APIConnectionError(message="gone", request=httpx2.Request("POST", "http://target")),
    "timeout": openai.APITimeoutError(httpx2.Request("POST", "http://target")),
    "plain": openai.OpenAIError("plain"),
    "ours": cheapspec.SettingsError("ours"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_b42c_errors_survive_pickle(name: str) -> None:
    """openai's errors and ours come back with class, message, status, body and request id."""
    error = ERRORS[name]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        for attribute in ("status_code", "request_id", "code", "body"):
            assert getattr(again, attribute, None) == getattr(error, attribute, None)


def _raise() -> None:
    raise status_error(openai.RateLimitError)


def test_b42c_a_pool_reports_openais_error() -> None:
    """A worker's ``RateLimitError`` arrives whole in the parent."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_raise).exception(timeout=60)
    assert isinstance(found, openai.RateLimitError)
    assert found.status_code == 429


@pytest.mark.parametrize("own", [False, True], ids=["default", "own http_client"])
def test_b42a_loop_after_loop(own: bool) -> None:
    """One async client serves one loop after the other, speculated or not, and leaves no socket open."""
    with doorway("async") as way:
        options: dict[str, Any] = {"base_url": way.target.base_url, "api_key": "k", "max_retries": 0}
        http = way.http() if own else None
        client = cheapspec.AsyncOpenAI(speculation=way.speculation(), http_client=http, **options)

        async def scenario() -> None:
            for temperature in (0, 1):
                reply: Any = await call(client.chat.completions.create, **{**ASKED, "temperature": temperature})
                assert reply.choices[0].message.content == ANSWER

        for _ in range(3):
            asyncio.run(scenario())
        asyncio.run(client.close())


def test_b42a_two_loops_at_once() -> None:
    """Two threads with a loop each share one async client; each sends on connections of its own."""
    with doorway("async") as way:
        client: Any = cheapspec.AsyncOpenAI(
            speculation=way.speculation(), base_url=way.target.base_url, api_key="k", max_retries=0
        )
        texts: list[str] = []
        meet = threading.Barrier(2, timeout=10)

        async def scenario() -> None:
            for _ in range(3):
                await asyncio.to_thread(meet.wait)
                reply = await client.chat.completions.create(**ASKED)
                texts.append(str(reply.choices[0].message.content))

        threads = [threading.Thread(target=lambda: asyncio.run(scenario())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert texts == [ANSWER] * 6
        asyncio.run(client.close())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_b42d_a_child_drafts_on_a_loop_of_its_own() -> None:
    """After a fork the child's draft calls run in a thread of the child's, on new connections."""
    with doorway("sync") as way:
        events: list[Event] = []

        def ask(number: int) -> None:
            done = threading.Event()

            def inbox(event: Event) -> None:
                events.append(event)
                done.set()

            hosts.submit(number, way.draft.url, HttpRequest("draft", "/api/ps", method="GET"), inbox, 2)
            assert done.wait(10)

        ask(1)
        assert isinstance(events[-1], Answered)
        opened = way.draft.connections_opened
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                events.clear()
                ask(2)
                status = 0 if [type(event) for event in events] == [Answered] else 2
            os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert way.draft.connections_opened == opened + 1
        ask(3)
        assert way.draft.connections_opened == opened + 1, "the parent goes on with its own connection"


def test_b42b_a_deep_copy_shares_the_books(way: Doorway) -> None:
    """``copy.deepcopy`` of a client, or of something that holds one, works and writes in the same ledger."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            held = copy.deepcopy({"client": client})
            assert held["client"] is not client
            assert (await call(held["client"].chat.completions.create, **ASKED)).choices[0].message.content == ANSWER

    way.run(scenario)
    assert len(way.ledger.requests()) == 1


def slow(way: Doorway) -> None:
    """A long hand-off after a short draft."""
    way.target.model.replies["Where?"] = LONG
    way.draft.model.replies["Where?"] = "one two three"
    way.draft.plan("draft", Say("one two three"), times=1)
    way.target.plan("continue", Say(LONG))
    way.target.token_seconds = 0.02


@pytest.mark.parametrize("read", [0, 1, 3])
def test_b16_a_stream_that_is_forgotten(read: int, way: Doorway) -> None:
    """A stream that nobody closes and nobody holds is given up: the server sees it, the books are settled."""
    slow(way)

    async def scenario() -> None:
        async with entered(way.client()) as client:
            stream: Any = await call(client.chat.completions.create, **ASKED, stream=True)
            if read:
                number = 0
                async for _ in items(stream):
                    number += 1
                    if number == read:
                        break
            del stream
            gc.collect()
            await asyncio.sleep(0.05)
            gc.collect()
            settled = lambda: bool(way.ledger.requests()[-1].info)  # noqa: E731
            assert await asyncio.to_thread(way.target.wait_for, settled, 3.0)

    way.run(scenario)
    going = [exchange for exchange in way.target.requests if exchange.ended_at is None]
    assert all(way.target.wait_for(lambda one=exchange: one.hung_up, 2.0) for exchange in going)  # type: ignore[misc]
    assert all(record.status != "open" for record in way.ledger.requests()[-1].calls)


def test_a_keyboard_interrupt_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a target call is under way: the exception goes through, the row is possibly billed."""
    with doorway("sync") as way:

        def interrupt(request: httpx2.Request) -> None:
            if request.url.path.endswith("/completions"):
                raise KeyboardInterrupt

        http = way.http(event_hooks={"request": [interrupt]})
        with way.client(http_client=http) as client, pytest.raises(KeyboardInterrupt):
            client.chat.completions.create(**ASKED)
        [row] = way.ledger.requests()
        assert row.info is not None
        assert [record.status for record in row.calls if record.row.purpose == "score"] == ["possibly_billed"]
        assert all(record.status != "open" for record in row.calls)


def test_no_thread_is_left_behind(way: Doorway) -> None:
    """Requests leave no threads but the one that drafts."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            for _ in range(3):
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("cheapspec")]
    assert ours == ["cheapspec-drafts"]
    hosts.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cheapspec")]


def test_the_draft_host_is_asked_again_after_a_close(way: Doorway) -> None:
    """Closing the drafts' thread (the end of a process does) is no end: the next draft starts another."""
    hosts.close()

    async def scenario() -> None:
        async with entered(way.client()) as client:
            told = cheapspec.info(await call(client.chat.completions.create, **ASKED))
            assert told is not None
            assert (told.decision, told.reason) == ("speculate", None)

    way.run(scenario)
