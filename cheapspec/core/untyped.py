"""JSON values of unknown shape: what came over the wire may be anything, and reading it never raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["as_list", "as_mapping", "is_list", "is_mapping", "is_number"]

_MOST = 1.7e308  # the largest float is a little more


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value is a JSON number that a float can hold: not ``true`` or ``false``, and none of what Python's
    reader takes besides (NaN, infinities, integers of any length).
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST <= value <= _MOST


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if is_mapping(value) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if is_list(value) else []
