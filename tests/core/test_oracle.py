"""The clairvoyant pays exactly what the cheapest of all possible schedules costs, and no policy pays less."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import pytest
from trace_kit import PRICES, chance_trace, one, row, trace

from cheapspec.core.lanes import Lane, lanes
from cheapspec.core.money import Prices
from cheapspec.core.oracle import capture, clairvoyant
from cheapspec.core.policies import Direct, FixedLength, Planned, WholeDraft
from cheapspec.core.replay import Setting, replay
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace

TARIFFS = {
    "warm scoring": Tariff.of(PRICES),
    "uncached scoring": Tariff.of(PRICES, qs=1.0),
    "a chat": Tariff.of(PRICES, q0=0.05),
    "dear output": Tariff.of(Prices(Decimal(1), Decimal("7.5"), Decimal("0.1"))),
    "flat": Tariff.of(Prices(Decimal(1), Decimal(1), Decimal(1))),
    "a fee a call": Tariff.of(Prices(Decimal(1), Decimal(20), Decimal("0.05"), request=Decimal("0.00002"))),
}


def all_schedules(
    trace: RequestTrace, tariff: Tariff, drafters: tuple[Lane, ...], position: int = 0
) -> Iterator[float]:
    """What every possible schedule costs from ``position`` on: each length of each draft, and handing off."""
    if position >= trace.reply_tokens:
        yield 0.0
        return
    yield tariff.hand_off(trace, position)
    for lane in drafters:
        proposal = lane.propose(position, 512)
        for draft_tokens in range(1, len(proposal.tokens) + 1 if proposal else 1):
            accepted = min(draft_tokens, lane.right[position])
            here = tariff.score(trace, position, draft_tokens)
            for rest in all_schedules(trace, tariff, drafters, position + accepted + 1):
                yield here + rest


@pytest.mark.parametrize("name", TARIFFS)
def test_the_clairvoyant_is_the_cheapest_of_all_schedules(name: str) -> None:
    """Dynamic programming and the enumeration of everything agree to the last digit that floats have."""
    chance = random.Random(6)
    for _ in range(40):
        drawn, tariff = chance_trace(chance, chance.randint(1, 6)), TARIFFS[name]
        drafters = lanes(drawn)
        best = clairvoyant(drawn, tariff, drafters).paid
        assert best == pytest.approx(min(all_schedules(drawn, tariff, drafters)), rel=1e-12)


def test_its_schedule_costs_what_it_says() -> None:
    """Played step by step the schedule costs ``paid``, and reaches the end of the reply."""
    chance = random.Random(7)
    for _ in range(60):
        drawn, tariff = chance_trace(chance, chance.randint(1, 40)), TARIFFS["dear output"]
        drafters = lanes(drawn)
        schedule, position, paid = clairvoyant(drawn, tariff, drafters), 0, 0.0
        for draft_tokens in schedule.scored:
            paid += tariff.score(drawn, position, draft_tokens)
            position += min(draft_tokens, max(lane.right[position] for lane in drafters)) + 1
        if schedule.handed_off is None:
            assert position >= drawn.reply_tokens
        else:
            assert position == schedule.handed_off
            paid += tariff.hand_off(drawn, position)
        assert paid == pytest.approx(schedule.paid, rel=1e-12)


def test_no_policy_pays_less() -> None:
    """Whatever a rule or the planner decides, it is one of the clairvoyant's possible schedules."""
    chance = random.Random(8)
    traces = [chance_trace(chance, chance.randint(1, 40)) for _ in range(20)]
    for tariff in TARIFFS.values():
        for policy in (Planned(PRICES), FixedLength(8), WholeDraft(), WholeDraft(again=True), Direct()):
            for told in replay(traces, policy, Setting(tariff, oracle=True)).requests:
                assert told.clairvoyant is not None and told.clairvoyant <= told.paid * (1 + 1e-12)


def test_a_draft_that_is_right_to_the_end_is_one_call() -> None:
    """All of it is scored at input price; the end of the turn is the token that the call generates."""
    drawn = one("1111111E", prompt=10)
    schedule = clairvoyant(drawn, TARIFFS["warm scoring"], lanes(drawn))
    assert (schedule.scored, schedule.handed_off) == ((7,), None)
    assert schedule.paid == pytest.approx((10 + 7 + 5) / 1e6)


def test_a_useless_draft_goes_direct() -> None:
    """Nothing is gained, so the clairvoyant is the target alone."""
    drawn = one("000", prompt=1000)
    schedule = clairvoyant(drawn, TARIFFS["uncached scoring"], lanes(drawn))
    assert (schedule.scored, schedule.handed_off) == ((), 0)
    assert schedule.paid == TARIFFS["uncached scoring"].direct(drawn)


def test_an_empty_reply_and_no_drafter_cost_the_direct_call() -> None:
    """There is nothing to decide."""
    for drawn in (trace(tokens=0), trace(tokens=5), trace(row(""), tokens=0)):
        schedule = clairvoyant(drawn, TARIFFS["warm scoring"], lanes(drawn))
        assert (schedule.paid, schedule.handed_off) == (TARIFFS["warm scoring"].direct(drawn), 0)


def test_the_longest_draft_binds_the_clairvoyant_too() -> None:
    """It may know more than production, but not do more."""
    drawn = one("1" * 20 + "E")
    assert max(clairvoyant(drawn, TARIFFS["warm scoring"], lanes(drawn), max_draft_tokens=4).scored) == 4


@pytest.mark.parametrize(
    ("paid", "best", "expected"),
    [(0.8, 0.6, 0.5), (0.6, 0.6, 1.0), (1.0, 0.6, 0.0), (1.2, 0.6, -0.5), (1.0, 1.0, None)],
)
def test_capture_is_the_share_of_the_possible_saving(paid: float, best: float, expected: float | None) -> None:
    """Negative for a loss; unknown where nothing could have been saved."""
    got = capture(paid, 1.0, best)
    assert got is None if expected is None else got == pytest.approx(expected)
