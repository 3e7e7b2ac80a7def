"""JSON values of unknown shape: what came over the wire may be anything, and reading it never raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["as_list", "as_mapping", "is_list", "is_mapping", "is_number"]


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value is a JSON number (``true`` and ``false`` are none)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if is_mapping(value) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if is_list(value) else []
