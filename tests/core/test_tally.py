"""The tally: counts stand without prices, unknown money is not zero, the reply's usage is the target's own."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cheapspec.core.effects import Usage
from cheapspec.core.money import LocalPrice, Prices
from cheapspec.core.ports import Identity
from cheapspec.core.tally import Tally

PRICES = Prices(Decimal(2), Decimal(10), Decimal("0.5"))


def test_all_calls_are_summed() -> None:
    """Tokens and dollars are those of every billed call; a direct call's bill is the baseline."""
    tally = Tally(drafter="ollama:x", rounds=1, accepted_tokens=8, corrected_tokens=1)
    tally.spend(Usage(100, 1, 40))
    tally.spend(Usage(110, 5, 100))
    tally.finish(1.5, 90, 14)
    info = tally.info("r-1", PRICES, "user", session="s")
    assert (info.input_tokens, info.cached_input_tokens, info.output_tokens, info.target_calls) == (210, 140, 6, 2)
    assert info.paid_usd == Decimal("0.000270")  # 70 × 2, 140 × 0.5, 6 × 10 per million
    assert info.baseline_usd == Decimal("0.000260")  # 50 × 2, 40 × 0.5 (cached before this request), 14 × 10
    assert (info.seconds.total, info.session, info.priced_by, info.baseline) == (1.5, "s", "user", "estimated")


def test_an_unknown_price_leaves_the_counts() -> None:
    """Without prices money is unknown, not zero; one unpriced call makes the sum unknown."""
    tally = Tally()
    tally.spend(Usage(10, 1, cost_usd="0.5"))
    assert tally.paid(None) == Decimal("0.5")
    tally.spend(Usage(10, 1))
    info = tally.info("r", None, "unknown")
    assert info.paid_usd is None and info.baseline_usd is None and info.input_tokens == 20
    assert info.priced_by == "provider"
    assert Tally().paid(None) == 0


def test_the_reply_reports_cached_tokens_only_if_the_target_does() -> None:
    """Not reported stays not reported; else the larger of what it told and what earlier calls had put there."""
    tally = Tally(cached_share=0.5)
    assert tally.reply_usage(100, 7) == Usage(100, 7, None)
    tally.spend(Usage(100, 1, None))
    assert tally.reply_usage(100, 7) == Usage(100, 7, None)
    tally.spend(Usage(100, 1, 80))
    assert tally.reply_usage(100, 7) == Usage(100, 7, 50)
    assert tally.reply_usage(None, 7) == Usage(0, 7, 0)


@pytest.mark.parametrize(("told", "share", "cached"), [(64, 0.0, 64), (64, 0.9, 90), (500, 0.0, 100)])
def test_the_first_calls_cache_is_the_direct_calls_too(told: int, share: float, cached: int) -> None:
    """Later calls of the request read what it wrote itself: that is not counted, and never more than the prompt."""
    tally = Tally(cached_share=share)
    tally.spend(Usage(120, 1, told))
    tally.spend(Usage(140, 1, 130))
    assert tally.reply_usage(100, 1).cached_tokens == cached


def test_the_first_call_that_names_itself_names_the_reply() -> None:
    """One id throughout."""
    tally = Tally()
    for identity in (Identity(), Identity("a", "m"), Identity("b", "n")):
        tally.identify(identity)
    assert tally.identity == Identity("a", "m")


def test_local_drafting_is_paid_and_not_in_the_baseline() -> None:
    """With a price it is a part of what was paid; without one nothing is said of it."""
    prices = Prices(Decimal(1), Decimal(10))
    free, priced = (Tally(local_price=price, local_tokens=500) for price in (None, LocalPrice(Decimal(2))))
    for tally in (free, priced):
        tally.spend(Usage(100, 1))
        tally.finish(0.1, 100, 20)
    one, other = (tally.info("r", prices, "user") for tally in (free, priced))
    assert (one.local_usd, other.local_usd) == (None, Decimal("0.001"))
    assert one.paid_usd is not None
    assert other.paid_usd == one.paid_usd + Decimal("0.001")
    assert other.baseline_usd == one.baseline_usd
    assert (other.prompt_tokens, other.cached_prompt_tokens, other.reply_tokens) == (100, 0, 20)
    priced.uncounted = True
    assert priced.info("r", prices, "user").paid_usd is None


def test_a_call_to_another_model_has_prices_of_its_own() -> None:
    """A judge's call is paid at the judge's prices, whatever the target's are; unknown, the sum is unknown."""
    tally = Tally()
    tally.spend(Usage(100, 1, 40))
    tally.elsewhere.append((Usage(10, 2, 5), Prices(Decimal(1), Decimal(4))))
    info = tally.info("r", PRICES, "user")
    assert info.paid_usd == Decimal("0.000150") + Decimal("0.000018")
    assert (info.input_tokens, info.cached_input_tokens, info.output_tokens, info.target_calls) == (110, 45, 3, 2)
    tally.elsewhere.append((Usage(10, 2), None))
    assert tally.paid(PRICES) is None


def test_a_reply_on_a_rules_word_says_so() -> None:
    """It is lossy, with what the rules said; no rate of accepted tokens is made up for it."""
    tally = Tally("answer(x)", drafted_tokens=30, unverified_tokens=30, lossy=True, verdicts=[{"rule": "answer(x)"}])
    tally.spend(Usage(50, 3))
    tally.finish(1.0, 40, 30)
    info = tally.info("r", PRICES, "user")
    assert (info.lossy, info.on_trust, info.rule, info.verdicts) == (True, True, "answer(x)", ({"rule": "answer(x)"},))
    assert (info.acceptance_rate, info.accepted_tokens, info.unverified_tokens) == (None, 0, 30)
    assert info.calls_saved_per_token_client == 29
