"""Reads a chat or text completion body, kept as the dict it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is ours to consider. ``body`` is the caller's own JSON, never altered.

    ``kind``: ``"chat"`` or ``"completion"``. ``messages``: chat messages with content parts joined to
    plain strings (roles as sent), empty for a completion. ``prompt``: the text of a completion,
    ``None`` for chat. ``stops``: stop strings. ``max_tokens``: the caller's limit on reply tokens
    (``max_completion_tokens`` or ``max_tokens``), ``None``: none given. ``prediction``: the text of
    OpenAI's predicted-outputs parameter, ``None`` when absent.
    """

    kind: str
    body: Mapping[str, Any]
    model: str
    stream: bool
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None
    prediction: str | None = None
    include_usage: bool = False
