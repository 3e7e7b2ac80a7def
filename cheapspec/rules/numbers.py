r"""Numbers as people write them: read from text, compared by value and unit.

Rules
-----
* The decimal sign is stated, not guessed: with ``decimal="."`` (the default) ``1,000`` and ``1 000 000`` written
  with thin or no-break spaces are grouped integers and ``1,000.5`` has decimals; with ``decimal=","`` the two signs
  change places. What fits neither (``1.000,5`` with the default, ``1,5``, ``1.2.3``, ``3:30``, ``10^3``, the range
  ``3-5``, ``√2``) is *unreadable*: no number, so no verdict.
* ``−`` (U+2212) and ``–`` before a number are minus signs as ``-`` is. ``3/4``, ``2 3/4`` and LaTeX's ``\frac{3}{4}``
  are fractions; ``2.5e-3`` and ``5 million`` are what they say. Values are exact rationals, so 1 = 1.0 and 0.75 = 3/4.
* A unit is a currency sign or code, a per cent sign, letters joined to the digits (``5km``), or a separate word of
  :data:`UNITS`. Nothing is converted: 50 % is not 0.5, and 50 cents are not half a dollar.
* Digits inside a word (``H2O``, ``x_2``) and ordinals (``2nd``) are no numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

__all__ = ["UNITS", "Number", "UnitRule", "numbers", "same_number"]

UnitRule = Literal["where both", "same", "ignore"]

_NAMES: Final = {
    "%": "% percent pct",
    "USD": "$ usd dollar dollars",
    "EUR": "€ eur euro euros",
    "GBP": "£ gbp pound_sterling",
    "JPY": "¥ jpy yen",
    "INR": "₹ inr rupee rupees",
    "cent": "¢ cent cents",
    "km": "km kilometer kilometers kilometre kilometres",
    "m": "meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "mile": "mile miles mi",
    "ft": "ft foot feet",
    "inch": "inch inches",
    "yard": "yard yards yd",
    "kg": "kg kilogram kilograms",
    "g": "gram grams",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "l": "liter liters litre litres",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "s": "sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "year years",
    "°": "° degree degrees",
    "°C": "°c celsius",
    "°F": "°f fahrenheit",
}
UNITS: Final[dict[str, str]] = {word: name for name, words in _NAMES.items() for word in words.split()}
"""A word or sign, in lower case → the unit's one name. A bare ``m``, ``g``, ``l``, ``s`` or ``h`` counts only when it
is joined to the digits, where any letters do.
"""

_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SPACES: Final = "\u00a0\u2009\u202f"
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_RUN: Final = re.compile(rf"(?:\d+[ ](?=\d+/\d))?[.]?\d(?:[\d.,:/^{_SPACES}]*\d)?(?:[eE][+-]?\d+(?![^\W_]))?")
_BEFORE: Final = re.compile(
    r"(?:(?P<sign>[-+−–]?)(?P<money>[$€£¥₹]|\b[A-Z]{3}\s)\s?(?P<inner>[-+−–]?)|(?P<only>[-+−–])\s?)$"
)
_AFTER: Final = re.compile(r"(?P<joined>[^\W\d_]+|[%°¢$€£¥₹][CF]?\b)|[ ]?(?P<word>[%°¢$€£¥₹]|per cent\b|[^\W\d_]+)")
_LONGEST: Final = 400  # digits; longer runs are no answers, and big integers are slow


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value and its unit's one name (``""``: none was written)."""

    value: Fraction
    unit: str = ""


def same_number(one: Number, other: Number, units: UnitRule = "where both") -> bool:
    """Equal values, and equal units: only where both have one (a short answer often leaves it out), always
    (``"same"``), or never looked at (``"ignore"``).
    """
    if one.value != other.value:
        return False
    if units == "ignore" or (units == "where both" and not (one.unit and other.unit)):
        return True
    return one.unit == other.unit


def numbers(text: str, decimal: Literal[".", ","] = ".") -> list[Number | None]:
    """All numbers of a text in order; ``None`` stands for one that is unreadable."""
    text = _FRACTION.sub(r" \1/\2", text)
    found: list[Number | None] = []
    for run in _RUN.finditer(text):
        before, after = text[max(0, run.start() - 8) : run.start()], text[run.end() : run.end() + 24]
        if re.search(r"[^\W\d_]$|_$", before) and not _money_code(before):
            continue  # inside a word
        if re.match(r"(?:st|nd|rd|th)\b", after):
            continue
        found.append(_read(run[0], before, after, decimal))
    return found


def _money_code(before: str) -> bool:
    code = re.search(r"(?<![^\W_])([A-Za-z]{3})$", before)
    return code is not None and code[1].lower() in UNITS


def _read(run: str, before: str, after: str, decimal: str) -> Number | None:
    if len(run) > _LONGEST or re.match(r"\^|[-–−]\d", after) or re.search(r"[√^]\s?\{?$|\d[-–−]$", before):
        return None
    value = _value(run, decimal)
    if value is None:
        return None
    unit, negative = "", False
    lead = _BEFORE.search(before)
    if lead is not None:
        stands_free = not re.search(r"[^\W_]$", before[: lead.start()])  # in "covid-19" the dash joins
        apart = re.search(r"[-+−–]\s$", before) is not None  # "16 - 3" subtracts
        signs = (lead["sign"] or "") + (lead["inner"] or "") + (lead["only"] or "")
        negative = stands_free and not apart and any(sign in "-−–" for sign in signs)
        unit = UNITS.get((lead["money"] or "").strip().lower(), "")
    code = re.search(r"([A-Za-z]{3})$", before)
    if not unit and code is not None:
        unit = UNITS.get(code[1].lower(), "")
    tail = _AFTER.match(after)
    word = "" if tail is None else (tail["joined"] or tail["word"] or "")
    if word.lower() in _SCALES:
        value *= _SCALES[word.lower()]
        tail = _AFTER.match(after[tail.end() :]) if tail is not None else None
        word = "" if tail is None else (tail["joined"] or tail["word"] or "")
    if not unit:
        joined = tail is not None and tail["joined"] is not None
        unit = "%" if word == "per cent" else UNITS.get(word.lower(), word if joined else "")
    return Number(-value if negative else value, unit)


def _value(run: str, decimal: str) -> Fraction | None:
    group = "," if decimal == "." else "."
    whole, _, rest = run.rpartition(" ")
    if "/" in rest:
        top, _, bottom = rest.partition("/")
        if not (top.isdecimal() and bottom.isdecimal() and int(bottom)):
            return None
        return Fraction(int(top), int(bottom)) + (int(whole) if whole else 0)
    digits, _, exponent = run.lower().partition("e")
    shape = rf"(?:\d{{1,3}}(?:[{group}{_SPACES}]\d{{3}})+|\d+|(?=[{decimal}]))(?:[{decimal}]\d+)?"
    if not re.fullmatch(shape, digits) or len(exponent) > 4 or abs(int(exponent or "0")) > _LONGEST:
        return None
    plain = re.sub(rf"[{group}{_SPACES}]", "", digits).replace(decimal, ".")
    return Fraction(plain) * Fraction(10) ** int(exponent or "0")
