"""One request of the ledger as a report sees it: what it was, and its money (:mod:`cheapspec.core.bill`)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from cheapspec.core.bill import DECISIONS, KINDS, PROBE, UNSETTLED, read_bill, read_info
from cheapspec.core.info import Info
from cheapspec.core.records import RequestRecord

__all__ = ["DECISIONS", "EXACT_RULES", "KINDS", "PROBE", "UNSETTLED", "Entry", "read_entry"]

EXACT_RULES = frozenset({None, "exact", "text_match"})
"""Rules under which every accepted token is the target's own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, or probe. ``decision``: a key of :data:`KINDS`; ``info`` is empty where the ledger has none; money
    as in :class:`cheapspec.core.bill.Bill`.
    """

    record: RequestRecord
    info: Info
    decision: str
    paid_usd: Decimal | None
    baseline_usd: Decimal | None
    saved_usd: Decimal | None
    known_usd: Decimal
    estimated: bool
    unpriced: bool

    @property
    def session(self) -> str | None:
        """The session's name."""
        return self.record.row.session or self.info.session

    @property
    def lossy(self) -> bool:
        """Whether the reply was accepted under a rule that may differ from the target."""
        return self.decision == "speculate" and (self.info.lossy or self.info.rule not in EXACT_RULES)

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

    @property
    def tiers(self) -> tuple[str | None, str | None]:
        """The service tiers that were asked for and that served, of the last call that says so."""
        told = [(call.row.service_tier, call.usage.service_tier if call.usage else None) for call in self.record.calls]
        return next((pair for pair in reversed(told) if any(pair)), (None, None))

    @property
    def flags(self) -> tuple[str, ...]:
        """What is odd about the price of its calls (:class:`cheapspec.core.money.Charge`)."""
        return tuple(sorted({flag for call in self.record.calls for flag in call.flags}))


def read_entry(record: RequestRecord) -> Entry:
    """A request's figures."""
    info = read_info(record)
    bill = read_bill(record, info)
    return Entry(
        record,
        info,
        info.decision,
        bill.paid_usd,
        bill.baseline_usd,
        bill.saved_usd,
        bill.known_usd,
        bill.estimated,
        bill.unpriced,
    )
