"""What is believed of a draft: the gamma mixture's survival, and how hits and misses move it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.estimate import STATIC_START, Count, Estimates
from cheapspec.core.priors import CERTAIN, SHAPE, Outlook, RequestRates, survival

TEXT = [DraftToken("one"), DraftToken(" two")]


def integral(shape: float, rate: float, weigh: list[tuple[float, bool]], hazard: float) -> float:
    """E[exp(−θ·hazard) | what was seen], by Simpson's rule over θ. ``weigh``: (hazard, missed) of each token seen."""
    steps, high = 4000, 60.0 / min(rate, 1.0) if shape < 1 else 40.0
    top = bottom = 0.0
    for i in range(1, steps):
        theta = high * (i / steps) ** 3  # dense near 0
        weight = (4 if i % 2 else 2) * 3 * (i / steps) ** 2
        likely = math.exp((shape - 1) * math.log(theta) - rate * theta)
        for seen, missed in weigh:
            likely *= 1 - math.exp(-theta * seen) if missed else math.exp(-theta * seen)
        top += weight * likely * math.exp(-theta * hazard)
        bottom += weight * likely
    return top / bottom


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.05, 0.999), min_size=1, max_size=8), st.sampled_from([1.0, 2.0, 6.0]))
def test_survival_is_the_integral_over_the_unknown_predictability(agreements: list[float], shape: float) -> None:
    """(b / (b + H))^a is exp(−θH) averaged over a gamma-distributed θ of mean 1."""
    outlook = Outlook(tuple(agreements), shape=shape)
    hazard = math.fsum(outlook.hazards)
    assert survival(outlook)[-1] == pytest.approx(integral(shape, shape, [], hazard), rel=2e-3)


def test_hits_are_taken_in_exactly() -> None:
    """After tokens that held, the belief is Bayes' posterior: their hazards are added to the rate."""
    rates = RequestRates()
    rates.learn("m", [math.log(0.75)] * 5, 5, missed=False)
    outlook = rates.outlook([DraftToken("x", math.log(0.5))], "m")
    hit = RequestRates().outlook([DraftToken("x", math.log(0.75))], "m").hazards[0]
    expected = integral(SHAPE, SHAPE, [(hit, False)] * 5, outlook.hazards[0])
    assert survival(outlook)[0] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("p", [0.05, 0.35, 0.55, 0.75, 0.95])
def test_a_single_token_holds_with_the_rate_of_its_bucket(p: float) -> None:
    """Whatever the spread of θ, its average over requests is what was counted over requests."""
    token = DraftToken("x", math.log(p))
    assert survival(RequestRates().outlook([token], "m"))[0] == pytest.approx(Estimates().rate(token.logprob))
    static = survival(RequestRates().outlook([token], "lookup", static=True))[0]
    assert static == pytest.approx(STATIC_START["lookup"])


@pytest.mark.parametrize("p", [0.05, 0.55, 0.95])
def test_a_miss_is_taken_in_with_the_posteriors_mean(p: float) -> None:
    """Where a hit was almost sure a miss says much, where a miss was likely it says little."""
    rates = RequestRates()
    rates.learn("m", [math.log(p)], 0, missed=True)
    outlook = rates.outlook(TEXT, "m")
    hazard = RequestRates().outlook([DraftToken("x", math.log(p))], "m").hazards[0]
    small = 1e-4  # E[θ] by a difference quotient
    expected = (1 - integral(SHAPE, SHAPE, [(hazard, True)], small)) / small
    assert outlook.shape / outlook.rate == pytest.approx(expected, rel=1e-2)
    assert SHAPE < outlook.shape < SHAPE + 1


def test_a_row_of_misses_and_a_run_of_hits_move_the_outlook_apart() -> None:
    """The same tokens look worse after misses and better after hits, and each drafter has its own belief."""
    sure = [DraftToken("x", math.log(0.95))] * 10
    good, bad = RequestRates(), RequestRates()
    good.learn("m", [math.log(0.95)] * 60, 60, missed=False)
    for _ in range(3):
        bad.learn("m", [math.log(0.95)] * 4, 3, missed=True)
    alive = [survival(rates.outlook(sure, "m"))[-1] for rates in (bad, RequestRates(), good)]
    assert alive == sorted(alive) and alive[0] < alive[1] - 0.1 < alive[2] - 0.1
    assert bad.outlook(sure, "other") == RequestRates().outlook(sure, "other")


def test_a_prediction_that_misses_early_is_soon_given_up() -> None:
    """Given text begins at its stated prior; two misses at its beginning leave little of that, a long run holds it."""
    rates = RequestRates()
    first = rates.outlook(TEXT, "prediction", static=True)
    assert survival(first)[0] == pytest.approx(STATIC_START["prediction"])
    rates.learn("prediction", [None] * 10, 0, missed=True, static=True)
    rates.learn("prediction", [None] * 10, 0, missed=True, static=True)
    assert survival(rates.outlook(TEXT, "prediction", static=True))[0] < STATIC_START["prediction"] / 1.5


def test_what_a_workload_has_shown_replaces_the_prior() -> None:
    """The rates of an outlook are the estimates' own, and so is what a draft's end is worth."""
    told = {("m", "0.9"): Count(4000, 2000, 3900), ("m", "end"): Count(400, 400, 300)}
    outlook = RequestRates(Estimates(told)).outlook([DraftToken("x", math.log(0.95))], "m")
    assert survival(outlook)[0] == pytest.approx(0.5, abs=0.01)
    assert outlook.end > 0.95


def test_where_the_target_samples_drafts_are_believed_less_and_counted_apart() -> None:
    """A draw agrees about as often as the draft's own probability says; what it shows is no argmax's business."""
    half, sure = [DraftToken("x", math.log(0.75))], [DraftToken("x", math.log(0.93))]
    drawn = RequestRates(sampled=True)
    assert survival(drawn.outlook(half, "m"))[0] == pytest.approx(0.75)
    assert survival(drawn.outlook(sure, "m"))[0] < survival(RequestRates().outlook(sure, "m"))[0]
    assert set(drawn.learn("m", [math.log(0.75)], 1, missed=False)) == {("m (sampled)", "0.7")}
    static = survival(drawn.outlook(half, "lookup", static=True))[0]
    assert static == pytest.approx(STATIC_START["lookup"])


def test_nothing_looked_at_teaches_nothing() -> None:
    """A round of which nothing was confirmed or refused leaves belief and counts alone."""
    rates = RequestRates()
    assert rates.learn("m", [], 0, missed=True) == {}
    assert rates.learn("m", [None], 0, missed=False) == {}
    assert rates.outlook(TEXT, "m") == RequestRates().outlook(TEXT, "m")
    assert Outlook((1.0, 0.0), shape=CERTAIN).hazards == pytest.approx([1e-5, -math.log(1e-3)], rel=1e-3)
