"""A certificate's promise holds as often as it says, and only for what it was made with."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from cheapspec.rules.certificates import (
    THRESHOLDS,
    Audit,
    Certificate,
    Scope,
    certify,
    needed,
    promised,
    tail,
    trials,
    upper_bound,
)

SCOPE = Scope("maths", "judge(target)", "letter-1", "ollama:qwen2.5:3b", "m at https://x/v1", "fp_1", "last_number()")


@pytest.mark.parametrize(("failures", "n"), [(0, 299), (1, 473), (2, 628), (5, 1049)])
def test_how_many_audited_requests_a_promise_of_one_per_cent_needs(failures: int, n: int) -> None:
    """299 without a failure, 473 with one, 628 with two, 1,049 with five; one fewer is not enough."""
    assert needed(failures) == n
    assert promised(n, failures)
    assert not promised(n - 1, failures)
    assert upper_bound(n, failures) <= 0.01 < upper_bound(n - 1, failures)


@pytest.mark.parametrize(("n", "failures", "share"), [(5, 2, 0.3), (40, 0, 0.01), (40, 40, 0.5), (300, 7, 0.02)])
def test_the_binomial_tail_is_the_sum_of_its_terms(n: int, failures: int, share: float) -> None:
    """Against the sum written out."""
    terms = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(failures + 1)]
    assert tail(n, failures, share) == pytest.approx(sum(terms))


def test_the_edges_of_the_tail() -> None:
    """Shares of 0 and 1, large counts, and what is out of range."""
    assert (tail(5, 0, 0.0), tail(5, 4, 1.0), tail(5, 5, 1.0), tail(0, 0, 0.5)) == (1.0, 0.0, 1.0, 1.0)
    assert 0 < tail(1_000_000, 9_800, 0.01) < 0.05
    assert (upper_bound(0, 0), upper_bound(3, 3)) == (1.0, 1.0)
    for wrong in ((3, 4, 0.1), (3, -1, 0.1), (3, 1, 1.1)):
        with pytest.raises(ValueError, match="binomial"):
            tail(*wrong)
    for loss, confidence in ((0.0, 0.95), (0.01, 1.0), (0.01, 0.2), (math.nan, 0.95)):
        with pytest.raises(ValueError, match="promise"):
            promised(300, 0, loss, confidence)


def batch(good: int, *bad: float, rejected: int = 0) -> list[Audit]:
    """Good ones score 0.9995; bad ones as given."""
    return [Audit(0.9995, False)] * good + [Audit(score, True) for score in bad] + [Audit(None, True)] * rejected


def test_thresholds_are_tried_strictest_first_up_to_the_first_failure() -> None:
    """What a looser threshold would show is not looked at any more."""
    made = trials(batch(470, 0.992, 0.97, 0.96))
    assert [(trial.threshold, trial.failures, trial.holds) for trial in made] == [
        (0.999, 0, True),
        (0.995, 0, True),
        (0.99, 1, True),
        (0.98, 1, True),
        (0.95, 3, False),
    ]
    assert made[2].bound() <= 0.01 < made[4].bound()
    got = certify(batch(470, 0.992, 0.97, 0.96), SCOPE)
    assert got is not None
    assert (got.threshold, got.n, got.failures, got.accepted) == (0.98, 473, 1, 471)


def test_the_promise_is_about_all_audited_requests() -> None:
    """Rejections count in n and never as failures, however bad the draft was."""
    got = certify(batch(100, rejected=199), SCOPE, thresholds=(1.0, 0.5))
    assert got is not None
    assert (got.n, got.failures, got.accepted, got.threshold) == (299, 0, 100, 0.5)
    assert certify(batch(100, rejected=198), SCOPE) is None


def test_without_enough_records_or_a_comparison_there_is_no_certificate() -> None:
    """No records, a bad one at the strictest threshold, or replies that nothing compared."""
    assert certify([], SCOPE) is None
    assert certify(batch(300, 1.0), SCOPE) is None
    assert certify(batch(300), replace(SCOPE, comparison="")) is None
    with pytest.raises(ValueError, match="falling order"):
        certify(batch(300), SCOPE, thresholds=(0.5, 0.9))


def made(chance: float | None = None) -> Certificate:
    got = certify(batch(299), SCOPE, chance=chance)
    assert got is not None
    return got


def test_a_certificate_says_what_it_promises_and_for_what() -> None:
    """Counts, loss, confidence, workload, rule, prompt, draft, target, fingerprint and comparison."""
    told = str(made(0.5))
    for part in ("1.00%", "95%", "0 of 299", *(str(value) for value in vars_of(SCOPE)), "by chance in 50%"):
        assert part in told
    assert "by chance" not in str(made())


def vars_of(scope: Scope) -> list[Any]:
    return [getattr(scope, part.name) for part in fields(Scope)]


@pytest.mark.parametrize("name", [part.name for part in fields(Scope)])
def test_a_certificate_expires_when_anything_changes(name: str) -> None:
    """Workload, rule, prompt version, draft, target, the target's fingerprint, the comparison: each."""
    got = made()
    assert got.expired(SCOPE) is None
    said = got.expired(replace(SCOPE, **{name: "other"}))
    assert said is not None
    assert name.replace("_", " ") in said
    assert got.expired(replace(SCOPE, fingerprint=None)) is not None


def test_a_certificate_survives_the_ledger_and_a_forged_one_does_not() -> None:
    """Its JSON gives it back; figures that do not bear the promise are refused."""
    got = made(0.25)
    told = json.loads(json.dumps(got.as_json()))
    assert Certificate.of(told) == got
    for change in (
        {"n": 298},
        {"failures": 1},
        {"accepted": 300},
        {"n": "299"},
        {"loss": 0.0001},
        {"loss": "x"},
        {"confidence": 2},
        {"scope": {"workload": "x"}},
        {"scope": {**told["scope"], "comparison": ""}},
        {"more": 1},
    ):
        with pytest.raises(ValueError, match=r"certificate|promise"):
            Certificate.of({**told, **change})
    with pytest.raises(ValueError, match="no certificate"):
        Certificate.of({})


TRAFFICS, REQUESTS, LOSS = 2400, 700, 0.01


def traffic(random: Random) -> tuple[list[float], list[Audit]]:
    """The true loss at each threshold, and a batch drawn from it. The loss at the loosest is .2 % to 5 %."""
    worst, shape = random.uniform(0.002, 0.05), random.uniform(0.3, 3.0)
    true = [worst * ((index + 1) / len(THRESHOLDS)) ** shape for index in range(len(THRESHOLDS))]
    bad = [Audit(threshold, True) for threshold in THRESHOLDS]
    good = [Audit(threshold, False) for threshold in THRESHOLDS] + [Audit(None, False), Audit(None, True)]
    draws = (random.random() for _ in range(REQUESTS))
    return true, [bad[bisect_right(true, u)] if u < worst else good[int(u * 1e6) % len(good)] for u in draws]


def test_the_promise_is_broken_no_oftener_than_it_says_and_a_naive_choice_breaks_it() -> None:
    """Over 2,400 traffics at most 5 % of certificates at 95 % promise too much (within three standard deviations of
    the count); the loosest threshold that *looked* good enough in the same records does so far more often.
    """
    random = Random(20261130)
    broken = naive = certified = 0
    for _ in range(TRAFFICS):
        true, audits = traffic(random)
        got = certify(audits, SCOPE)
        if got is not None:
            certified += 1
            broken += true[THRESHOLDS.index(got.threshold)] > LOSS
        seen = [one.score for one in audits if one.bad and one.score is not None]
        looks_good = [
            index
            for index, threshold in enumerate(THRESHOLDS)
            if sum(score >= threshold for score in seen) / len(audits) <= LOSS
        ]
        naive += bool(looks_good) and true[looks_good[-1]] > LOSS
    most = 0.05 * TRAFFICS + 3 * math.sqrt(0.05 * 0.95 * TRAFFICS)
    assert broken <= most
    assert certified > TRAFFICS / 2, "a promise that is never given is never broken"
    assert naive > 0.2 * TRAFFICS
    assert naive > most


def test_the_worst_traffic_breaks_the_promise_in_five_per_cent() -> None:
    """A rule that loses a hair more than promised everywhere is certified in at most 5 % of batches, and nearly so
    often: the bound is exact.
    """
    random, n = Random(7), 628
    wrong = sum(
        certify([Audit(1.0, random.random() < 0.0101) for _ in range(n)], SCOPE) is not None for _ in range(2000)
    )
    expected = 2000 * tail(n, 2, 0.0101)
    assert abs(wrong - expected) <= 3.5 * math.sqrt(expected)
    assert wrong <= 100 + 3 * math.sqrt(95)
