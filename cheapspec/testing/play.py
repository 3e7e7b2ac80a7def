"""Obeys a run of the engine in virtual time: no clock, no thread, no server.

Rules
-----
* Every event takes a millisecond, a wait that nothing ends takes as long as it says. Nothing sleeps.
* The permit, where there is one, answers what may be risked; without one everything may.
* What is to be checked is checked at once, here.
* Calls are answered by a function from a :class:`~cheapspec.core.effects.Start` to a reply, a broken
  call, or nothing (a server that hangs).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field

from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Cancelled,
    Check,
    Checked,
    Closed,
    Effect,
    Emit,
    Event,
    Finish,
    GoDirect,
    HttpReply,
    Note,
    Opened,
    Received,
    Risk,
    Risked,
    Start,
    TimedOut,
    WaitAny,
)
from cheapspec.core.ports import Permit

__all__ = ["Answer", "Played", "play"]

Answer = HttpReply | Iterable[bytes] | Broke | None


@dataclass(slots=True)
class Played:
    """What a run did. ``calls``: every call begun, in order; ``cancelled``: those given up."""

    emitted: list[Emit] = field(default_factory=list[Emit])
    notes: list[Note] = field(default_factory=list[Note])
    calls: list[Start] = field(default_factory=list[Start])
    cancelled: list[Cancel] = field(default_factory=list[Cancel])
    finish: Finish | None = None
    direct: GoDirect | None = None
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Everything the caller was given."""
        return "".join(piece.text for piece in self.emitted)

    def purposes(self) -> list[str]:
        """What the calls were for, in order."""
        return [call.request.purpose for call in self.calls]


def play(
    run: Generator[Effect, Event | None, None],
    answer: Callable[[Start], Answer],
    *,
    leave_after: int | None = None,
    event_seconds: float = 0.001,
    permit: Permit | None = None,
) -> Played:
    """Obey a run to its end. ``leave_after``: the caller is gone after so many pieces of text.

    Raises :class:`RuntimeError` when the engine waits for a call that never answers, without a limit.
    """
    played = Played()
    queues: dict[int, deque[Event]] = {}
    told: Event | None = None
    gone = False
    while True:
        try:
            effect = run.send(told)
        except StopIteration:
            return played
        told = None
        match effect:
            case Start():
                played.calls.append(effect)
                queues[effect.call_id] = deque(_events(effect, answer(effect)))
            case WaitAny():
                leaving = leave_after is not None and len(played.emitted) >= leave_after and not gone
                gone = gone or leaving
                told = Cancelled() if leaving else _next_event(effect, queues, played, event_seconds)
                played.seconds += 0.0 if isinstance(told, TimedOut) else event_seconds
                told = _at(told, played.seconds)
            case Cancel():
                played.cancelled.append(effect)
                queues.pop(effect.call_id, None)
            case Emit():
                played.emitted.append(effect)
            case Risk(worst):
                granted = permit is None or permit.admit(worst)
                told = Risked(granted if isinstance(granted, bool) else granted.value is True, played.seconds)
            case Check(work):
                told = Checked(work(), played.seconds)
            case Finish():
                played.finish = effect
            case GoDirect():
                played.direct = effect
            case Note():
                played.notes.append(effect)


def _events(start: Start, reply: Answer) -> list[Event]:
    call = start.call_id
    if reply is None:
        return []
    if isinstance(reply, Broke):
        return [Broke(call, reply.kind, reply.message)]
    if isinstance(reply, HttpReply):
        if not start.request.stream or reply.status >= 300:
            return [Answered(call, reply)]
        return [Opened(call, reply.status, reply.headers), Received(call, reply.body), Closed(call)]
    return [Opened(call, 200, {}), *(Received(call, part) for part in reply), Closed(call)]


def _next_event(effect: WaitAny, queues: Mapping[int, deque[Event]], played: Played, event_seconds: float) -> Event:
    for call in effect.call_ids:
        if queues.get(call):
            return queues[call].popleft()
    if effect.seconds is None:
        purposes = [start.request.purpose for start in played.calls if start.call_id in effect.call_ids]
        raise RuntimeError(f"the engine waits without a limit for calls that do not answer: {purposes}")
    played.seconds += effect.seconds
    return TimedOut()


def _at(event: Event, at: float) -> Event:
    match event:
        case Answered():
            return Answered(event.call_id, event.reply, at)
        case Opened():
            return Opened(event.call_id, event.status, event.headers, at)
        case Received():
            return Received(event.call_id, event.data, at)
        case Closed():
            return Closed(event.call_id, at)
        case Broke():
            return Broke(event.call_id, event.kind, event.message, at)
        case TimedOut():
            return TimedOut(at)
        case Risked():
            return Risked(event.granted, at)
        case Checked():
            return Checked(event.value, at)
        case Cancelled():
            return Cancelled(at)
