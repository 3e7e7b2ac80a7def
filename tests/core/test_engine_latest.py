"""``Policy.latest``: speculating ends at a time, whatever is under way then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine_kit import Proposing, asked, job, pinned

from cheapspec.core.effects import GoDirect, HttpReply, HttpRequest, Start
from cheapspec.core.engine import Job, Policy, run
from cheapspec.testing.scripted import Answer, Played, ScriptedTarget, play

REPLY = "The capital of France is Paris and it is big."


def planned(latest: float | None, *, stream: bool = True, texts: list[str] | None = None) -> Job:
    target = ScriptedTarget(pinned(REPLY))
    policy = Policy(draft_tokens=100, latest=latest)
    return job(asked(stream=stream), target, [Proposing(texts or [REPLY])], policy=policy)


def silent_from(given: Job, score: int) -> Callable[[Start], Answer]:
    """The target, which never answers its ``score``-th scoring call and those after it."""
    scores: list[Start] = []

    def answer(start: Start) -> Answer:
        if start.request.purpose == "score":
            scores.append(start)
            if len(scores) >= score:
                return None
        target: Any = given.target
        return target.answer(start)  # type: ignore[no-any-return]

    return answer


def cancelled_purposes(played: Played) -> list[str]:
    given_up = {effect.call_id for effect in played.cancelled}
    return [start.request.purpose for start in played.calls if start.call_id in given_up]


def test_no_score_is_begun_after_it() -> None:
    """The draft is there, the time is over: the request goes direct, and nothing was paid."""
    given = planned(0.5)
    played = play(run(given), silent_from(given, 1), event_seconds=1.0)
    assert isinstance(played.direct, GoDirect)
    assert played.direct.reason == "latency"
    assert played.purposes() == ["tokenize"]
    assert not given.tally.usages


@pytest.mark.parametrize("stream", [True, False])
def test_a_first_score_under_way_is_given_up_and_booked(stream: bool) -> None:
    """It is cancelled when the time is over, counted at what it may have cost, and the request goes direct."""
    given = planned(3.0, stream=stream)
    played = play(run(given), silent_from(given, 1))
    assert played.direct is not None
    assert played.direct.reason == "latency"
    assert cancelled_purposes(played) == ["score"]
    assert played.seconds == pytest.approx(3.0, abs=0.01)
    [usage] = given.tally.usages
    assert usage.estimated
    assert usage.output_tokens == 1
    assert usage.input_tokens > 0
    assert given.tally.accepted_tokens == 0


def test_a_later_score_under_way_is_given_up_and_the_target_goes_on() -> None:
    """What was shown stays, the target writes the rest, and the reply is whole."""
    given = planned(3.0, texts=["The capital of", " is Paris and it is big."])
    played = play(run(given), silent_from(given, 2))
    assert played.text == REPLY
    assert played.finish is not None
    assert played.finish.finish_reason == "stop"
    assert cancelled_purposes(played) == ["score"]
    assert played.purposes()[-3:] == ["score", "score", "continue"]
    assert [usage.estimated for usage in given.tally.usages] == [False, True, False]


def test_a_score_that_comes_late_all_the_same_counts() -> None:
    """Where the call could not be given up in its middle its answer is paid for and used; no round follows it."""
    given = planned(1.5, texts=["The capital of", " is Paris and it is big."])
    played = play(run(given), silent_from(given, 9), event_seconds=1.0)
    assert played.text == REPLY
    assert played.purposes() == ["tokenize", "score", "continue"]
    assert given.tally.rounds == 1


def test_without_it_nothing_ends_speculating() -> None:
    """Many slow rounds are as good as fast ones."""
    given = planned(None, texts=["The capital of", " is Paris and it is big."])
    played = play(run(given), silent_from(given, 9), event_seconds=100.0)
    assert played.text == REPLY
    assert played.purposes() == ["tokenize", "score", "score"]


class SlowToAdvance(ScriptedTarget):
    """Asks an unbilled question whenever a round is put together."""

    def advance(self, *arguments: Any) -> Any:
        yield HttpRequest("detokenize", "/detokenize")
        return (yield from super().advance(*arguments))


def test_no_later_score_is_begun_after_it() -> None:
    """After a round that was put together too late the next draft is not scored: the target writes the rest."""
    target = SlowToAdvance(pinned(REPLY))
    policy = Policy(draft_tokens=100, latest=2.5)
    given = job(asked(), target, [Proposing(["The capital", " of France", " is Paris"])], policy=policy)

    def answer(start: Start) -> Answer:
        if start.request.purpose == "detokenize":
            return HttpReply(200, b"{}")
        return target.answer(start)

    played = play(run(given), answer, event_seconds=1.0)
    assert played.text == REPLY
    assert played.purposes().count("score") == 1
    assert given.tally.rounds == 1
    assert given.tally.handoff_tokens > 0


def test_a_target_that_does_not_begin_in_time_gets_the_request_directly() -> None:
    """Tokenizing is waited for as little as anything else; nothing was paid by then."""
    work = planned(1.0)
    target = work.target
    assert isinstance(target, ScriptedTarget)

    def answer(start: Start) -> Answer:
        return None if "tokenize" in start.request.path else target.answer(start)

    played = play(run(work), answer)
    assert played.direct is not None and played.direct.reason == "latency"
    assert played.cancelled and not [call for call in played.calls if call.request.billed]
