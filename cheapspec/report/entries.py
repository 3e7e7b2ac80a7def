"""One request of the ledger as a report sees it: what it was, what it cost, what direct would have cost.

Rules
-----
* What was paid is the sum of the request's billed calls, background probes and calls that failed half-way
  included. One call whose cost nobody knows makes the request *unpriced*: it is counted, and never as free.
* The baseline is what the reply says (:mod:`cheapspec.core.tally`, :mod:`cheapspec.core.money`). A request that was
  not speculated and says none was its own baseline: the cost of its direct call, not of what was tried before.
* A pass-through to a route that has no call in the ledger (embeddings, images, …) has no known price: not 0.
* A request without a decision is *unsettled*: it is still running, or its process died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cheapspec.core.info import Info
from cheapspec.core.records import CallRecord, RequestRecord

__all__ = ["DECISIONS", "EXACT_RULES", "UNSETTLED", "Entry", "read_entry"]

UNSETTLED = "unsettled"
DECISIONS = {
    "speculate": "speculated",
    "direct": "direct",
    "bypass": "bypassed",
    "refused": "refused",
    UNSETTLED: "unsettled",
}
"""A request's decision, and what a report calls such requests."""

EXACT_RULES = frozenset({None, "exact", "text_match"})
"""Rules under which every accepted token is the target's own."""

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. ``decision``: a key of :data:`DECISIONS`; ``info`` is empty where the ledger has none.

    ``paid_usd`` and ``baseline_usd`` are ``None`` when unknown, ``known_usd`` is what is known of the first.
    ``estimated``: the baseline is. ``unpriced``: it is over, and its money is not known.
    """

    record: RequestRecord
    info: Info
    decision: str
    paid_usd: Decimal | None
    baseline_usd: Decimal | None
    known_usd: Decimal
    estimated: bool
    unpriced: bool

    @property
    def saved_usd(self) -> Decimal | None:
        """Baseline minus paid; negative when it cost more; ``None`` when either is unknown."""
        return None if self.paid_usd is None or self.baseline_usd is None else self.baseline_usd - self.paid_usd

    @property
    def session(self) -> str | None:
        """The session's name."""
        return self.record.row.session or self.info.session

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Input, cached input and output tokens that the target billed."""
        used = [call.usage for call in self.record.calls if call.row.billed and call.usage is not None]
        if not used:
            return self.info.input_tokens, self.info.cached_input_tokens, self.info.output_tokens
        return (
            sum(usage.input_tokens for usage in used),
            sum(usage.cached_tokens or 0 for usage in used),
            sum(usage.output_tokens for usage in used),
        )


def read_entry(record: RequestRecord) -> Entry:
    """A request's figures."""
    info = _info(record)
    decision = info.decision if info.decision in DECISIONS else UNSETTLED
    billed = [call for call in record.calls if call.row.billed]
    paid = _paid(billed, info, decision)
    baseline = info.baseline_usd
    estimated = decision == "speculate" and info.baseline != "exact"
    if baseline is None and decision in ("direct", "bypass", "refused"):
        direct = [call for call in billed if call.row.purpose == "direct"]
        estimated = any(call.usage is not None and call.usage.estimated for call in direct)
        baseline = _cost(direct) if direct else None if decision == "bypass" else _ZERO
    over = decision != UNSETTLED or any(call.status != "open" for call in billed)
    return Entry(
        record,
        info,
        decision,
        paid,
        baseline,
        sum((call.cost_usd for call in billed if call.cost_usd is not None), _ZERO) if billed else paid or _ZERO,
        estimated,
        over and (paid is None or baseline is None),
    )


def _paid(billed: list[CallRecord], info: Info, decision: str) -> Decimal | None:
    if billed:
        return _cost(billed)
    if info.paid_usd is not None or decision in ("speculate", "bypass"):
        return info.paid_usd
    return _ZERO  # refused, left or given up before anything was sent


def _cost(calls: list[CallRecord]) -> Decimal | None:
    """Their sum; ``None`` when one of them may have cost something that nobody can name."""
    if any(call.unpriced for call in calls):
        return None
    return sum((call.cost_usd for call in calls if call.cost_usd is not None), _ZERO)


def _info(record: RequestRecord) -> Info:
    told: Mapping[str, Any] = record.info or {}
    named: dict[str, Any] = {**told, "request_id": record.row.request_id, "decision": told.get("decision") or UNSETTLED}
    try:
        return Info.from_dict(named)
    except ValueError:  # another program's row, or another version's: its decision stands, its figures are unknown
        keys = ("request_id", "decision", "reason", "rule")
        return Info.from_dict({key: str(named[key]) for key in keys if named.get(key) is not None})
