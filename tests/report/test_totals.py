"""A ledger's totals: what was passed by, paid, saved or lost, and what nobody knows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from reportkit import NOON, ask

from cheapspec.core.effects import Usage
from cheapspec.core.estimate import Count
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.errors import LedgerError
from cheapspec.ledger import MemoryLedger
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.report import Forecast, Latency, Reason, make_report, report_of
from cheapspec.rules.prospects import learned

SPECULATED: dict[str, Any] = {
    "rule": "exact",
    "rounds": 2,
    "drafted_tokens": 100,
    "accepted_tokens": 80,
    "corrected_tokens": 2,
    "handoff_tokens": 18,
    "baseline_usd": "0.0010",
    "baseline": "estimated",
}


def test_the_json_has_every_key_that_scripts_rely_on() -> None:
    """The keys are the published ones, whatever was asked; an empty ledger has them too."""
    ledger = MemoryLedger()
    empty = report_of(ledger).to_dict()
    ask(ledger, "a", "speculate", ("score", "0.0004"), **SPECULATED)
    for told in (empty, report_of(ledger).to_dict()):
        assert {
            "from", "to", "sessions", "requests", "tokens", "acceptance_rate", "tokens_per_round", "target_calls",
            "calls_saved", "paid_usd", "baseline_usd", "saved_usd", "saved_share", "baseline_estimated_share",
            "unpriced_requests", "lossy", "latency",
        } <= told.keys()  # fmt: skip
        assert {"total", "speculated", "direct", "bypassed", "by_reason"} <= told["requests"].keys()
        assert {"drafted", "accepted", "corrected", "handoff", "input", "cached_input", "output"} <= (
            told["tokens"].keys()
        )
        assert told["calls_saved"].keys() == {"per_request_client", "per_token_client"}
        assert told["lossy"].keys() == {"accepted", "audited", "agreement", "agreement_interval"}
        assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (empty["paid_usd"], empty["saved_share"], empty["acceptance_rate"], empty["latency"]["p50"]) == (
        "0.000000", None, None, None,
    )  # fmt: skip


def test_every_request_is_in_one_kind() -> None:
    """Speculated, direct, bypassed, refused and unsettled requests add up to all; reasons are counted by kind."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), **SPECULATED)
    ask(ledger, "b", "direct", ("direct", "0.001"), reason="not_worth_it")
    for name in "cd":
        ask(ledger, name, "bypass", ("direct", "0.001"), reason="tools")
    ask(ledger, "e", "bypass", reason="other_route")
    ask(ledger, "f", "refused", reason="budget")
    ledger.open_request(RequestRow("g", NOON, "m", "chat", stream=False))
    report = report_of(ledger)
    sums = report.sums
    assert (sums.requests, sums.speculated, sums.direct, sums.bypassed, sums.refused, sums.unsettled) == (
        7, 1, 1, 3, 1, 1,
    )  # fmt: skip
    assert report.by_reason == {"tools": 2, "budget": 1, "not_worth_it": 1, "other_route": 1}
    assert report.reasons[:2] == (Reason("direct", "not_worth_it", 1), Reason("bypass", "tools", 2))


def test_money_comes_from_the_calls_and_losses_stay_negative() -> None:
    """Paid is what the calls cost, retries and probes included; a speculation that cost more is a loss."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), **SPECULATED)
    ask(ledger, "b", "speculate", ("score", "0.0015"), ("continue", "0.0010"), ("probe", "0.0001"), **SPECULATED)
    sums = report_of(ledger).sums
    assert (sums.paid_usd, sums.baseline_usd, sums.saved_usd) == (
        Decimal("0.0030"), Decimal("0.0020"), Decimal("-0.0010"),
    )  # fmt: skip
    assert sums.saved_share == -0.5
    assert report_of(ledger).to_dict()["saved_usd"] == "-0.001000"


def test_what_was_tried_before_going_direct_is_a_loss() -> None:
    """The baseline of a direct reply is its direct call alone, also where only the calls tell."""
    ledger = MemoryLedger()
    ask(ledger, "told", "direct", ("score", "0.0004"), ("direct", "0.001"), reason="rejected", baseline_usd="0.001")
    ask(ledger, "untold", "direct", ("score", "0.0004"), ("direct", "0.001"), reason="rejected")
    sums = report_of(ledger).sums
    assert (sums.paid_usd, sums.baseline_usd, sums.saved_usd) == (
        Decimal("0.0028"), Decimal("0.002"), Decimal("-0.0008"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "calls", "info", "known"),
    [
        ("direct", [("direct", None)], {}, "0"),
        ("bypass", [("direct", None)], {"reason": "tools"}, "0"),
        ("bypass", [], {"reason": "other_route"}, "0"),
        ("speculate", [("score", "0.2"), ("continue", None)], {"baseline_usd": "0.001"}, "0.2"),
        ("speculate", [("score", "0.2")], {"baseline_usd": None}, "0.2"),
        ("speculate", [("score", "0.2")], {"baseline_usd": "a lot"}, "0.2"),
    ],
)
def test_b04_unknown_money_is_counted_apart_and_never_0(
    decision: str, calls: list[tuple[str, str | None]], info: dict[str, Any], known: str
) -> None:
    """A request without a known cost or baseline is in no sum; alone it leaves them unknown; what is known shows."""
    ledger = MemoryLedger()
    ask(ledger, "x", decision, *calls, **info)
    alone = report_of(ledger)
    assert (alone.sums.paid_usd, alone.sums.baseline_usd, alone.sums.saved_usd) == (None, None, None)
    assert alone.to_dict()["paid_usd"] is None
    assert alone.sums.unpriced_known == Decimal(known)
    ask(ledger, "y", "direct", ("direct", "0.5"))
    both = report_of(ledger).sums
    assert (both.paid_usd, both.baseline_usd, both.unpriced, both.priced) == (Decimal("0.5"), Decimal("0.5"), 1, 1)


def test_a_request_that_was_answered_by_nobody_costs_nothing() -> None:
    """Refusals, and failures that the target answered with an error, are priced at 0, not unknown."""
    ledger = MemoryLedger()
    ask(ledger, "refused", "refused", reason="budget")
    ledger.open_request(RequestRow("failed", NOON, "m", "chat", stream=False))
    ledger.open_call(CallRow("failed.1", "failed", "target", "direct", True, NOON))
    ledger.close_call(Call("failed.1", "failed", None, None, 0.1, 500))
    ledger.close_request("failed", {"decision": "direct", "reason": "no_draft"})
    sums = report_of(ledger).sums
    assert (sums.priced, sums.unpriced, sums.paid_usd) == (2, 0, Decimal(0))


def test_a_request_whose_process_died_is_unsettled_and_its_calls_are_shown() -> None:
    """Without a decision there is no baseline: what its calls cost is known, and apart; one that runs is only open."""
    ledger = MemoryLedger()
    for name in ("dead", "running"):
        ledger.open_request(RequestRow(name, NOON, "m", "chat", stream=False))
        ledger.open_call(CallRow(f"{name}.1", name, "target", "score", True, NOON))
    ledger.close_call(Call("dead.1", "expired", None, "0.03"))
    sums = report_of(ledger).sums
    assert (sums.unsettled, sums.unpriced, sums.unpriced_known, sums.priced) == (2, 1, Decimal("0.03"), 0)


def test_exact_and_estimated_baselines_are_told_apart_by_dollars() -> None:
    """A billed direct call's baseline is exact; a speculated reply's, and counts that no server reported, are not."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), **SPECULATED)
    assert report_of(ledger).sums.estimated_share == 1.0
    ask(ledger, "b", "direct", ("direct", "0.002"), baseline_usd="0.002", baseline="exact")
    ask(ledger, "c", "speculate", ("judge", "0.0001"), **{**SPECULATED, "baseline": "exact"})
    assert report_of(ledger).sums.estimated_share == 0.25
    ask(ledger, "d", "direct", ("direct", "0.004"), usage=Usage(10, 2, estimated=True))
    assert report_of(ledger).sums.estimated_share == 0.625


def test_calls_are_compared_with_two_clients() -> None:
    """Against one call a request speculation mostly loses calls, against one a token it gains; bypass is in neither."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), ("score", "0.0004"), ("continue", "0.0001"), **SPECULATED)
    ask(ledger, "b", "direct", ("direct", "0.001"), reason="not_worth_it")
    ask(ledger, "c", "bypass", ("direct", "0.001"), reason="tools")
    report = report_of(ledger)
    assert report.target_calls == 5
    assert report.calls_saved_per_request_client == 1 - 3
    assert report.calls_saved_per_token_client == 100 - 3


def test_tokens_and_rounds_add_up() -> None:
    """Draft figures come from the replies, billed tokens from the calls; rates follow from them."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), usage=Usage(100, 5, 60), **SPECULATED)
    ask(ledger, "b", "direct", ("direct", "0.1"), usage=Usage(40, 9), drafted_tokens=20, unverified_tokens=20)
    report = report_of(ledger)
    tokens = report.tokens
    assert (tokens.drafted, tokens.accepted, tokens.corrected, tokens.handoff, tokens.unverified) == (
        120, 80, 2, 18, 20,
    )  # fmt: skip
    assert (tokens.input, tokens.cached_input, tokens.output) == (140, 60, 14)
    assert report.acceptance_rate == pytest.approx(80 / 120)
    assert report.tokens_per_round == 41.0


def test_latency_leaves_out_streams_whose_end_was_not_seen() -> None:
    """Median and 95th percentile, by kind; a stream that was passed through ended after its time was taken."""
    ledger = MemoryLedger()
    for number in range(1, 12):
        ask(ledger, f"d{number}", "direct", ("direct", "0.1"), total=float(number))
        ask(ledger, f"s{number}", "direct", ("direct", "0.1"), stream=True, total=99.0)
    ask(ledger, "spec", "speculate", ("score", "0.1"), stream=True, total=0.5, **SPECULATED)
    report = report_of(ledger)
    assert report.latency["direct"] == Latency(11, 6.0, 10.5)
    assert report.latency["speculated"] == Latency(1, 0.5, 0.5)
    assert report.latency["all"].requests == 12
    assert report.seconds == {"draft": 0.1, "verify": 0.2, "handoff": 0.3, "total": 0.5}
    assert report.to_dict()["latency"]["by_decision"]["direct"] == {"requests": 11, "p50": 6.0, "p95": 10.5}


def test_sessions_models_and_days_are_apart() -> None:
    """Each group has sums of its own; days are UTC days, in order."""
    ledger = MemoryLedger()
    ask(ledger, "a", "direct", ("direct", "0.1"), at=NOON + 43_199, session="nightly", model="x")
    ask(ledger, "b", "direct", ("direct", "0.2"), at=NOON + 43_200, session="nightly", model="y")
    ask(ledger, "c", "direct", ("direct", "0.4"), at=NOON, model="x")
    report = report_of(ledger)
    for groups, expected in (
        (report.sessions, {"nightly": "0.3", None: "0.4"}),
        (report.models, {"x": "0.5", "y": "0.2"}),
        (report.days, {"2026-11-29": "0.5", "2026-11-30": "0.2"}),
    ):
        assert {group.name: group.sums.paid_usd for group in groups} == {
            name: Decimal(usd) for name, usd in expected.items()
        }
    assert [group.name for group in report.days] == ["2026-11-29", "2026-11-30"]
    assert (report.start, report.end) == (NOON, NOON + 43_200)
    one = report_of(ledger, session="nightly", since=NOON, until=NOON + 43_200)
    assert (one.sums.requests, one.start, one.end, one.session) == (1, NOON, NOON + 43_200, "nightly")


def test_lossy_simulated_and_forgotten_requests_are_named() -> None:
    """What may differ from the target, what nobody was charged, and what the ledger forgot is counted."""
    ledger = MemoryLedger(capacity=3)
    for name in "xabc":
        rule = "judge" if name == "a" else "exact"
        ask(ledger, name, "speculate", ("score", "0.1"), ("audit", "0.1"), **{**SPECULATED, "rule": rule}, **(
            {"simulated": True} if name == "b" else {}
        ))  # fmt: skip
    report = report_of(ledger)
    assert (report.lossy.accepted, report.lossy.audited, report.lossy.agreement) == (1, 3, None)
    assert (report.simulated, report.forgotten, report.sums.requests) == (1, 1, 3)


def test_whole_drafts_move_neither_acceptance_nor_calibration() -> None:
    """Both are about tokens that the target looked at; a rule's word about a whole draft is about a request."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.0004"), **SPECULATED)
    told = [{"rule": "answer(x)", "outcome": "accept"}]
    whole = {"drafted_tokens": 50, "unverified_tokens": 50, "verdicts": told}
    ask(ledger, "b", "speculate", ("answer", "0.0001"), rule="answer(x)", lossy=True, **whole)
    ask(ledger, "c", "direct", ("answer", "0.0001"), ("direct", "0.001"), reason="rejected", **whole)
    ledger.add_estimates("m@u", "w", learned("answer(x)", "d", 0.6, accepted=True))
    ledger.add_estimates("m@u", "w", {("d", "0.9"): Count(10.0, 9.0, 9.0)})
    report = report_of(ledger)
    assert (report.tokens.drafted, report.tokens.unverified, report.acceptance_rate) == (100, 0, 0.8)
    assert [one.drafter for one in report.calibration] == ["d"]
    assert report.lossy.accepted == 1


def test_a_ledger_that_is_off_says_so() -> None:
    """There is nothing to report, and the error says what to change."""
    with pytest.raises(LedgerError, match="NullLedger cannot be read"):
        report_of(NullLedger())


def test_records_are_read_once() -> None:
    """A generator of records is enough: nothing is kept but sums."""
    ledger = MemoryLedger()
    ask(ledger, "a", "direct", ("direct", "0.1"))
    assert make_report(record for record in ledger.requests()) == report_of(ledger)


def test_what_only_some_requests_have_is_summed_and_said() -> None:
    """Fixed draft lengths are labelled, lossy tokens counted, local drafting is paid, forecasts stand beside facts."""
    ledger = MemoryLedger()
    plain = {**SPECULATED, "baseline_usd": "0.0010"}
    ask(ledger, "a", "speculate", ("score", "0.0004"), **plain, fixed_draft_tokens=8, local_usd="0.0001")
    ask(ledger, "b", "speculate", ("score", "0.0004"), **{**plain, "rule": "lenient"}, lossy=True, lenient_tokens=20,
        forecast_usd="0.0003")  # fmt: skip
    ask(ledger, "c", "speculate", ("score", "0.0020"), **plain, forecast_usd="0.0002")
    ask(ledger, "d", "speculate", ("score", None), **plain, forecast_usd="0.5")
    report = report_of(ledger)
    assert report.sums.paid_usd == Decimal("0.0029")
    assert report.sums.baseline_usd == Decimal("0.0030")
    assert (report.fixed, report.local_usd, report.tokens.lenient, report.lossy.accepted) == (
        1, Decimal("0.0001"), 20, 1,
    )  # fmt: skip
    assert report.forecast == Forecast(2, Decimal("0.0005"), Decimal("-0.0004"))
    told = report.to_dict()
    assert (told["fixed_draft_tokens_requests"], told["local_drafting_usd"]) == (1, "0.000100")
    assert told["forecast"] == {"requests": 2, "expected_usd": "0.000500", "saved_usd": "-0.000400"}
    for text in (str(report), report.html()):
        assert "1 request ran with a fixed number of draft tokens (draft_tokens=…)" in " ".join(text.split())
        assert "$0.000100 of it for drafting here" in text
        assert "20 of the accepted draft tokens" in text
        assert "expected of 2 requests; saved −$0.000400" in text


def test_what_no_request_has_is_not_said() -> None:
    """No zero stands for a figure that nobody has."""
    ledger = MemoryLedger()
    ask(ledger, "a", "direct", ("direct", "0.001"), reason="not_worth_it")
    report = report_of(ledger)
    assert (report.local_usd, report.to_dict()["local_drafting_usd"], report.calibration) == (None, None, ())
    for text in (str(report), report.html()):
        assert "drafting here" not in text
        assert "forecast" not in text
        assert "Acceptance predicted" not in text


@pytest.mark.parametrize("kind", ["memory", "database"])
def test_the_calibration_error_is_read_from_the_estimates(kind: str, tmp_path: Path) -> None:
    """Σ trials / Σ trials · |hits − predicted| / trials over the buckets, by target, drafter and workload."""
    ledger = MemoryLedger() if kind == "memory" else DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.add_estimates("m@u", "w", {("d", "0.9"): Count(80, 72, 76), ("d", "0.5"): Count(20, 13, 11)})
    ledger.add_estimates("m@u", "w", {("lookup", "static"): Count(10, 9, 9)})
    ledger.add_estimates("m@u", "other", {("d", "0.9"): Count(0, 0, 0)})
    report = report_of(ledger)
    first, second = report.calibration
    assert (first.target, first.drafter, first.workload) == ("m@u", "d", "w")
    assert (first.trials, first.error) == (pytest.approx(100, rel=0.05), pytest.approx(0.06, rel=0.05))
    assert (second.drafter, second.error) == ("lookup", 0.0)
    assert report.to_dict()["calibration"][1]["error"] == 0.0
    for text in (str(report), report.html()):
        assert "Acceptance predicted" in text
    if isinstance(ledger, DatabaseLedger):
        ledger.close()
