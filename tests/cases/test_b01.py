"""B01: cached input tokens are billed once, at the cached price."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from casepair import Pair

from cheapspec.testing.faults import Json

PRICES = {"input": "2.50", "cached_input": "1.25", "output": "10.00"}
USAGE: dict[str, Any] = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920},
    "completion_tokens_details": {"reasoning_tokens": 120},
}


def replied(usage: Any, **more: Any) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}
    return Json(
        {
            "id": "r",
            "object": "chat.completion",
            "created": 1,
            "model": "toy",
            "choices": [choice],
            "usage": usage,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("change", "usd"),
    [
        ({}, "0.005615"),
        ({"prompt_tokens_details": None}, "0.008015"),
        ({"prompt_tokens_details": {"cached_tokens": None}}, "0.008015"),
        ({"prompt_tokens_details": {"cached_tokens": 9999}}, "0.0055075"),
        ({"prompt_tokens_details": {"cached_tokens": -5}}, "0.008015"),
    ],
)
def test_b01_a_reply_costs_what_its_usage_says(change: dict[str, Any], usd: str, pair: Pair) -> None:
    """Cached tokens are inside the prompt's, reasoning tokens inside the reply's; contradictions are clamped."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied({**USAGE, **change}))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert outcome.told.paid_usd == Decimal(usd)
    assert (outcome.told.input_tokens, outcome.told.output_tokens) == (2006, 300)
    [call] = pair.calls()
    assert call.cost_usd == Decimal(usd)
    assert pair.ledger.totals().paid_usd == Decimal(usd)


def test_b01_a_key_of_ones_own_pays_the_maker_too(pair: Pair) -> None:
    """A router's figure is its fee alone where the caller brought the key: what the maker charges is added."""
    pair.settings["prices"] = PRICES
    byok = {**USAGE, "cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}
    pair.target.plan("direct", replied(byok))
    outcome = pair.ask(temperature=...)
    assert (outcome.told.paid_usd, outcome.told.priced_by) == (Decimal("0.5"), "provider")


def test_b01_sound_is_not_billed_as_text(pair: Pair) -> None:
    """Tokens that have a price of their own make the cost unknown, in the facts and in the books."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied({**USAGE, "completion_tokens_details": {"audio_tokens": 200}}))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert (outcome.told.paid_usd, outcome.told.priced_by) == (None, "unknown")
    [call] = pair.calls()
    assert call.cost_usd is None


def test_b01_what_the_provider_says_it_cost_counts(pair: Pair) -> None:
    """Its own figure wins over every table."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied({**USAGE, "cost": 0.0042}))
    outcome = pair.ask(temperature=...)
    assert (outcome.told.paid_usd, outcome.told.priced_by) == (Decimal("0.0042"), "provider")
