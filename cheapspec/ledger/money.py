"""Money as the ledger keeps it: integer nano-dollars."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal, DecimalException

from cheapspec.core.money import CONTEXT

__all__ = ["from_nano", "to_nano"]

_DIGITS = 9

_LARGEST = 2**63 - 1


def to_nano(usd: Decimal | str | None, *, up: bool = False) -> int | None:
    """Dollars as integer nano-dollars, rounded half to even, or ``up``. ``None`` for what is unknown, not a
    finite number, or more than 64 bits hold (9.2e9 dollars).
    """
    if usd is None:
        return None
    try:
        nano = Decimal(usd, CONTEXT).scaleb(_DIGITS, CONTEXT)
        nano = nano.to_integral_value(ROUND_CEILING if up else ROUND_HALF_EVEN, CONTEXT)
    except (DecimalException, TypeError, ValueError):
        return None
    return int(nano) if nano.is_finite() and nano.copy_abs() <= _LARGEST else None


def from_nano(nano: int | None) -> Decimal | None:
    """Nano-dollars as dollars."""
    return None if nano is None else Decimal(nano).scaleb(-_DIGITS, CONTEXT)
