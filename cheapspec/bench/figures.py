"""Sums of a bench, by kind and over all, and its JSON (``bench --json``, keys in INTERFACE's order).

* ``paid_over_baseline``: dollars through cheapspec over dollars of the target alone, of the replies that have both.
  Above 1 is a loss, and is shown as such.
* ``capture``: the share of the clairvoyant's saving that was reached, of the replies that have all three figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cheapspec.bench.measure import Measured
from cheapspec.core.money import format_usd
from cheapspec.core.oracle import capture

__all__ = ["Total", "by_kind", "prompt_dict"]


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over some replies. ``failed`` ones are counted in no other figure."""

    replies: int
    failed: int
    equal: int
    unpriced: int
    speculated: int
    paid: Decimal
    baseline: Decimal
    capture: float | None
    target_calls: int
    reply_tokens: int
    seconds: float
    seconds_direct: float

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> Total:
        """Add up."""
        everything = list(measured)
        good = [one for one in everything if one.failed is None]
        priced = [(one.paid, one.baseline) for one in good if one.paid is not None and one.baseline is not None]
        return cls(
            replies=len(everything),
            failed=len(everything) - len(good),
            equal=sum(one.equal for one in good),
            unpriced=len(good) - len(priced),
            speculated=sum(one.decision == "speculate" for one in good),
            paid=sum((paid for paid, _ in priced), Decimal(0)),
            baseline=sum((baseline for _, baseline in priced), Decimal(0)),
            capture=_captured(good),
            target_calls=sum(one.target_calls for one in good),
            reply_tokens=sum(one.reply_tokens for one in good),
            seconds=sum(one.seconds for one in good),
            seconds_direct=sum(one.seconds_direct for one in good),
        )

    @property
    def paid_over_baseline(self) -> float | None:
        """``None`` when nothing was priced."""
        return float(self.paid / self.baseline) if self.baseline else None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON; money as strings in dollars."""
        return {
            "replies": self.replies,
            "failed": self.failed,
            "equal": self.equal,
            "speculated": self.speculated,
            "unpriced": self.unpriced,
            "paid": format_usd(self.paid),
            "baseline": format_usd(self.baseline),
            "paid_over_baseline": _rounded(self.paid_over_baseline),
            "capture": _rounded(self.capture),
            "target_calls": self.target_calls,
            "reply_tokens": self.reply_tokens,
            "seconds": round(self.seconds, 3),
            "seconds_direct": round(self.seconds_direct, 3),
        }


def _captured(good: Sequence[Measured]) -> float | None:
    known = [
        (one.paid, one.baseline, one.clairvoyant)
        for one in good
        if one.paid is not None and one.baseline is not None and one.clairvoyant is not None
    ]
    paid, baseline, best = (float(sum(column)) for column in zip(*known, strict=True)) if known else (0.0, 0.0, 0.0)
    return capture(paid, baseline, best) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def by_kind(measured: Sequence[Measured]) -> dict[str, Total]:
    """Totals by kind in the order in which they first occur, and of ``all``."""
    kinds = dict.fromkeys(one.kind for one in measured)
    totals = {kind: Total.of(one for one in measured if one.kind == kind) for kind in kinds}
    return {**totals, "all": Total.of(measured)}


def prompt_dict(one: Measured) -> dict[str, Any]:
    """One reply as JSON."""
    return {
        "id": one.id,
        "kind": one.kind,
        "equal": one.equal if one.failed is None else None,
        "differs_at": one.differs_at,
        "paid": format_usd(one.paid),
        "baseline": format_usd(one.baseline),
        "clairvoyant": format_usd(one.clairvoyant),
        "decision": one.decision,
        "reason": one.reason,
        "rounds": one.rounds,
        "target_calls": one.target_calls,
        "drafted_tokens": one.drafted_tokens,
        "accepted_tokens": one.accepted_tokens,
        "reply_tokens": one.reply_tokens,
        "ties": one.ties,
        "seconds": round(one.seconds, 3),
        "seconds_direct": round(one.seconds_direct, 3),
        "failed": one.failed,
    }
