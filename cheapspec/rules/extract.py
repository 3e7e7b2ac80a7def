"""``LastNumber``, and the extractor that a caller means by a name, an expression or a function."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeGuard

from cheapspec.rules.answers import Extractor, marked, same
from cheapspec.rules.labels import Label
from cheapspec.rules.numbers import Number, UnitRule, numbers, same_number
from cheapspec.rules.structured import Custom, Fields, Group, json_in

__all__ = ["Custom", "Extractor", "Fields", "Group", "Label", "LastNumber", "extractor", "json_in", "same"]


@dataclass(frozen=True, slots=True)
class LastNumber:
    """The last number of a draft (behind its last mark, if it has one that a number follows); the only number of a
    short answer, or the one after its last equals sign. ``decimal``: the decimal sign, see
    :mod:`cheapspec.rules.numbers`; ``units``: when units must agree.
    """

    decimal: Literal[".", ","] = "."
    units: UnitRule = "where both"

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ValueError(f"LastNumber(decimal={self.decimal!r}): write '.' or ','")
        if self.units not in ("where both", "same", "ignore"):
            raise ValueError(f"LastNumber(units={self.units!r}): write 'where both', 'same' or 'ignore'")

    @property
    def name(self) -> str:
        return f"last_number(decimal={self.decimal!r}, units={self.units!r})"

    @property
    def form(self) -> str:
        return "as one number with its unit, if it has one"

    @property
    def tokens(self) -> int:
        return 16

    @property
    def chance(self) -> float | None:
        return None

    def draft(self, text: str) -> Number | None:
        behind = marked(text)
        found = numbers(behind, self.decimal) if behind is not None else []
        found = found or numbers(text, self.decimal)
        return found[-1] if found else None

    def short(self, text: str) -> Number | None:
        found = numbers((marked(text) or text).rpartition("=")[2], self.decimal)
        first = found[0] if found else None
        if first is None or any(other is None or not same_number(first, other, self.units) for other in found):
            return None
        return first

    def same(self, one: object, other: object) -> bool:
        return isinstance(one, Number) and isinstance(other, Number) and same_number(one, other, self.units)


def extractor(given: object) -> Extractor:
    """The extractor that a caller means: ``"last_number"``, an object of this module, a compiled regular expression,
    or a function.

    :raises ValueError: it is none of these; the message names the nearest.
    """
    if isinstance(given, str):
        if given == "last_number":
            return LastNumber()
        near = get_close_matches(given, ["last_number"], 1, 0.4)
        hint = f": did you mean {near[0]!r}?" if near else ""
        more = "; for others write Label(('yes', 'no')), Fields(('total',)), Group(r'…') or a function"
        raise ValueError(f"no extractor {given!r}{hint}{more}")
    if _is_pattern(given):
        return Group(given)
    if isinstance(given, Extractor) and not isinstance(given, type):
        return given
    if callable(given):
        return Custom(given)
    raise ValueError(f"no extractor: {given!r}")


def _is_pattern(value: object) -> TypeGuard[re.Pattern[str]]:
    return isinstance(value, re.Pattern)
