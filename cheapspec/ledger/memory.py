"""A ledger in memory: what was asked, sent and paid since the process started.

Rules
-----
* ``capacity`` requests are kept whole. The one that was closed first falls out first (open ones only when
  there is no other), and stays in the totals.
* When a request closes, a call of it that is still open and billed becomes ``possibly_billed`` (it was
  written just before it went out, so the provider may charge it), one that is not billed ``cancelled``.
  Should such a call be closed later after all, the later word counts.
* A request is *unpriced* where :mod:`cheapspec.core.bill` says so, as in reports: totals say how many, and never
  count one as free.
* Sessions are kept to find the requests made inside them: the newest ``capacity`` of them.
* Traces are kept with their request, ``trace_tokens`` positions of them at most: the oldest ones go first.
* A fork waits for nobody: the child's copy has a lock of its own, since a thread may have held the parent's.
* Nothing raises: a book that cannot be kept must not cost the caller a reply that was paid for. What
  could not be written is counted in ``Totals.lost``.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from threading import RLock
from typing import Any
from weakref import WeakSet

from cheapspec.core.bill import KINDS, PROBE, UNSETTLED, read_bill, read_info
from cheapspec.core.books import SessionRow, Trace
from cheapspec.core.estimate import Counts, Delta, EstimateTable, Row
from cheapspec.core.money import format_usd, money_context
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.records import CallRecord, RequestRecord
from cheapspec.ledger.memory_shadows import ShadowTable

__all__ = ["CallRecord", "MemoryLedger", "RequestRecord", "Totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the start. Money of *priced* requests only: ``unpriced_requests`` says how many are not in it.

    ``paid_usd`` is what the calls cost, ``baseline_usd`` what the same requests would have cost without
    speculation (a request that reports no baseline was its own). ``lost``: writes that failed.
    """

    requests: int = 0
    speculated: int = 0
    direct: int = 0
    bypassed: int = 0
    refused: int = 0
    probes: int = 0
    by_reason: Mapping[str, int] = field(default_factory=dict[str, int])
    calls: int = 0
    paid_usd: Decimal = Decimal(0)
    baseline_usd: Decimal = Decimal(0)
    unpriced_requests: int = 0
    lost: int = 0

    @property
    def saved_usd(self) -> Decimal:
        """Baseline minus paid; negative when speculation cost more."""
        with money_context():
            return self.baseline_usd - self.paid_usd

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, money as strings."""
        return {
            "requests": {
                "total": self.requests,
                "speculated": self.speculated,
                "direct": self.direct,
                "bypassed": self.bypassed,
                "refused": self.refused,
                "by_reason": dict(self.by_reason),
            },
            "probes": self.probes,
            "calls": self.calls,
            "paid_usd": format_usd(self.paid_usd),
            "baseline_usd": format_usd(self.baseline_usd),
            "saved_usd": format_usd(self.saved_usd),
            "unpriced_requests": self.unpriced_requests,
            "lost": self.lost,
        }


@dataclass(slots=True)
class _Entry:
    row: RequestRow
    info: Mapping[str, Any] | None = None
    calls: dict[str, CallRecord] = field(default_factory=dict[str, CallRecord])
    traces: list[Trace] = field(default_factory=list[Trace])


class MemoryLedger(ShadowTable):
    """Implements :class:`cheapspec.core.ports.Ledger`. Safe to share between threads and clients."""

    def __init__(self, capacity: int = 10_000, trace_tokens: int = 200_000) -> None:
        super().__init__(max(capacity, 1))
        self._capacity = max(capacity, 1)
        self._trace_tokens = trace_tokens
        self._traces: deque[tuple[str, int]] = deque()
        self._traced = 0
        self._lock = RLock()
        self._entries: dict[str, _Entry] = {}
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._request_of: dict[str, str] = {}
        self._sessions: dict[str, SessionRow] = {}
        self._dropped = Totals()
        self._lost = 0
        self._estimates = EstimateTable()
        _ledgers.add(self)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        super().renew_locks()
        self._lock = RLock()

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """See :class:`cheapspec.core.books.EstimateBook`."""
        with self._lock:
            return self._estimates.estimates(target, workload)

    def add_estimates(self, target: str, workload: str, delta: Delta) -> None:
        with self._lock:
            self._estimates.add_estimates(target, workload, delta)

    def estimate_rows(self) -> list[Row]:
        """See :class:`cheapspec.core.records.EstimateReader`."""
        with self._lock:
            return self._estimates.rows()

    def open_request(self, row: RequestRow) -> None:
        with self._lock:
            if row.request_id in self._entries:
                self._lost += 1  # two requests under one id: keep the first one's books straight
                return
            self._entries[row.request_id] = _Entry(row)
            while len(self._entries) > self._capacity:
                name = next(iter(self._closed), None) or next(iter(self._entries))
                self._closed.pop(name, None)
                oldest = self._entries.pop(name)
                self._dropped = _add(self._dropped, oldest)
                for call_id in oldest.calls:
                    self._request_of.pop(call_id, None)

    def open_call(self, row: CallRow) -> None:
        with self._lock:
            entry = self._entries.get(row.request_id)
            if entry is None or row.call_id in self._request_of:
                self._lost += 1
                return
            entry.calls[row.call_id] = CallRecord(row)
            self._request_of[row.call_id] = row.request_id

    def close_call(self, call: Call) -> None:
        with self._lock:
            entry = self._entries.get(self._request_of.get(call.call_id, ""))
            if entry is None:
                self._lost += 1
                return
            entry.calls[call.call_id] = CallRecord(
                entry.calls[call.call_id].row,
                call.status,
                call.usage,
                _usd(call.cost_usd),
                call.seconds,
                call.http_status,
                call.flags,
            )

    def close_request(self, request_id: str, info: Mapping[str, Any]) -> None:
        with self._lock:
            entry = self._entries.get(request_id)
            if entry is None:
                self._lost += 1
                return
            entry.info = dict(info)
            self._closed[request_id] = None
            for call_id, record in entry.calls.items():
                if record.status == "open":
                    status = "possibly_billed" if record.row.billed else "cancelled"
                    entry.calls[call_id] = replace(record, status=status)

    def open_session(self, row: SessionRow) -> None:
        """See :class:`cheapspec.core.books.SessionBook`."""
        with self._lock:
            self._sessions[row.session_id] = row
            if len(self._sessions) > self._capacity:
                del self._sessions[next(iter(self._sessions))]

    def close_session(self, session_id: str, at: float) -> None:
        """Nothing asks when it was closed."""

    def add_trace(self, trace: Trace) -> None:
        """See :class:`cheapspec.core.books.TraceBook`."""
        with self._lock:
            entry = self._entries.get(trace.request_id)
            if entry is None:
                self._lost += 1
                return
            entry.traces.append(trace)
            self._traces.append((trace.request_id, len(trace.agreed)))
            self._traced += len(trace.agreed)
            while self._traced > self._trace_tokens:
                request_id, positions = self._traces.popleft()
                self._traced -= positions
                oldest = self._entries.get(request_id)
                if oldest is not None:
                    del oldest.traces[0]

    def add_text(self, request_id: str, prompt: str, reply: str) -> None:
        """Text is never kept in memory."""

    @property
    def forgotten(self) -> int:
        """How many requests fell out of the list: only the totals still know of them."""
        with self._lock:
            return self._dropped.requests

    def requests(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> list[RequestRecord]:
        """The kept requests, in the order in which they were opened (:class:`cheapspec.core.records.LedgerReader`). A
        session takes those inside it along.
        """
        with self._lock:
            inside = self._inside(session)
            return [
                _record(entry)
                for entry in self._entries.values()
                if (since is None or entry.row.at >= since)
                and (until is None or entry.row.at < until)
                and (session is None or session == entry.row.session or entry.row.session_id in inside)
            ]

    def _inside(self, session: str | None) -> set[str]:
        """Ids of the sessions called so (or with this id), and of all that were opened inside them."""
        found: set[str] = set()
        for row in self._sessions.values():  # a session is opened after the one around it
            if session in (row.name, row.session_id) or row.parent_id in found:
                found.add(row.session_id)
        return found

    def traced(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> Iterator[tuple[RequestRecord, tuple[Trace, ...]]]:
        """The kept requests with their traces (:class:`cheapspec.core.records.TraceReader`)."""
        for record in self.requests(since=since, until=until, session=session):
            with self._lock:
                entry = self._entries.get(record.row.request_id)
                rounds = () if entry is None else tuple(entry.traces)
            yield record, rounds

    def calls(self, request_id: str) -> list[CallRecord]:
        """The calls of one request in the order in which they were opened; empty when it is not kept."""
        with self._lock:
            entry = self._entries.get(request_id)
            return [] if entry is None else list(entry.calls.values())

    def totals(self) -> Totals:
        """Sums over everything since the start, dropped requests included."""
        with self._lock:
            sums = self._dropped
            for entry in self._entries.values():
                sums = _add(sums, entry)
            return replace(sums, lost=self._lost)


_ledgers: WeakSet[MemoryLedger] = WeakSet()


def _renew_locks() -> None:
    for ledger in list(_ledgers):
        ledger.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _add(sums: Totals, entry: _Entry) -> Totals:
    """``sums`` with one more request."""
    with money_context():
        return _added(sums, entry)


def _added(sums: Totals, entry: _Entry) -> Totals:
    record = _record(entry)
    info = read_info(record)
    bill = read_bill(record, info)
    counter, probe = KINDS[info.decision], info.decision == PROBE
    changed: dict[str, Any] = {"requests": sums.requests + (not probe), "calls": sums.calls + len(entry.calls)}
    if info.decision != UNSETTLED:
        changed[counter] = getattr(sums, counter) + 1
    if info.reason and not probe:
        changed["by_reason"] = {**sums.by_reason, info.reason: sums.by_reason.get(info.reason, 0) + 1}
    if bill.unpriced:
        changed["unpriced_requests"] = sums.unpriced_requests + 1
    elif bill.paid_usd is not None and bill.baseline_usd is not None:
        changed |= {"paid_usd": sums.paid_usd + bill.paid_usd, "baseline_usd": sums.baseline_usd + bill.baseline_usd}
    return replace(sums, **changed)


def _record(entry: _Entry) -> RequestRecord:
    return RequestRecord(entry.row, entry.info, tuple(entry.calls.values()))


def _usd(amount: object) -> Decimal | None:
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
