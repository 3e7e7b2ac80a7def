"""Open calls: every event reaches the operation or stream it belongs to, and what may be billed stays known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cheapspec.core.calls import Calls
from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Closed,
    HttpReply,
    HttpRequest,
    Op,
    Opened,
    Received,
    Side,
    Start,
    TimedOut,
    WaitAny,
)
from cheapspec.core.ports import NoDraft, Streaming, Unusable

GOOD = HttpReply(200, b"{}")


class Bytes:
    """A decoder whose pieces are the bytes themselves, and a mark at the end."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data]

    def close(self) -> list[bytes]:
        return [b"end"]


def request(name: str = "a", **more: Any) -> HttpRequest:
    return HttpRequest(name, f"/{name}", **more)


def op(*requests: HttpRequest) -> Op[list[HttpReply | None]]:
    replies: list[HttpReply | None] = []
    for one in requests:
        replies.append((yield one))
    return replies


def streaming(on_error: Callable[[HttpReply], Any] | None = None, **more: Any) -> Streaming[bytes]:
    return Streaming(request("s", stream=True, **more), Bytes(), on_error or (lambda reply: Unusable("cannot_score")))


def drive(steps: Any, *events: Any) -> tuple[Any, list[Any]]:
    """Send events to waits and ``None`` to everything else; the result and the effects."""
    waiting, effects, told = list(events), list[Any](), None
    try:
        while True:
            effect = steps.send(told)
            effects.append(effect)
            told = waiting.pop(0) if isinstance(effect, WaitAny) else None
    except StopIteration as stop:
        assert not waiting
        return stop.value, effects


def test_two_operations_run_side_by_side() -> None:
    """Each gets its own replies, in whatever order they come; the clock follows the events."""
    calls = Calls(1.0)
    first, started = drive(calls.op(op(request("a"), request("b")), Side.TARGET))
    second, _ = drive(calls.op(op(request("c")), Side.DRAFT, "http://h"))
    assert started == [Start(1, Side.TARGET, request("a"))]
    assert drive(calls.step(), Answered(2, GOOD, 5.0)) == (True, [WaitAny((1, 2))])
    assert second.done and second.value == [GOOD] and not first.done and calls.now == 5.0
    _, effects = drive(calls.step(3.0), Answered(1, GOOD, 4.0))
    assert effects == [WaitAny((1,), 3.0), Start(3, Side.TARGET, request("b"))] and calls.now == 5.0
    drive(calls.step(-1.0), Broke(3, "cut"))
    assert first.done and first.value == [GOOD, None]


def test_seconds_run_out() -> None:
    """Nothing has happened, and the clock has moved; a wait is never negative."""
    calls = Calls(0.0)
    drive(calls.op(op(request()), Side.TARGET))
    assert drive(calls.step(-2.0), TimedOut(7.0)) == (False, [WaitAny((1,), 0.0)])
    assert calls.now == 7.0


def test_an_operation_that_needs_no_call_is_done_at_once() -> None:
    """It opens nothing."""
    task, effects = drive(Calls(0.0).run_op(op(), Side.TARGET))
    assert task.value == [] and effects == []


def test_the_last_broken_call_is_remembered_and_an_answered_one_forgets_it() -> None:
    """An operation that got over a broken call did not fail for it."""
    calls = Calls(0.0)
    task, _ = drive(calls.run_op(op(request(), request()), Side.DRAFT), Broke(1, "timeout"), Answered(2, GOOD))
    assert task.broke is None
    task, _ = drive(calls.run_op(op(request(), request()), Side.DRAFT), Answered(3, GOOD), Broke(4, "busy"))
    assert task.broke == Broke(4, "busy")


def test_a_stream_queues_its_pieces() -> None:
    """Opened, received, closed: the decoder's pieces in order."""
    calls = Calls(0.0)
    task, _ = drive(calls.stream(streaming(), Side.TARGET))
    drive(calls.step(), Opened(1, 200, {}))
    drive(calls.step(), Received(1, b"x"))
    assert task.opened and list(task.pieces) == [b"x"] and not task.ended
    drive(calls.step(), Closed(1))
    assert task.ended and list(task.pieces) == [b"x", b"end"] and task.broke is None


def test_a_broken_stream_claims_no_end() -> None:
    """The decoder is not told that the body ended in order."""
    calls = Calls(0.0)
    task, _ = drive(calls.stream(streaming(), Side.TARGET))
    drive(calls.step(), Broke(1, "cut", "gone"))
    assert task.ended and not task.pieces and task.broke == Broke(1, "cut", "gone")


def test_a_refused_stream_may_be_tried_once_in_another_way() -> None:
    """The second way's refusal is final, also if it names a third."""
    calls = Calls(0.0)
    task, _ = drive(calls.stream(streaming(lambda reply: streaming(lambda again: streaming())), Side.DRAFT, "http://h"))
    _, effects = drive(calls.step(), Answered(1, HttpReply(400, b"")))
    assert [effect.call_id for effect in effects if isinstance(effect, Start)] == [2] and not task.ended
    drive(calls.step(), Answered(2, HttpReply(400, b"no")))
    assert task.ended and task.refused == NoDraft("no_draft", "the host refused twice")
    assert task.error_reply == HttpReply(400, b"no")


def test_a_call_given_up_is_closed_once() -> None:
    """Its late events belong to nobody; giving up an ended call does nothing."""
    calls = Calls(0.0)
    task, _ = drive(calls.stream(streaming(), Side.DRAFT))
    drive(calls.op(op(request()), Side.TARGET))
    assert drive(calls.cancel(task, linger=True))[1] == [Cancel(1, linger=True)]
    assert drive(calls.cancel(task))[1] == []
    assert drive(calls.step(), Received(1, b"late"))[0] and not task.pieces


@pytest.mark.parametrize(
    ("event", "unbooked"),
    [
        (Answered(1, GOOD), True),
        (Answered(1, HttpReply(500, b"")), False),
        (Broke(1, "timeout"), True),
        (Broke(1, "cut"), True),
        (Broke(1, "connect"), False),
        (Broke(1, "exhausted"), False),
    ],
)
def test_what_may_be_billed_stays_to_be_booked(event: Answered | Broke, unbooked: bool) -> None:
    """An error status and a request that was never sent are free; a lost answer may not be."""
    calls = Calls(0.0)
    task, _ = drive(calls.run_op(op(request(billed=True)), Side.TARGET), event)
    assert calls.unbooked == (1 if unbooked else None)
    assert task.billed_reply == (GOOD if event == Answered(1, GOOD) else None)


def test_an_unbilled_call_of_the_same_operation_is_not_the_billed_one() -> None:
    """Tokenizing before and after the paid call changes nothing about it."""
    calls = Calls(0.0)
    other = HttpReply(200, b"[]")
    steps = calls.run_op(op(request("t"), request("p", billed=True), request("t")), Side.TARGET)
    task, _ = drive(steps, Answered(1, other), Answered(2, GOOD), Answered(3, HttpReply(500, b"")))
    assert calls.unbooked == 2 and task.billed_reply == GOOD


def test_waiting_for_nothing_is_a_fault() -> None:
    """A wait without an open call would never end."""
    with pytest.raises(AssertionError):
        next(Calls(0.0).step())


def test_an_operation_begins_no_billed_call_after_its_time() -> None:
    """The unbilled call before it was answered too late: the billed one is not begun, and the operation is not done."""

    def op() -> Op[int]:
        yield HttpRequest("tokenize", "/tokenize")
        yield HttpRequest("score", "completions", billed=True)
        return 1

    calls = Calls(1.0)
    steps = calls.run_op(op(), Side.TARGET, latest=5.0)
    started = next(steps)
    assert isinstance(started, Start)
    assert isinstance(steps.send(None), WaitAny)
    with pytest.raises(StopIteration) as ended:
        steps.send(Answered(started.call_id, HttpReply(200, b"{}"), 6.0))
    assert not ended.value.value.done
