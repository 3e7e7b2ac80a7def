"""The ledger in memory."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from cheapspec.core.books import SessionRow
from cheapspec.core.effects import Usage
from cheapspec.core.ports import Call, CallRow, Ledger, RequestRow
from cheapspec.ledger import MemoryLedger
from cheapspec.report import report_of


def request(name: str = "r1") -> RequestRow:
    return RequestRow(name, 1000.0, "gpt-4o", "chat", stream=False)


def call(name: str, of: str = "r1", purpose: str = "score", billed: bool = True) -> CallRow:
    return CallRow(name, of, "target" if billed else "draft", purpose, billed, 1000.5)


def booked(ledger: MemoryLedger, name: str, paid: str | None, info: dict[str, Any]) -> None:
    """One request with one billed call."""
    ledger.open_request(request(name))
    ledger.open_call(call(f"{name}-c", name, "direct"))
    ledger.close_call(Call(f"{name}-c", "ok", Usage(10, 2), paid, 0.1, 200))
    ledger.close_request(name, info)


def test_it_keeps_what_was_asked_sent_and_paid() -> None:
    """A request and its calls read back as they were written, in order."""
    ledger = MemoryLedger()
    port: Ledger = ledger
    port.open_request(request())
    port.open_call(call("d", purpose="draft", billed=False))
    port.open_call(call("s"))
    port.close_call(Call("s", "ok", Usage(120, 1), "0.00042", 0.25, 200))
    port.close_call(Call("d", "ok", seconds=0.5))
    assert [(c.row.call_id, c.status) for c in ledger.calls("r1")] == [("d", "ok"), ("s", "ok")]
    scored = ledger.calls("r1")[1]
    assert (scored.usage, scored.cost_usd, scored.seconds) == (Usage(120, 1), Decimal("0.00042"), 0.25)
    assert scored.http_status == 200
    (record,) = ledger.requests()
    assert record.row == request()
    assert record.info is None
    port.close_request("r1", {"decision": "speculate", "baseline_usd": "0.001"})
    assert ledger.requests()[0].info == {"decision": "speculate", "baseline_usd": "0.001"}
    assert ledger.calls("unheard of") == []


def test_totals_add_up_and_losses_stay_negative() -> None:
    """Paid comes from the calls, baselines from the replies; a request that was not speculated is its own baseline."""
    ledger = MemoryLedger()
    booked(ledger, "a", "0.0004", {"decision": "speculate", "reason": None, "baseline_usd": "0.0010"})
    booked(ledger, "b", "0.0030", {"decision": "speculate", "baseline_usd": "0.0010"})
    booked(ledger, "c", "0.0005", {"decision": "direct", "reason": "not_worth_it", "baseline_usd": None})
    booked(ledger, "d", "0.0005", {"decision": "bypass", "reason": "tools"})
    booked(ledger, "e", "0.0005", {"decision": "bypass", "reason": "tools"})
    ledger.open_request(request("f"))
    ledger.close_request("f", {"decision": "refused", "reason": "budget"})
    totals = ledger.totals()
    assert (totals.requests, totals.speculated, totals.direct, totals.bypassed, totals.refused) == (6, 2, 1, 2, 1)
    assert totals.by_reason == {"not_worth_it": 1, "tools": 2, "budget": 1}
    assert (totals.paid_usd, totals.baseline_usd) == (Decimal("0.0049"), Decimal("0.0035"))
    assert totals.saved_usd == Decimal("-0.0014")
    assert json.loads(json.dumps(totals.to_dict(), allow_nan=False))["saved_usd"] == "-0.001400"


@pytest.mark.parametrize(
    ("paid", "info"),
    [
        (None, {"decision": "direct"}),
        ("a lot", {"decision": "direct"}),
        ("NaN", {"decision": "direct"}),
        (None, {"decision": "speculate", "baseline_usd": "0.001"}),
        ("0.001", {"decision": "speculate", "baseline_usd": None}),
        ("0.001", {"decision": "speculate", "baseline_usd": "?"}),
    ],
)
def test_b04_unknown_money_is_counted_apart(paid: str | None, info: dict[str, Any]) -> None:
    """A call without a known cost, or a speculation without a baseline, is unpriced and adds to neither sum."""
    ledger = MemoryLedger()
    booked(ledger, "known", "0.5", {"decision": "direct"})
    booked(ledger, "unknown", paid, info)
    totals = ledger.totals()
    assert (totals.paid_usd, totals.baseline_usd, totals.unpriced_requests) == (Decimal("0.5"), Decimal("0.5"), 1)


def test_b04_a_pass_through_without_a_call_is_unknown_not_free() -> None:
    """A route that has no call in the ledger may be charged for: it adds to neither sum, as in a report."""
    ledger = MemoryLedger()
    ledger.open_request(request())
    ledger.close_request("r1", {"decision": "bypass", "reason": "other_route"})
    totals, sums = ledger.totals(), report_of(ledger).sums
    assert (totals.bypassed, totals.unpriced_requests, totals.paid_usd) == (1, 1, Decimal(0))
    assert (sums.bypassed, sums.unpriced, sums.paid_usd) == (1, 1, None)


@pytest.mark.parametrize(
    ("paid", "info"),
    [
        ("0.002", {"decision": "speculate", "baseline_usd": "0.001", "local_usd": "0.0005"}),
        ("0.002", {"decision": "direct", "baseline_usd": "0.002"}),
        (None, {"decision": "speculate", "baseline_usd": "0.001"}),
        ("0.002", {"decision": "refused", "reason": "budget"}),
        ("0.002", {}),
        ("0.002", {"decision": "guessed"}),
    ],
)
def test_totals_and_reports_tell_the_same_story(paid: str | None, info: dict[str, Any]) -> None:
    """Whatever was booked, what memory sums up is what a report of it says."""
    ledger = MemoryLedger()
    booked(ledger, "a", paid, info)
    booked(ledger, "b", "0.1", {"decision": "direct"})
    totals, sums = ledger.totals(), report_of(ledger).sums
    assert (totals.paid_usd, totals.baseline_usd) == (sums.paid_usd, sums.baseline_usd)
    assert totals.unpriced_requests == sums.unpriced
    assert (totals.requests, totals.speculated, totals.direct, totals.refused) == (
        sums.requests, sums.speculated, sums.direct, sums.refused,
    )  # fmt: skip


def test_a_session_takes_along_those_opened_inside_it() -> None:
    """By name or id, as in a database; a name in a header only is a session too."""
    ledger = MemoryLedger(capacity=3)
    ledger.open_session(SessionRow("s1", "outer", 1.0))
    ledger.open_session(SessionRow("s2", "inner", 2.0, "s1"))
    for number, (session, session_id) in enumerate([("outer", "s1"), ("inner", "s2"), ("header", None)]):
        ledger.open_request(RequestRow(f"r{number}", 1.0, "m", "chat", False, session, None, session_id))

    def found(session: str) -> list[str]:
        return [record.row.request_id for record in ledger.requests(session=session)]

    assert found("outer") == found("s1") == ["r0", "r1"]
    assert (found("inner"), found("header")) == (["r1"], ["r2"])
    for name in "abc":
        ledger.open_session(SessionRow(name, name, 3.0))
    assert found("outer") == ["r0"]  # only what the requests themselves say: the sessions were too many
    ledger.close_session("a", 4.0)


def test_b04_local_calls_are_free_not_unknown() -> None:
    """A draft on one's own machine has no price to be unknown."""
    ledger = MemoryLedger()
    ledger.open_request(request())
    ledger.open_call(call("d", billed=False))
    ledger.close_call(Call("d", "ok"))
    ledger.close_request("r1", {"decision": "direct"})
    assert ledger.totals().unpriced_requests == 0
    assert not ledger.calls("r1")[0].unpriced


def test_a_call_left_open_is_possibly_billed() -> None:
    """When a request ends, what was sent to the target and never answered may be charged; a draft is just cancelled."""
    ledger = MemoryLedger()
    ledger.open_request(request())
    for row in (call("done"), call("sent"), call("draft", billed=False), call("refused")):
        ledger.open_call(row)
    ledger.close_call(Call("done", "ok", cost_usd="0.1"))
    ledger.close_call(Call("refused", "failed", http_status=500))
    ledger.close_request("r1", {"decision": "speculate", "baseline_usd": "0.3"})
    assert [c.status for c in ledger.calls("r1")] == ["ok", "possibly_billed", "cancelled", "failed"]
    assert [c.unpriced for c in ledger.calls("r1")] == [False, True, False, False]
    assert ledger.totals().unpriced_requests == 1


def test_a_late_answer_corrects_the_books() -> None:
    """A call that is settled after its request was closed is booked as it ended."""
    ledger = MemoryLedger()
    ledger.open_request(request())
    ledger.open_call(call("late"))
    ledger.close_request("r1", {"decision": "direct"})
    assert ledger.totals().unpriced_requests == 1
    ledger.close_call(Call("late", "ok", Usage(5, 5), "0.25"))
    assert ledger.calls("r1")[0].status == "ok"
    assert (ledger.totals().paid_usd, ledger.totals().unpriced_requests) == (Decimal("0.25"), 0)


def test_the_oldest_requests_fall_out_but_not_out_of_the_totals() -> None:
    """The list is bounded; the sums are not."""
    ledger = MemoryLedger(capacity=3)
    for i in range(10):
        booked(ledger, f"r{i}", "0.1", {"decision": "direct", "reason": "tools"})
    assert [record.row.request_id for record in ledger.requests()] == ["r7", "r8", "r9"]
    assert ledger.calls("r0") == []
    totals = ledger.totals()
    assert (totals.requests, totals.direct, totals.calls, totals.paid_usd) == (10, 10, 10, Decimal("1.0"))
    assert totals.by_reason == {"tools": 10}


def test_an_open_request_outlives_the_closed_ones() -> None:
    """A slow request is not dropped by quick ones before it is settled; without closed ones the oldest goes."""
    ledger = MemoryLedger(capacity=2)
    ledger.open_request(request("slow"))
    ledger.open_call(call("slow-c", "slow"))
    for i in range(5):
        booked(ledger, f"quick{i}", "0.1", {"decision": "direct"})
    ledger.close_call(Call("slow-c", "ok", cost_usd="0.7"))
    ledger.close_request("slow", {"decision": "direct"})
    assert (ledger.totals().paid_usd, ledger.totals().lost) == (Decimal("1.2"), 0)
    for name in "abc":
        ledger.open_request(request(name))
    assert [record.row.request_id for record in ledger.requests()] == ["b", "c"]
    assert ledger.totals().requests == 9


def test_nothing_raises_and_what_is_lost_is_counted() -> None:
    """Writes that make no sense (unknown or repeated ids) are counted, and leave the other books alone."""
    ledger = MemoryLedger()
    booked(ledger, "a", "0.1", {"decision": "direct"})
    ledger.open_request(request("a"))
    ledger.open_call(call("a-c", "a"))
    ledger.open_call(call("x", "nowhere"))
    ledger.close_call(Call("nowhere", "ok", cost_usd="9"))
    ledger.close_request("nowhere", {})
    totals = ledger.totals()
    assert (totals.lost, totals.requests, totals.paid_usd) == (5, 1, Decimal("0.1"))


def test_many_threads_write_one_ledger() -> None:
    """Rows of parallel requests are all there and all summed."""
    ledger = MemoryLedger(capacity=50)

    def work(thread: int) -> None:
        for i in range(100):
            booked(ledger, f"{thread}-{i}", "0.001", {"decision": "speculate", "baseline_usd": "0.002"})
            ledger.totals()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    totals = ledger.totals()
    assert (totals.requests, totals.lost, len(ledger.requests())) == (800, 0, 50)
    assert (totals.paid_usd, totals.saved_usd) == (Decimal("0.800"), Decimal("0.800"))
