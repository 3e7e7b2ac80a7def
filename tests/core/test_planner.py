"""The planner: expected gain of scoring, checked against an enumeration of every outcome."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.estimate import AGREEMENT, AGREEMENT_CAP, UNKNOWN_AGREEMENT, Estimates
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Rates, gain, plan
from cheapspec.core.priors import CERTAIN, Outlook, survival

SURE = math.log(0.999)
PRICES = Prices(input=Decimal(1), output=Decimal(5), cached_input=Decimal("0.05"))
CACHED = ContextPrices(q0=1.0, qs=0.05, qh=0.05)


def units(ratio: float, draft: float = 1.0, request: float = 0.0) -> Rates:
    """Rates in units of the input price."""
    return Rates(1.0, ratio, draft, request)


def draft(*probabilities: float) -> list[DraftToken]:
    """A draft with these probabilities of the draft model."""
    return [DraftToken(f"t{i} ", math.log(p)) for i, p in enumerate(probabilities)]


def enumerate_gain(
    survival: list[float],
    rates: Rates,
    x: float,
    context: ContextPrices,
    first: bool,
    end: float,
    generated: int,
    reply: float,
) -> float:
    """Cost of handing off now minus expected cost of a round and then a hand-off, outcome by outcome.

    ``end``: probability that the reply ends there once all tokens are accepted. ``reply``: tokens the
    target would still write; it cancels, which is a part of what is tested (a round that ends the
    reply has, by definition, accepted all that was left).
    """
    k = len(survival)
    q_now = context.q0 if first else context.qh
    q_score = context.first if first else context.qs
    score = rates.input * x * q_score + rates.draft * k + rates.output * generated + rates.request

    def handoff(done: int) -> float:
        """The rest after ``done`` more reply tokens."""
        return rates.input * (x + done) * context.qh + rates.output * (reply - done) + rates.request

    expected = 0.0
    for n in range(k + 1):  # exactly n tokens accepted
        reach = 1.0 if n == 0 else survival[n - 1]
        if n < k:
            p = reach - survival[n]
            now = rates.input * x * q_now + rates.output * reply + rates.request
            expected += p * (now - score - handoff(n + 1))  # the correction comes with the score
        else:
            ended = rates.input * x * q_now + rates.output * k + rates.request - score
            going = rates.input * x * q_now + rates.output * reply + rates.request - score - handoff(k + 1)
            expected += reach * (end * ended + (1 - end) * going)
    return expected


@settings(deadline=None)
@given(
    agreements=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=12),
    ratio=st.floats(0.5, 10),
    dear_draft=st.booleans(),
    request=st.floats(0, 50),
    x=st.floats(0, 5000),
    qs=st.floats(0, 1.5),
    qh=st.floats(0, 1.5),
    cold=st.none() | st.floats(0, 1.5),
    first=st.booleans(),
    end=st.floats(0, 1),
    generated=st.integers(0, 3),
)
def test_the_closed_form_equals_the_enumeration(
    agreements: list[float],
    ratio: float,
    dear_draft: bool,
    request: float,
    x: float,
    qs: float,
    qh: float,
    cold: float | None,
    first: bool,
    end: float,
    generated: int,
) -> None:
    """Over every outcome of a round, the formula's gain is the expected difference of the two bills."""
    survival = [math.prod(agreements[: i + 1]) for i in range(len(agreements))]
    rates = units(ratio, ratio if dear_draft else 1.0, request)
    context = ContextPrices(q0=0.7, qs=qs, qh=qh, cold=cold)
    closed = gain(
        survival,
        rates=rates,
        context_tokens=x,
        context=context,
        first=first,
        finish=survival[-1] * end,
        generated=generated,
    )
    brute = enumerate_gain(survival, rates, x, context, first, end, generated, reply=300.0)
    assert closed == pytest.approx(brute, rel=1e-9, abs=1e-6)


def test_the_published_example_of_a_later_round() -> None:
    """r = 5, c = .05, X = 600, K = 16, s = .9^k, f = 0, all context cached, one generated token: −9.8."""
    context = ContextPrices(q0=1.0, qs=0.05, qh=0.05)
    survival = [0.9**k for k in range(1, 17)]
    closed = gain(survival, rates=units(5), context_tokens=600, context=context, first=False)
    assert round(closed, 1) == -9.8
    assert enumerate_gain(survival, units(5), 600, context, False, 0.0, 1, 100) == pytest.approx(closed)


def test_unknown_and_odd_probabilities_have_stated_values() -> None:
    """No log-probability means the stated prior; certainty is capped; a positive or missing one does no harm."""
    steps = [Estimates().rate(value) for value in (None, 0.0, 1e-9, 700.0, -math.inf)]
    assert steps == pytest.approx([UNKNOWN_AGREEMENT, AGREEMENT_CAP, AGREEMENT_CAP, AGREEMENT_CAP, 0.07])
    assert [row[1] for row in AGREEMENT] == sorted(row[1] for row in AGREEMENT)


def test_given_text_is_worth_what_its_outlook_says() -> None:
    """The same tokens without probabilities are scored as a prediction, and not as a model's."""
    text = [DraftToken("x")] * 60
    assert plan(1, PRICES, 300, CACHED, text).action == "handoff"
    believed = Outlook.prior(text, "prediction", static=True)
    assert plan(1, PRICES, 300, CACHED, text, outlook=believed).action == "score"


def test_a_sure_draft_on_cheap_context_is_scored_whole() -> None:
    """With a high ratio, cached scoring and a finished draft that is nearly certain, all of it is scored."""
    decision = plan(0, PRICES, 900, CACHED, [DraftToken("x", SURE)] * 120, finished=True)
    assert (decision.action, decision.draft_tokens, decision.reason) == ("score", 120, "")
    assert decision.expected_gain is not None and decision.expected_gain > 0
    assert "120 of 120" in decision.why


def test_the_draft_is_cut_where_it_becomes_doubtful() -> None:
    """Tokens after which hardly anything survives only cost: K stops before them."""
    tokens = draft(*[0.999] * 60, *[0.15] * 60)
    decision = plan(0, PRICES, 100, CACHED, tokens)
    assert (decision.action, decision.draft_tokens) == ("score", 60)
    assert decision.expected_gain is not None and decision.expected_gain > 0


@settings(deadline=None)
@given(
    agreements=st.lists(st.floats(0.01, 0.999), min_size=1, max_size=20),
    remaining=st.one_of(st.none(), st.integers(1, 30)),
    x=st.integers(0, 3000),
    finished=st.booleans(),
    first=st.booleans(),
)
def test_a_plan_is_worth_at_least_what_its_next_round_is(
    agreements: list[float], remaining: int | None, x: int, finished: bool, first: bool
) -> None:
    """Later rounds are taken only if they pay, so the plan's value is at least the gain of each single round."""
    tokens = [DraftToken("x")] * len(agreements)
    believed = Outlook(tuple(agreements), end=0.6)
    longest = len(tokens) if remaining is None else min(len(tokens), remaining)
    alone: list[float] = []
    for k in range(1, longest + 1):
        alive = survival(believed.head(k))
        claimed = 0.6 if finished and k == len(tokens) else 0.0
        finish = alive[-1] * (1.0 if k == remaining else claimed)
        rates = Rates.of(PRICES)
        alone.append(gain(alive, rates=rates, context_tokens=x, context=CACHED, first=first, finish=finish))
    decision = plan(
        0 if first else 1, PRICES, x, CACHED, tokens, finished=finished, remaining=remaining, outlook=believed
    )
    assert decision.expected_gain is not None and decision.expected_gain >= max(alone) - 1e-12
    assert (decision.action == "score") == (decision.expected_gain > 1e-9 * 5e-6)


@pytest.mark.parametrize("round_index", [0, 1])
@settings(deadline=None)
@given(x=st.integers(0, 100_000), n=st.integers(1, 300), qs=st.floats(0, 1), finished=st.booleans())
def test_a_flat_price_is_never_scored(round_index: int, x: int, n: int, qs: float, finished: bool) -> None:
    """r = 1 cannot save by scoring, however sure the draft and cheap the context."""
    flat = Prices(Decimal("0.9"), Decimal("0.9"))
    context = ContextPrices(q0=min(qs, 1.0), qs=qs, qh=qs)
    decision = plan(round_index, flat, x, context, [DraftToken("x", 0.0)] * n, finished=finished)
    assert decision.action == ("handoff" if round_index else "direct")
    assert decision.reason == "not_worth_it"


def test_a_prompt_far_longer_than_the_reply_goes_direct() -> None:
    """P ≫ N with cached direct context and uncached scoring: nothing that is written can pay for the reading."""
    context = ContextPrices(q0=0.1, qs=1.0, qh=0.1)
    prices = Prices(Decimal(1), Decimal(5), Decimal("0.1"))
    decision = plan(0, prices, 4000, context, [DraftToken("x", SURE)] * 200, finished=True)
    assert (decision.action, decision.reason) == ("direct", "not_worth_it")
    assert decision.expected_gain is not None and decision.expected_gain < 0
    assert "not worth it" in decision.why and "4000 context tokens" in decision.why


def test_a_forced_target_pays_output_price_unless_simulated() -> None:
    """A target that must generate the draft can never save; priced as if it scored, it can."""
    tokens = [DraftToken("x", SURE)] * 120
    forced = partial(plan, 0, PRICES, 200, CACHED, tokens, finished=True, can_score=False, can_force=True)
    assert forced().action == "direct"
    assert forced(simulate_scoring=True).action == "score"
    assert plan(0, PRICES, 200, CACHED, tokens, finished=True, can_force=True).action == "score"


def test_what_cannot_be_planned_is_named() -> None:
    """No evidence, no draft, no price: direct before round one, hand-off after, each with its reason."""
    tokens = draft(0.9)
    assert plan(0, PRICES, 1, CACHED, tokens, can_score=False).reason == "cannot_score"
    assert plan(1, PRICES, 1, CACHED, tokens, can_score=False).action == "handoff"
    for empty in (plan(0, PRICES, 1, CACHED, []), plan(0, PRICES, 1, CACHED, tokens, remaining=0)):
        assert (empty.action, empty.reason, empty.expected_gain) == ("direct", "no_draft", None)
    unknown = plan(0, None, 1, CACHED, tokens)
    assert (unknown.action, unknown.reason, unknown.expected_gain) == ("direct", "price_unknown", None)


def test_a_fixed_length_is_obeyed_without_planning() -> None:
    """draft_tokens=N scores N tokens whatever they cost, as far as the draft and the caller's limit reach."""
    tokens = draft(*[0.05] * 8)
    assert plan(0, None, 9000, CACHED, tokens, fixed=4).draft_tokens == 4
    assert plan(3, PRICES, 9000, CACHED, tokens, fixed=20).draft_tokens == 8
    assert plan(3, PRICES, 9000, CACHED, tokens, fixed=20, remaining=5).draft_tokens == 5
    decision = plan(3, PRICES, 9000, CACHED, tokens, fixed=4)
    assert (decision.action, decision.expected_gain) == ("score", None)
    assert "fixed" in decision.why


def test_a_draft_that_fills_the_limit_needs_no_hand_off() -> None:
    """When the caller's token limit ends the reply inside the round, the expected hand-off falls away."""
    tokens = [DraftToken("x", SURE)] * 20
    filled = plan(0, PRICES, 400, CACHED, tokens, remaining=20)
    longer = plan(0, PRICES, 400, CACHED, tokens, remaining=21)
    assert filled.expected_gain is not None and longer.expected_gain is not None
    assert filled.expected_gain > longer.expected_gain


def test_free_input_is_planned_in_dollars_too() -> None:
    """A price list with free input has no ratio; the gain is still money and the sentence still reads."""
    decision = plan(0, Prices(Decimal(0), Decimal(5)), 4000, CACHED, draft(0.9, 0.9, 0.9))
    assert decision.action == "score"
    assert "free input" in decision.why
    free = plan(0, Prices(Decimal(0), Decimal(0)), 4000, CACHED, draft(0.9))
    assert (free.action, free.expected_gain) == ("direct", 0.0)


def test_a_fee_per_call_counts_against_the_extra_call() -> None:
    """A round is one more call than going direct; its fee can turn the decision."""
    tokens = [DraftToken("x", SURE)] * 40
    assert plan(0, PRICES, 100, CACHED, tokens).action == "score"
    dear = Prices(PRICES.input, PRICES.output, PRICES.cached_input, request=Decimal("0.01"))
    assert plan(0, dear, 100, CACHED, tokens).action == "direct"


def test_a_cold_prompt_is_not_cheaper_to_score_than_to_answer() -> None:
    """Before round one scoring reads the prompt as cold as a direct call would, whatever a warm probe showed."""
    assert ContextPrices(q0=1.0, qs=0.05).first == 1.0
    assert ContextPrices(q0=0.1, qs=0.3).first == 0.3
    assert ContextPrices(q0=1.0, qs=0.05, cold=1.25).first == 1.25
    tokens = [DraftToken("x", SURE)] * 30
    warm = plan(0, PRICES, 900, ContextPrices(0.05, 0.05, 0.05), tokens).expected_gain
    cold = plan(0, PRICES, 900, CACHED, tokens).expected_gain
    assert warm == pytest.approx(cold)  # what is cold for scoring is cold for going direct
    written = plan(0, PRICES, 900, ContextPrices(1.0, 0.05, 0.05, cold=1.25), tokens).expected_gain
    assert written is not None and cold is not None and cold - written == pytest.approx(900 * 0.25e-6)


def test_seconds_are_planned_as_dollars_are() -> None:
    """With a vector of seconds no price is needed; a target that decodes slowly is worth a score, a fast one is not."""
    tokens = [DraftToken("x", SURE)] * 60
    slow = Rates(input=0.0001, output=0.03, draft=0.0001, request=0.2)
    assert plan(0, None, 300, CACHED, tokens, finished=True, rates=slow).action == "score"
    fast = Rates(input=0.0001, output=0.001, draft=0.0001, request=0.2)
    decision = plan(0, None, 300, CACHED, tokens, rates=fast)
    assert (decision.action, decision.reason) == ("direct", "latency")
    assert "expected gain s " in decision.why


@settings(max_examples=60, deadline=None)
@given(
    x=st.integers(1, 2000),
    agreements=st.lists(st.floats(0.05, 0.97), min_size=1, max_size=5),
    qh=st.floats(0, 1),
    drawn=st.floats(0, 3),
    finish=st.booleans(),
)
def test_a_draw_of_the_rest_is_paid_for(x: int, agreements: list[float], qh: float, drawn: float, finish: bool) -> None:
    """Every round that does not end the reply pays for its expected draws: a context and an output token each."""
    outlook = Outlook(tuple(agreements), shape=CERTAIN)
    alive, context, rates = survival(outlook), ContextPrices(1.0, 0.2, qh), units(5.0, request=3.0)
    ended = alive[-1] if finish else 0.0
    known = partial(gain, alive, rates=rates, context_tokens=x, context=context, first=False, finish=ended)
    assert known() - known(drawn=drawn) == pytest.approx((1 - ended) * drawn * (x * qh + 5 + 3))
    tokens = draft(*agreements)
    plain = plan(1, PRICES, x, context, tokens, outlook=outlook)
    dearer = plan(1, PRICES, x, context, tokens, outlook=outlook, drawn=drawn)
    assert plain.expected_gain is not None and dearer.expected_gain is not None
    assert dearer.expected_gain <= plain.expected_gain + 1e-12


def test_draws_can_make_a_round_not_worth_it() -> None:
    """The same draft is scored where a correction is free, and left alone where each costs a long context."""
    tokens, context = draft(0.7, 0.7, 0.7), ContextPrices(1.0, 0.0, 1.0)
    assert plan(1, PRICES, 50, context, tokens).action == "score"
    assert plan(1, PRICES, 50, context, tokens, drawn=1.0).action == "handoff"
