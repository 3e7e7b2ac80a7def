"""Odd values of a reply do not cost the rest of their row: a paid call is closed whatever the server said of it."""

from __future__ import annotations

import decimal
import time
from decimal import Decimal
from typing import Any

import pytest
from ledgerkit import cap_of, closed, opened, reserved, rows

from cheapspec.core.books import SessionRow, Trace
from cheapspec.core.effects import Usage
from cheapspec.core.estimate import Count
from cheapspec.core.info import Info
from cheapspec.core.ports import Call, RequestRow
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.money import from_nano, to_nano

MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("tokens", "kept"), [(2**31, MOST), (2**63, MOST), (10**30, MOST), (-(2**63) - 1, -MOST), (1.5, 1), ("7", None)]
)
def test_a_count_beyond_its_column_is_the_most_that_fits(ledger: DatabaseLedger, tokens: Any, kept: int | None) -> None:
    """The call is closed with its status and cost, the request with its decision."""
    opened(ledger, "cs-1")
    ledger.close_call(Call("cs-1.1", "ok", Usage(700, tokens, tokens), "0.002", 0.25, 200))
    ledger.close_request("cs-1", {**Info("direct", "cs-1").to_dict(), "output_tokens": tokens})
    (call,) = rows(ledger, "calls")
    assert (call["status"], call["cost_nano"], call["input_tokens"]) == ("ok", 2_000_000, 700)
    assert (call["output_tokens"], call["cached_tokens"]) == (kept, kept)
    (request,) = rows(ledger, "requests")
    assert (request["decision"], request["output_tokens"]) == ("direct", kept)
    assert ledger.lost == 0


@pytest.mark.parametrize(
    ("tier", "kept"),
    [("a\x00b", "a\ufffdb"), ("a\ud800", "a\ufffd"), (5, "5"), ({"a": "\x00"}, "{'a': '\\x00'}"), (None, None)],
)
def test_text_that_no_database_takes_is_made_to_fit(ledger: DatabaseLedger, tier: Any, kept: str | None) -> None:
    """NUL, half a surrogate pair, and what is no text at all."""
    opened(ledger, "cs-1")
    usage = Usage(700, 17, service_tier=tier)
    ledger.close_call(Call("cs-1.1", "ok", usage, "0.002", 0.25, 200))
    ledger.close_request("cs-1", {**Info("direct", "cs-1").to_dict(), "target": tier})
    (call,) = rows(ledger, "calls")
    assert (call["status"], call["cost_nano"], call["service_tier"]) == ("ok", 2_000_000, kept)
    (request,) = rows(ledger, "requests")
    assert (request["decision"], request["target"]) == ("direct", kept)
    assert ledger.lost == 0


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 10**400])
def test_a_time_that_is_no_number_is_unknown(ledger: DatabaseLedger, seconds: Any) -> None:
    """In the row of a call that is closed all the same."""
    opened(ledger, "cs-1")
    ledger.close_call(Call("cs-1.1", "ok", None, "0.002", seconds, 200))
    assert [(row["status"], row["seconds"]) for row in rows(ledger, "calls")] == [("ok", None)]


def test_every_row_and_account_takes_any_name(ledger: DatabaseLedger) -> None:
    """Models, sessions, workloads and budgets come from callers."""
    odd, kept = "a\x00\udfff", "a\ufffd\ufffd"
    ledger.open_session(SessionRow("s", odd, 0.0))
    ledger.open_request(RequestRow("cs-1", time.time(), odd, "chat", False, odd, odd, odd))
    ledger.add_trace(Trace("cs-1", 1, odd, 0, (-0.5,), (True,), True, odd))
    ledger.add_estimates(odd, odd, {(odd, "0"): Count(1.0, 1.0, 0.5)})
    assert reserved(ledger, "cs-1", cap_of("1", odd), "0.5").choice == 0
    held = ledger.hold("cs-1", [odd], Decimal("0.1"), Decimal("0.2"))
    assert held.wait(20)
    assert held.value is True
    ledger.release("cs-1", [odd], Decimal("0.05"), Decimal(1), Decimal("0.1"))
    closed(ledger, "cs-1")
    (request,) = rows(ledger, "requests")
    assert [request[name] for name in ("model", "session", "workload", "session_id")] == [kept] * 4
    assert [row["name"] for row in (*rows(ledger, "sessions"), *rows(ledger, "budgets"))] == [kept, kept]
    assert [row["drafter"] for row in (*rows(ledger, "traces"), *rows(ledger, "estimates"))] == [kept, kept]
    (account,) = rows(ledger, "allowances")
    assert (account["account"], account["balance_nano"], account["open_nano"]) == (kept, 50_000_000, 0)
    assert ledger.lost == 0


@pytest.mark.parametrize(
    ("usd", "nano"),
    [
        ("1.234567891", 1_234_567_891),
        ("0.0000000015", 2),
        ("1e400", None),
        ("1e999999999", None),
        ("NaN", None),
        ("much", None),
    ],
)
def test_money_is_the_same_under_any_decimal_context(usd: str, nano: int | None) -> None:
    """The application's own precision and traps change no figure and raise nothing."""
    for precision, traps in ((4, list(decimal.getcontext().traps)), (60, [])):
        with decimal.localcontext(decimal.Context(prec=precision, traps=traps)):
            assert to_nano(usd) == nano
            assert str(from_nano(1_234_567_890_123)) == "1234.567890123"
