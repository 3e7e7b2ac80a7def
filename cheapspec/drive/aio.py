"""The asynchronous executor: carries out what the conductor asks, in the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, TypeVar

import httpx2

from cheapspec.core.effects import Emit, Event, Finish, GoDirect, HttpReply, Op
from cheapspec.drive.conductor import Conductor
from cheapspec.drive.io import Io, Out, Read, ReadAll, Send, Shut, Sleep, Wait
from cheapspec.drive.replies import Writer, elapsed, mark, response_headers
from cheapspec.drive.runtime import Admitted, Passed, Runtime, Settings
from cheapspec.drive.shared import passed_info, probe_request

__all__ = ["handle"]

T = TypeVar("T")
SendFunction = Callable[..., Awaitable[httpx2.Response]]

_background: set[asyncio.Task[None]] = set()


async def handle(
    runtime: Runtime, request: httpx2.Request, send: SendFunction, *, stream: bool, max_retries: int, settings: Settings
) -> httpx2.Response:
    """Answer one request of the caller's.

    ``send(request, stream=…)`` is the door's own way to the target. Raises what ``send`` raises, or
    :class:`~cheapspec.drive.outcome.TargetFailed` once the sender must not repeat.
    """
    admitted = runtime.admit(request, settings)
    if isinstance(admitted, Passed):
        probe = runtime.due_probe(admitted, settings)
        if probe is not None:
            _probe_in_background(runtime, admitted, settings, probe, send)
        response = await send(admitted.request, stream=stream)
        mark(response, passed_info(runtime, admitted, response, stream=stream))
        return response
    return await _Drive(runtime, admitted, send, max_retries).answer(stream=stream)


class _Drive:
    """One conducted request."""

    def __init__(self, runtime: Runtime, admitted: Admitted, send: SendFunction, max_retries: int) -> None:
        self._runtime = runtime
        self._admitted = admitted
        self._send = send
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._conductor = Conductor(runtime, admitted, admitted.request, max_retries)
        self._conductor.inbox = self._deliver
        self._steps = self._conductor.play(admitted.job)
        self._answer: Any = None
        self._started = time.monotonic()
        self._writer = Writer(admitted, lambda: runtime.finished(admitted, admitted.job.tally))

    def _deliver(self, event: Event) -> None:
        """From the drafts' thread; a loop that is closed has nobody waiting."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def answer(self, *, stream: bool) -> httpx2.Response:
        """Run to the first emission (to the end for an unstreamed reply), then answer."""
        request = self._admitted.request
        try:
            effect = await self._next()
            while isinstance(effect, Emit) and not self._admitted.parsed.stream:
                self._writer.collect(effect)
                effect = await self._next()
            if isinstance(effect, GoDirect):
                return await self._direct(effect, stream=stream)
            streaming = self._admitted.parsed.stream
            body = _Body(self, self._writer.stream(effect)) if streaming else _Body(self, self._whole(effect))
        except BaseException:
            await self.close()
            raise
        headers = response_headers(self._conductor.headers, self._admitted.request_id, stream=streaming)
        response = httpx2.Response(200, headers=headers, stream=body, request=request)
        if not stream:
            await response.aread()
        elapsed(response, self._started)
        return response

    def _whole(self, effect: Emit | Finish) -> bytes:
        assert isinstance(effect, Finish)
        return self._writer.whole(effect)

    async def _direct(self, effect: GoDirect, *, stream: bool) -> httpx2.Response:
        await self.close()
        response = await self._obey(self._conductor.direct(self._admitted.request, stream))
        mark(response, passed_info(self._runtime, self._admitted, response, stream=stream, effect=effect))
        return response

    async def chunks(self, first: bytes) -> AsyncIterator[bytes]:
        """The rest of the body."""
        yield first
        while not self._writer.done:
            effect = await self._next()
            assert not isinstance(effect, GoDirect)
            yield self._writer.stream(effect)

    async def close(self) -> None:
        """Give up what is open, settle the books."""
        self._steps.close()
        await self._obey(self._conductor.close())

    async def _next(self) -> Emit | Finish | GoDirect:
        while True:
            io = self._steps.send(self._answer)
            self._answer = None
            if isinstance(io, Out):
                return io.effect
            self._answer = await self._carry_out(io)

    async def _obey(self, steps: Generator[Io, Any, T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = await self._carry_out(steps.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _carry_out(self, io: Io) -> Any:
        try:
            match io:
                case Send(request, stream):
                    return await self._send(request, stream=stream)
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
                case Out():
                    return None
        except Exception as error:
            return error

    async def _wait(self, seconds: float | None) -> Event | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._events.get()
        except TimeoutError:
            return None


class _Body(httpx2.AsyncByteStream):
    """A response body that closes its run."""

    def __init__(self, drive: _Drive, first: bytes) -> None:
        self._drive = drive
        self._first = first

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._drive.chunks(self._first)

    async def aclose(self) -> None:
        await self._drive.close()


def _probe_in_background(
    runtime: Runtime, passed: Passed, settings: Settings, probe: Op[Any], send: SendFunction
) -> None:
    """Ask the endpoint what it can do, in a task, with the caller's own way to it."""

    async def ask() -> None:
        reply: HttpReply | None = None
        found = None
        try:
            while True:
                question = probe.send(reply)
                try:
                    response = await send(probe_request(runtime, passed, question), stream=False)
                    reply = HttpReply(response.status_code, response.content, dict(response.headers))
                except Exception:
                    reply = None
        except StopIteration as stop:
            found = stop.value
        finally:
            runtime.probed(passed, settings, found)

    task = asyncio.get_running_loop().create_task(ask(), name="cheapspec-probe")
    _background.add(task)
    task.add_done_callback(_background.discard)
