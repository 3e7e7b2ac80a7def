"""The asynchronous executor: carries out what an exchange asks, in the caller's event loop.

Rules
-----
* A stream whose first text takes longer than :data:`KEEP_ALIVE_SECONDS` is answered with status 200 all the
  same, and comments keep its connection alive until the text comes. If the request goes direct after that,
  the target's own events follow, and an error of its is an error event.
* Settling is shielded: a cancelled caller does not wait for it, but it happens.
* Drafts come from a thread through asyncio's loop. Without one (trio) every request is passed through.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol, TypeVar

import httpx2

from cheapspec.core.books import Ticket
from cheapspec.core.effects import Event
from cheapspec.core.money import money_context
from cheapspec.drive.exchange import Exchange, Spoken
from cheapspec.drive.io import (
    WRITE_SECONDS,
    Background,
    Io,
    Overdue,
    Read,
    ReadAll,
    Run,
    Send,
    Shut,
    Sleep,
    Steps,
    Wait,
    Written,
)
from cheapspec.drive.outcome import TargetFailed
from cheapspec.drive.replies import elapsed, failure_event, response_headers
from cheapspec.drive.runtime import Runtime
from cheapspec.drive.urls import unmarked

__all__ = ["KEEP_ALIVE_SECONDS", "SendFunction", "handle"]

T = TypeVar("T")
KEEP_ALIVE_SECONDS = 10.0
_COMMENT = b": waiting for the first text\n\n"

_background: set[asyncio.Task[Any]] = set()


class SendFunction(Protocol):
    """A door's own way to the target. The response is read, unless ``stream``."""

    async def __call__(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response: ...


async def handle(
    runtime: Runtime, request: httpx2.Request, send: SendFunction, *, stream: bool | None, max_retries: int
) -> httpx2.Response:
    """Answer one request of the caller's. ``stream``: the response is given unread; ``None``: as the request says.

    Raises what ``send`` raises, or :class:`~cheapspec.drive.outcome.TargetFailed` once the sender must not
    repeat.
    """
    started = time.monotonic()
    try:
        executor = _Executor(send)
    except RuntimeError:
        runtime.warn("no asyncio", "cheapspec drafts in asyncio's event loop only: other loops' requests are passed on")
        return await send(unmarked(request), stream=stream is not False)
    exchange = Exchange(runtime, request, executor.deliver, stream=stream, max_retries=max_retries)
    answer = await _early(executor, exchange) if exchange.streaming else await executor.answer(exchange)
    if isinstance(answer, httpx2.Response):
        return answer
    headers = answer.headers if isinstance(answer, Spoken) else response_headers(httpx2.Headers(), exchange.request_id)
    response = httpx2.Response(200, headers=headers, stream=_Body(executor, exchange, answer), request=request)
    if stream is False:
        await response.aread()
    elapsed(response, started)
    return response


async def _early(
    executor: _Executor, exchange: Exchange
) -> httpx2.Response | Spoken | asyncio.Task[httpx2.Response | Spoken]:
    """The answer, or the task that is still waiting for it when the caller should hear something."""
    task = _keep(executor.answer(exchange))
    try:
        await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
    except BaseException:
        await _give_up(task)
        raise
    return task.result() if task.done() else task


def _keep(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that nobody needs to hold."""
    task = asyncio.get_running_loop().create_task(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def _give_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait({task})
    if task.done() and not task.cancelled():
        task.exception()  # seen


class _Executor:
    """Raises ``RuntimeError`` where no asyncio loop runs."""

    def __init__(self, send: SendFunction) -> None:
        self.loop = asyncio.get_running_loop()
        self._send = send
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def deliver(self, event: Event) -> None:
        """From the drafts' thread; a loop that is closed has nobody waiting."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def answer(self, exchange: Exchange) -> httpx2.Response | Spoken:
        try:
            return await self.obey(exchange.answer())
        except BaseException:
            await self.close(exchange)
            raise

    async def close(self, exchange: Exchange) -> None:
        """Settle. Under a cancel scope every wait is cut short, so it is done in a task of its own."""
        if not exchange.closed:
            await asyncio.shield(_keep(self.obey(exchange.close())))

    async def obey(self, steps: Steps[T]) -> T:
        answer: Any = None
        try:
            while True:
                with money_context():
                    step = steps.send(answer)
                answer = await self.carry_out(step)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def carry_out(self, io: Io) -> Any:
        try:
            match io:
                case Send(request, stream, seconds):
                    return await self._answered(request, stream, seconds)
                case Read(channel):
                    channel.achunks = channel.achunks or channel.response.aiter_bytes()
                    return await anext(channel.achunks, None)
                case ReadAll(channel):
                    return await channel.response.aread()
                case Shut(channel):
                    return await channel.response.aclose()
                case Wait(seconds):
                    return await self._wait(seconds)
                case Sleep(seconds):
                    return await asyncio.sleep(seconds)
                case Written(ticket):
                    return await self._written(ticket)
                case Run(work):
                    return await asyncio.to_thread(work)
                case Background(steps, _, listen):
                    beside = _Executor(self._send)
                    if listen is not None:
                        listen(beside.deliver)
                    return _keep(beside.obey(steps)) and None
        except Exception as error:
            return error

    async def _answered(self, request: httpx2.Request, stream: bool, seconds: float | None) -> httpx2.Response:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await self._send(request, stream=stream)
        except TimeoutError as error:
            if scope.expired():
                raise Overdue from error
            raise

    async def _written(self, ticket: Ticket[object]) -> None:
        done = asyncio.Event()

        def told() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(done.set)

        ticket.add_done_callback(told)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), WRITE_SECONDS)

    async def _wait(self, seconds: float | None) -> Event | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._events.get()
        except TimeoutError:
            return None


class _Body(httpx2.AsyncByteStream):
    """A response body that closes its exchange, at the latest when nobody holds it any more."""

    def __init__(
        self, executor: _Executor, exchange: Exchange, answer: Spoken | asyncio.Task[httpx2.Response | Spoken]
    ) -> None:
        self._executor = executor
        self._exchange = exchange
        self._answer = answer
        self._direct: httpx2.Response | None = None
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer: httpx2.Response | Spoken
        if isinstance(self._answer, Spoken):
            answer = self._answer
        else:
            while not self._answer.done():
                yield _COMMENT
                await asyncio.wait({self._answer}, timeout=KEEP_ALIVE_SECONDS)
            try:
                answer = self._answer.result()
            except (TargetFailed, httpx2.HTTPError) as error:
                yield failure_event(502, b"", str(error))
                return
        if isinstance(answer, httpx2.Response):
            self._direct = answer
            if answer.status_code >= 300:
                yield failure_event(answer.status_code, await answer.aread(), f"HTTP {answer.status_code}")
                return
            async for chunk in answer.aiter_bytes():
                yield chunk
            return
        steps = self._exchange.body(answer.first)
        told: Any = None
        with contextlib.closing(steps):
            while True:
                try:
                    with money_context():
                        step = steps.send(told)
                except StopIteration:
                    return
                told = None
                if isinstance(step, bytes):
                    yield step
                else:
                    told = await self._executor.carry_out(step)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if isinstance(self._answer, asyncio.Task) and not self._answer.done():
            await _give_up(self._answer)
        if self._direct is not None:
            await self._direct.aclose()
        await self._executor.close(self._exchange)

    def __del__(self) -> None:
        if self._closed:
            return
        loop = self._executor.loop
        try:
            loop.call_soon_threadsafe(lambda: _keep(self.aclose()))
        except RuntimeError:  # closed, and its connections with it: the books are what is left
            for _ in self._exchange.close():
                pass
