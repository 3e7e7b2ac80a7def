r"""Answers: what counts as *the answer* of a text, and when two answers are the same.

Rules
-----
* An extractor reads a whole draft and a short answer by different rules. In a draft the answer stands at the end, or
  behind a mark (``####``, ``\boxed{…}``, "answer is", "answer:"). A short answer is nothing but the answer, and one
  that holds two different ones is ambiguous.
* No answer found, or none that is sure: ``None``, and so no verdict. Nothing is guessed.
* Equality is typed: 1 = 1.0, 1,000 = 1000, ``true`` is not 1, a number is not a string. Strings are compared in
  Unicode's form NFC with runs of white space as one blank; letter case counts unless ``ignore_case``.
* ``chance``: how often two answers that have nothing to do with each other agree, where the extractor knows (one in
  so many labels). A rule that compares answers says so in its verdict.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction
from typing import Final, Protocol, runtime_checkable

from cheapspec.core.untyped import is_list, is_mapping

__all__ = ["DECORATION", "Extractor", "is_names", "marked", "plain", "same"]

_MARK: Final = re.compile(r"####|\banswer\s*(?:is|:|=)\s*:?|\banswer\W{0,4}:", re.IGNORECASE)
_BOXED: Final = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
DECORATION: Final = " \t\r\n*_`\"'“”‘’()[]{}.,:;!"


@runtime_checkable
class Extractor(Protocol):
    """``name``: tells two extractors apart (certificates hold it). ``form``: how the target is asked to write the
    answer, after "Give only the final answer". ``tokens``: enough output tokens for a short answer.
    """

    @property
    def name(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def chance(self) -> float | None: ...
    def draft(self, text: str) -> object | None:
        """The answer of a whole reply."""
        ...

    def short(self, text: str) -> object | None:
        """The answer of a reply that is to hold nothing else."""
        ...

    def same(self, one: object, other: object) -> bool:
        """Whether two answers are equal."""
        ...


def same(one: object, other: object, *, ignore_case: bool = False) -> bool:
    """Typed equality of JSON values: 1 = 1.0, ``True`` is no number, keys in any order, lists in order. Numbers too
    large for a float have lost their value and equal nothing.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Fraction) and isinstance(other, int | float | Fraction):
        return all(not isinstance(part, float) or math.isfinite(part) for part in (one, other)) and one == other
    if isinstance(one, str) and isinstance(other, str):
        return plain(one, ignore_case) == plain(other, ignore_case)
    if is_mapping(one) and is_mapping(other):
        return one.keys() == other.keys() and all(same(one[key], other[key], ignore_case=ignore_case) for key in one)
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(
            same(a, b, ignore_case=ignore_case) for a, b in zip(one, other, strict=True)
        )
    return type(one) is type(other) and one == other


def is_names(value: object) -> bool:
    """Whether it is a tuple or list of strings."""
    return isinstance(value, tuple | list) and all(isinstance(one, str) for one in value)  # pyright: ignore[reportUnknownVariableType]


def plain(text: str, ignore_case: bool) -> str:
    """The form in which strings are compared."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return text.casefold() if ignore_case else text


def marked(text: str) -> str | None:
    """What stands behind the last mark of an answer."""
    boxed = _BOXED.findall(text)
    if boxed:
        return str(boxed[-1])
    parts = _MARK.split(text)
    return parts[-1] if len(parts) > 1 and parts[-1].strip() else None
