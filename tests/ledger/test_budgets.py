"""Budgets: reserve before, settle after; never more than the cap, whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from ledgerkit import USAGE, cap_of, closed, opened, reserved, rows

from cheapspec.core.books import Reservations
from cheapspec.core.ports import Call
from cheapspec.errors import SettingsError
from cheapspec.ledger.budgets import Budget, Charged, charge_of
from cheapspec.ledger.database import DatabaseLedger


def spend(book: Any, request_id: str, cost: str | None, **call: Any) -> None:
    """A whole request that was reserved before."""
    opened(book, request_id, worst=call.pop("worst", "0.01"))
    closed(book, request_id, cost, **call)
    book.settle(request_id)


def room(book: Any, usd: str, name: str = "b", **more: Any) -> bool:
    """Whether the budget of one dollar has room for so much (and nothing stays reserved)."""
    probe = f"probe-{usd}-{name}"
    granted = reserved(book, probe, cap_of("1", name, **more), usd).choice is not None
    book.settle(probe)
    return granted


def test_a_reservation_holds_until_it_is_settled_at_what_the_calls_cost(book: Any) -> None:
    """What was reserved counts at once; afterwards what was paid."""
    assert isinstance(book, Reservations)
    assert reserved(book, "r1", cap_of("1"), "0.9").choice == 0
    assert not room(book, "0.2")
    spend(book, "r1", "0.3")
    assert room(book, "0.7")
    assert not room(book, "0.700000001")


def test_a_request_that_sent_nothing_gives_everything_back(book: Any) -> None:
    """Release is settling without calls."""
    reserved(book, "r1", cap_of("1"), "1")
    book.settle("r1")
    assert room(book, "1")


def test_the_dearest_amount_that_fits_is_reserved(book: Any) -> None:
    """So a request degrades to a cheaper way before it is refused."""
    assert reserved(book, "r1", cap_of("1"), "2", "0.8").choice == 1
    assert reserved(book, "r2", cap_of("1"), "0.3", "0.2").choice == 1
    refused = reserved(book, "r3", cap_of("1"), "0.3", "0.2")
    assert (refused.choice, refused.cap, refused.left_usd, refused.why) == (None, "b", Decimal(0), "exceeded")


def test_several_budgets_take_all_or_none(book: Any) -> None:
    """A refusal of the inner budget leaves nothing reserved in the outer one."""
    caps = [cap_of("1", "outer"), cap_of("0.5", "inner")]
    assert reserved(book, "r1", caps, "0.4").choice == 0
    refused = reserved(book, "r2", caps, "0.2")
    assert (refused.cap, refused.left_usd) == ("inner", Decimal("0.1"))
    assert room(book, "0.6", "outer")
    assert not room(book, "0.61", "outer")
    spend(book, "r1", "0.3")
    assert room(book, "0.7", "outer")


@pytest.mark.parametrize(
    ("status", "cost", "worst", "counts"),
    [
        ("ok", "0.3", "0.5", "0.3"),
        ("ok", "0.7", "0.5", "0.7"),  # dearer than thought: it was paid
        ("ok", None, "0.5", "0.5"),
        ("ok", None, None, "0.6"),  # nobody knows anything: what was reserved
        ("possibly_billed", None, "0.5", "0.5"),
        ("cancelled", None, "0.5", "0.5"),
        ("failed", None, "0.5", "0"),
    ],
)
def test_what_a_call_counts(book: Any, status: str, cost: str | None, worst: str | None, counts: str) -> None:
    """Its cost; its worst case where that is unknown; nothing for an error."""
    reserved(book, "r1", cap_of("1"), "0.6")
    spend(book, "r1", cost, worst=worst, status=status)
    left = Decimal(1) - Decimal(counts)
    assert room(book, str(left))
    assert not room(book, str(left + Decimal("0.000000001")))


def test_b05_the_dearer_service_tier_counts(book: Any) -> None:
    """Where the tier asked for and the tier that served differ, the budget counts the dearer."""
    reserved(book, "r1", cap_of("1"), "0.6")
    call_id = opened(book, "r1")
    book.close_call(Call(call_id, "ok", USAGE, "0.2", budget_usd="0.4"))
    book.settle("r1")
    assert room(book, "0.6")
    assert not room(book, "0.61")


def test_a_later_word_about_a_call_moves_the_budget(book: Any) -> None:
    """Settling again counts the difference only, however often."""
    reserved(book, "r1", cap_of("1"), "0.6")
    spend(book, "r1", None, worst="0.5", status="possibly_billed")
    book.close_call(Call("r1.1", "ok", USAGE, "0.1"))
    for _ in range(3):
        book.settle("r1")
    assert room(book, "0.9")
    assert not room(book, "0.91")


def test_a_budget_that_is_named_twice_is_one(book: Any) -> None:
    """What is reserved is given back, and nothing is charged twice; the lower of two caps holds."""
    twice = [cap_of("5"), cap_of("1"), cap_of("5")]
    assert reserved(book, "r1", twice, "0.6").choice == 0
    assert reserved(book, "r2", twice, "0.5").left_usd == Decimal("0.4")
    spend(book, "r1", "0.3")
    assert room(book, "0.7")
    assert not room(book, "0.71")
    lax = [cap_of("1", "u", allow_unknown=True), cap_of("1", "u")]
    assert (reserved(book, "r3", lax, None).choice, reserved(book, "r4", lax[:1], None).choice) == (None, 0)


def test_b04_an_unknown_price_is_refused_unless_it_was_allowed(book: Any) -> None:
    """Unknown is not free: by default a budget refuses it; allowed, it passes uncounted."""
    refused = reserved(book, "r1", cap_of("1"), None)
    assert (refused.choice, refused.why) == (None, "unknown")
    assert reserved(book, "r2", cap_of("1", allow_unknown=True), None).choice == 0
    assert room(book, "1")
    mixed = [cap_of("1", "lax", allow_unknown=True), cap_of("1", "strict")]
    assert reserved(book, "r3", mixed, None).cap == "strict"


def test_budgets_of_other_names_and_periods_are_their_own(book: Any) -> None:
    """A new day is a new cap."""
    assert reserved(book, "r1", cap_of("1", period="2026-11-29"), "1").choice == 0
    assert reserved(book, "r2", cap_of("1", period="2026-11-29"), "0.01").choice is None
    assert reserved(book, "r3", cap_of("1", period="2026-11-30"), "1").choice == 0
    assert reserved(book, "r4", cap_of("1", "other", period="2026-11-29"), "1").choice == 0


def test_a_reservation_without_budgets_asks_nobody(ledger: DatabaseLedger) -> None:
    """The usual request costs no look at the database."""
    assert reserved(ledger, "r1", [], "1").choice == 0
    assert rows(ledger, "reservations") == []


def test_what_is_in_the_tables(ledger: DatabaseLedger) -> None:
    """Budgets and reservations can be read: cap, reserved, spent; held, settled."""
    reserved(ledger, "r1", cap_of("1", period="2026-11"), "0.9")
    (held,) = rows(ledger, "reservations")
    assert (held["status"], held["amount_nano"]) == ("held", 900_000_000)
    (budget,) = rows(ledger, "budgets")
    assert (budget["usd_nano"], budget["reserved_nano"], budget["spent_nano"]) == (10**9, 900_000_000, 0)
    spend(ledger, "r1", "0.3")
    (settled,) = rows(ledger, "reservations")
    assert (settled["status"], settled["charged_nano"]) == ("settled", 300_000_000)
    (budget,) = rows(ledger, "budgets")
    assert (budget["reserved_nano"], budget["spent_nano"]) == (0, 300_000_000)


@pytest.mark.parametrize(
    ("budget", "at", "period"),
    [
        (Budget(5), datetime(2026, 11, 30, 23, 30, tzinfo=UTC), ""),
        (Budget(5, "day"), datetime(2026, 11, 30, 23, 30, tzinfo=UTC), "2026-11-30"),
        (Budget(5, "day", "Europe/Berlin"), datetime(2026, 11, 30, 23, 30, tzinfo=UTC), "2026-12-01"),
        (Budget(5, "month"), datetime(2026, 11, 30, 23, 30, tzinfo=UTC), "2026-11"),
        (Budget(5, "month", "Europe/Berlin"), datetime(2026, 11, 30, 23, 30, tzinfo=UTC), "2026-12"),
        (Budget(5, "day", "America/New_York"), datetime(2026, 3, 8, 4, 59, tzinfo=UTC), "2026-03-07"),
        (Budget(5, "day", "America/New_York"), datetime(2026, 3, 9, 3, 59, tzinfo=UTC), "2026-03-08"),  # 23 hours long
        (Budget(5, "day", "America/New_York"), datetime(2026, 3, 9, 4, 0, tzinfo=UTC), "2026-03-09"),
    ],
)
def test_a_day_is_the_time_zones_own(budget: Budget, at: datetime, period: str) -> None:
    """Also where clocks change."""
    cap = budget.cap("b", at.timestamp())
    assert (cap.period, cap.usd) == (period, Decimal(5))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"usd": "much"}, "usd = 'much'"),
        ({"usd": float("nan")}, "usd = nan"),
        ({"usd": -1}, "usd = -1"),
        ({"usd": True}, "usd = True"),
        ({"usd": 5, "period": "week"}, "period = 'week'"),
        ({"usd": 5, "timezone": "Mars/Olympus"}, "timezone = 'Mars/Olympus'"),
        ({"usd": 5, "unknown": "guess"}, "unknown = 'guess'"),
    ],
)
def test_an_unusable_budget_is_an_error_that_names_the_key(given: dict[str, Any], told: str) -> None:
    """When it is made, not when it is used."""
    with pytest.raises(SettingsError, match=told):
        Budget(**given)


def test_a_float_of_dollars_is_what_it_looks_like() -> None:
    """0.1 is ten cents."""
    assert Budget(0.1).cap("b", 0.0).usd == Decimal("0.1")


def test_unbilled_calls_count_nothing() -> None:
    """Drafts are free unless they have a price of their own."""
    assert charge_of([Charged(False, "ok", 5, 5, 5), Charged(True, "ok", 3, None, 9)], 100) == 3
