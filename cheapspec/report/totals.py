"""From a ledger's requests to a :class:`~cheapspec.report.figures.Report`, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cheapspec.core.estimate import VERDICT, Count, calibration_error
from cheapspec.core.money import money_context
from cheapspec.core.records import EstimateReader, LedgerReader, RequestRecord
from cheapspec.errors import LedgerError
from cheapspec.report.allowance import headrooms
from cheapspec.report.audits import with_audits
from cheapspec.report.entries import DECISIONS, KINDS, PROBE, Entry, read_entry
from cheapspec.report.figures import (
    Calibration,
    Forecast,
    Group,
    Latency,
    Lossy,
    Reason,
    Report,
    Sums,
    Tokens,
)

__all__ = ["calibrations", "make_report", "report_of"]


def report_of(
    ledger: object,
    *,
    since: float | None = None,
    until: float | None = None,
    session: str | None = None,
    seed: Decimal | None = None,
) -> Report:
    """The report of a ledger: of the requests ``since`` (included) and ``until`` (excluded), seconds since the
    epoch, and of one ``session`` (its name, or its id). ``seed``: the allowance's, in dollars; ``None``: its accounts
    are left out.

    :raises LedgerError: the ledger keeps nothing that could be read, or its store cannot be read.
    """
    if not isinstance(ledger, LedgerReader):
        raise LedgerError(
            f"nothing to report: a {type(ledger).__name__} cannot be read. Leave the setting 'ledger' out, or give "
            "it a database."
        )
    records = ledger.requests(since=since, until=until, session=session)
    forgotten = getattr(ledger, "forgotten", 0)
    report = make_report(records, since=since, until=until, session=session, forgotten=forgotten)
    allowance = () if seed is None else headrooms(ledger, seed, session)
    report = replace(report, calibration=calibrations(ledger), allowance=allowance)
    return with_audits(report, ledger, since=since, until=until, session=session)


def calibrations(ledger: object) -> tuple[Calibration, ...]:
    """How well acceptance was predicted, by target, drafter and workload, the most observed first; empty where the
    ledger keeps no estimates.

    :raises LedgerError: the store cannot be read.
    """
    found: dict[tuple[str, str, str], list[Count]] = {}
    for target, workload, drafter, bucket, count in (
        ledger.estimate_rows() if isinstance(ledger, EstimateReader) else ()
    ):
        if bucket != VERDICT:  # requests, not tokens
            found.setdefault((target, drafter, workload), []).append(count)
    made = [
        Calibration(*names, sum(count.trials for count in counts), error)
        for names, counts in found.items()
        if (error := calibration_error(counts)) is not None
    ]
    return tuple(sorted(made, key=lambda one: (-one.trials, one.target, one.drafter, one.workload)))


def make_report(
    records: Iterable[RequestRecord],
    *,
    since: float | None = None,
    until: float | None = None,
    session: str | None = None,
    forgotten: int = 0,
) -> Report:
    """The report of these requests (read once, in order)."""
    adding = _Adding()
    with money_context():
        for entry in map(read_entry, records):
            adding.add(entry)
        return adding.report(since, until, session, forgotten)


_FLAGS = ("tier_differs", "tier_unpriced")


class _Adding:
    """The one pass over the requests."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.end: float | None = None
        self.total = _Running()
        self.groups: dict[str, dict[str | None, _Running]] = {"sessions": {}, "models": {}, "days": {}}
        self.reasons: dict[tuple[str, str], int] = {}
        self.tokens: dict[str, int] = dict.fromkeys(Tokens.__slots__, 0)
        names = ["rounds", "calls", "per_request", "per_token", "lossy", "audited", "simulated", "fixed", *_FLAGS]
        self.counts: dict[str, int] = dict.fromkeys(names, 0)
        self.local: Decimal | None = None
        self.forecast = Forecast()
        self.times: dict[str, list[float]] = {}
        self.seconds: dict[str, float] = dict.fromkeys(("draft", "verify", "handoff", "total"), 0.0)

    def add(self, entry: Entry) -> None:
        row, info = entry.record.row, entry.info
        self.start = row.at if self.start is None else min(self.start, row.at)
        self.end = row.at if self.end is None else max(self.end, row.at)
        self.total.add(entry)
        day = datetime.fromtimestamp(row.at, UTC).date().isoformat()
        for kind, name in (("sessions", entry.session), ("models", row.model or None), ("days", day)):
            self.groups[kind].setdefault(name, _Running()).add(entry)
        if info.reason is not None and entry.decision not in ("speculate", PROBE):
            key = (entry.decision, info.reason)
            self.reasons[key] = self.reasons.get(key, 0) + 1
        names = ["accepted", "corrected", "handoff", "lenient"]
        if not info.verdicts:  # of what rules judged as a whole no token was compared
            names += ["drafted", "unverified"]
        for name in names:
            self.tokens[name] += getattr(info, f"{name}_tokens")
        for name, value in zip(("input", "cached_input", "output"), entry.tokens, strict=True):
            self.tokens[name] += value
        for name, value in self._counted(entry):
            self.counts[name] += value
        if info.local_usd is not None:
            self.local = (self.local or Decimal(0)) + info.local_usd
        if info.forecast_usd is not None and entry.saved_usd is not None and not entry.unpriced:
            told = self.forecast
            expected, saved = told.expected_usd + info.forecast_usd, told.saved_usd + entry.saved_usd
            self.forecast = Forecast(told.requests + 1, expected, saved)
        self._time(entry)

    @staticmethod
    def _counted(entry: Entry) -> Iterator[tuple[str, int]]:
        info = entry.info
        yield "rounds", info.rounds
        yield "calls", info.target_calls
        yield "simulated", info.simulated
        yield "fixed", info.fixed_draft_tokens is not None
        for flag in entry.flags:
            if flag in _FLAGS:
                yield flag, 1
        yield "audited", any(call.row.purpose == "audit" for call in entry.record.calls)
        if entry.decision in ("speculate", "direct"):
            yield "per_request", 1 - info.target_calls
            yield "per_token", info.calls_saved_per_token_client
            yield "lossy", entry.lossy

    def _time(self, entry: Entry) -> None:
        spent, speculated = entry.info.seconds, entry.decision == "speculate"
        if speculated:
            for name in self.seconds:
                self.seconds[name] += getattr(spent, name)
        passed = entry.decision in ("direct", "bypass") and not entry.record.row.stream
        if spent.total > 0 and (speculated or passed):
            for name in ("all", DECISIONS[entry.decision]):
                self.times.setdefault(name, []).append(spent.total)

    def report(self, since: float | None, until: float | None, session: str | None, forgotten: int) -> Report:
        def groups(kind: str) -> list[Group]:
            return [Group(name, running.sums()) for name, running in self.groups[kind].items()]

        def by_size(group: Group) -> tuple[int, str]:
            return -group.sums.requests, group.name or ""

        counts = self.counts
        reasons = [Reason(decision, reason, count) for (decision, reason), count in self.reasons.items()]
        order = list(DECISIONS)
        return Report(
            start=self.start if since is None else since,
            end=self.end if until is None else until,
            session=session,
            sums=self.total.sums(),
            sessions=tuple(sorted(groups("sessions"), key=by_size)),
            models=tuple(sorted(groups("models"), key=by_size)),
            days=tuple(sorted(groups("days"), key=lambda group: group.name or "")),
            reasons=tuple(sorted(reasons, key=lambda one: (order.index(one.decision), -one.requests, one.reason))),
            tokens=Tokens(**self.tokens),
            rounds=counts["rounds"],
            target_calls=counts["calls"],
            calls_saved_per_request_client=counts["per_request"],
            calls_saved_per_token_client=counts["per_token"],
            lossy=Lossy(counts["lossy"], counts["audited"]),
            latency={name: _latency(self.times[name]) for name in ("all", *DECISIONS.values()) if name in self.times},
            seconds=self.seconds,
            simulated=counts["simulated"],
            forgotten=forgotten,
            fixed=counts["fixed"],
            tier_differs=counts["tier_differs"],
            tier_unpriced=counts["tier_unpriced"],
            local_usd=self.local,
            forecast=self.forecast,
        )


class _Running:
    """Sums while they grow."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._usd: dict[str, Decimal] = dict.fromkeys(
            ("priced_paid", "priced_baseline", "estimated", "unpriced_known"), Decimal(0)
        )

    def add(self, entry: Entry) -> None:
        priced = not entry.unpriced and entry.paid_usd is not None and entry.baseline_usd is not None
        kinds = (KINDS[entry.decision],) if entry.decision == PROBE else ("requests", KINDS[entry.decision])
        for name in (*kinds, "priced" if priced else "unpriced" * entry.unpriced):
            self._counts[name] = self._counts.get(name, 0) + 1
        if priced:
            assert entry.paid_usd is not None and entry.baseline_usd is not None
            self._usd["priced_paid"] += entry.paid_usd
            self._usd["priced_baseline"] += entry.baseline_usd
            self._usd["estimated"] += entry.baseline_usd if entry.estimated else 0
        else:
            self._usd["unpriced_known"] += entry.known_usd

    def sums(self) -> Sums:
        figures: dict[str, Any] = {**self._counts, **self._usd}
        figures.pop("", None)
        return Sums(**figures)


def _latency(seconds: list[float]) -> Latency:
    ordered = sorted(seconds)
    return Latency(len(ordered), _quantile(ordered, 0.5), _quantile(ordered, 0.95))


def _quantile(ordered: list[float], share: float) -> float:
    """Linear between the two nearest (as numpy's default)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
