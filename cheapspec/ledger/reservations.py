"""Budgets in the database: reserve before, settle after, in the writer's transaction.

Rules
-----
* One conditional ``UPDATE`` a budget reserves; the database decides, so that no two writers can both take the
  last dollar. A request under several budgets (nested sessions) is reserved in all of them or in none.
* PostgreSQL's writers take one lock first, for the length of the transaction: two that took several budgets in
  different orders would deadlock. SQLite has one writer at a time anyway.
* Settling looks at the request's calls, so that budgets and calls cannot tell different stories; it may come
  again, when a call that had expired is closed after all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Dialect, bindparam, select

from cheapspec.core.books import Cap, Grant
from cheapspec.ledger.budgets import Charged, charge_of
from cheapspec.ledger.money import from_nano, to_nano
from cheapspec.ledger.operations import Reserve, Statement, insert_ignoring
from cheapspec.ledger.schema import budgets, calls, reservations

__all__ = ["DatabaseBudgets"]

_ADVISORY_LOCK = 0x63687362


class DatabaseBudgets:
    """Runs on the writer's cursor, inside its transaction."""

    def __init__(self, dialect: Dialect) -> None:
        self._postgresql = dialect.name == "postgresql"
        same = (budgets.c.name == bindparam("b_name"), budgets.c.period == bindparam("b_period"))
        taken = budgets.c.reserved_nano + budgets.c.spent_nano
        self._open = insert_ignoring(budgets, dialect, [column.name for column in budgets.columns])
        self._take = Statement(
            budgets.update()
            .where(*same, taken + bindparam("amount", type_=taken.type) <= bindparam("cap", type_=taken.type))
            .values(
                reserved_nano=budgets.c.reserved_nano + bindparam("amount", type_=taken.type),
                usd_nano=bindparam("cap", type_=taken.type),
            ),
            dialect,
        )
        self._move = Statement(
            budgets.update()
            .where(*same)
            .values(
                reserved_nano=budgets.c.reserved_nano + bindparam("reserved", type_=taken.type),
                spent_nano=budgets.c.spent_nano + bindparam("spent", type_=taken.type),
            ),
            dialect,
        )
        self._taken = Statement(select(taken).where(*same), dialect)
        self._hold = insert_ignoring(reservations, dialect, [column.name for column in reservations.columns])
        self._held = Statement(
            select(
                reservations.c.name,
                reservations.c.period,
                reservations.c.status,
                reservations.c.amount_nano,
                reservations.c.charged_nano,
            ).where(reservations.c.request_id == bindparam("key")),
            dialect,
        )
        self._calls = Statement(
            select(calls.c.billed, calls.c.status, calls.c.cost_nano, calls.c.budget_nano, calls.c.worst_nano).where(
                calls.c.request_id == bindparam("key")
            ),
            dialect,
        )
        self._close = Statement(
            reservations.update()
            .where(
                reservations.c.request_id == bindparam("key"),
                reservations.c.name == bindparam("b_name"),
                reservations.c.period == bindparam("b_period"),
            )
            .values(status=bindparam("status"), charged_nano=bindparam("charged"), closed_at=bindparam("closed_at")),
            dialect,
        )

    def lock(self, cursor: Any) -> None:
        """Before the first use in a transaction."""
        if self._postgresql:
            cursor.execute(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")

    def reserve(self, cursor: Any, asked: Reserve, owner: str, lease_expires: float, *, again: bool = False) -> Grant:
        """Reserve the first amount that fits everywhere. ``again``: an earlier try may have been committed."""
        if again and (held := self._held.run(cursor, {"key": asked.request_id}).fetchone()):
            return Grant(next((i for i, amount in enumerate(asked.amounts) if (amount or 0) == held[3]), 0))
        grant = Grant(None)
        for choice, amount in enumerate(asked.amounts):
            grant = self._try(cursor, asked, choice, amount)
            if grant.choice is None:
                continue
            for cap in asked.caps:
                row = {
                    "request_id": asked.request_id,
                    "name": cap.name,
                    "period": cap.period,
                    "status": "held",
                    "amount_nano": amount or 0,
                    "charged_nano": 0,
                    "at": time.time(),
                    "closed_at": None,
                    "owner": owner,
                    "lease_expires": lease_expires,
                }
                self._hold.run(cursor, row)
            break
        return grant

    def _try(self, cursor: Any, asked: Reserve, choice: int, amount: int | None) -> Grant:
        if amount is None:
            strict = next((cap for cap in asked.caps if not cap.allow_unknown), None)
            return Grant(choice) if strict is None else Grant(None, strict.name, why="unknown")
        taken: list[Cap] = []
        for cap in asked.caps:
            limit = to_nano(cap.usd) or 0
            same = {"b_name": cap.name, "b_period": cap.period}
            fresh = {"name": cap.name, "period": cap.period, "reserved_nano": 0, "spent_nano": 0, "at": time.time()}
            if self._take.run(cursor, {**same, "amount": amount, "cap": limit}).rowcount == 0:
                self._open.run(cursor, {**fresh, "usd_nano": limit})  # perhaps it was not there yet
                if self._take.run(cursor, {**same, "amount": amount, "cap": limit}).rowcount == 0:
                    self._give_back(cursor, taken, amount)
                    spent = self._taken.run(cursor, same).fetchone()[0]
                    return Grant(None, cap.name, from_nano(max(0, limit - spent)), "exceeded")
            taken.append(cap)
        return Grant(choice)

    def _give_back(self, cursor: Any, caps: Iterable[Cap], amount: int) -> None:
        for cap in caps:
            self._move.run(cursor, {"b_name": cap.name, "b_period": cap.period, "reserved": -amount, "spent": 0})

    def settle(self, cursor: Any, request_id: str, status: str = "settled") -> None:
        """Put what the request's calls cost in the place of what was reserved for it."""
        held = self._held.run(cursor, {"key": request_id}).fetchall()
        if not held:
            return
        told = [Charged(*row) for row in self._calls.run(cursor, {"key": request_id}).fetchall()]
        for name, period, was, amount, charged in held:
            charge = charge_of(told, amount)
            same = {"b_name": name, "b_period": period}
            freed = amount if was == "held" else 0
            if freed or charge != charged:
                self._move.run(cursor, {**same, "reserved": -freed, "spent": charge - charged})
            closing = {"key": request_id, "status": status, "charged": charge, "closed_at": time.time()}
            self._close.run(cursor, {**same, **closing})
