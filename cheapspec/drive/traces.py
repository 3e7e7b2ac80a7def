"""Hands a round's trace to a ledger that keeps traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cheapspec.core.books import Trace, TraceBook
from cheapspec.core.ports import Ledger

__all__ = ["keep_trace"]


def keep_trace(ledger: Ledger, request_id: str, data: Mapping[str, Any]) -> None:
    """``data``: of the engine's note (:func:`cheapspec.core.tracing.trace_note`). A round in which nothing was looked
    at leaves no trace.
    """
    if data["agreed"] and isinstance(ledger, TraceBook):
        ledger.add_trace(Trace(request_id, **data))
