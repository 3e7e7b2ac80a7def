"""No figure that a reply, a request or a price list names, and no decimal context of the application's, costs a reply.

Money has arithmetic of its own; what does not fit is unknown, and the reply that was paid for goes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, Inexact, localcontext
from typing import Any

import pytest
from casepair import Pair
from test_b01 import replied

PRICES = {"input": "1.25", "output": "10"}
LARGE = {"prompt_tokens": 123_457, "completion_tokens": 98_765, "total_tokens": 222_222}
EXACT = Decimal("1.14197125")
TOKENS = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


@pytest.fixture(params=[4, 6])
def application(request: pytest.FixtureRequest) -> Iterator[None]:
    """An application that counts in few digits, and takes every rounding for an error."""
    with localcontext(prec=request.param) as context:
        context.traps[Inexact] = True
        yield


@pytest.mark.usefixtures("application")
def test_the_applications_decimal_context_is_its_own(pair: Pair) -> None:
    """A reply of seven-digit tokens costs what it costs, to the nano-dollar, in its facts and in the books."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(LARGE))
    outcome = pair.ask(temperature=..., max_tokens=123_457)
    assert outcome.error is None
    assert (outcome.told.paid_usd, outcome.told.baseline_usd, outcome.told.saved_usd) == (EXACT, EXACT, 0)
    [call] = pair.calls()
    assert (call.status, call.cost_usd) == ("ok", EXACT)
    assert pair.ledger.totals().paid_usd == EXACT


@pytest.mark.usefixtures("application")
@pytest.mark.parametrize("more", [{}, {"temperature": ...}], ids=["speculated", "direct"])
def test_streams_are_priced_in_moneys_own_context(more: dict[str, Any], pair: Pair) -> None:
    """Speculated or passed through, the stream reaches its end and its books are closed."""
    pair.settings["prices"] = {"input": "1234.5678", "cached_input": "123.45678", "output": "9876.54321"}
    pair.says("One, two, three in Paris.", "One, two")
    outcome = pair.ask(stream=True, **more)
    assert outcome.error is None
    assert outcome.text == "One, two, three in Paris."
    assert outcome.told.paid_usd is not None
    calls = pair.calls()
    assert all(call.status == "ok" and call.cost_usd is not None for call in calls)
    with localcontext(prec=60):
        booked = sum((call.cost_usd or Decimal(0) for call in calls), Decimal(0))
        assert abs(booked - outcome.told.paid_usd) <= len(calls) * Decimal("5e-10"), "books are kept in nano-dollars"


@pytest.mark.parametrize(
    "usage",
    [
        {**TOKENS, "cost": 1e30},
        {**TOKENS, "cost": 1e300},
        {**TOKENS, "cost": 10**400},
        {**TOKENS, "cost": "1e400"},
        {**TOKENS, "cost": "1e999999"},
        {"prompt_tokens": 10**30, "completion_tokens": 2},
        {"prompt_tokens": 10**400, "completion_tokens": 2},
        {"prompt_tokens": 10, "completion_tokens": 1e300},
        {"prompt_tokens": 2**63, "completion_tokens": 2**63},
    ],
    ids=lambda usage: str(list(usage.items())[-1])[:30] if "cost" in usage else str(usage)[:30],
)
def test_what_no_call_can_cost_is_unknown(usage: dict[str, Any], pair: Pair) -> None:
    """The reply goes out once, its call is closed, and what it cost is said to be unknown, not made up."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(usage))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert outcome.text == "Paris."
    assert len(pair.paid) == 1
    assert (outcome.told.paid_usd, outcome.told.priced_by) == (None, "unknown")
    [call] = pair.calls()
    assert (call.status, call.cost_usd) == ("ok", None)
    assert pair.ledger.totals().unpriced_requests == 1


@pytest.mark.parametrize("more", [{"max_tokens": 10**30}, {"n": 10**30}], ids=["max_tokens", "n"])
def test_a_request_for_more_than_there_is_goes_out(more: dict[str, Any], pair: Pair) -> None:
    """Its worst case is unknown; the server may say what it thinks of it."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(TOKENS))
    outcome = pair.ask(temperature=..., **more)
    assert outcome.error is None
    assert outcome.told.paid_usd == Decimal("0.0000325")
    [call] = pair.calls()
    assert call.row.worst_usd is None


@pytest.mark.parametrize("price", ["1e25", "1e999999"])
def test_a_price_beyond_all_measure_is_unknown(price: str, pair: Pair) -> None:
    """Who lists such a price gets replies, and no made-up cost."""
    pair.settings["prices"] = {"input": price, "output": price}
    pair.target.plan("direct", replied(TOKENS))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert outcome.told.paid_usd is None


def test_a_tiny_cost_is_an_amount(pair: Pair) -> None:
    """Less than a nano-dollar is nothing, and known to be."""
    pair.target.plan("direct", replied({**TOKENS, "cost": "1e-999999"}))
    outcome = pair.ask(temperature=...)
    assert (outcome.told.paid_usd, outcome.told.priced_by) == (0, "provider")


def test_a_tiers_name_is_kept_printable(pair: Pair) -> None:
    """A name that no database would take is another tier all the same: unknown, not standard."""
    pair.settings["prices"] = PRICES
    pair.target.plan("direct", replied(TOKENS, service_tier="a\x00b" + "c" * 100))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert outcome.told.paid_usd is None
    [call] = pair.calls()
    assert call.usage is not None
    assert call.usage.service_tier == "a?b" + "c" * 61
