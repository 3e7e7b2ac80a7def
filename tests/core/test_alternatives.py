"""The plan as a list: every way, with what it is expected to cost and at most, and which one is taken."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal

import pytest

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.allowance import at_risk
from cheapspec.core.alternatives import Situation, alternatives
from cheapspec.core.drafting import Draft
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Rates, gain, plan
from cheapspec.core.priors import RequestRates, survival
from cheapspec.core.speed import Speed, seconds_context, seconds_rates

PRICES = Prices(Decimal("0.4"), Decimal(3), Decimal("0.04"))
CONTEXT = ContextPrices(q0=1.0, qs=0.1, qh=0.1)
SURE = Draft((DraftToken("x", math.log(0.999)),) * 80, "ollama:small", "stop")
VAGUE = Draft((DraftToken("x", math.log(0.3)),) * 80, "ollama:other", "stop")
GIVEN = Draft((DraftToken("x"),) * 80, "prediction", static=True)
COLD = Situation(200, PRICES, CONTEXT, limit=300, direct_worst=Decimal("0.00098"))


def held(draft_tokens: int) -> Decimal:
    """What the allowance would be asked for: a prompt of 200 tokens is in the baseline too."""
    most = at_risk(PRICES, 200, draft_tokens, sure=200 * PRICES.input / 1_000_000)
    assert most is not None
    return most


def test_direct_comes_first_and_costs_prompt_and_reply() -> None:
    """200 prompt tokens and a reply as long as the longest draft; at worst the caller's whole limit."""
    told = alternatives(COLD, [SURE])
    direct = told.alternatives[0]
    assert (direct.action, direct.rule, direct.drafter, direct.allowed) == ("direct", None, None, True)
    assert direct.expected_usd == pytest.approx(Decimal("0.00008") + Decimal("0.00024"))
    assert direct.worst_usd == Decimal("0.00008") + Decimal("0.0009")


def test_the_expected_length_of_the_reply_may_be_given() -> None:
    """It counts, up to the caller's limit, instead of the longest draft's."""
    known = alternatives(replace(COLD, reply_tokens=1000), [SURE]).alternatives[0]
    assert known.expected_usd == pytest.approx(Decimal("0.00008") + Decimal("0.0009"))
    assert "300 tokens" in known.why


def test_each_draft_is_an_alternative_worth_its_plan() -> None:
    """Expected is direct less the planner's gain, the worst case what the allowance would reserve on top."""
    told = alternatives(COLD, [VAGUE, SURE, GIVEN])
    direct, vague, sure, given = told.alternatives
    assert [one.drafter for one in told.alternatives] == [None, "ollama:other", "ollama:small", "prediction"]
    outlook = RequestRates().outlook(SURE.tokens, SURE.drafter)
    planned = plan(0, PRICES, 200, CONTEXT, SURE.tokens, finished=True, remaining=300, outlook=outlook)
    assert planned.expected_gain is not None and direct.expected_usd is not None and direct.worst_usd is not None
    assert sure.expected_usd == direct.expected_usd - Decimal(planned.expected_gain)
    assert sure.draft_tokens == planned.draft_tokens and sure.why == planned.why
    assert sure.worst_usd == direct.worst_usd + held(sure.draft_tokens)
    assert told.chosen == "score ollama:small" == sure.name
    assert vague.allowed and vague.expected_usd is not None and vague.expected_usd > direct.expected_usd
    assert given.allowed and given.rule == "exact"


def test_what_does_not_pay_is_listed_and_not_chosen() -> None:
    """A doubtful draft alone: direct."""
    assert alternatives(COLD, [VAGUE]).chosen == "direct"
    assert alternatives(COLD, []).chosen == "direct"
    assert len(alternatives(COLD, [Draft((), "empty")]).alternatives) == 1


def test_what_the_allowance_cannot_bear_is_not_allowed() -> None:
    """The same draft with nothing left to lose: named, priced, refused with both sums."""
    told = alternatives(replace(COLD, headroom=Decimal("0.00001")), [SURE])
    assert told.chosen == "direct" and not told.alternatives[1].allowed
    assert "allowance" in told.alternatives[1].why and "$0.000010" in told.alternatives[1].why
    assert alternatives(replace(COLD, headroom=Decimal(1)), [SURE]).chosen == "score ollama:small"


def test_seconds_are_told_where_they_were_measured() -> None:
    """Direct decodes everything; scoring saves most of that but waits for the draft; the ceiling can veto."""
    timed = replace(COLD, speed=Speed(0.2, 0.0001, 0.02), draft_decode=0.05)
    direct, sure = alternatives(timed, [SURE]).alternatives
    assert direct.expected_seconds == pytest.approx(0.2 + 0.02 + 1.6)
    assert sure.expected_seconds is not None and direct.expected_seconds is not None
    assert sure.expected_seconds > direct.expected_seconds
    assert alternatives(timed, [SURE]).chosen == "score ollama:small"
    vetoed = alternatives(replace(timed, max_added_seconds=0.5), [SURE])
    assert vetoed.chosen == "direct" and "0.5 s are allowed" in vetoed.alternatives[1].why
    assert alternatives(replace(timed, max_added_seconds=60), [SURE]).chosen == "score ollama:small"
    assert alternatives(COLD, [SURE]).alternatives[1].expected_seconds is None


def test_the_objective_latency_compares_seconds() -> None:
    """A slow draft that saves dollars is not chosen, given text that saves seconds is, whatever it costs."""
    timed = replace(COLD, speed=Speed(0.2, 0.0001, 0.02), draft_decode=0.05, objective="latency")
    assert alternatives(timed, [SURE]).chosen == "direct"
    flat = replace(timed, prices=Prices(Decimal(1), Decimal(1)), context=ContextPrices())
    told = alternatives(flat, [GIVEN])
    assert told.chosen == "score prediction"
    assert told.alternatives[1].expected_usd is not None and told.alternatives[0].expected_usd is not None
    assert told.alternatives[1].expected_usd > told.alternatives[0].expected_usd
    assert alternatives(replace(timed, prices=None), [GIVEN]).alternatives[1].expected_usd is None


def test_a_forced_target_decodes_the_draft() -> None:
    """In seconds as in dollars: what the target must generate saves nothing, unless the simulation says so."""
    timed = replace(COLD, speed=Speed(0.2, 0.0001, 0.02), can_score=False, can_force=True, objective="latency")
    assert alternatives(timed, [GIVEN]).chosen == "direct"
    assert alternatives(replace(timed, simulate_scoring=True), [GIVEN]).chosen == "score prediction"


def test_what_is_unknown_stays_unknown() -> None:
    """No price: direct only. No limit: no worst case. No draft: no length, and no expectation."""
    unknown = alternatives(replace(COLD, prices=None), [SURE])
    assert unknown.chosen == "direct" and not unknown.alternatives[1].allowed
    assert unknown.alternatives[0].expected_usd is None and unknown.to_dict()["prices"] == {}
    endless = alternatives(replace(COLD, limit=None, direct_worst=None), [SURE])
    assert [one.worst_usd for one in endless.alternatives] == [None, None]
    empty = alternatives(replace(COLD, limit=None, direct_worst=None), [])
    assert empty.alternatives[0].expected_usd is None and "unknown length" in empty.alternatives[0].why
    blind = alternatives(replace(COLD, can_score=False), [SURE])
    assert not blind.alternatives[1].allowed and "cannot score" in blind.alternatives[1].why


def test_a_plan_is_plain_json() -> None:
    """With the public names, dollars as strings and what is unknown as null."""
    told = json.loads(json.dumps(alternatives(COLD, [SURE]).to_dict()))
    assert set(told) == {"chosen", "alternatives", "prices", "context_prices", "reason", "detail"}
    assert told["reason"] is None and told["detail"] is None
    assert told["context_prices"] == {"q0": 1.0, "qs": 0.1, "qh": 0.1}
    assert told["prices"]["output"] == "3" and told["prices"]["cache_write"] is None
    assert set(told["alternatives"][1]) == {
        "action",
        "rule",
        "drafter",
        "draft_tokens",
        "expected_usd",
        "worst_usd",
        "expected_seconds",
        "allowed",
        "why",
    }
    assert told["alternatives"][0]["expected_usd"] == "0.000320"


def test_fixed_draft_tokens_are_not_planned() -> None:
    """The first draft is scored whatever it is worth, and costs what one round and the hand-off after it cost."""
    fixed = replace(COLD, fixed=8, headroom=Decimal(0))
    told = alternatives(fixed, [VAGUE, SURE])
    assert told.chosen == "score ollama:other"
    direct, vague, sure = told.alternatives
    assert [vague.draft_tokens, sure.draft_tokens] == [8, 8] and "no planning" in vague.why
    assert direct.expected_usd is not None and direct.worst_usd is not None and sure.expected_usd is not None
    survived = survival(RequestRates().outlook(SURE.tokens, SURE.drafter).head(8))
    won = gain(survived, rates=Rates.of(PRICES), context_tokens=200, context=CONTEXT, first=True)  # 8 of 80: no end
    assert sure.expected_usd == direct.expected_usd - Decimal(won)
    assert sure.worst_usd == direct.worst_usd + held(8)
    endless = alternatives(replace(fixed, limit=None, direct_worst=None, prices=None), [SURE])
    assert endless.chosen == "score ollama:small" and endless.alternatives[1].expected_usd is None
    assert alternatives(replace(fixed, limit=None, direct_worst=None), [SURE]).alternatives[1].worst_usd is None
    assert alternatives(replace(fixed, can_score=False), [SURE]).chosen == "direct"


def test_a_plan_can_be_read() -> None:
    """What is chosen comes first; every alternative has its dollars, and what is unknown says so."""
    lines = str(alternatives(replace(COLD, speed=Speed(0.2, 0.0001, 0.02)), [SURE, VAGUE])).splitlines()
    assert lines[0] == "score ollama:small"
    assert lines[1].startswith("- direct: expected $0.000320, at most $0.000980, about ")
    assert lines[3].startswith("* score ollama:small, 80 draft tokens: expected $0.0001")
    assert " with one round, about " in lines[3] and "with one round" not in lines[1]
    refused = replace(
        alternatives(replace(COLD, limit=None, direct_worst=None, can_score=False), [SURE]),
        reason="tools",
        detail="tools",
    )
    assert str(refused).splitlines()[0] == "direct (tools: tools)"
    assert "x score ollama:small" in str(refused) and "at most unknown" in str(refused)
    assert str(replace(refused, detail="")).splitlines()[0] == "direct (tools)"


def test_the_worst_case_of_scoring_is_that_of_the_dearer_tier() -> None:
    """Another tier may serve a request than was asked for; of a tier without a price nothing is known."""
    tiers = (("flex", Prices(Decimal("0.2"), Decimal("1.5"))), ("priority", Prices(Decimal("0.8"), Decimal(6))))
    tiered = replace(COLD, prices=replace(PRICES, tiers=tiers))
    plain, flex, priority, unknown = (
        alternatives(replace(tiered, tier=tier), [SURE]).alternatives[1].worst_usd
        for tier in (None, "flex", "priority", "scale")
    )
    assert plain is not None and flex == plain and priority is not None and priority > plain
    assert unknown is None


def test_draws_of_a_sampling_target_are_in_the_worst_case() -> None:
    """Each may read the whole context again."""
    one, more = (alternatives(replace(COLD, draws=draws), [SURE]).alternatives[1].worst_usd for draws in (0, 4))
    assert one is not None and more is not None and more > one


def test_a_long_prompt_is_expected_at_its_own_price() -> None:
    """Prices that change with the length of the input are those of this prompt."""
    stepped = replace(PRICES, steps=((100, Prices(Decimal("0.8"), Decimal(6), Decimal("0.08"))),))
    direct = alternatives(replace(COLD, prices=stepped), [SURE]).alternatives[0]
    assert direct.expected_usd == pytest.approx(2 * (Decimal("0.00008") + Decimal("0.00024")))


def test_expected_seconds_are_those_that_the_choice_was_made_by() -> None:
    """With the objective latency the look-ahead's; else of one round, which may end the reply where the draft does."""
    speed = Speed(0.2, 0.0001, 0.02)
    quick = alternatives(replace(COLD, speed=speed, objective="latency"), [SURE]).alternatives
    outlook = RequestRates().outlook(SURE.tokens, SURE.drafter)
    timed = seconds_context(0.0, scoring_reuses=True)
    planned = plan(
        0, PRICES, 200, timed, SURE.tokens, finished=True, remaining=300, outlook=outlook, rates=seconds_rates(speed)
    )
    assert planned.expected_gain is not None and quick[0].expected_seconds is not None
    assert quick[1].expected_seconds == pytest.approx(quick[0].expected_seconds - planned.expected_gain)
    ends, open_end = (
        alternatives(replace(COLD, speed=speed), [draft]).alternatives[1].expected_seconds
        for draft in (SURE, replace(SURE, end=None))
    )
    assert ends is not None and open_end is not None and ends < open_end
    filled = alternatives(replace(COLD, speed=speed, limit=80), [replace(SURE, end=None)]).alternatives[1]
    assert filled.expected_seconds is not None and filled.expected_seconds < ends


def test_where_prices_change_between_two_calls_nothing_bounds_a_round() -> None:
    """Its prompt is below the step, and what is scored after it may be above."""
    stepped = replace(PRICES, steps=((210, Prices(Decimal("0.8"), Decimal(6))),))
    told = alternatives(replace(COLD, prices=stepped), [SURE]).alternatives[1]
    assert told.worst_usd is None
    bounded = alternatives(replace(COLD, prices=stepped, headroom=Decimal(1)), [SURE]).alternatives[1]
    assert not bounded.allowed and "unbounded" in bounded.why


def test_each_way_has_a_name_of_its_own() -> None:
    """Scoring by its drafter, a verdict by its rule: several rules may judge one draft."""
    way = alternatives(COLD, [SURE]).alternatives[1]
    assert way.name == f"score {SURE.drafter}"
    assert replace(way, action="verdict", rule="answer(x)").name == "verdict answer(x)"
