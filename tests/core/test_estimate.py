"""Acceptance estimates: buckets, priors, what is learned, and that counts may be added in any order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.estimate import (
    AGREEMENT,
    AGREEMENT_CAP,
    END,
    KEPT,
    PRIOR_TRIALS,
    START,
    STATIC,
    STATIC_AGREEMENT,
    STATIC_END,
    STATIC_START,
    UNKNOWN,
    UNKNOWN_AGREEMENT,
    Count,
    Estimates,
    EstimateTable,
    bucket_of,
    calibration_error,
    merge,
)

SURE, DOUBTFUL = math.log(0.995), math.log(0.45)


def test_a_bucket_is_found_by_the_drafts_own_probability() -> None:
    """Its lower edge belongs to it; a number that is none is unknown; given text has a bucket of its own."""
    assert bucket_of(DOUBTFUL) == "0.4"
    assert bucket_of(math.log(0.5)) == "0.5"
    assert bucket_of(-math.inf) == "0" and bucket_of(3.0) == bucket_of(0.0)
    assert bucket_of(None) == bucket_of(math.nan) == UNKNOWN
    assert bucket_of(None, static=True) == bucket_of(-0.1, static=True) == STATIC


def test_without_observations_the_stated_prior_holds() -> None:
    """The measured table for a model, one by name for given text, the least predictable kind otherwise."""
    prior = Estimates()
    for edge, rate in AGREEMENT:
        assert prior.rate(math.log(edge) + 1e-9 if edge else -50.0, "any") == pytest.approx(min(rate, AGREEMENT_CAP))
    assert prior.rate(None) == prior.end_rate() == prior.rate(None, "other", static=True) == UNKNOWN_AGREEMENT
    for drafter in ("lookup", "prediction"):
        assert prior.rate(None, drafter, static=True) == pytest.approx(STATIC_AGREEMENT[drafter])
        assert prior.bucket_rate(drafter, START) == pytest.approx(STATIC_START[drafter])
    assert prior.bucket_rate("other", START) == UNKNOWN_AGREEMENT
    assert prior.end_rate("prediction") == pytest.approx(STATIC_END["prediction"])


def test_the_first_token_of_given_text_is_counted_apart() -> None:
    """Whether a text applies here is another question than whether it goes on; a few requests answer it."""
    seen = Estimates().observe("lookup", [None] * 4, 3, missed=True, static=True)
    assert {key: (count.trials, count.hits) for key, count in seen.items()} == {
        ("lookup", START): (1, 1),
        ("lookup", STATIC): (3, 2),
    }
    never = merge({}, *[Estimates().observe("prediction", [None], 0, missed=True, static=True) for _ in range(6)])
    assert Estimates(never).bucket_rate("prediction", START) < 0.3


def test_only_what_was_looked_at_is_learned() -> None:
    """Accepted tokens and the first one that was not; what lies behind it was written after another text."""
    delta = Estimates().observe("m", [SURE, DOUBTFUL, SURE, SURE], 1, missed=True)
    assert {key: (seen.trials, seen.hits) for key, seen in delta.items()} == {
        ("m", bucket_of(SURE)): (1, 1),
        ("m", "0.4"): (1, 0),
    }
    assert delta["m", "0.4"].predicted == pytest.approx(0.53)
    assert Estimates().observe("m", [SURE] * 3, 0, missed=False) == {}


def test_the_claim_of_an_end_is_learned_by_itself() -> None:
    """Whether the target ended its turn where the draft did counts in a bucket of its own."""
    delta = Estimates().observe("m", [None], 1, missed=False, ended=False)
    assert delta["m", END] == Count(1, 0, UNKNOWN_AGREEMENT)
    told = Estimates(merge({}, *[delta] * 100))
    assert told.end_rate("m") < 0.3 and told.end_rate("other") == UNKNOWN_AGREEMENT


def test_a_rate_moves_from_its_prior_to_the_observed_share() -> None:
    """The prior weighs as much as its stated number of observations."""
    counts = {("m", "0.4"): Count(PRIOR_TRIALS, 0, 1)}
    assert Estimates(counts).rate(DOUBTFUL, "m") == pytest.approx(0.53 / 2)
    assert Estimates(counts).rate(DOUBTFUL, "n") == pytest.approx(0.53)


def test_old_observations_fade_with_new_ones_and_not_with_time() -> None:
    """After very many observations a bucket remembers 1 / (1 − KEPT) of them, the latest best."""
    key: tuple[str, str] = ("m", "0.9")
    miss: dict[tuple[str, str], Count] = {key: Count(1, 0, 0.9)}
    hit: dict[tuple[str, str], Count] = {key: Count(1, 1, 0.9)}
    counts = merge(merge({}, *[miss] * 200), *[hit] * 40_000)
    assert counts[key].trials == pytest.approx(1 / (1 - KEPT), rel=1e-3)
    assert counts[key].hits / counts[key].trials > 0.999


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6), st.randoms())
def test_processes_may_add_theirs_in_any_order(rounds: list[list[bool]], random: object) -> None:
    """The counts differ by no more than the fading of the few observations between."""
    key: tuple[str, str] = ("m", "0.9")
    deltas: list[dict[tuple[str, str], Count]] = [
        {key: Count(len(hits), sum(hits), 0.9 * len(hits))} for hits in rounds
    ]
    one, other = merge({}, *deltas), merge({}, *reversed(deltas))
    observed = sum(map(len, rounds))
    assert one[key].trials == pytest.approx(other[key].trials, rel=observed / 2000)
    assert one[key].hits == pytest.approx(other[key].hits, abs=observed * observed / 4000)
    assert one[key].trials <= observed


def test_merging_changes_nothing_that_was_given() -> None:
    """Counts are values: a snapshot stays as it was."""
    before = {("m", "0.9"): Count(1, 1, 1)}
    after = merge(before, {("m", "0.9"): Count(1, 0, 1), ("n", "0.1"): Count(2, 1, 1)})
    assert before == {("m", "0.9"): Count(1, 1, 1)} and set(after) == {("m", "0.9"), ("n", "0.1")}


def test_the_calibration_error_is_the_weighted_distance_of_forecast_and_fact() -> None:
    """Two buckets, off by .1 and .3, with three times as many trials in the first."""
    counts = [Count(30, 27, 24), Count(10, 2, 5), Count()]
    assert calibration_error(counts) == pytest.approx((3 + 3) / 40)
    assert calibration_error([Count()]) is None


def test_a_table_keeps_workloads_apart_and_together() -> None:
    """What one workload shows is known of it, and of all of the target's together; the oldest make room."""
    key: tuple[str, str] = ("m", "0.9")
    table = EstimateTable([("t", "one", *key, Count(4, 3, 3.9))], most=4)
    table.add_estimates("t", "two", {key: Count(2, 0, 1.9)})
    assert table.estimates("t", "one") == {key: Count(4, 3, 3.9)}
    assert table.estimates("t")[key].trials == pytest.approx(6, rel=0.01)
    assert sorted(row[:4] for row in table.rows()) == [("t", "one", *key), ("t", "two", *key)]
    for number in range(9):
        table.add_estimates("t", f"w{number}", {key: Count(1, 1, 1)})
    assert table.estimates("t", "one") == {} != table.estimates("t", "w8")
    assert table.estimates("t")[key].trials == pytest.approx(15, rel=0.01)
    for number in range(9):
        table.add_estimates(f"t{number}", "one", {key: Count(1, 1, 1)})
    assert table.estimates("t") == {} != table.estimates("t8")


def test_a_table_forgets_what_was_not_used_for_longest() -> None:
    """A workload that was asked for, or added to, stays before one that was seen later and never again."""
    key: tuple[str, str] = ("m", "0.9")
    table = EstimateTable(most=3)
    for workload in ("read", "written", "idle"):
        table.add_estimates("t", workload, {key: Count(1, 1, 1)})
    table.add_estimates("t", "written", {key: Count(1, 1, 1)})
    assert table.estimates("t", "read") != {}
    table.add_estimates("t", "new", {key: Count(1, 1, 1)})
    assert table.estimates("t", "idle") == {}
    assert all(table.estimates("t", workload) for workload in ("read", "written", "new"))
