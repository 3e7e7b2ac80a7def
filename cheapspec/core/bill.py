"""What one request cost, and what the target alone would have cost, read from its calls and its facts.

Rules
-----
* What was paid is the sum of the request's billed calls, background probes and calls that failed half-way included,
  and the price of local drafting where there is one. One call whose cost nobody knows makes the request *unpriced*:
  it is counted, and never as free.
* The baseline is what the reply says (:mod:`cheapspec.core.tally`, :mod:`cheapspec.core.money`). A request that was
  not speculated and says none was its own baseline: the cost of its direct call, not of what was tried before.
* A pass-through to a route that has no call in the ledger (a route of its own, a provider's extension) has no known
  price: not 0.
* A probe that nobody's request caused (``cheapspec doctor``) is no request: its calls are paid for, and the target
  alone would have cost nothing.
* A request without a decision is *unsettled*: it is still running, or its process died.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from cheapspec.core.info import Info
from cheapspec.core.money import money_context, saved_usd
from cheapspec.core.records import CallRecord, RequestRecord

__all__ = ["DECISIONS", "KINDS", "PROBE", "UNSETTLED", "Bill", "read_bill", "read_info"]

UNSETTLED = "unsettled"
PROBE = "probe"
DECISIONS = {
    "speculate": "speculated",
    "direct": "direct",
    "bypass": "bypassed",
    "refused": "refused",
    UNSETTLED: "unsettled",
}
"""A request's decision, and what totals and reports call such requests."""
KINDS = {**DECISIONS, PROBE: "probes"}
"""The same, and what is no request."""

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars of one request. ``paid_usd`` and ``baseline_usd`` are ``None`` when unknown, ``known_usd`` is what is
    known of the first. ``estimated``: the baseline is. ``unpriced``: the request is over, and its money is not known.
    """

    paid_usd: Decimal | None
    baseline_usd: Decimal | None
    known_usd: Decimal
    estimated: bool
    unpriced: bool

    @property
    def saved_usd(self) -> Decimal | None:
        """Baseline minus paid; negative when it cost more; ``None`` when either is unknown."""
        return saved_usd(self.paid_usd, self.baseline_usd)


def read_info(record: RequestRecord) -> Info:
    """A request's facts; its decision is a key of :data:`KINDS`. What the ledger has not is empty."""
    told = record.info or {}
    decision = str(told.get("decision"))
    decision = decision if decision in KINDS else UNSETTLED
    named = {**told, "request_id": record.row.request_id, "decision": decision}
    try:
        return Info.from_dict(named)
    except ValueError:  # another program's row, or another version's: its decision stands, its figures are unknown
        kept = {key: told[key] for key in ("reason", "rule") if isinstance(told.get(key), str)}
        return Info(decision=decision, request_id=record.row.request_id, **kept)


def read_bill(record: RequestRecord, info: Info) -> Bill:
    """The money of a request; ``info`` as :func:`read_info` gives it."""
    with money_context():
        return _read(record, info)


def _read(record: RequestRecord, info: Info) -> Bill:
    billed = [call for call in record.calls if call.row.billed]
    local = info.local_usd or _ZERO
    paid, known = _paid(billed, info, local), local + _known(billed)
    baseline = info.baseline_usd
    estimated = info.baseline != "exact" and (info.decision == "speculate" or baseline is not None)
    if baseline is None and info.decision in ("direct", "bypass", "refused", PROBE):
        direct = [call for call in billed if call.row.purpose == "direct"]
        estimated = any(call.usage is not None and call.usage.estimated for call in direct)
        baseline = _sum(direct) if direct else None if info.decision == "bypass" else _ZERO
    over = info.decision != UNSETTLED or any(call.status != "open" for call in billed)
    return Bill(paid, baseline, known, estimated, over and (paid is None or baseline is None))


def _paid(billed: list[CallRecord], info: Info, local: Decimal) -> Decimal | None:
    if billed:
        called = _sum(billed)
        return None if called is None else called + local
    if info.paid_usd is not None or info.decision in ("speculate", "bypass"):
        return info.paid_usd
    return local  # refused, left or given up before anything was sent


def _sum(calls: Iterable[CallRecord]) -> Decimal | None:
    """What they cost; ``None`` when one of them may have cost something that nobody can name."""
    told = list(calls)
    return None if any(call.unpriced for call in told) else _known(told)


def _known(calls: Iterable[CallRecord]) -> Decimal:
    return sum((call.cost_usd for call in calls if call.cost_usd is not None), _ZERO)
