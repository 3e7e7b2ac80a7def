"""B05: a call is priced by the service tier that served it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from casepair import Pair
from test_b01 import USAGE, replied

from cheapspec.drive import runtime

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
    """The reply's, else the one asked for; a tier without a price is unknown, not silently standard; it is said once."""
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
