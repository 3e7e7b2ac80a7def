"""Rules that a caller can name: lenience is counted, text match is refused where it cannot save."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from engine_kit import PROMPT, Proposing, Ran, asked, pinned, ran

from cheapspec.core.acceptance import Alternative, TargetLogprob, VerificationResult, verify_lenient
from cheapspec.core.engine import Policy
from cheapspec.core.info import Info
from cheapspec.core.money import Prices
from cheapspec.core.request import Sampling
from cheapspec.core.rules import WINDOW, Lenient, TextMatch, text_match_cost, text_match_refusal
from cheapspec.testing.toy import ToyModel


def at(logprob: float | None, best: float, **more: Any) -> TargetLogprob:
    top = (Alternative("best", best, 1), *((Alternative("own", logprob, 9),) if logprob is not None else ()))
    return TargetLogprob("own", logprob, 9, None, top, **more)


def test_lenient_accepts_down_to_its_limit_and_no_further() -> None:
    """log p ≥ top − nats, the boundary included; the first token below it is corrected by the argmax."""
    walk = [at(-0.1, -3.0), at(-1.5, -0.5), at(-1.6, -0.5)]
    found = verify_lenient(walk, 1.0)
    assert found == VerificationResult(2, Alternative("best", -0.5, 1), lenient=1)
    assert verify_lenient(walk, 0.0) == VerificationResult(1, Alternative("best", -0.5, 1))
    assert verify_lenient(walk, 2.0) == VerificationResult(3, None, lenient=2)
    assert verify_lenient(walk, 2.0, limit=2) == VerificationResult(2, None, lenient=1)
    assert verify_lenient(walk, 2.0, limit=0) == VerificationResult(0)


@pytest.mark.parametrize("number", [None, math.nan, -math.inf, -9999.0])
def test_b20_lenience_is_no_licence_for_unusable_numbers(number: float | None) -> None:
    """Unverified is never accepted, however lenient the rule."""
    walk = [at(-0.1, -3.0), at(number, -0.5)]
    assert verify_lenient(walk, 1e9) == VerificationResult(1, None, unverified=1)


def test_a_rank_without_alternatives_is_not_lenient() -> None:
    """How far below the top the token is, nobody says."""
    position = TargetLogprob("own", -0.1, 9, rank=2)
    assert verify_lenient([position], 5.0) == VerificationResult(0, None)


@pytest.mark.parametrize("nats", [-0.1, 100.5, 1e4, math.nan, math.inf, True, "1", None])
def test_lenient_takes_a_number_of_nats(nats: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(ValueError, match="nats"):
        Lenient(nats)
    assert (Lenient().nats, Lenient(0).nats, Lenient(nats=2.5).nats) == (1.0, 0, 2.5)


def lenient(nats: float | None, draft: str, **request: Any) -> Ran:
    model = ToyModel(5, ends=4.0)
    return ran(
        replace(asked(max_tokens=12), **request),
        model,
        [Proposing([draft] * 9)],
        policy=Policy(draft_tokens=6, lenient_nats=nats),
    )


def test_what_lenience_changed_is_counted_and_told() -> None:
    """What the exact rule rejects is kept by the lenient one; each such token counts, and the reply is lossy."""
    draft = " the world is big and small"
    exact, loose = lenient(None, draft), lenient(50.0, draft)
    assert not exact.text.startswith(draft) and loose.text.startswith(" the world")
    assert exact.tally.lenient_tokens == 0 and loose.tally.lenient_tokens > 0
    assert loose.tally.lenient_tokens <= loose.tally.accepted_tokens
    told = loose.tally.info("r", None, "unknown")
    assert told.lossy and told.lenient_tokens == loose.tally.lenient_tokens
    assert Info.from_dict(told.to_dict()) == told
    assert "lenient_tokens" not in exact.tally.info("r", None, "unknown").to_dict()


def test_without_a_difference_lenience_gives_the_targets_own_reply() -> None:
    """A right draft is accepted as ever: nothing is lossy about it."""
    model = pinned("The capital of France is Paris.")
    outcome = ran(
        asked(prompt=PROMPT),
        model,
        [Proposing(["The capital of France is Paris."])],
        policy=Policy(draft_tokens=20, lenient_nats=1.0),
    )
    assert outcome.text == "The capital of France is Paris." and outcome.tally.lenient_tokens == 0
    assert not outcome.tally.info("r", None, "unknown").lossy


def test_a_target_that_cannot_be_followed_goes_direct_under_every_rule() -> None:
    """Lenience says what may differ, not how a target samples."""
    outcome = lenient(1.0, " the", sampling=Sampling(0.5, 1.0))
    assert outcome.played.direct is not None and outcome.played.direct.reason == "sampling"


def test_text_match_never_costs_less_than_the_target_alone() -> None:
    """Even with every draft token right: each is billed as output, and each further round reads the context again."""
    for prompt in (0, 100, 5000):
        for tokens in (1, 16, 400):
            for ratio in (1.0, 5.0):
                assert text_match_cost(prompt, 300, tokens, ratio, 0.1) >= 1.0
    assert text_match_cost(500, 300, 300, 5.0, 0.1) == 1.0
    rounds = [16 * number for number in range(1, 19)]
    want = 1 + sum((500 + at) * 0.1 for at in rounds) / 2000
    assert text_match_cost(500, 300, 16, 5.0, 0.1) == pytest.approx(want)
    windows = 1 + sum((500 + at) * 0.1 for at in range(WINDOW, 300, WINDOW)) / 2000
    assert f"{windows:.2f} times as much" in text_match_refusal()


@pytest.mark.parametrize("wrong", [0, -0.1, 1.01, float("nan"), True, "half"])
def test_a_least_probability_is_a_probability(wrong: Any) -> None:
    """Above 0, at most 1; without one only what the target wrote holds, and that is an exact rule by name."""
    with pytest.raises(ValueError, match="min_probability"):
        TextMatch(wrong)
    assert (TextMatch().name, TextMatch().nats) == ("text_match", None)
    assert TextMatch(0.5).name == "text_match_probable" and TextMatch(0.5).nats == pytest.approx(0.6931, abs=1e-4)


def test_the_refusal_is_in_the_callers_prices() -> None:
    """A list without a price of input, or without one of cached input, has its figure too."""
    plain = text_match_refusal(Prices(Decimal(2), Decimal(8)))
    assert "output 4 times and cached input 1 times" in plain
    assert text_match_refusal(Prices(Decimal(0), Decimal(8))) == text_match_refusal()
