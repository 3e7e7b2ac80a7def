"""Requests as the driver books them, in one line each."""

from __future__ import annotations

from typing import Any

from cheapspec.core.effects import Usage
from cheapspec.core.ports import Call, CallRow, Ledger, RequestRow

NOON = 1795953600.0
"""2026-11-29 12:00 UTC."""


def ask(
    ledger: Ledger,
    name: str,
    decision: str,
    *calls: tuple[str, str | None],
    at: float = NOON,
    session: str | None = None,
    model: str = "m",
    stream: bool = False,
    usage: Usage | None = None,
    **info: Any,
) -> None:
    """One closed request. ``calls``: purpose and cost of each billed call that was answered; ``info``: more of the
    reply's extra key (``total``: seconds).
    """
    ledger.open_request(RequestRow(name, at, model, "chat", stream, session=session))
    for number, (purpose, cost) in enumerate(calls):
        ledger.open_call(CallRow(f"{name}.{number}", name, "target", purpose, True, at))
        ledger.close_call(Call(f"{name}.{number}", "ok", usage or Usage(10, 2), cost, 0.1, 200))
    if "total" in info:
        info["seconds"] = {"draft": 0.1, "verify": 0.2, "handoff": 0.3, "total": info.pop("total")}
    ledger.close_request(name, {"decision": decision, "request_id": name, "target_calls": len(calls), **info})
