"""The ledger that is switched off (``ledger="off"``): nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cheapspec.core.ports import Call, CallRow, RequestRow

__all__ = ["NullLedger"]


class NullLedger:
    """Implements :class:`cheapspec.core.ports.Ledger` by keeping nothing."""

    def open_request(self, row: RequestRow) -> None: ...
    def open_call(self, row: CallRow) -> None: ...
    def close_call(self, call: Call) -> None: ...
    def close_request(self, request_id: str, info: Mapping[str, Any]) -> None: ...
