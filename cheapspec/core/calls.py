"""Keeps the backend calls of one run: which are open, which operation waits on which, which is unpaid.

Rules
-----
* An *operation* (:data:`~cheapspec.core.effects.Op`) is a generator of unstreamed requests; one of its
  calls is open at a time. A *stream* is one call whose body goes through a decoder.
* Several operations and streams can be open at once. :meth:`Calls.step` waits for one event of any
  of them and moves on the one it belongs to, so "draft while the target tokenizes" is two
  ``start``s and a loop.
* Every method that yields is a sub-generator of the engine's: it yields effects and is sent events.
* Nothing here raises on what a server does; a broken call is a value (``broke``).
* One billed call is under way at a time. Its id is in ``unbooked`` until its cost is booked or it turned
  out free: an error status, or a failure before the request was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Cancelled,
    Checked,
    Closed,
    Effect,
    Event,
    Finish,
    GoDirect,
    HttpReply,
    HttpRequest,
    Note,
    Op,
    Opened,
    Received,
    Risked,
    Side,
    Start,
    TimedOut,
    WaitAny,
)
from cheapspec.core.ports import NoDraft, Streaming, Unusable

__all__ = ["Calls", "OpTask", "Run", "Steps", "StreamTask", "until_left"]

T = TypeVar("T")
P = TypeVar("P")
Steps = Generator[Effect, Event | None, T]
Run = Steps[None]
"""A whole run: what a driver carries out."""

_MAYBE_BILLED = frozenset({"timeout", "cut"})  # kinds of Broke after which the server may charge


class OpTask(Generic[T]):
    """An operation under way. ``value`` is its result once ``done``. ``broke``: its last call broke.
    ``billed_reply``: what its billed call was answered with.
    """

    def __init__(self, op: Op[T], side: Side, host: str, latest: float | None = None) -> None:
        self.op = op
        self.side = side
        self.host = host
        self.latest = latest
        self.done = False
        self._value: T | None = None
        self.broke: Broke | None = None
        self.billed_reply: HttpReply | None = None
        self.call_id = -1

    @property
    def value(self) -> T:
        """The result. Only after ``done``."""
        assert self.done
        return self._value  # type: ignore[return-value]

    def finish(self, value: T) -> None:
        """The operation returned."""
        self.done = True
        self._value = value


class StreamTask(Generic[P]):
    """A streamed call under way. Pieces queue up in ``pieces``; ``ended`` is set when no more come."""

    def __init__(self, streaming: Streaming[P], side: Side, host: str) -> None:
        self.streaming = streaming
        self.side = side
        self.host = host
        self.pieces: deque[P] = deque()
        self.opened = False
        self.ended = False
        self.broke: Broke | None = None
        self.refused: NoDraft | Unusable | None = None
        self.error_reply: HttpReply | None = None
        self.call_id = -1
        self.retried = False


class Calls:
    """The open calls of one run. ``now`` is the driver's clock at the last event. ``unbooked``: the billed
    call whose cost is not booked yet.
    """

    def __init__(self, at: float) -> None:
        self.now = at
        self.unbooked: int | None = None
        self._next_id = 0
        self._open: dict[int, OpTask[object] | StreamTask[object]] = {}

    def _start(self, request: HttpRequest, task: OpTask[T] | StreamTask[P]) -> Steps[None]:
        self._next_id += 1
        task.call_id = self._next_id
        self._open[self._next_id] = task  # type: ignore[assignment]
        if request.billed:
            self.unbooked = self._next_id
        yield Start(self._next_id, task.side, request, task.host)

    def _advance(self, task: OpTask[T], reply: HttpReply | None, *, first: bool = False) -> Steps[None]:
        try:
            request = next(task.op) if first else task.op.send(reply)
        except StopIteration as stop:
            task.finish(stop.value)
            return
        if request.billed and task.latest is not None and self.now >= task.latest:
            return
        yield from self._start(request, task)

    def op(self, op: Op[T], side: Side, host: str = "", *, latest: float | None = None) -> Steps[OpTask[T]]:
        """Begin an operation. ``latest``: the time (of the driver's clock) after which it begins no billed call."""
        task = OpTask(op, side, host, latest)
        yield from self._advance(task, None, first=True)
        return task

    def stream(self, streaming: Streaming[P], side: Side, host: str = "") -> Steps[StreamTask[P]]:
        """Begin a streamed call."""
        task = StreamTask(streaming, side, host)
        yield from self._start(streaming.request, task)
        return task

    def step(self, seconds: float | None = None) -> Steps[bool]:
        """Wait for one event of any open call and act on it; false when the seconds ran out.

        At least one call must be open: a wait for nothing would never end.
        """
        assert self._open
        event = yield WaitAny(tuple(self._open), None if seconds is None else max(0.0, seconds))
        assert event is not None and not isinstance(event, Cancelled | Risked | Checked)
        self.now = max(self.now, event.at)
        if isinstance(event, TimedOut):
            return False
        self._forgive(event)
        task = self._open.get(event.call_id)
        if isinstance(task, OpTask):
            yield from self._op_event(task, event)
        elif task is not None:
            yield from self._stream_event(task, event)
        return True

    def _forgive(self, event: Answered | Opened | Received | Closed | Broke) -> None:
        refused = isinstance(event, Answered) and event.reply.status >= 300
        unsent = isinstance(event, Broke) and event.kind not in _MAYBE_BILLED
        if event.call_id == self.unbooked and (refused or unsent):
            self.unbooked = None

    def _op_event(self, task: OpTask[object], event: Event) -> Steps[None]:
        del self._open[task.call_id]
        if isinstance(event, Answered):
            task.broke = None
            if task.call_id == self.unbooked:
                task.billed_reply = event.reply
            yield from self._advance(task, event.reply)
        else:
            assert isinstance(event, Broke)
            task.broke = event
            yield from self._advance(task, None)

    def _stream_event(self, task: StreamTask[object], event: Event) -> Steps[None]:
        if isinstance(event, Opened):
            task.opened = True
        elif isinstance(event, Received):
            task.pieces.extend(task.streaming.decoder.feed(event.data))
        else:
            del self._open[task.call_id]
            if isinstance(event, Closed):
                task.pieces.extend(task.streaming.decoder.close())
                task.ended = True
            elif isinstance(event, Broke):
                task.broke = event
                task.ended = True
            else:
                assert isinstance(event, Answered)
                yield from self._refused(task, event.reply)

    def _refused(self, task: StreamTask[object], reply: HttpReply) -> Steps[None]:
        answer = task.streaming.on_error(reply)
        if isinstance(answer, Streaming) and not task.retried:
            task.retried = True
            task.streaming = answer
            yield from self._start(answer.request, task)
            return
        task.error_reply = reply
        task.refused = NoDraft("no_draft", "the host refused twice") if isinstance(answer, Streaming) else answer
        task.ended = True

    def cancel(self, task: OpTask[T] | StreamTask[P], *, linger: bool = False) -> Steps[None]:
        """Give up a task. Nothing happens when it has ended."""
        if self._open.pop(task.call_id, None) is not None:
            yield Cancel(task.call_id, linger)

    def run_op(self, op: Op[T], side: Side, host: str = "", *, latest: float | None = None) -> Steps[OpTask[T]]:
        """Begin an operation and wait for its end (other open calls move on meanwhile). One that has not ended at
        ``latest`` is given up, and is not ``done`` then.
        """
        task = yield from self.op(op, side, host, latest=latest)
        while task.call_id in self._open:
            if not (yield from self.step(None if latest is None else latest - self.now)):
                yield from self.cancel(task)
        return task


def until_left(steps: Steps[None], left: Callable[[], Steps[None]]) -> Run:
    """The steps, until they end or the caller is gone (``Cancelled``, in answer to whatever was yielded): then what
    ``left`` notes, unless the reply had ended.
    """
    answer: Event | None = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration:
            return
        answer = yield effect
        if isinstance(answer, Cancelled):
            steps.close()
            if not isinstance(effect, Finish | GoDirect):
                yield from left()
                yield Note("abandoned", {})
            return
