"""B04: a model without a price is unknown, never free, and its name is found however it is written."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import openai
import pytest
from casepair import Pair
from test_b01 import USAGE, replied

from cheapspec import Budget, OpenAI
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger

TABLE = {"gpt-4o": {"input": "2.50", "cached_input": "1.25", "output": "10.00"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["openai/gpt-4o", "openrouter/openai/gpt-4o", "gpt-4o", "gpt-4o-2024-08-06"])
def test_b04abc_one_row_prices_every_spelling(model: str, stream: bool, pair: Pair) -> None:
    """Router prefixes and dates, in the request or in the reply only."""
    pair.settings["prices"] = TABLE
    if not stream:
        pair.target.plan("direct", replied(USAGE, model="gpt-4o-2024-08-06"))
    outcome = pair.ask(model=model, temperature=..., stream=stream)
    assert outcome.error is None
    assert outcome.told.priced_by == "user"
    assert outcome.told.paid_usd is not None
    assert outcome.told.paid_usd > 0
    if not stream:
        assert outcome.told.paid_usd == Decimal("0.005615")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0, ...], ids=["speculated", "direct"])
@pytest.mark.parametrize("model", ["acme/brand-new", "gpt-4o-mini"])
def test_b04de_an_unknown_price_is_unknown(model: str, temperature: Any, stream: bool, pair: Pair) -> None:
    """Not 0: it never speculates, and shows as unpriced in the totals."""
    pair.settings |= {"prices": TABLE, "draft_tokens": None}
    outcome = pair.ask(model=model, temperature=temperature, stream=stream)
    assert outcome.error is None
    told = outcome.told
    assert (told.decision, told.paid_usd, told.baseline_usd, told.priced_by) == ("direct", None, None, "unknown")
    assert told.output_tokens > 0, "the tokens are known all the same"
    if temperature == 0:
        assert told.reason == "price_unknown"
    totals = pair.ledger.totals()
    assert (totals.unpriced_requests, totals.paid_usd) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_b04_under_a_budget_the_unknown_is_refused_or_allowed(stream: bool, pair: Pair) -> None:
    """By a stated rule: refused, unless the budget says otherwise; then it passes uncounted."""
    pair.ledger = BudgetedMemoryLedger()
    pair.settings["prices"] = TABLE
    body = pair.body(model="acme/brand-new", max_tokens=50, stream=stream)
    options = {**pair.client_options(), "max_retries": 0, "http_client": openai.DefaultHttpxClient(verify=False)}
    with OpenAI(speculation=pair.speculation(draft_tokens=None), **options) as client:
        with client.session("strict", budget=Budget(usd=5)), pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**body)
        assert refused.value.code == "budget_exceeded"
        assert pair.paid == []
        with client.session("lax", budget=Budget(usd=5, unknown="allow")):
            reply: Any = client.chat.completions.create(**body)
            assert list(reply)
    assert len(pair.paid) == 1


def test_b04_a_local_draft_is_an_explicit_zero(pair: Pair) -> None:
    """Its calls are in the books, unbilled; nothing about them is unknown."""
    pair.says("One, two, three in Paris.")
    outcome = pair.ask()
    assert outcome.told.decision == "speculate"
    drafts = [call for call in pair.row().calls if call.row.side == "draft"]
    assert drafts
    assert not any(call.row.billed or call.unpriced for call in drafts)
    assert pair.ledger.totals().unpriced_requests == 0
