"""What a verdict is expected to cost, when it is not asked for, and what is learned from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest
from ladder_kit import PRICES, QUESTION, Ran, asked, climbed, drafter, elsewhere, refused, said

from cheapspec.core.alternatives import PlanAlternative
from cheapspec.core.books import Ticket
from cheapspec.core.effects import Broke, HttpReply, Side, Start
from cheapspec.core.estimate import Count, Estimates, EstimateTable
from cheapspec.core.job import Policy
from cheapspec.core.money import Prices
from cheapspec.core.tally import Tally
from cheapspec.rules import Agree, Answer, Judge, OkOrAnswer, Patch, Validator
from cheapspec.rules.forms import form_of
from cheapspec.rules.ladder import Ladder, barred, prospects
from cheapspec.rules.plans import verdict_ways
from cheapspec.rules.prospects import PRIOR, Bench, Lengths, acceptance, learned, prospect
from cheapspec.rules.standing import worst_calls

ANSWER = Answer("last_number")
LONG = "Think, then add. " * 20 + "It is 7."
JUDGE = Judge(uncalibrated=True)


class Purse:
    """A permit with so many dollars. ``asked``: worst cases, in order."""

    def __init__(self, usd: str) -> None:
        self.usd = Decimal(usd)
        self.asked: list[Decimal] = []

    def admit(self, worst: Decimal) -> Ticket[bool] | bool:
        self.asked.append(worst)
        return worst <= self.usd


def test_a_verdict_that_cannot_pay_is_not_asked_for_and_no_draft_is_written() -> None:
    """A reply that is as short as its verdict: the figures are in the reason."""
    ran = climbed([ANSWER], request=asked(max_tokens=4), weighs=True)
    reason, detail = ran.direct
    assert reason == "not_worth_it"
    assert "pays from" in detail or "never pays" in detail
    assert "$" in detail
    assert ran.played.calls == []


def test_the_draft_at_hand_decides_whether_its_verdict_pays() -> None:
    """Long replies are expected; the draft turns out to be short, so it is not asked about."""
    ran = climbed([ANSWER], weighs=True)
    assert ran.direct[0] == "not_worth_it"
    assert ran.played.calls != []
    assert ran.asked == []
    assert climbed([ANSWER], [said("7")], weighs=True, drafters=[drafter(LONG)]).played.finish is not None


def test_a_rule_without_a_call_is_tried_whatever_calls_would_cost() -> None:
    """Agreement is free; what comes after it is not asked where it does not pay."""
    models = [drafter(), drafter("It is 8.", "ollama:llama3.2:3b")]
    ran = climbed([Agree(), ANSWER], weighs=True, drafters=models)
    assert ran.direct[0] == "rejected"
    assert ran.asked == []
    assert ran.outcomes == [("agree", "reject")]


def test_without_a_price_nothing_is_asked_that_costs() -> None:
    """Rules without a call serve; calls are barred, and the reason says why."""
    assert climbed([ANSWER], weighs=True, prices=None).direct[0] == "price_unknown"
    free = climbed([Validator(lambda text: True, sufficient=True)], weighs=True, prices=None)
    assert free.played.finish is not None
    rule = Judge("j", "https://judge.test/v1", "k", uncalibrated=True)
    unpriced = replace(elsewhere(), prices=None)
    assert climbed([rule], weighs=True, judges={rule.name: unpriced}).direct[0] == "price_unknown"
    nothing = Prices(Decimal(0), Decimal(0))
    assert climbed([ANSWER], [said("7")], weighs=True, prices=nothing).played.finish is not None, "nothing to weigh"


def test_each_verdict_asks_the_allowance_for_its_worst_case() -> None:
    """All that was spent so far and the call at its dearest; what it cannot bear is not asked."""
    purse = Purse("1")
    ran = climbed([ANSWER, JUDGE], [said("8"), said("Y", top={"Y": 0.9, "N": 0.1})], permit=purse, weighs=False)
    assert ran.played.finish is not None
    first, second = purse.asked
    assert second > first > 0
    poor = climbed([ANSWER], permit=Purse("0.0000001"))
    assert poor.direct[0] == "allowance"
    assert poor.asked == []
    either = climbed([ANSWER, OkOrAnswer()], [said("8")], permit=Purse(str(first)))
    assert either.direct[0] == "rejected", "what a rule said comes before what another could not be asked"
    assert "may lose" in either.direct[1]


def test_what_has_no_bound_is_not_risked() -> None:
    """A spent call of unknown price: the allowance cannot be asked."""
    rule = Judge("j", "https://judge.test/v1", "k", uncalibrated=True)
    ran = climbed([rule], permit=Purse("1"), judges={rule.name: replace(elsewhere(), prices=None)})
    assert ran.direct == ("allowance", f"{rule.name}: what this call may cost has no bound")


def test_fixed_draft_lengths_ask_nobody() -> None:
    """Tests and bench: neither break-even nor allowance."""
    purse = Purse("0")
    ran = climbed([ANSWER], [said("7")], permit=purse, policy=Policy(draft_tokens=64))
    assert ran.played.finish is not None
    assert purse.asked == []


def test_no_verdict_is_begun_when_the_time_is_over() -> None:
    """The draft took all of it."""
    whole = climbed([ANSWER], [said("7")]).played
    drafting = whole.seconds - 0.002  # the last events were the verdict, and the end of the draft's stream
    late = climbed([ANSWER], policy=Policy(latest=drafting - 0.0005))
    assert late.direct == ("latency", "the time that speculating may add is over")
    assert climbed([ANSWER], policy=Policy(latest=drafting - 0.0025)).direct[0] == "draft_deadline"
    slow = climbed([ANSWER], [None], policy=Policy(latest=2.0))
    assert slow.direct[0] == "latency"
    assert len(slow.tally.usages) == 1, "it may have been billed"


# --- what is expected, and learned -----------------------------------------------------------------------


def deltas(ran: Ran) -> Mapping[tuple[str, str], Count]:
    [note] = [note.data["delta"] for note in ran.played.notes if note.kind == "estimates"]
    found: Mapping[tuple[str, str], Count] = note
    return found


def test_what_a_rule_accepts_is_learned_by_rule_and_drafter() -> None:
    """Only from verdicts that were asked for; an odd one counts as not accepted, since it costs as much."""
    key = f"verdict:{ANSWER.name} on ollama:qwen2.5:3b"
    assert deltas(climbed([ANSWER], [said("7")])) == {(key, "accepted"): Count(1.0, 1.0, PRIOR)}
    assert deltas(climbed([ANSWER], [said("8")]))[key, "accepted"].hits == 0
    assert deltas(climbed([ANSWER], [refused(503)]))[key, "accepted"].hits == 0
    unasked = climbed([ANSWER], drafters=[drafter("Who knows.")])
    assert [note for note in unasked.played.notes if note.kind == "estimates"] == []


def test_expectation_moves_from_the_prior_to_what_was_seen() -> None:
    """A workload that nearly always agrees is expected to; the target's other workloads count where it is new."""
    table = EstimateTable()
    for _ in range(200):
        table.add_estimates("t", "w", learned("r", "d", PRIOR, accepted=True))
    seen = acceptance(Estimates(table.estimates("t", "w")), "r", "d")
    other = acceptance(Estimates({}, table.estimates("t")), "r", "d")
    assert acceptance(Estimates(), "r", "d") == PRIOR < other
    assert seen > 0.97
    assert acceptance(Estimates(table.estimates("t", "w")), "another", "d") == PRIOR


def test_rejections_make_a_rule_not_worth_it() -> None:
    """After enough of them nobody waits for a draft any more."""
    table = EstimateTable()
    for _ in range(200):
        table.add_estimates("t", "w", learned(ANSWER.name, "ollama:qwen2.5:3b", PRIOR, accepted=False))
    known = Estimates(table.estimates("t", "w"))
    ran = climbed([ANSWER], weighs=True, estimates=known, drafters=[drafter(LONG)])
    assert ran.direct[0] == "not_worth_it"
    assert ran.played.calls == []


def even(**more: object) -> float:
    """Break-even of a short answer on a prompt of some 700 tokens and a reply of 300."""
    request = asked(question="word " * 560)
    given: dict[str, object] = {"draft_tokens": 300, **more}
    got = prospect(ANSWER, Bench(), request, PRICES, 0.5, **given)  # type: ignore[arg-type]
    assert got.costs is not None
    assert got.costs.break_even is not None
    return got.costs.break_even


def test_the_dead_zone_the_cache_and_hidden_thinking_are_in_the_figures() -> None:
    """Below the host's block a rejection pays the prompt twice; a warm prompt does not; hidden thinking helps."""
    assert even(again=0.1) < even()
    assert even(lengths=Lengths(hidden=2000)) < even()
    assert even(lengths=Lengths(said={"answer": 80.0})) > even()
    assert even(draft_tokens=None, lengths=Lengths(reply=900.0)) < even(draft_tokens=None)


def test_a_judge_elsewhere_saves_nothing_of_the_prompt() -> None:
    """Its call comes on top of the direct one, at its own prices."""
    request, rule = asked(question="word " * 560), Judge("j", "https://judge.test/v1", "k", uncalibrated=True)
    cheap = prospect(rule, elsewhere(), request, PRICES, 0.5, draft_tokens=300)
    assert cheap.costs is not None
    assert cheap.costs.rejected == pytest.approx(cheap.costs.direct + cheap.costs.accepted)
    assert cheap.costs.accepted < 0.2 * cheap.costs.direct
    assert prospect(rule, replace(elsewhere(), prices=None), request, PRICES, 0.5).costs is None


@pytest.mark.parametrize(
    "rule", [ANSWER, JUDGE, OkOrAnswer(), Patch(), Patch("code"), Judge("other", uncalibrated=True)]
)
def test_every_rule_with_a_call_has_a_price(rule: Answer | Judge | OkOrAnswer | Patch) -> None:
    """And one sentence that says it, with the rate from which it pays."""
    told = prospect(rule, Bench(), asked(), PRICES, 0.5, draft_tokens=400)
    assert told.costs is not None
    assert told.costs.accepted < told.costs.direct < told.costs.rejected
    assert f"{rule.name}: $" in told.why
    assert prospect(rule, Bench(), asked(), None, 0.5).costs is None


# --- before it runs ----------------------------------------------------------------------------------------


def ladder(*rules: object, **more: object) -> Ladder:
    models = [drafter()]
    given: dict[str, object] = {"prices": PRICES, **more}
    return Ladder(asked(max_tokens=400), rules, models, Tally(), **given)  # type: ignore[arg-type]


def test_every_rule_is_a_way_with_its_cost() -> None:
    """Expected, at most, and why not; what cannot accept is not allowed, and the reason is one of the list."""
    direct = PlanAlternative("direct", None, None, 0, Decimal("0.002"), Decimal("0.005"), None, True, "alone")
    made = ladder(Validator("x"), Validator(lambda text: True, sufficient=True), Agree(), ANSWER, Judge(), OkOrAnswer())
    ways = verdict_ways(made, direct, made.drafters[0], 200)
    assert [way.allowed for way in ways] == [False, True, False, True, False, True]
    check, enough, agree, short, judge, _ = ways
    assert check.why.startswith(f"{check.rule}: no_verdict")
    assert (enough.expected_usd, enough.worst_usd) == (Decimal(0), Decimal("0.005"))
    assert "2 unlike draft models" in agree.why
    assert "uncalibrated" in judge.why
    assert short.name == f"verdict {ANSWER.name}"
    assert short.expected_usd is not None and short.worst_usd is not None
    assert short.expected_usd < Decimal("0.002") < Decimal("0.005") < short.worst_usd
    tight = verdict_ways(made, direct, made.drafters[0], 200, headroom=Decimal("0.0000001"))
    assert [way.allowed for way in tight] == [False, True, False, False, False, False]
    assert [way.allowed for way in verdict_ways(made, direct, None, None)] == [False] * 6


def test_a_way_that_does_not_pay_says_so() -> None:
    """With the figures; without a price nothing is made up."""
    direct = PlanAlternative("direct", None, None, 0, None, None, None, True, "alone")
    [way] = verdict_ways(ladder(ANSWER), direct, drafter(), 4)
    assert not way.allowed
    assert way.why.startswith("not worth it: ")
    assert way.worst_usd is None
    [way] = verdict_ways(ladder(ANSWER, prices=None, weighs=False), direct, drafter(), 200)
    assert (way.allowed, way.expected_usd) == (True, None)
    [free] = verdict_ways(ladder(Validator(lambda text: True, sufficient=True)), direct, drafter(), 200)
    assert free.expected_usd is None


def test_what_all_calls_can_cost_is_known_beforehand() -> None:
    """For budgets: each call that may be made, with the longest draft; nothing for rules without one."""
    made = ladder(Validator("x"), ANSWER, Judge(), OkOrAnswer())
    short, reply = worst_calls(made)
    assert reply > short > 0
    assert worst_calls(ladder(ANSWER, prices=None, weighs=False)) == []
    assert [told.rule for told in prospects(made, "d")] == [rule.name for rule in made.rules]
    assert barred(ladder(ANSWER), ANSWER) is None


# --- drafts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("ollama:qwen2.5:3b", "qwen"),
        ("ollama:qwen3-coder:30b", "qwen"),
        ("ollama:hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", "llama"),
        ("openai:meta-llama/Meta-Llama-3-8B@127.0.0.1:8000", "llama"),
        ("openai:google/gemma-3-4b-it@host", "gemma"),
        ("llamacpp:127.0.0.1:8080", "llamacpp:127.0.0.1:8080"),
        ("embedded", "embedded"),
        ("ollama:7b", "ollama:7b"),
    ],
)
def test_the_family_of_a_draft_model_is_read_from_its_name(name: str, form: str) -> None:
    """Sizes, versions and fine-tunes of one family are one form."""
    assert form_of(name) == form


def test_a_busy_host_is_asked_again_while_others_write() -> None:
    """Three models, a host that writes two drafts at a time: the third gets its turn."""
    models = [drafter(), drafter("It is 7", "ollama:llama3.2:3b"), drafter("7", "ollama:gemma3:4b")]
    turned_away: list[str] = []
    third = models[0]
    answer = third.answer

    def busy(start: Start) -> object:
        if not turned_away:
            turned_away.append(start.host)
            return Broke(start.call_id, "busy", "is already writing 2 drafts")
        return answer(start)

    third.answer = busy  # type: ignore[method-assign, assignment]
    rule = Agree(voters=3)
    ran = climbed([rule], drafters=models)
    assert ran.played.finish is not None, ran.played.direct
    assert len(turned_away) == 1
    assert sum(call.side is Side.DRAFT for call in ran.played.calls) == 4


def test_a_host_that_is_down_is_told_of_and_the_others_decide() -> None:
    """Its failure is noted for the breaker."""
    models = [drafter(), drafter(name="ollama:llama3.2:3b")]
    models[0].answer = lambda start: Broke(start.call_id, "connect", "refused")  # type: ignore[method-assign]
    ran = climbed([ANSWER], [said("7")], drafters=models)
    assert ran.played.finish is not None
    [note] = [note.data for note in ran.played.notes if note.kind == "no_draft"]
    assert (note["drafter"], note["broken"]) == ("ollama:qwen2.5:3b", True)
    nobody = climbed([ANSWER], drafters=models[:1])
    assert nobody.direct[0] == "no_draft"
    assert QUESTION not in nobody.direct[1]


def test_the_lengths_of_calls_reach_the_bill() -> None:
    """The reply's tokens are the draft's, the prompt's the verdict's without its question."""
    question = "word " * 700
    writes = drafter(question=question)
    ran = climbed([ANSWER], [said("7", prompt=1000, output=2)], request=asked(question=question), drafters=[writes])
    info = ran.tally.info("r", PRICES, "user")
    assert info.prompt_tokens is not None
    assert 900 < info.prompt_tokens < 1000
    assert info.reply_tokens == ran.tally.drafted_tokens
    assert info.paid_usd == Decimal("0.001020")
    assert isinstance(said("7"), HttpReply)
