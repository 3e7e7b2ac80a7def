"""Short ways to write to a ledger."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

from cheapspec.core.books import Cap, Grant, Reservations
from cheapspec.core.effects import Usage
from cheapspec.core.info import Info
from cheapspec.core.ports import Call, CallRow, Ledger, RequestRow
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import metadata

USAGE = Usage(700, 17, 512)


def opened(ledger: Ledger, request_id: str, *, worst: str | None = "0.01", billed: bool = True, **row: Any) -> str:
    """A request with one call that is out. The call's id."""
    ledger.open_request(RequestRow(request_id, time.time(), "m", "chat", False, **row))
    call_id = f"{request_id}.1"
    ticket = ledger.open_call(CallRow(call_id, request_id, "target", "direct", billed, time.time(), worst))
    if ticket is not None:
        assert ticket.wait(20)
    return call_id


def closed(ledger: Ledger, request_id: str, cost: str | None = "0.001", status: str = "ok", **info: Any) -> None:
    """Its call was answered, and the request is over."""
    ledger.close_call(Call(f"{request_id}.1", status, USAGE, cost, 0.25, 200))
    decision = info.pop("decision", "direct")
    ledger.close_request(request_id, Info(decision, request_id, **info).to_dict())


def reserved(ledger: Reservations, request_id: str, cap: Cap | list[Cap], *amounts: str | None) -> Grant:
    """What became of a reservation."""
    caps = [cap] if isinstance(cap, Cap) else cap
    made = ledger.reserve(request_id, caps, [None if usd is None else Decimal(usd) for usd in amounts])
    if isinstance(made, Grant):
        return made
    assert made.wait(20)
    assert made.value is not None
    return made.value


def rows(ledger: DatabaseLedger, table: str) -> list[dict[str, Any]]:
    """All rows of a table, what was queued included, by its key."""
    with ledger.read() as connection:
        found = metadata.tables[table]
        return [dict(row._mapping) for row in connection.execute(found.select().order_by(*found.primary_key))]


def cap_of(usd: str, name: str = "b", **more: Any) -> Cap:
    return Cap(name, Decimal(usd), **more)
