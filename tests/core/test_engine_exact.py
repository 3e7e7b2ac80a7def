"""The theorem: whatever is drafted, the caller gets what the target alone would have given, and all money is counted.

Stop strings of one request never contain one another here: which of two that are complete with the same
token wins, servers decide differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from engine_kit import Books, Proposing, Ran, alone, asked, cut_stream, job, ran
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cheapspec.core.effects import Answered, Broke, Cancelled, Closed, HttpReply, Note, Opened, Received, Start, WaitAny
from cheapspec.core.engine import Policy, run
from cheapspec.core.money import Prices
from cheapspec.core.ports import Drafter
from cheapspec.core.request import Request
from cheapspec.testing.scripted import ScriptedDrafter, ScriptedTarget, answers
from cheapspec.testing.toy import ToyModel

EXAMPLES = settings(deadline=None, max_examples=120, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

words = st.sampled_from(
    [" the", "Paris", "é", "界", "🙂", "<|im_end|>", "<|im_start|>", "</s>", "<", "\ud800", "\n\n", " "]
)
garbage = st.lists(st.one_of(words, st.text(max_size=6)), max_size=6).map("".join)


@st.composite
def questions(draw: st.DrawFn) -> tuple[ToyModel, Request]:
    """A model and a request, with stop strings that the reply has good chances to contain."""
    model = ToyModel(draw(st.integers(0, 10**6)), ends=draw(st.sampled_from([3.0, 5.0, 6.0])))
    limit = draw(st.sampled_from([1, 2, 3, 5, 9, 17, 26]))
    text = alone(model, asked(max_tokens=limit)).text.rstrip("�")
    stops: list[str] = []
    for _ in range(draw(st.integers(0, 2)) if text else 0):
        begin = draw(st.integers(0, len(text) - 1))
        stop = text[begin : begin + draw(st.integers(1, 6))]
        if not any(stop in other or other in stop for other in stops):
            stops.append(stop)
    return model, asked(stream=draw(st.booleans()), stops=stops, max_tokens=limit)


@st.composite
def proposals(draw: st.DrawFn, truth: str) -> Proposing:
    """Drafts of the truth with errors in it, or of anything at all."""
    texts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        at, keep = draw(st.integers(0, len(truth))), draw(st.integers(0, 3))
        texts.append(draw(garbage) if draw(st.booleans()) else truth[:at] + draw(garbage) + truth[at + keep :])
    return Proposing(texts, size=draw(st.integers(1, 9)))


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A fixed length, or the planner with any prices."""
    if draw(st.booleans()):
        return {"policy": Policy(draft_tokens=draw(st.integers(1, 12)))}
    price = st.decimals(0, 60, places=2)
    return {"policy": Policy(), "prices": draw(st.one_of(st.none(), st.builds(Prices, price, price)))}


@st.composite
def casts(draw: st.DrawFn, model: ToyModel, truth: str) -> Sequence[Drafter]:
    """One to three drafters, the first of which may be a model behind a host."""
    twin = model.twin(draw(st.floats(0, 1)))
    out: list[Drafter] = [draw(st.one_of(st.just(ScriptedDrafter(twin)), proposals(truth)))]
    for _ in range(draw(st.integers(0, 2))):
        out.append(draw(st.one_of(st.just(ScriptedDrafter(twin, name="at-once", at_once=True)), proposals(truth))))
    return out


def assert_all_money_is_counted(outcome: Ran) -> None:
    """Every billed call once, in order, as reported; a call that was given up: exact input, output so far."""
    gone = {effect.call_id for effect in outcome.played.cancelled}
    assert len(outcome.tally.usages) == len(outcome.books.billed)
    for (call, billed), counted in zip(outcome.books.billed.items(), outcome.tally.usages, strict=True):
        if call in gone:
            assert counted.estimated and counted.input_tokens == billed.input_tokens
            assert 0 <= counted.output_tokens <= billed.output_tokens
        else:
            assert counted == billed


def assert_rounds_are_bounded(outcome: Ran, request: Request) -> None:
    """A round verifies a token or is the last, and the last token ends the reply: never more rounds than tokens."""
    assert request.max_tokens is not None
    assert outcome.books.seen.get("score", 0) <= request.max_tokens


@EXAMPLES
@given(data=st.data())
def test_the_reply_is_the_targets_own_and_all_money_is_counted(data: st.DataObject) -> None:
    """Text, finish reason and token count equal the target alone's, whatever is drafted, unless it went direct."""
    model, request = data.draw(questions())
    want = alone(model, request)
    drafters = data.draw(casts(model, alone(model, asked(max_tokens=request.max_tokens)).text))
    outcome = ran(request, model, drafters, split=data.draw(st.sampled_from([0, 1, 7])), **data.draw(plans()))
    assert_all_money_is_counted(outcome)
    assert_rounds_are_bounded(outcome, request)
    if outcome.played.direct is not None:
        assert want.text.startswith(outcome.text) and not (request.stream and outcome.text)
    else:
        assert outcome.end == want


@EXAMPLES
@given(data=st.data())
def test_trouble_never_shows_a_wrong_character_and_never_hides_a_cent(data: st.DataObject) -> None:
    """With failing calls the caller has a prefix of the target's reply, and what was billed is in the tally."""
    model, request = data.draw(questions())
    want = alone(model, request)
    failing = data.draw(st.integers(0, 3))
    faults: list[Any] = [
        HttpReply(500, b"{}"),
        HttpReply(200, b'{"tokens": [], "next": 300, "id": "x", "usage": {"input_tokens": 5, "output_tokens": 1}}'),
        lambda whole: Broke(0, "connect"),
    ]
    score_fault = data.draw(st.sampled_from([None, *faults]))
    stream_faults = [None, faults[0], cut_stream(0), cut_stream(2), cut_stream(1, error={"message": "overloaded"})]
    stream_fault = data.draw(st.sampled_from(stream_faults))

    def fault(start: Start, earlier: int) -> Any:
        chosen = {"score": score_fault, "continue": stream_fault}.get(start.request.purpose)
        return chosen if earlier >= failing or start.request.purpose == "continue" else None

    drafters = [ScriptedDrafter(model.twin(data.draw(st.floats(0.3, 1))))]
    outcome = ran(request, model, drafters, fault=fault, **data.draw(plans()))
    assert want.text.startswith(outcome.text)
    assert_all_money_is_counted(outcome)
    finish = outcome.played.finish
    assert (finish is None) != (outcome.played.direct is None)
    if finish is not None and finish.error is None:
        assert outcome.end == want


@pytest.mark.parametrize("seed", [0, 1, 2, 6, 8, 10])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_the_same_by_plain_enumeration(seed: int, alpha: float) -> None:
    """Small grid without a generator of cases: seeds, agreement, lengths of a draft, limits, stop strings."""
    model = ToyModel(seed, ends=5.0)
    for limit in (1, 2, 7, 16):
        for stops in ((), (" ",), (" x", ".")):
            for length in (1, 4, 32):
                request = asked(stops=stops, max_tokens=limit)
                policy = Policy(draft_tokens=length)
                outcome = ran(request, model, [ScriptedDrafter(model.twin(alpha))], policy=policy)
                assert_all_money_is_counted(outcome)
                assert_rounds_are_bounded(outcome, request)
                if outcome.played.direct is not None:  # the draft's only token was part of a character
                    assert outcome.played.direct.reason in {"no_draft", "rejected"} and not outcome.text
                else:
                    assert outcome.end == alone(model, request)


@pytest.mark.parametrize("limit", range(1, 12))
@pytest.mark.parametrize("length", [1, 3, 5, 12])
def test_every_limit_at_every_place(limit: int, length: int) -> None:
    """The limit may fall inside the accepted tokens, on the correction, on the bonus token or in the hand-off."""
    model = ToyModel(5, ends=4.0)
    request = asked(max_tokens=limit)
    for alpha in (0.0, 0.5, 0.8, 1.0):
        outcome = ran(request, model, [ScriptedDrafter(model.twin(alpha))], policy=Policy(draft_tokens=length))
        assert outcome.end == alone(model, request)


@pytest.mark.parametrize("split", [1, 2, 3, 5, 64])
def test_every_split_of_every_stream_gives_the_same_emissions(split: int) -> None:
    """How bytes arrive changes nothing that the caller sees."""
    for seed in range(5):
        model = ToyModel(seed, ends=5.0)
        request = asked(stops=["Paris"], max_tokens=24)
        drafters = [ScriptedDrafter(model.twin(0.6))]
        whole, cut = (ran(request, model, drafters, split=size).played for size in (0, split))
        assert cut.emitted == whole.emitted and cut.finish == whole.finish


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_after_the_caller_has_gone_only_notes_follow_and_the_money_is_counted(alpha: float) -> None:
    """At every yield of a run ``Cancelled`` may be sent: then only notes come, the last of them "abandoned"."""
    model, request = ToyModel(5, ends=4.0), asked(max_tokens=12)
    leave = 0
    while True:
        drafter, target = ScriptedDrafter(model.twin(alpha)), ScriptedTarget(model)
        books, given_job = Books(answers(drafter, target)), job(request, target, [drafter])
        finished, notes, unanswered = _leave_at(run(given_job), books, leave)
        if finished:
            break
        leave += 1
        assert notes[-1].kind == "abandoned"
        counted = given_job.tally.usages
        booked = [note for note in notes if note.kind == "usage"]
        assert len(counted) == len(books.billed)
        for usage, billed in zip(counted, books.billed.values(), strict=True):
            if usage.estimated:
                assert usage is counted[-1] and booked[-1].data["usage"] == usage and unanswered
            else:
                assert usage == billed
    assert leave > 10


def _leave_at(steps: Any, books: Books, leave: int) -> tuple[bool, list[Note], bool]:
    """Play ``leave`` effects, then send ``Cancelled``. Whether the run was over before, the notes after it."""
    queues: dict[int, list[Any]] = {}
    told: Any = None
    for _ in range(leave + 1):
        try:
            effect = steps.send(told)
        except StopIteration:
            return True, [], False
        told = None
        if isinstance(effect, Start):
            queues[effect.call_id] = _events(effect.call_id, books(effect))
        elif isinstance(effect, WaitAny):
            told = next(queues[call].pop(0) for call in effect.call_ids if queues[call])
    notes: list[Note] = []
    told = Cancelled()
    while True:
        try:
            effect = steps.send(told)
        except StopIteration:
            break
        assert isinstance(effect, Note), f"{effect} after the caller has gone"
        notes.append(effect)
        told = None
    over = not notes  # it had ended with Finish or GoDirect already
    return over, notes, True


def _events(call: int, reply: Any) -> list[Any]:
    """What a driver tells of an answer."""
    if isinstance(reply, HttpReply):
        return [Answered(call, reply)]
    return [Opened(call, 200, {}), *(Received(call, part) for part in reply), Closed(call)]


def test_a_target_that_confirms_nothing_is_not_asked_for_ever() -> None:
    """A draft that is always wrong costs at most one scoring call a verified token."""
    model, request = ToyModel(3, ends=3.0), asked(max_tokens=20)
    stubborn = Proposing([" Q" * 5] * 1000)
    outcome = ran(request, model, [stubborn])
    assert outcome.end == alone(model, request)
    assert outcome.books.seen["score"] <= 20


def test_prices_reach_the_facts() -> None:
    """What the facts say was paid is the bill of all billed calls at the given prices."""
    model, request = ToyModel(2, ends=4.0), asked(max_tokens=20)
    prices = Prices(Decimal(2), Decimal(8))
    outcome = ran(request, model, [ScriptedDrafter(model.twin(0.7))])
    billed = outcome.books.billed.values()
    want = sum(usage.input_tokens * 2 + usage.output_tokens * 8 for usage in billed)
    assert outcome.tally.info("r", prices, "user").paid_usd == Decimal(want) / 1_000_000
