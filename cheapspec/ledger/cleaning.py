"""What a column can hold: odd values of a reply are made to fit, so that they do not cost the rest of their row.

Rules
-----
* A number beyond its column becomes the largest that fits; one that is none (NaN, infinite, text) is unknown.
* NUL, which PostgreSQL refuses, and halves of surrogate pairs, which no database encodes, become U+FFFD; what is not
  text in a column of text is written as Python shows it.
* ``NULL`` stays what it is: whether a column takes it is the database's to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import BigInteger, Boolean, Double, Integer, Table

__all__ = ["clean_text", "cleaner"]

_UNFIT = re.compile("[\x00\ud800-\udfff]")


def clean_text(value: object) -> str:
    """As text that every database takes."""
    text = value if isinstance(value, str) else str(value)
    return _UNFIT.sub("\ufffd", text)


def cleaner(table: Table, others: Iterable[str] = ()) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What makes values fit the columns of ``table`` that they are named after. ``others``: more names of text."""
    fits = {column.name: _fit(column.type) for column in table.columns} | dict.fromkeys(others, clean_text)

    def clean(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value if value is None or name not in fits else fits[name](value) for name, value in row.items()}

    return clean


def _fit(kind: object) -> Callable[[object], object]:
    if isinstance(kind, BigInteger):
        return lambda value: _whole(value, 2**63 - 1)
    if isinstance(kind, Integer):
        return lambda value: _whole(value, 2**31 - 1)
    if isinstance(kind, Boolean):
        return bool
    return _real if isinstance(kind, Double) else clean_text


def _whole(value: object, most: int) -> int | None:
    if not isinstance(value, int | float) or value != value:
        return None
    return int(max(-most, min(most, value)))


def _real(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
