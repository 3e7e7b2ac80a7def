"""The synchronous executor: carries out what an exchange asks, in the caller's thread.

A stream has no status before its first text: nothing can be sent to a caller whose thread is waiting, so
there are no keep-alive comments here (:mod:`cheapspec.drive.aio` has them). Nor can a call to the target be
given up in its middle: what ``max_added_latency`` allows is looked at again when it has been answered.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

import httpx2

from cheapspec.core.effects import Event
from cheapspec.core.money import money_context
from cheapspec.drive.exchange import Exchange, Spoken
from cheapspec.drive.io import (
    WRITE_SECONDS,
    Background,
    Io,
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
from cheapspec.drive.local import hosts
from cheapspec.drive.replies import elapsed
from cheapspec.drive.runtime import Runtime

__all__ = ["SendFunction", "handle", "obey"]

T = TypeVar("T")


class SendFunction(Protocol):
    """A door's own way to the target. The response is read, unless ``stream``."""

    def __call__(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response: ...


def handle(
    runtime: Runtime, request: httpx2.Request, send: SendFunction, *, stream: bool | None, max_retries: int
) -> httpx2.Response:
    """Answer one request of the caller's. ``stream``: the response is given unread; ``None``: as the request says.

    Raises what ``send`` raises, or :class:`~cheapspec.drive.outcome.TargetFailed` once the sender must not
    repeat.
    """
    started = time.monotonic()
    executor = _Executor(send)
    exchange = Exchange(runtime, request, executor.events.put, stream=stream, max_retries=max_retries)
    try:
        answer = executor.obey(exchange.answer())
    except BaseException:
        executor.obey(exchange.close())
        raise
    if isinstance(answer, httpx2.Response):
        return answer
    response = httpx2.Response(200, headers=answer.headers, stream=_Body(exchange, executor, answer), request=request)
    if stream is False:
        response.read()
    elapsed(response, started)
    return response


def obey(send: SendFunction, steps: Steps[T]) -> T:
    """Carry out steps that belong to no request of a caller's, in this thread."""
    return _Executor(send).obey(steps)


class _Executor:
    def __init__(self, send: SendFunction) -> None:
        self._send = send
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def obey(self, steps: Steps[T]) -> T:
        answer: Any = None
        try:
            while True:
                with money_context():
                    step = steps.send(answer)
                answer = self.carry_out(step)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def carry_out(self, io: Io) -> Any:
        try:
            match io:
                case Send(request, stream):  # its ``seconds`` cannot be kept here
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
                case Written(ticket):
                    return ticket.wait(WRITE_SECONDS)
                case Run(work):
                    return work()
                case Background(steps, name, listen):
                    beside = _Executor(self._send)
                    if listen is not None:
                        listen(beside.events.put)
                    return threading.Thread(target=beside.obey, args=(steps,), name=name, daemon=True).start()
        except Exception as error:
            return error

    def _wait(self, seconds: float | None) -> Event | None:
        try:
            return self.events.get(timeout=seconds)
        except queue.Empty:
            return None


class _Body(httpx2.SyncByteStream):
    """A response body that closes its exchange, at the latest when nobody holds it any more."""

    def __init__(self, exchange: Exchange, executor: _Executor, answer: Spoken) -> None:
        self._steps: Generator[Io | bytes, Any, None] = exchange.body(answer.first)
        self._exchange = exchange
        self._executor = executor
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        answer: Any = None
        while True:
            try:
                with money_context():
                    step = self._steps.send(answer)
            except StopIteration:
                return
            if isinstance(step, bytes):
                answer = None
                yield step
            else:
                answer = self._executor.carry_out(step)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._steps.close()
            self._executor.obey(self._exchange.close())

    def __del__(self) -> None:
        if not self._closed:
            hosts.soon(self.close)
