"""The engine in hand: what it asks for, in which order, and what it makes of every answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from engine_kit import Books, Proposing, TextTarget, alone, asked, job, pinned, ran

from cheapspec.core.acceptance import Alternative, DraftToken, TargetLogprob
from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Cancelled,
    Emit,
    GoDirect,
    HttpReply,
    HttpRequest,
    Note,
    Op,
    Opened,
    Received,
    Side,
    Source,
    Start,
    Usage,
    WaitAny,
)
from cheapspec.core.engine import Policy, run
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Context, DraftPiece, NextToken, NoDraft, Score, Streaming, Unusable
from cheapspec.core.request import Request
from cheapspec.testing.scripted import ScriptedDrafter, ScriptedTarget, answers, play

REPLY = "The capital of France is Paris and it is big."
LONG = Policy(draft_tokens=100)


@dataclass
class Bent(ScriptedTarget):
    """A scripted target whose score and advance may be bent: ``score_bent`` from round ``since`` on."""

    bend: Callable[[Any], Any] = lambda found: found
    bend_advance: Callable[[Any], Any] = lambda found: found
    since: int = 0
    scored: int = 0

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        self.scored += 1
        found = yield from super().score(request, context, draft)
        return self.bend(found) if self.scored > self.since else found

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        found = yield from super().advance(request, context, draft, score, accepted, follow)
        return self.bend_advance(found) if self.scored > self.since else found


def on(purpose: str, *faults: Any) -> Callable[[Start, int], Any]:
    """The n-th call of a purpose meets the n-th fault; the last one goes on for ever."""

    def fault(start: Start, earlier: int) -> Any:
        return faults[min(earlier, len(faults) - 1)] if start.request.purpose == purpose else None

    return fault


# --- the beginning ----------------------------------------------------------------------------------------


def test_tokenizing_and_drafting_run_side_by_side() -> None:
    """Both calls are begun before anything is waited for; the wait is for either, until the draft's deadline."""
    model = pinned(REPLY)
    steps = run(
        job(asked(), ScriptedTarget(model), [ScriptedDrafter(model)], policy=Policy(draft_tokens=9, draft_seconds=5.0))
    )
    effects = [steps.send(None) for _ in range(3)]
    assert [(one.side, one.request.purpose) for one in effects if isinstance(one, Start)] == [
        (Side.TARGET, "tokenize"),
        (Side.DRAFT, "draft"),
    ]
    assert effects[2] == WaitAny((1, 2), 5.0)


def test_one_good_round_is_a_whole_reply() -> None:
    """Draft, score, and the verified end: three calls, one of them paid."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, [ScriptedDrafter(model)], policy=LONG)
    assert outcome.played.purposes() == ["tokenize", "draft", "score"]
    assert outcome.played.emitted == [Emit(REPLY, Source.DRAFT)]
    assert outcome.end == alone(model, asked())
    assert outcome.tally.rounds == 1 and outcome.tally.drafter == "scripted"
    assert outcome.tally.accepted_tokens == outcome.tally.drafted_tokens == outcome.end.tokens - 1


def test_without_drafters_it_goes_direct_at_once() -> None:
    """The tokenizing is given up, nothing is waited for."""
    steps = run(job(asked(), ScriptedTarget(pinned(REPLY)), []))
    assert [type(effect) for effect in steps] == [Start, Cancel, GoDirect]


def test_without_a_context_it_goes_direct_at_once() -> None:
    """A draft under way is given up as soon as tokenizing has failed; why, the ledger learns."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, fault=on("tokenize", HttpReply(404, b"")), policy=LONG)
    assert outcome.played.direct == GoDirect("cannot_score", "the prompt could not be tokenized")
    assert [effect.call_id for effect in outcome.played.cancelled] == [2]
    assert [note.kind for note in outcome.played.notes] == ["no_draft", "unusable"]
    assert outcome.played.seconds < 1 and not outcome.tally.usages


def test_a_context_that_fails_after_the_draft_came() -> None:
    """The draft is worth nothing then."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, [Proposing([REPLY])], fault=on("tokenize", Broke(0, "timeout")), policy=LONG)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "cannot_score"


def test_a_limit_of_nothing_goes_direct() -> None:
    """What a server makes of max_tokens 0 is the server's to say."""
    outcome = ran(asked(max_tokens=0), pinned(REPLY))
    assert outcome.played.direct is not None and outcome.played.direct.reason == "no_draft"
    assert outcome.played.purposes() == ["tokenize"]


# --- drafters -----------------------------------------------------------------------------------------------


def test_a_deadline_without_text_goes_direct_and_a_cold_host_lingers() -> None:
    """No further host is asked: the time is up."""
    model = pinned(REPLY)
    drafter, target = ScriptedDrafter(model), ScriptedTarget(model)
    given = job(
        asked(), target, [drafter, ScriptedDrafter(model, "other")], policy=Policy(draft_tokens=9, draft_seconds=4.0)
    )
    played = play(run(given), lambda start: None if start.side is Side.DRAFT else target.answer(start))
    assert played.direct == GoDirect("draft_deadline", "scripted gave no text in time")
    assert played.cancelled == [Cancel(2, linger=True)]
    assert 4.0 <= played.seconds < 5.0


def test_a_deadline_with_text_uses_the_text() -> None:
    """The draft so far is scored; a slow stream is hung up on at the deadline."""
    model = pinned(REPLY)
    given = job(
        asked(), ScriptedTarget(model), [ScriptedDrafter(model)], policy=Policy(draft_tokens=99, draft_seconds=2.0)
    )
    steps = run(given)
    opening, drafting, _ = (steps.send(None) for _ in range(3))
    assert isinstance(opening, Start) and isinstance(drafting, Start)
    lines = ScriptedDrafter(model).answer(drafting)
    assert lines is not None and not isinstance(lines, HttpReply | Broke)
    reply = ScriptedTarget(model).answer(opening)
    assert isinstance(reply, HttpReply)
    assert steps.send(Answered(1, reply, 0.5)) == WaitAny((2,), 1.5)
    assert steps.send(Opened(2, 200, {}, 1.0)) == WaitAny((2,), 1.0)
    assert steps.send(Received(2, next(iter(lines)), 2.5)) == Cancel(2)
    assert steps.send(None) == Note("drafted", {"drafter": "scripted", "tokens": 1, "seconds": 2.5})
    scoring = steps.send(None)
    assert isinstance(scoring, Start) and scoring.request.body is not None and scoring.request.body["draft"] == "The"
    assert given.tally.seconds_draft == 2.5


@pytest.mark.parametrize(
    ("fault", "reason", "broken"),
    [
        (Broke(0, "busy", "two at a time"), "draft_busy", False),
        (Broke(0, "connect", "refused"), "no_draft", True),
        (HttpReply(503, b""), "draft_busy", True),
    ],
)
def test_a_drafter_that_fails_gives_way_to_the_next(fault: Any, reason: str, broken: bool) -> None:
    """It is noted with the reason, not asked again in this request; alone, it means direct."""
    model = pinned(REPLY)
    first, second = ScriptedDrafter(model, name="first"), Proposing(["The capital", " of", " France"])
    outcome = ran(asked(), model, [first, second], fault=on("draft", fault))
    assert outcome.end == alone(model, asked()) and outcome.played.purposes().count("draft") == 1
    (note,) = (note for note in outcome.played.notes if note.kind == "no_draft")
    assert (note.data["drafter"], note.data["reason"], note.data["broken"]) == ("first", reason, broken)
    outcome = ran(asked(), model, [first], fault=on("draft", fault))
    assert outcome.played.direct is not None and outcome.played.direct.reason == reason


def test_the_first_drafter_with_something_to_say_is_taken() -> None:
    """One that has nothing now may have something in the next round."""
    model = pinned(REPLY)
    outcome = ran(
        asked(), model, [Proposing(["", " of France is"]), ScriptedDrafter(model)], policy=Policy(draft_tokens=2)
    )
    assert outcome.end == alone(model, asked())
    scored = [
        call.request.body["draft"]
        for call in outcome.played.calls
        if call.request.body and call.request.purpose == "score"
    ]
    assert scored[0] == "The capital" and scored[1] == " of Fran"


# --- rounds ---------------------------------------------------------------------------------------------------


def test_a_correction_is_the_targets_and_the_next_round_goes_on_after_it() -> None:
    """A given text goes on after a replaced word without being proposed again."""
    model = pinned(REPLY)
    wrong = REPLY.replace("France", "Spain")
    outcome = ran(asked(), model, [Proposing([wrong], size=50)], policy=LONG)
    assert outcome.end == alone(model, asked())
    assert Emit(" France", Source.TARGET) in outcome.played.emitted
    assert outcome.played.purposes() == ["tokenize", "score", "score"]
    assert (outcome.tally.corrected_tokens, outcome.tally.rounds) == (1, 2)


def test_a_model_is_asked_anew_after_a_replaced_word() -> None:
    """Its text after its own error is worth little."""
    model = pinned(REPLY)
    wrong = pinned(REPLY.replace("France", "Spain"))
    outcome = ran(asked(), model, [ScriptedDrafter(wrong)], policy=LONG)
    assert outcome.end == alone(model, asked())
    assert outcome.played.purposes()[:5] == ["tokenize", "draft", "score", "draft", "score"]


def test_a_models_draft_goes_on_where_the_target_left_something_out() -> None:
    """The correction stands further on in the draft and most of it is left: no new draft is needed."""
    reply = "The capital of France is Paris and it is big and small and large."
    model, wordy = pinned(reply), pinned(reply.replace("The capital", "The big capital"))
    outcome = ran(asked(), model, [ScriptedDrafter(wordy)], policy=LONG)
    assert outcome.end == alone(model, asked()) and outcome.played.purposes().count("draft") == 1


def test_what_was_drafted_and_not_yet_scored_is_scored_next() -> None:
    """Where the target's own token is the draft's next one, the rest of the draft is as good as before."""
    model = pinned(REPLY)
    sure, doubtful = ["The", " capital", " of"], [" France", " is", " Paris", " and", " it", " is", " big", "."]
    drafts = [*(DraftToken(text, -0.01) for text in sure), *(DraftToken(text, -0.8) for text in doubtful)]

    class Sure(ScriptedDrafter):
        def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
            streaming = yield from super().draft(request, prefix, max_tokens)
            assert isinstance(streaming, Streaming)
            return replace(streaming, decoder=_Fixed([DraftPiece(tuple(drafts), "stop")]))

    prices, near = Prices(Decimal(1), Decimal(8)), ContextPrices(0.0, 0.0, 0.0)
    outcome = ran(asked(), model, [Sure(model)], policy=Policy(), prices=prices, context_prices=near)
    assert outcome.end == alone(model, asked())
    assert outcome.played.purposes()[:4] == ["tokenize", "draft", "score", "score"]
    calls = [call.request for call in outcome.played.calls]
    scored = [str((call.body or {})["draft"]) for call in calls if call.purpose == "score"]
    assert scored[0].startswith("The capital of France") and REPLY.startswith(scored[0]) and scored[1]
    follows = REPLY[len(scored[0]) :].split(scored[1])[0]
    assert len(follows.split()) == 1  # the target's own token, between the two


@dataclass
class _Fixed:
    """A decoder that knows what it will read."""

    pieces: list[DraftPiece]

    def feed(self, data: bytes) -> list[DraftPiece]:
        return []

    def close(self) -> list[DraftPiece]:
        return self.pieces


def test_b15_the_end_of_a_draft_is_only_a_claim() -> None:
    """A draft that stops early is not the end of the reply; one that goes on too long is ended by the target."""
    model = pinned(REPLY)
    early = ran(asked(), model, [ScriptedDrafter(pinned("The capital"))], policy=LONG)
    late = ran(asked(), model, [ScriptedDrafter(pinned(REPLY + " Yes it is"))], policy=LONG)
    assert early.end == late.end == alone(model, asked())
    assert late.played.purposes() == ["tokenize", "draft", "score"]


@pytest.mark.parametrize("limit", range(1, 11))
def test_the_limit_ends_the_reply_wherever_it_falls(limit: int) -> None:
    """Inside the accepted tokens, at the correction, at the bonus token, in the hand-off."""
    model, request = pinned(REPLY), asked(max_tokens=limit)
    for drafted in (REPLY, "The capital of", "The capital of Spain"):
        assert ran(request, model, [Proposing([drafted], size=50)], policy=LONG).end == alone(model, request)


def test_a_limit_inside_a_character_is_left_to_the_target() -> None:
    """What half a character looks like at the end, only the target can say."""
    model = pinned("a🙂🙂")
    for limit in range(1, 9):
        outcome = ran(asked(max_tokens=limit), model, [Proposing(["a🙂🙂"], size=50)], policy=LONG)
        assert outcome.end == alone(model, asked(max_tokens=limit))


def test_a_correction_inside_a_character_joins_the_accepted_part() -> None:
    """``é`` and ``ü`` share their first byte: it is accepted, the second one corrected, ``ü`` is shown whole."""
    model = pinned("The ü is big")
    outcome = ran(asked(), model, [Proposing(["The é is big"], size=50)], policy=LONG)
    assert outcome.end == alone(model, asked())
    assert Emit("ü", Source.TARGET) in outcome.played.emitted


def test_a_correction_that_is_no_text_is_left_to_the_hand_off() -> None:
    """Part of a character cannot be shown, and a new draft would only meet it again."""
    model = pinned("The 🙂 is big")
    outcome = ran(asked(), model, [Proposing(["The  big"] * 5, size=50)], policy=LONG)
    assert outcome.end == alone(model, asked())
    assert outcome.played.purposes() == ["tokenize", "score", "continue"]


def test_a_draft_of_control_tokens_is_never_sent() -> None:
    """Cut to nothing it is no draft: direct before the first round, hand-off after it."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, [Proposing(["<|im_end|>The"])], policy=LONG)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "no_draft"
    outcome = ran(asked(), model, [Proposing(["The capital", "<|im_end|>"])], policy=LONG)
    assert outcome.end == alone(model, asked())


def test_what_does_not_pay_is_not_bought() -> None:
    """By plan: direct before the first round, hand-off once no draft could pay any more."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, policy=Policy(), prices=Prices(Decimal(5), Decimal(5)))
    assert outcome.played.direct is not None and outcome.played.direct.reason == "not_worth_it"
    outcome = ran(asked(), model, policy=Policy())
    assert outcome.played.direct is not None and outcome.played.direct.reason == "price_unknown"
    outcome = ran(
        asked(),
        model,
        [Proposing(["The capital of"], size=50)],
        policy=Policy(),
        prices=Prices(Decimal(1), Decimal(99)),
    )
    assert outcome.end == alone(model, asked())


def test_a_target_that_says_its_prompt_tokens_late() -> None:
    """The first score tells them; the reply's usage has them."""
    model = pinned(REPLY)

    class Late(ScriptedTarget):
        def open(self, request: Request) -> Op[Context | Unusable]:
            opened = yield from super().open(request)
            return replace(opened, prompt_tokens=None) if isinstance(opened, Context) else opened

    outcome = ran(asked(), model, target=Late(model), policy=LONG)
    assert outcome.played.finish is not None
    assert outcome.played.finish.usage.input_tokens == len(model.encode(model.render(asked().messages)))


def test_a_forced_target_serves_as_well() -> None:
    """The same evidence at output price."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, target=ScriptedTarget(model, can_score=False, can_force=True), policy=LONG)
    assert outcome.end == alone(model, asked()) and outcome.played.purposes()[-1] == "force"


# --- no evidence ------------------------------------------------------------------------------------------------


def unnumbered(score: Score) -> Score:
    return replace(score, tokens=tuple(replace(token, logprob=float("nan")) for token in score.tokens))


BENT: dict[str, Callable[[Any], Any]] = {
    "b20_no_number": unnumbered,
    "b22_no_distribution": lambda score: replace(score, trusted=False),
    "b24_no_tokens": lambda score: replace(score, tokens=(), ends=()),
    "b25_other_tokens": lambda score: replace(score, ends=score.ends[:-1]),
    "unusable": lambda score: Unusable("cannot_score", "the reply has no log-probabilities", lasting=True),
}


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_no_evidence_is_never_accepted(name: str, stream: bool) -> None:
    """Before text was shown: direct. After that: hand-off. Both ways the reply is the target's and the call is paid."""
    model = pinned(REPLY)
    bad = ran(asked(stream=stream), model, target=Bent(model, bend=BENT[name]))
    assert bad.played.direct is not None and bad.played.direct.reason == "cannot_score"
    assert not bad.text and bad.tally.accepted_tokens == 0 and bad.tally.unverified_tokens > 0
    assert len(bad.tally.usages) == 1
    late = ran(asked(stream=stream), model, target=Bent(model, bend=BENT[name], since=1))
    if stream:
        assert late.end == alone(model, asked()) and late.played.purposes()[-1] == "continue"
    else:
        assert late.played.direct is not None and REPLY.startswith(late.text)
    assert len(late.tally.usages) == len(late.books.billed) == (3 if stream else 2)
    assert [note.data["reason"] for note in late.played.notes if note.kind == "unusable"] == ["cannot_score"]


@pytest.mark.parametrize("since", [0, 1])
@pytest.mark.parametrize("stream", [True, False])
def test_a_draft_that_cannot_be_judged_leaves_what_was_verified(since: int, stream: bool) -> None:
    """Where nothing is wrong with the verified reply the target goes on from it: cheaper than to begin again."""
    unfit = Unusable("cannot_score", "a token stands across the seam", continues=True)
    model = pinned(REPLY)
    outcome = ran(asked(stream=stream), model, target=Bent(model, bend=lambda score: unfit, since=since))
    if since:
        assert outcome.end == alone(model, asked()) and outcome.played.purposes()[-1] == "continue"
    else:
        assert outcome.played.direct is not None and not outcome.text


def test_b20_accepted_up_to_the_first_unusable_number() -> None:
    """What stands before it holds; the target writes on from there."""

    def half(score: Score) -> Score:
        return replace(score, tokens=(*score.tokens[:2], *unnumbered(score).tokens[2:]))

    model = pinned(REPLY)
    outcome = ran(asked(), model, target=Bent(model, bend=half), policy=LONG)
    assert outcome.end == alone(model, asked())
    assert (outcome.tally.accepted_tokens, outcome.tally.unverified_tokens) == (2, 1)
    assert outcome.played.purposes() == ["tokenize", "draft", "score", "continue"]


CHANGED: dict[str, Callable[[Context], Any]] = {
    "unusable": lambda context: Unusable("cannot_score", "a scored token has no id"),
    "other text": lambda context: replace(context, text="something else"),
    "fewer tokens": lambda context: replace(context, tokens=-1),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("since", [0, 1])
def test_verified_text_that_cannot_be_put_together(name: str, since: int) -> None:
    """Nothing of that round is accepted."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, target=Bent(model, bend_advance=CHANGED[name], since=since))
    assert outcome.tally.rounds == since
    if since:
        assert outcome.end == alone(model, asked())
    else:
        assert outcome.played.direct is not None and not outcome.text


def test_a_bonus_token_counts_only_at_the_drafts_very_end() -> None:
    """A server that leaves the draft's last characters unscored says nothing about what follows them."""

    def without_last(score: Score) -> Score:
        return replace(score, tokens=score.tokens[:-1], ends=score.ends[:-1])

    model = pinned(REPLY)
    outcome = ran(asked(), model, target=Bent(model, bend=without_last), policy=Policy(draft_tokens=4))
    assert outcome.end == alone(model, asked()) and outcome.tally.corrected_tokens == 0


def test_a_turn_cannot_end_inside_a_character() -> None:
    """A claim that it does is left to the hand-off."""

    def correction(score: Score) -> Score:
        last = score.tokens[3]
        end = Alternative("", -0.1, model.end_id)
        bad = TargetLogprob(last.text, -9.0, last.token_id, None, (end,))
        return replace(score, tokens=(*score.tokens[:3], bad, *score.tokens[4:]))

    model = pinned("The 🙂 is big")  # The, space, and four bytes
    outcome = ran(
        asked(), model, [Proposing(["The 🙂 is big"], size=50)], target=Bent(model, bend=correction), policy=LONG
    )
    assert outcome.end == alone(model, asked())
    assert outcome.text == "The 🙂 is big" and outcome.played.purposes()[-1] == "continue"


def test_paid_replies_without_evidence_are_booked_by_their_own_usage() -> None:
    """B24: a reply of status 200 was paid for, whatever it lacks; an OpenAI-shaped usage in it is believed."""
    model = pinned(REPLY)
    for body, want in (
        ({"usage": {"prompt_tokens": 31, "completion_tokens": 1}}, Usage(31, 1)),
        ({}, Usage(20, 1, estimated=True)),
    ):
        reply = HttpReply(200, json.dumps(body).encode())

        class Blind(ScriptedTarget):
            def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
                yield HttpRequest("score", "score", {"ids": [], "draft": draft}, billed=True)
                return Unusable("cannot_score", "the reply has no log-probabilities", lasting=True)

        given = job(asked(), Blind(model), [Proposing(["Th"], size=2)])
        other = answers(None, ScriptedTarget(model))
        played = play(run(given), lambda start: reply if start.request.purpose == "score" else other(start))  # noqa: B023
        assert played.direct is not None and given.tally.usages == [want]


def test_a_lost_answer_may_have_been_billed() -> None:
    """A time-out on a scoring call is counted by estimate: the context, the draft and one token."""
    model = pinned(REPLY)
    given = job(asked(), ScriptedTarget(model), [Proposing(["The"], size=1)])
    other = answers(None, ScriptedTarget(model))
    lost = Broke(0, "timeout")
    played = play(run(given), lambda start: lost if start.request.purpose == "score" else other(start))
    prompt = len(model.encode(model.render(asked().messages)))
    assert played.direct is not None and given.tally.usages == [Usage(prompt + 3, 1, estimated=True)]


# --- text routes, stop strings, the caller ------------------------------------------------------------------------


def test_a_text_route_shows_only_what_a_continuation_may_follow() -> None:
    """The reply is whole in the end, and nothing that was shown is written again."""
    model = pinned(REPLY)
    for alpha in (0.0, 0.5, 1.0):
        drafter = ScriptedDrafter(model.twin(alpha))
        assert ran(asked(), model, [drafter], target=TextTarget(model)).end == alone(model, asked())


def test_b18_a_stop_string_inside_the_accepted_part() -> None:
    """Text, reason and token count are those of a target that stops there; no further call is made."""
    model = pinned("ok\nUser: hi there")
    for size in (1, 50):
        request = asked(stops=["\nUser:"])
        for target in (ScriptedTarget(model), TextTarget(model)):
            outcome = ran(request, model, [Proposing(["ok\nUser: hi there"], size)], target=target, policy=LONG)
            assert outcome.end == alone(model, request)
            assert outcome.text == "ok" and outcome.played.purposes() == ["tokenize", "score"]


def test_the_caller_leaves_in_the_hand_off() -> None:
    """What has arrived is booked, shown or not."""
    model = pinned(REPLY)
    given = job(asked(), ScriptedTarget(model), [Proposing(["The"], size=50)], policy=LONG)
    books = Books(answers(None, ScriptedTarget(model)))
    played = play(run(given), books, leave_after=5)
    assert [note.kind for note in played.notes][-2:] == ["usage", "abandoned"]
    assert given.tally.usages[-1].estimated and given.tally.usages[-1].output_tokens == 3


@pytest.mark.parametrize("last", ["finish", "direct"])
def test_a_driver_that_leaves_after_the_end_hears_nothing_more(last: str) -> None:
    """The reply was whole: nobody abandoned it."""
    model = pinned(REPLY)
    given = job(asked(), ScriptedTarget(model), [] if last == "direct" else [Proposing([REPLY])], policy=LONG)
    steps, told = run(given), None
    target = ScriptedTarget(model)
    queue: list[Any] = []
    while True:
        effect = steps.send(told)
        told = None
        if isinstance(effect, Start):
            queue.append((effect.call_id, target.answer(effect)))
        elif isinstance(effect, WaitAny):
            told = Answered(*queue.pop(0))
        elif not isinstance(effect, Emit | Note | Cancel):
            break
    assert (last == "direct") == isinstance(effect, GoDirect)
    with pytest.raises(StopIteration):
        steps.send(Cancelled())
