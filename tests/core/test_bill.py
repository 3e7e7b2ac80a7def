"""The bill of a request: what was paid, what the target alone would have cost, and what nobody knows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cheapspec.core.bill import Bill, read_bill, read_info
from cheapspec.core.effects import Usage
from cheapspec.core.ports import CallRow, RequestRow
from cheapspec.core.records import CallRecord, RequestRecord

Called = tuple[str, str | None]


def bill(info: dict[str, Any] | None, *calls: Called, status: str = "ok", usage: Usage | None = None) -> Bill:
    """Of a request with billed calls of these purposes and costs, and one draft that is not billed."""
    made = [
        CallRecord(
            CallRow(f"r.{number}", "r", "target", purpose, True, 1.0),
            status,
            usage,
            None if cost is None else Decimal(cost),
        )
        for number, (purpose, cost) in enumerate(calls)
    ]
    made.append(CallRecord(CallRow("r.d", "r", "draft", "draft", False, 1.0), "ok"))
    record = RequestRecord(RequestRow("r", 1.0, "m", "chat", False), info, tuple(made))
    return read_bill(record, read_info(record))


def speculated(**more: Any) -> dict[str, Any]:
    return {"decision": "speculate", "request_id": "r", **more}


def test_paid_is_what_the_calls_cost_and_local_drafting_on_top() -> None:
    """The price of drafting here enters what was paid, never the baseline."""
    told = bill(speculated(baseline_usd="1", local_usd="0.1", paid_usd="9"), ("score", "0.2"), ("continue", "0.3"))
    assert (told.paid_usd, told.baseline_usd, told.saved_usd) == (Decimal("0.6"), Decimal(1), Decimal("0.4"))
    assert (told.known_usd, told.estimated, told.unpriced) == (Decimal("0.6"), True, False)


def test_a_call_of_unknown_cost_makes_the_whole_unknown() -> None:
    """What is known of it is kept beside."""
    told = bill(speculated(baseline_usd="1"), ("score", "0.2"), ("continue", None))
    assert (told.paid_usd, told.saved_usd, told.known_usd, told.unpriced) == (None, None, Decimal("0.2"), True)


def test_a_billed_baseline_is_exact_and_so_is_one_that_says_so() -> None:
    """A direct call was its own baseline; of a speculation it is exact only where the reply says so."""
    assert not bill({"decision": "direct"}, ("direct", "0.2")).estimated
    assert bill({"decision": "direct"}, ("direct", "0.2"), usage=Usage(1, 1, estimated=True)).estimated
    assert not bill(speculated(baseline_usd="1", baseline="exact"), ("score", "0.2")).estimated


@pytest.mark.parametrize("decision", ["direct", "bypass"])
def test_b03c_a_baseline_that_was_estimated_says_so(decision: str) -> None:
    """A stream whose server never told its usage is its own baseline, and an estimate all the same."""
    told: dict[str, Any] = {"decision": decision, "baseline_usd": "0.2"}
    guessed = Usage(1, 1, estimated=True)
    assert bill({**told, "baseline": "estimated"}, ("direct", "0.2"), usage=guessed).estimated
    assert not bill({**told, "baseline": "exact"}, ("direct", "0.2")).estimated


def test_what_was_tried_before_a_direct_call_is_a_loss() -> None:
    """The baseline is the direct call alone."""
    assert bill({"decision": "direct"}, ("score", "0.2"), ("direct", "0.3")).saved_usd == Decimal("-0.2")


@pytest.mark.parametrize(
    ("info", "paid", "baseline", "unpriced"),
    [
        ({"decision": "refused"}, Decimal(0), Decimal(0), False),
        ({"decision": "direct"}, Decimal(0), Decimal(0), False),  # given up before anything was sent
        ({"decision": "bypass"}, None, None, True),
        ({"decision": "bypass", "paid_usd": "0.1", "baseline_usd": "0.1"}, Decimal("0.1"), Decimal("0.1"), False),
        (speculated(), None, None, True),
        (None, Decimal(0), None, False),  # still running
    ],
)
def test_b04_a_request_without_billed_calls(
    info: dict[str, Any] | None, paid: Decimal | None, baseline: Decimal | None, unpriced: bool
) -> None:
    """Nothing sent is 0; a pass-through whose calls nobody saw is unknown, never 0."""
    told = bill(info)
    assert (told.paid_usd, told.baseline_usd, told.unpriced) == (paid, baseline, unpriced)


def test_a_request_that_was_cut_short_is_unpriced_once_a_call_of_it_is_over() -> None:
    """While all is open nothing is said."""
    assert bill(None, ("score", "0.2")).unpriced
    assert not bill(None, ("score", None), status="open").unpriced


def test_rows_of_other_programs_keep_their_decision_and_say_nothing_else() -> None:
    """Figures that cannot be read are unknown; an unheard-of decision is none."""
    record = RequestRecord(RequestRow("r", 1.0, "m", "chat", False), {"decision": "speculate", "rounds": "many"})
    assert (read_info(record).decision, read_info(record).rounds) == ("speculate", 0)
    odd = RequestRecord(record.row, {"decision": "guessed", "rule": 7, "reason": "x", "ties": "?"})
    assert (read_info(odd).decision, read_info(odd).rule, read_info(odd).reason) == ("unsettled", None, "x")


def test_a_probe_is_paid_for_and_saves_nothing() -> None:
    """The target alone would not have been asked."""
    told = bill({"decision": "probe", "reason": "not_probed"}, ("probe", "0.02"))
    assert (told.paid_usd, told.baseline_usd, told.saved_usd) == (Decimal("0.02"), Decimal(0), Decimal("-0.02"))
    assert not told.unpriced
