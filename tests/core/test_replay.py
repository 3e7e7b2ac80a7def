"""A replay costs what the same decisions would have cost, and its policies see nothing that production would not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from trace_kit import PRICES, chance_trace, one, row, trace

from cheapspec.core.allowance import Allowance, at_risk
from cheapspec.core.imputation import complete
from cheapspec.core.lanes import Proposal, lanes
from cheapspec.core.outcome import Outcome, Replayed
from cheapspec.core.planner import Rates
from cheapspec.core.policies import Choice, Direct, FixedLength, Planned, View, WholeDraft, policy
from cheapspec.core.replay import Guard, Pace, Setting, outcomes, replay
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import Branch, RequestTrace, StaticRow

WARM = Setting(Tariff.of(PRICES))


class Recorder:
    """Asks for the whole first proposal, always, and keeps what it was shown and told."""

    name = "recorder"

    def __init__(self) -> None:
        self.views: list[View] = []
        self.told: list[tuple[int, int, bool | None]] = []

    def asks(self, view: View, models: Sequence[str]) -> bool:
        return True

    def decide(self, view: View) -> Choice | None:
        self.views.append(view)
        first = next(iter(view.proposals), None)
        return None if first is None else Choice(first, len(first.tokens))

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        self.told.append((choice.draft_tokens, accepted, ended))


def test_direct_is_the_baseline() -> None:
    """No round, one call, the price of the target alone, with its own cached share."""
    told = replay([one("1" * 9 + "E", prompt=100, cached=40)], Direct(), WARM).requests[0]
    assert told.paid == told.baseline == pytest.approx((60 + 40 * 0.05 + 10 * 5) / 1e6)
    assert (told.rounds, told.target_calls, told.handoff_tokens) == (0, 1, 10)


def test_rounds_and_hand_off_are_priced_as_the_calls_they_are() -> None:
    """The prompt in full once, then from the cache; each round generates one token; the rest is written."""

    class Twice(FixedLength):
        def decide(self, view: View) -> Choice | None:
            return None if view.round == 2 else super().decide(view)

    told = replay([one("11111101111E", prompt=100)], Twice(4), WARM).requests[0]
    # First: 4 hold and the bonus token is the fifth. Second, from 5 on: one holds, the next is corrected.
    first, second = 100 + 4 + 5, 105 * 0.05 + 4 + 5
    rest = 107 * 0.05 + (12 - 7) * 5
    assert told.paid == pytest.approx((first + second + rest) / 1e6)
    assert (told.rounds, told.target_calls, told.accepted_tokens, told.scored_tokens) == (2, 3, 5, 8)
    assert (told.handoff_tokens, told.looked_at) == (5, 4 + 2)


def test_an_uncached_scoring_call_pays_for_its_context_every_time() -> None:
    """qs = 1: the second round reads prompt and verified reply in full."""
    setting = Setting(Tariff.of(PRICES, qs=1.0))
    told = replay([one("111111E", prompt=100)], FixedLength(3), setting).requests[0]
    assert told.paid == pytest.approx(((100 + 3 + 5) + (104 + 2 + 5)) / 1e6)
    assert told.target_calls == 2 and told.handoff_tokens == 0


def test_a_stated_q0_stands_for_all_requests() -> None:
    """A chat whose history is cached: the direct call and the first round pay the cached price."""
    setting = Setting(Tariff.of(PRICES, q0=0.05))
    told = replay([one("111E", prompt=100)], WholeDraft(), setting).requests[0]
    assert told.baseline == pytest.approx((5 + 20) / 1e6)
    assert told.paid == pytest.approx((5 + 3 + 5) / 1e6)


def test_the_drafts_end_where_production_ends_them() -> None:
    """At the model's own end of turn, at the caller's limit, at the longest draft; and the end is told as a claim."""
    recorder = Recorder()
    replay([one("11e11E", max_tokens=10)], recorder, WARM)
    assert [len(view.proposals[0].tokens) for view in recorder.views] == [2, 2]
    assert all(view.proposals[0].finished for view in recorder.views)
    assert recorder.told == [(2, 2, False), (2, 2, True)]

    recorder = Recorder()
    replay([one("1111111", finish="length", max_tokens=7)], recorder, replace(WARM, max_draft_tokens=4))
    assert [(view.remaining, len(view.proposals[0].tokens)) for view in recorder.views] == [(7, 4), (2, 2)]
    assert not recorder.views[0].proposals[0].finished
    assert recorder.told == [(4, 4, None), (2, 2, None)]


def test_what_comes_after_a_wrong_token_is_the_drafts_own_branch() -> None:
    """The planner sees the log-probabilities that it would have seen; none of that can be accepted."""
    branched = trace(row("1011E", branches={1: Branch((-2.0, -3.0), ended=True)}), tokens=5)
    recorder = Recorder()
    replay([branched], recorder, WARM)
    first = recorder.views[0].proposals[0]
    assert [token.logprob for token in first.tokens][2:] == [-2.0, -3.0] and first.finished
    assert recorder.told[0] == (4, 1, None)
    assert lanes(branched)[0].propose(0, 2) == Proposal("d", first.tokens[:2])
    cut = lanes(branched)[0].propose(0, 3)
    assert cut is not None and len(cut.tokens) == 3 and not cut.finished


def test_without_a_branch_the_rows_own_entries_stand_in() -> None:
    """As far as the reply goes; the end of turn there is the draft's as well."""
    lane = lanes(one("1011E"))[0]
    assert (lane.length, lane.right, lane.ends) == ((4, 3, 2, 1, 0), (1, 0, 2, 1, 0), (True,) * 5)


def test_the_policy_never_sees_agreement_ahead() -> None:
    """Two replies that differ only in what will hold look the same before the first round."""
    views = []
    for bits in ("1111E", "0000E", "1010E"):
        recorder = Recorder()
        replay([one(bits)], recorder, WARM)
        views.append(recorder.views[0])
    assert views[0] == views[1] == views[2]


def test_given_text_is_proposed_first_and_only_where_known() -> None:
    """Lookup proposes what it proposed then; its pieces have no log-probability and never hold past the reply's end."""
    given = StaticRow("lookup", (3, None, 0, 9), (2, None, 0, 1))
    drawn = trace(row("000E"), tokens=4, statics=(given,))
    recorder = Recorder()
    replay([drawn], recorder, WARM)
    first = recorder.views[0].proposals
    assert [proposal.drafter for proposal in first] == ["lookup", "d"]
    assert first[0].static and [token.logprob for token in first[0].tokens] == [None] * 3
    assert recorder.told[0] == (3, 2, None)
    assert [proposal.drafter for proposal in recorder.views[1].proposals] == ["lookup"]  # d ends its turn there
    assert lanes(drawn)[0].right == (2, 0, 0, 0)
    assert [lane.drafter for lane in lanes(drawn, ["d"])] == ["d"]


def test_a_whole_prediction_claims_the_end() -> None:
    """As far as it is not cut: then what is scored of it ends nothing."""
    given = StaticRow("prediction", (3, 2, 1, 0), (3, 2, 1, 0), whole=True)
    recorder = Recorder()
    replay([trace(tokens=4, statics=(given,))], recorder, WARM)
    assert recorder.views[0].proposals[0].finished and recorder.told == [(3, 3, True)]
    cut = lanes(trace(tokens=4, statics=(given,)))[0].propose(0, 2)
    assert cut is not None and not cut.finished


def test_drafting_is_counted_once_for_each_new_draft() -> None:
    """A draft that goes on being right is not drafted again; after a miss, or at its end, it is."""
    told = replay([one("1111011E", prompt=10)], FixedLength(2), WARM).requests[0]
    # Drafted at 0 (7 tokens); at 3 the draft is still right; at 5, after the correction, 2 more.
    assert told.drafted_tokens == 7 + 2


def test_a_model_is_asked_only_where_it_could_win() -> None:
    """Given text that promises nearly as much as the best draft there can be is not waited on a model for."""
    left = tuple(range(40, -1, -1))
    long = StaticRow("prediction", left, left)
    drawn = trace(row("1" * 40 + "E"), tokens=41, prompt=40, statics=(long,), max_tokens=41)
    teaching = [replace(drawn, id=str(number), drafts=()) for number in range(60)]
    told = replay([*teaching, drawn], Planned(PRICES), WARM).requests[-1]
    assert told.drafted_tokens == 0 and told.accepted_tokens >= 38
    alone = replay([drawn], Planned(PRICES), replace(WARM, drafters=("d",))).requests[0]
    assert alone.drafted_tokens == 40
    dear = replay([replace(drawn, statics=())], Planned(PRICES), Setting(Tariff.of(PRICES, qs=50.0))).requests[0]
    assert (dear.drafted_tokens, dear.rounds) == (0, 0)  # not even a perfect draft would pay
    assert replay([drawn], FixedLength(4), WARM).requests[0].drafted_tokens == 0


def test_a_draft_of_the_model_that_held_is_there_in_the_next_round() -> None:
    """Given text may go first; what the model wrote before is not written again as long as it is right."""
    given = StaticRow("lookup", (3, *(0,) * 8), (3, *(0,) * 8))
    drawn = trace(row("11111111E"), tokens=9, prompt=10, statics=(given,))
    recorder = Recorder()
    told = replay([drawn], recorder, WARM).requests[0]
    assert [[proposal.drafter for proposal in view.proposals] for view in recorder.views] == [["lookup", "d"], ["d"]]
    assert told.drafted_tokens == 8


def test_seconds_are_counted_beside_dollars() -> None:
    """A pace is a tariff of seconds; what drafting takes is added."""
    seconds = Tariff(Rates(0.001, 0.02, 0.001, 0.1), cached=0.0, qs=0.0, qh=0.0)
    setting = replace(WARM, pace=Pace(seconds, draft_token=0.01))
    told = replay([one("11110111E", prompt=100)], WholeDraft(), setting).requests[0]
    assert told.seconds_direct == pytest.approx(0.1 + 100 * 0.001 + 9 * 0.02)
    drafted, scored, written = 8 * 0.01, 0.1 + 108 * 0.001 + 0.02, 0.1 + 4 * 0.02
    assert told.seconds == pytest.approx(drafted + scored + written)


def test_the_planner_plans_in_seconds_if_asked() -> None:
    """Dollars say speculate, seconds say no: whichever is the objective decides."""
    drawn = one("1" * 30 + "E", prompt=10)
    assert replay([drawn], Planned(PRICES), WARM).requests[0].rounds > 0
    slow = Rates(input=0.0, output=0.001, draft=5.0, request=5.0)
    assert replay([drawn], Planned(PRICES, slow), WARM).requests[0].rounds == 0
    given = replace(drawn, statics=(StaticRow("lookup", (30,) + (0,) * 30, (30,) + (0,) * 30),))
    quick = Rates(input=0.0001, output=0.02, draft=0.0001, request=0.1, drafting=5.0)
    pace = Pace(Tariff(quick, cached=0.0, qs=0.0, qh=0.0), draft_token=5.0)
    told = replay([given], Planned(PRICES, quick), replace(WARM, pace=pace)).requests[0]
    assert told.rounds and not told.drafted_tokens and told.seconds < told.seconds_direct


def test_the_planner_learns_across_requests_of_a_workload() -> None:
    """Drafts that say .95 and never hold are scored less and less; another workload starts from what all have shown."""
    bad = [trace(row("0" * 20), tokens=20, prompt=20, finish="length", name=str(n)) for n in range(40)]
    told = replay(bad, Planned(PRICES), WARM).requests
    naive = replay(bad, Planned(PRICES, learns=False), WARM).requests
    assert sum(request.rounds for request in told[30:]) < sum(request.rounds for request in naive[30:])
    assert told[0].rounds == naive[0].rounds > 0
    other = replay([*bad, replace(bad[0], workload="other")], Planned(PRICES), WARM).requests[-1]
    assert other.rounds < told[0].rounds


def test_the_allowance_bounds_the_loss_whatever_the_policy_does() -> None:
    """The fixed loop on worthless drafts costs many times the target alone; with the allowance, what was allowed."""
    bad = [trace(row("0" * 50), tokens=50, prompt=500, finish="length", name=str(n)) for n in range(40)]
    free = replay(bad, FixedLength(8), Setting(Tariff.of(PRICES, qs=1.0)))
    assert free.paid_over_baseline is not None and free.paid_over_baseline > 5
    seed = Decimal("0.005")
    guard = Guard(Allowance(Decimal("0.02"), seed), PRICES)
    held = replay(bad, FixedLength(8), Setting(Tariff.of(PRICES, qs=1.0, qh=1.0)), guard)
    assert held.paid <= 1.02 * held.baseline + float(seed)
    assert any(request.refused and not request.rounds for request in held.requests)
    assert any(request.refused and request.rounds for request in held.requests)


def test_a_step_is_replayed_as_long_as_the_allowance_bears() -> None:
    """A seed that does not bear the whole draft bears a part of it; one that bears no token of it bears none."""
    good = trace(row("1" * 60), tokens=60, prompt=40, finish="length")
    told = replay([good], FixedLength(60), WARM).requests[0]
    assert (told.rounds, told.scored_tokens) == (1, 60)
    million = Decimal(1_000_000)
    most = at_risk(PRICES, 40, 30, sure=PRICES.input * 40 / million)
    assert most is not None

    def within(seed: Decimal, tokens: int) -> Replayed:
        guard = Guard(Allowance(Decimal(0), seed), PRICES)
        return replay([good], FixedLength(tokens), WARM, guard).requests[0]

    assert within(most, 60).scored_tokens >= 30
    assert within(most, 60).rounds > 1 and not within(most * 10, 60).refused
    assert within(Decimal(0), 60).refused and within(Decimal(0), 1).refused


def test_sums_by_workload() -> None:
    """Each workload by itself and all together; without requests nothing is said."""
    traces = [one("11110111E", workload="a"), one("0000E", workload="b"), one("111E", workload="a")]
    outcome = replay(traces, FixedLength(4), replace(WARM, oracle=True))
    parts = outcome.by_workload()
    assert list(parts) == ["a", "b"]
    assert sum(part.paid for part in parts.values()) == pytest.approx(outcome.paid)
    assert sum(part.clairvoyant or 0 for part in parts.values()) == pytest.approx(outcome.clairvoyant or 0)
    assert outcome.capture is not None and outcome.capture < 1
    empty = Outcome()
    assert (empty.paid_over_baseline, empty.capture, empty.estimated_share) == (None, None, 0.0)
    assert replay(traces, FixedLength(4), WARM).capture is None


def test_positions_that_nobody_looked_at_are_estimated_and_said_so() -> None:
    """Production knew 12 positions, the replay looks at all."""
    chance = random.Random(1)
    known = [one("".join(chance.choice("1110") for _ in range(60)), finish="length", name=str(n)) for n in range(3)]
    partial = one("11111111110" + "." * 48 + ".", finish="stop", name="p")
    outcome = replay([*known, partial], FixedLength(8), WARM)
    told = outcome.requests[-1]
    assert 0 < told.estimated < told.looked_at
    assert 0 < outcome.estimated_share < 1
    assert [request.estimated for request in outcome.requests[:3]] == [0, 0, 0]
    again = replay([*known, partial], FixedLength(8), WARM)
    assert again == outcome  # the same traces always give the same replay


def test_estimates_follow_what_was_seen_of_the_workload() -> None:
    """Filled positions agree as often as known ones did, in each workload by itself."""
    chance = random.Random(2)

    def some(workload: str, rate: float) -> list[RequestTrace]:
        bits = ["".join("1" if chance.random() < rate else "0" for _ in range(200)) for _ in range(5)]
        return [one(text, finish="length", workload=workload, name=f"{workload}{n}") for n, text in enumerate(bits)]

    unknown = [one("." * 2000, finish="length", workload=name, name=f"u{name}") for name in ("good", "bad", "new")]
    filled = {done.trace.id: done for done in complete([*some("good", 0.9), *some("bad", 0.3), *unknown])}

    def share(name: str) -> float:
        bits = filled[name].trace.drafts[0].agreed
        return sum(bit is True for bit in bits) / len(bits)

    assert share("ugood") == pytest.approx(0.9, abs=0.03)
    assert share("ubad") == pytest.approx(0.3, abs=0.04)
    assert share("unew") == pytest.approx(0.6, abs=0.04)  # nothing is known of it: what is known of the drafter
    assert len(filled["unew"].estimated["d"]) == 2000 and filled["good0"].estimated == {}


def test_a_request_that_was_never_drafted_gets_the_drafters_of_its_workload() -> None:
    """What went direct can be replayed too, if others of its workload were drafted; else it stays direct."""
    known = one("1" * 80 + "E", name="k")
    silent, stranger = trace(tokens=30, name="s"), trace(tokens=30, name="x", workload="elsewhere")
    done = complete([known, silent, stranger])
    assert [row.drafter for row in done[1].trace.drafts] == ["d"] and len(done[1].estimated["d"]) == 30
    assert done[1].trace.drafts[0].ends == {29}
    assert done[2].trace.drafts == ()
    told = replay([known, silent, stranger], WholeDraft(), WARM).requests
    assert (told[1].rounds, told[2].rounds) == (1, 0)


def test_a_drafter_that_nobody_ever_saw_at_work_proposes_nothing() -> None:
    """Without any known position there is nothing to estimate from."""
    done = complete([one("....", finish="length")])[0]
    assert lanes(done.trace)[0].propose(0, 10) is None


def test_outcomes_come_one_by_one() -> None:
    """Whoever shows progress sees each request as it is done."""
    steps = outcomes(complete([one("11E", name="a"), one("11E", name="b")]), WholeDraft(), WARM)
    assert next(steps).id == "a" and next(steps).id == "b"


@pytest.mark.parametrize("spec", ["planner", "fixed:8", "whole", "whole-again", "direct"])
def test_policies_by_name(spec: str) -> None:
    """The names of the command line, and every policy ends every reply."""
    chosen = policy(spec, PRICES)
    assert chosen.name == spec
    chance = random.Random(3)
    for told in replay([chance_trace(chance, 30) for _ in range(20)], chosen, WARM).requests:
        assert told.target_calls >= 1 and told.paid > 0


@pytest.mark.parametrize("spec", ["", "fixed", "fixed:0", "fixed:x", "best"])
def test_an_unknown_policy_is_named_with_its_kin(spec: str) -> None:
    """The message says what there is."""
    with pytest.raises(ValueError, match=r"planner, fixed:8"):
        policy(spec, PRICES)


def test_direct_is_never_told_of_a_round() -> None:
    """It scores nothing, so a driver that tells it something has lost its way."""
    view = View("w", 0, 0, 1, None, 512, WARM.tariff.context(one("1")), ())
    with pytest.raises(AssertionError):
        Direct().learn(view, Choice(Proposal("d", ()), 0), 0, None)


def test_a_price_list_without_a_cached_price_has_one_price_for_context() -> None:
    """c = 1 then: nothing is cheaper for being cached."""
    plain = Tariff.of(replace(PRICES, cached_input=None))
    assert (plain.cached, plain.qs, plain.qh) == (1.0, 1.0, 1.0)
    assert Tariff.of(PRICES, qs=0.5, qh=0.2) == Tariff(Rates.of(PRICES), 0.05, 0.5, 0.2)
    assert plain.context(trace(tokens=1, prompt=0)).q0 == 1.0


def test_every_token_of_a_reply_is_written_by_somebody() -> None:
    """Accepted, corrected or generated by a round, or handed off: together they are the reply."""
    chance = random.Random(4)
    for told in replay([chance_trace(chance, 40) for _ in range(50)], FixedLength(3), WARM).requests:
        assert told.accepted_tokens + told.rounds + told.handoff_tokens >= 40
        assert told.accepted_tokens + told.handoff_tokens <= 40
