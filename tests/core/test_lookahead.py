"""The look at later rounds, checked against an enumeration of every outcome of every round, bill by bill."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cheapspec.core.lookahead import GRID, MISSES, best_course
from cheapspec.core.planner import ContextPrices, Rates, lookahead_terms
from cheapspec.core.priors import CERTAIN, Outlook

REPLY = 100.0
"""Tokens that the target would write in all; it cancels."""


def cheapest(
    agreements: tuple[float, ...],
    ending: float,
    shape: float,
    rates: Rates,
    x: float,
    context: ContextPrices,
    first: bool,
) -> tuple[float, int]:
    """What the best way to finish the reply costs less than handing off now, and its K: every K, every outcome
    (n accepted, then a correction; all accepted and over; all accepted and a bonus token that the draft foresaw, or
    not), every later choice, each as a bill with the whole reply's price in it.
    """
    n = len(agreements)
    passed = [0.0]
    for rate in agreements:
        passed.append(passed[-1] - math.log(rate))

    def holds(j: int, k: int, misses: int) -> float:
        """That tokens j … k − 1 hold, seen from place j after so many misses."""
        return math.pow((shape + passed[j]) / (shape + passed[k]), shape + misses)

    def read(place: int, q: float) -> float:
        return rates.input * (x + place) * q + rates.request

    def score(place: int, k: int, q: float, misses: int) -> float:
        again = rates.drafting * (n - place) if misses else 0.0
        return read(place, q) + rates.draft * k + rates.output + again

    @cache
    def to_go(place: int, misses: int) -> float:
        """Expected dollars from a state after round one."""
        hand_off = read(place, context.qh) + rates.output * (REPLY - place)
        if misses >= MISSES or place >= n:
            return hand_off
        return min(hand_off, *(rounded(place, k, misses, context.qs) for k in range(1, n - place + 1)))

    def rounded(place: int, k: int, misses: int, q: float) -> float:
        bill, end = score(place, k, q, misses), place + k
        for accepted in range(k):
            missed = holds(place, place + accepted, misses) - holds(place, place + accepted + 1, misses)
            bill += missed * to_go(place + accepted + 1, misses + 1)
        whole = holds(place, end, misses)
        over = ending if end == n else 0.0
        # A reply that is over at the end of the draft had n tokens, not REPLY: that much less is paid in any case.
        bill += whole * over * rates.output * (REPLY - n)
        if end == n:
            return bill + whole * (1 - over) * (read(n + 1, context.qh) + rates.output * (REPLY - n - 1))
        foreseen = holds(end, end + 1, misses)
        return bill + whole * (foreseen * to_go(end + 1, misses) + (1 - foreseen) * to_go(end + 1, misses + 1))

    now = (read(0, context.q0) if first else read(0, context.qh)) + rates.output * REPLY
    bills = [rounded(0, k, 0, context.first if first else context.qs) for k in range(1, n + 1)]
    return now - min(bills), 1 + bills.index(min(bills))


@settings(deadline=None, max_examples=150)
@given(
    agreements=st.lists(st.floats(0.02, 0.9999), min_size=1, max_size=6),
    ending=st.floats(0, 1),
    shape=st.sampled_from([0.3, 2.0, 20.0, CERTAIN]),
    ratio=st.floats(1, 12),
    request=st.sampled_from([0.0, 3.0]),
    drafting=st.sampled_from([0.0, 0.4]),
    x=st.floats(0, 100),
    qs=st.floats(0, 1),
    qh=st.floats(0, 1),
    first=st.booleans(),
)
def test_the_look_ahead_equals_the_enumeration_of_all_rounds(
    agreements: list[float],
    ending: float,
    shape: float,
    ratio: float,
    request: float,
    drafting: float,
    x: float,
    qs: float,
    qh: float,
    first: bool,
) -> None:
    """Over all choices and outcomes of up to four rounds, the plan's value is the expected difference of the bills."""
    rates = Rates(1.0, ratio, 1.0, request, drafting)
    context = ContextPrices(q0=0.7, qs=qs, qh=qh)
    outlook = Outlook(tuple(agreements), shape=shape)
    course = best_course(outlook, ending, lookahead_terms(rates, context, x, first=first))
    brute, _ = cheapest(tuple(agreements), ending, shape, rates, x, context, first)
    assert course.value == pytest.approx(brute, rel=1e-6, abs=1e-5)


def test_the_best_k_is_the_enumerations() -> None:
    """With a clear winner both name the same number of tokens."""
    agreements = (0.99, 0.99, 0.99, 0.05, *[0.99] * 20)
    rates, context = Rates(1.0, 5.0, 1.0), ContextPrices(1.0, 0.05, 0.05)
    terms = lookahead_terms(rates, context, 20.0, first=True)
    course = best_course(Outlook(agreements, shape=2.0), 0.5, terms)
    value, k = cheapest(agreements, 0.5, 2.0, rates, 20.0, context, True)
    assert course.tokens == k == 3
    assert course.value == pytest.approx(value)


def test_a_later_round_can_pay_for_a_first_one_that_does_not() -> None:
    """A doubtful token near the beginning of a long sure draft is worth finding out about; a myopic plan would not."""
    rates, context = Rates(1.0, 5.0, 1.0), ContextPrices(0.05, 0.05, 0.05)
    agreements = (0.99, 0.2, *[0.99] * 40)
    terms = lookahead_terms(rates, context, 250.0, first=True)
    ahead = best_course(Outlook(agreements, shape=CERTAIN), 0.0, terms)
    single = [rates.output * sum(math.prod(agreements[:i]) for i in range(1, k + 1)) - k for k in range(1, 43)]
    assert max(single) - 250 * 0.05 < 0 < ahead.value


def test_a_longer_draft_is_planned_on_a_grid_with_little_loss() -> None:
    """Beyond the grid's size the value stays near the one with every place; the cut is before the doubtful token."""
    rates, context = Rates(1.0, 5.0, 1.0), ContextPrices(1.0, 0.05, 0.05)
    terms = lookahead_terms(rates, context, 100.0, first=True)
    agreements = [0.999] * GRID * 3
    agreements[GRID + 7] = 0.02
    course = best_course(Outlook(tuple(agreements), shape=CERTAIN), 0.0, terms)
    assert course.tokens == GRID + 7
    short = best_course(Outlook(tuple(agreements[: GRID + 7]), shape=CERTAIN), 0.0, terms)
    assert course.value > short.value  # there is more to come after the doubtful token


def test_what_nobody_reaches_is_not_planned_for() -> None:
    """Behind tokens that cannot hold, nothing is scored, and the end of such a draft is not counted on."""
    terms = lookahead_terms(Rates(1.0, 50.0, 1.0), ContextPrices(), 10.0, first=False)
    course = best_course(Outlook((0.9, *[1e-9] * 80)), 1.0, terms)
    assert course.tokens < 20
