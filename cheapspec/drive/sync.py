"""The synchronous executor: carries out what the conductor asks, in the caller's thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
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
SendFunction = Callable[..., httpx2.Response]


def handle(
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
        response = send(admitted.request, stream=stream)
        mark(response, passed_info(runtime, admitted, response, stream=stream))
        return response
    return _Drive(runtime, admitted, send, max_retries).answer(stream=stream)


class _Drive:
    """One conducted request."""

    def __init__(self, runtime: Runtime, admitted: Admitted, send: SendFunction, max_retries: int) -> None:
        self._runtime = runtime
        self._admitted = admitted
        self._send = send
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._conductor = Conductor(runtime, admitted, admitted.request, max_retries)
        self._conductor.inbox = self._events.put
        self._steps = self._conductor.play(admitted.job)
        self._answer: Any = None
        self._started = time.monotonic()
        self._writer = Writer(admitted, lambda: runtime.finished(admitted, admitted.job.tally))

    def answer(self, *, stream: bool) -> httpx2.Response:
        """Run to the first emission (to the end for an unstreamed reply), then answer."""
        request = self._admitted.request
        try:
            effect = self._next()
            while isinstance(effect, Emit) and not self._admitted.parsed.stream:
                self._writer.collect(effect)
                effect = self._next()
            if isinstance(effect, GoDirect):
                return self._direct(effect, stream=stream)
            streaming = self._admitted.parsed.stream
            body = _Body(self, self._writer.stream(effect)) if streaming else _Body(self, self._whole(effect))
        except BaseException:
            self.close()
            raise
        headers = response_headers(self._conductor.headers, self._admitted.request_id, stream=streaming)
        response = httpx2.Response(200, headers=headers, stream=body, request=request)
        if not stream:
            response.read()
        elapsed(response, self._started)
        return response

    def _whole(self, effect: Emit | Finish) -> bytes:
        assert isinstance(effect, Finish)
        return self._writer.whole(effect)

    def _direct(self, effect: GoDirect, *, stream: bool) -> httpx2.Response:
        self.close()
        response = self._obey(self._conductor.direct(self._admitted.request, stream))
        mark(response, passed_info(self._runtime, self._admitted, response, stream=stream, effect=effect))
        return response

    def chunks(self, first: bytes) -> Iterator[bytes]:
        """The rest of the body."""
        yield first
        while not self._writer.done:
            effect = self._next()
            assert not isinstance(effect, GoDirect)
            yield self._writer.stream(effect)

    def close(self) -> None:
        """Give up what is open, settle the books."""
        self._steps.close()
        self._obey(self._conductor.close())

    def _next(self) -> Emit | Finish | GoDirect:
        while True:
            io = self._steps.send(self._answer)
            self._answer = None
            if isinstance(io, Out):
                return io.effect
            self._answer = self._carry_out(io)

    def _obey(self, steps: Generator[Io, Any, T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = self._carry_out(steps.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _carry_out(self, io: Io) -> Any:
        try:
            match io:
                case Send(request, stream):
                    return self._send(request, stream=stream)
                case Read(channel):
                    channel.chunks = channel.chunks or channel.response.iter_bytes()
                    return next(channel.chunks, None)
                case ReadAll(channel):
                    return channel.response.read()
                case Shut(channel):
                    return channel.response.close()
                case Wait(seconds):
                    return self._wait(seconds)
                case Sleep(seconds):
                    return time.sleep(seconds)
                case Out():
                    return None
        except Exception as error:
            return error

    def _wait(self, seconds: float | None) -> Event | None:
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None


class _Body(httpx2.SyncByteStream):
    """A response body that closes its run."""

    def __init__(self, drive: _Drive, first: bytes) -> None:
        self._drive = drive
        self._first = first

    def __iter__(self) -> Iterator[bytes]:
        return self._drive.chunks(self._first)

    def close(self) -> None:
        self._drive.close()


def _probe_in_background(
    runtime: Runtime, passed: Passed, settings: Settings, probe: Op[Any], send: SendFunction
) -> None:
    """Ask the endpoint what it can do, in a thread, with the caller's own way to it."""

    def ask() -> None:
        reply: HttpReply | None = None
        found = None
        try:
            while True:
                question = probe.send(reply)
                try:
                    response = send(probe_request(runtime, passed, question), stream=False)
                    reply = HttpReply(response.status_code, response.content, dict(response.headers))
                except Exception:
                    reply = None
        except StopIteration as stop:
            found = stop.value
        finally:
            runtime.probed(passed, settings, found)

    threading.Thread(target=ask, name="cheapspec-probe", daemon=True).start()
