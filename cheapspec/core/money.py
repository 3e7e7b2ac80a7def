"""Prices × usage in ``Decimal``; unknown is ``None``, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

__all__ = ["Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens; ``request``: dollars per call. ``None``: not known separately
    (``cached_input`` then falls back to ``input``, ``cache_write`` to ``input``)."""

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    request: Decimal = Decimal(0)
