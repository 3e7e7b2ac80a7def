"""Replay: past requests priced again under another rule, without any call.

The format of the traces that it reads, and what exactly to fill in: :mod:`cheapspec.core.traces`.
"""

from __future__ import annotations

from cheapspec.core.traces import Branch, DraftRow, RequestTrace, StaticRow, dump_trace, load_trace

__all__ = ["Branch", "DraftRow", "RequestTrace", "StaticRow", "dump_trace", "load_trace"]
