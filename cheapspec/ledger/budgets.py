"""What a budget is, which period it is for, and what a request counts in it.

Rules
-----
* A budget belongs to a name on a ledger: whoever uses the name, in whatever thread, process or machine, draws on
  one cap. ``period`` renews it each day or month of its time zone; without one it is for ever. Who uses one name with
  several time zones draws on one account wherever their dates are the same: use one.
* A request counts once in an account, in however many ways it is told of it: the lowest cap holds, and an unknown
  price passes only where all of them let it.
* What a request counts: of each billed call what it cost (the dearer service tier, where two are in question),
  or the worst case of a call whose cost nobody told; nothing for a call that failed with an error. If that is
  unknown too, the request counts at least what was reserved for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cheapspec.core.books import Cap
from cheapspec.errors import SettingsError

__all__ = ["Budget", "Charged", "charge_of", "distinct"]

_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap in dollars.

    :param usd: the cap; 0 refuses everything that is not free.
    :param period: ``"day"`` or ``"month"``: the cap is for each of them; ``None``: for ever.
    :param timezone: where days and months begin (``"Europe/Berlin"``).
    :param unknown: what becomes of a request whose price nobody knows: ``"refuse"``, or ``"allow"`` uncounted.
    :raises SettingsError: one of them is unusable.
    """

    usd: Decimal | int | float | str
    period: Literal["day", "month"] | None = None
    timezone: str = "UTC"
    unknown: Literal["refuse", "allow"] = "refuse"

    def __post_init__(self) -> None:
        try:
            usd = Decimal(str(self.usd))
        except InvalidOperation:
            usd = Decimal("NaN")
        if not usd.is_finite() or usd < 0 or usd > 9_000_000_000 or isinstance(self.usd, bool):
            raise SettingsError(f"usd = {self.usd!r} (budget): write an amount of dollars, such as 5 or '0.50'.")
        object.__setattr__(self, "usd", usd)
        if self.period not in (None, "day", "month"):
            raise SettingsError(f"period = {self.period!r} (budget): write 'day', 'month' or None.")
        if self.unknown not in ("refuse", "allow"):
            raise SettingsError(f"unknown = {self.unknown!r} (budget): write 'refuse' or 'allow'.")
        _zone(self.timezone)

    def cap(self, name: str, now: float) -> Cap:
        """The budget called ``name`` as it is at ``now`` (UTC seconds since the epoch)."""
        period = ""
        if self.period is not None:
            period = datetime.fromtimestamp(now, _zone(self.timezone)).strftime(_FORMATS[self.period])
        return Cap(name, Decimal(self.usd), period, self.unknown == "allow")


def distinct(caps: Iterable[Cap]) -> tuple[Cap, ...]:
    """One cap an account (name and period), in the order in which the accounts come first: the strictest of them."""
    found: dict[tuple[str, str], Cap] = {}
    for cap in caps:
        other = found.setdefault((cap.name, cap.period), cap)
        if other is not cap:
            allowed = other.allow_unknown and cap.allow_unknown
            found[cap.name, cap.period] = replace(other, usd=min(other.usd, cap.usd), allow_unknown=allowed)
    return tuple(found.values())


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # needs no time zone database
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise SettingsError(
            f"timezone = {name!r} (budget): write a name of the IANA time zone database, such as 'Europe/Berlin' "
            "(on Windows: pip install tzdata)."
        ) from None


@dataclass(frozen=True, slots=True)
class Charged:
    """What counts of one call. Money in nano-dollars, ``None`` unknown."""

    billed: bool
    status: str
    cost: int | None
    budget: int | None
    worst: int | None


def charge_of(calls: Iterable[Charged], reserved: int) -> int:
    """Nano-dollars that a request with these calls counts in a budget that had ``reserved`` so much for it."""
    total, unknown = 0, False
    for call in calls:
        if not call.billed:
            continue
        known = [amount for amount in (call.budget, call.cost) if amount is not None]
        if known:
            total += max(known)
        elif call.status != "failed":
            unknown = unknown or call.worst is None
            total += call.worst or 0
    return max(total, reserved) if unknown else total
