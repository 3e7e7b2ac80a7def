"""B05: a call is priced by the service tier that served it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from casepair import Pair
from test_b01 import USAGE, replied

from cheapspec.drive import runtime
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger

STANDARD, FLEX = Decimal("0.005615"), Decimal("0.0028075")
PRICES: dict[str, Any] = {
    "input": "2.50",
    "cached_input": "1.25",
    "output": "10.00",
    "tiers": {"flex": {"input": "1.25", "cached_input": "0.625", "output": "5.00"}},
}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}], ids=["direct", "bypass"])
@pytest.mark.parametrize(
    ("served", "usd", "warned"),
    [
        ({"service_tier": "flex"}, FLEX, ""),
        ({"service_tier": "default"}, STANDARD, "asked for the service tier 'flex' and was served 'default'"),
        ({}, FLEX, ""),
        ({"service_tier": "priority"}, None, "no price for the service tier 'priority'"),
    ],
    ids=["a-flex", "b-default", "c-none", "d-priority"],
)
def test_b05_the_tier_that_served_is_priced(
    served: dict[str, Any],
    usd: Decimal | None,
    warned: str,
    more: dict[str, Any],
    pair: Pair,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reply's, else the one asked for; a tier without a price is unknown, not silently standard; said once."""
    monkeypatch.setattr(runtime, "_warned", set[str]())
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(USAGE, **served))
    outcome = pair.ask(temperature=..., service_tier="flex", **more)
    assert outcome.error is None
    assert outcome.told.paid_usd == usd
    assert outcome.told.priced_by == ("unknown" if usd is None else "user")
    [call] = pair.calls()
    assert call.cost_usd == usd
    assert call.usage is not None
    assert call.usage.service_tier == served.get("service_tier")
    assert warned in caplog.text
    assert bool(warned) is ("service tier" in caplog.text)


@pytest.mark.parametrize(
    ("asked", "served", "usd"),
    [("default", "flex", FLEX), ("flex", "default", STANDARD), ("flex", "flex", FLEX)],
    ids=["cheaper", "dearer", "as-asked"],
)
def test_b05_a_budget_counts_the_dearer_of_two_tiers(asked: str, served: str, usd: Decimal, pair: Pair) -> None:
    """What is paid is the tier that served; what a budget has left is by the dearer of that and the one asked for."""
    ledger = BudgetedMemoryLedger()
    pair.ledger = ledger
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(USAGE, service_tier=served))
    headers = {"x-cheapspec-session": "s", "x-cheapspec-budget-usd": "5"}
    outcome = pair.ask(temperature=..., service_tier=asked, max_tokens=400, extra_headers=headers)
    assert outcome.error is None
    assert outcome.told.paid_usd == usd
    account = ledger._accounts["session:s", ""]
    counted = FLEX if asked == served == "flex" else STANDARD
    assert (account.reserved, Decimal(account.spent) / 10**9) == (0, counted)
