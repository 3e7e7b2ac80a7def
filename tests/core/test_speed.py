"""Speeds: what is measured of calls, and the planner's price vector in seconds."""

from __future__ import annotations

import random

import pytest

from cheapspec.core.planner import gain
from cheapspec.core.speed import (
    PRIOR,
    DraftSpeed,
    Speed,
    TargetSpeed,
    seconds_context,
    seconds_rates,
)


def measured(true: Speed, calls: int = 300, jitter: float = 0.0) -> TargetSpeed:
    """Calls of mixed shapes, with times that vary."""
    chance, speed = random.Random(7), TargetSpeed()
    for _ in range(calls):
        read, wrote = chance.randrange(20, 4000), chance.choice([1, 1, 30, 200])
        seconds = true.round_trip + true.prefill * read + true.decode * wrote
        speed = speed.observe(read, wrote, max(0.0, seconds + chance.gauss(0, jitter)))
    return speed


def test_a_targets_speed_is_found_from_its_calls() -> None:
    """Three coefficients, within a few per cent after some hundred calls, whatever the prior said."""
    true = Speed(round_trip=0.12, prefill=0.00005, decode=0.031)
    found = measured(true, jitter=0.03).speed
    assert found.decode == pytest.approx(true.decode, rel=0.05)
    assert found.prefill == pytest.approx(true.prefill, rel=0.3)
    assert found.round_trip == pytest.approx(true.round_trip, abs=0.05)


def test_before_anything_was_measured_the_stated_prior_holds() -> None:
    """And one call moves it, without deciding it."""
    assert TargetSpeed().speed == PRIOR
    one = TargetSpeed().observe(100, 100, 20.0).speed
    assert PRIOR.decode < one.decode < 0.2


def test_nothing_takes_less_than_no_time() -> None:
    """Calls that seem to get faster with more input do not make reading a gain."""
    speed = TargetSpeed()
    for read, seconds in ((100, 3.0), (2000, 1.0), (4000, 0.2)) * 20:
        speed = speed.observe(read, 10, seconds)
    found = speed.speed
    assert found.prefill == 0.0 and found.round_trip >= 0 and found.decode >= 0


def test_a_host_that_became_slow_is_noticed() -> None:
    """Old calls fade: after some hundred new ones they no longer count."""
    speed = measured(Speed(0.1, 0.0, 0.01))
    for wrote in (1, 50, 200) * 100:
        speed = speed.observe(100, wrote, 0.1 + wrote * 0.05)
    assert speed.speed.decode > 0.04
    draft = DraftSpeed()
    assert draft.decode == pytest.approx(0.02)
    for _ in range(400):
        draft = draft.observe(100, 5.0)
    assert draft.decode == pytest.approx(0.05, rel=0.01)


def test_seconds_make_a_price_vector() -> None:
    """The gain in seconds is the time of decoding saved, less another round trip and the reading of the draft."""
    rates = seconds_rates(Speed(0.2, 0.001, 0.03), 0.01)
    won = gain(
        [1.0] * 20,
        rates=rates,
        context_tokens=100,
        context=seconds_context(0.0, scoring_reuses=True),
        first=True,
    )
    assert won == pytest.approx(20 * 0.03 - 20 * 0.001 - 0.2)
    assert rates.drafting == 0.01
    assert seconds_rates(Speed(0.2, 0.001, 0.03), forced=True).draft == 0.03


def test_a_context_in_the_cache_takes_no_time() -> None:
    """Direct and hand-off read what is not cached; scoring reads everything where it does not use the cache."""
    reuses, anew = seconds_context(0.75, scoring_reuses=True), seconds_context(0.75, scoring_reuses=False)
    assert (reuses.q0, reuses.qs, reuses.qh, reuses.first) == (0.25, 0.0, 0.0, 0.25)
    assert (anew.q0, anew.qs, anew.qh, anew.first) == (0.25, 1.0, 0.0, 1.0)
