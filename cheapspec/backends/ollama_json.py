"""Reading Ollama's JSON without trusting its shape: what is missing or of another type is empty."""

from __future__ import annotations

from typing import Any, TypeGuard

from cheapspec.core.effects import HttpReply

__all__ = ["as_list", "as_object", "error_text", "is_list", "models"]


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether ``value`` is a JSON array."""
    return isinstance(value, list)


def as_object(value: Any) -> dict[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return value if _is_object(value) else {}


def as_list(value: Any) -> list[Any]:
    """``value`` if it is a JSON array, else an empty one."""
    return value if is_list(value) else []


def models(reply: HttpReply | None) -> list[dict[str, Any]]:
    """The entries of ``/api/tags`` and ``/api/ps``."""
    body = as_object(reply.json()) if reply is not None and reply.status == 200 else {}
    return [as_object(entry) for entry in as_list(body.get("models"))]


def error_text(reply: HttpReply) -> str:
    """The ``error`` of a reply, native (a string) or of the ``/v1`` layer (an object); else empty."""
    error = as_object(reply.json()).get("error")
    if not isinstance(error, str):
        error = as_object(error).get("message")
    return error if isinstance(error, str) else ""
