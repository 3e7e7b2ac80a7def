"""Leases: how rows that a dead process left open are settled.

Rules
-----
* Every row that is open carries a time until which its owner answers for it. A live owner renews it well before.
* Anybody on the ledger settles what expired: a billed call becomes ``expired`` and counts as its worst case
  (unknown, if nobody said one), one that is not billed ``cancelled``; the request is closed without a
  decision; its reservations give way to what its calls count; what it holds of an allowance is lost.
* What was learned and not added to for long is forgotten on the same occasion.
* If the owner lives after all (it was suspended, or cut off from the database), its later word counts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Dialect, Table, bindparam, case, delete, func, select, true

from cheapspec.ledger.allowances import DatabaseAllowances
from cheapspec.ledger.estimates import FORGOTTEN_SECONDS
from cheapspec.ledger.operations import Statement
from cheapspec.ledger.reservations import DatabaseBudgets
from cheapspec.ledger.schema import calls, estimates, requests, reservations, risks

__all__ = ["LEASE_SECONDS", "RENEW_SECONDS", "Leases"]

LEASE_SECONDS = 60.0
RENEW_SECONDS = 20.0


class Leases:
    """Runs on a writer's cursor, inside its transaction."""

    def __init__(self, dialect: Dialect, budgets: DatabaseBudgets, allowances: DatabaseAllowances) -> None:
        self._budgets = budgets
        self._allowances = allowances
        tables: list[tuple[Table, ColumnElement[bool]]] = [
            (calls, calls.c.status == "open"),
            (requests, requests.c.closed_at.is_(None)),
            (reservations, reservations.c.status == "held"),
            (risks, true()),
        ]
        self._renew = [
            Statement(
                table.update()
                .where(table.c.owner == bindparam("b_owner"), is_open)
                .values(lease_expires=bindparam("until")),
                dialect,
            )
            for table, is_open in tables
        ]
        now = bindparam("now", type_=calls.c.at.type)
        self._expire = [
            Statement(
                calls.update()
                .where(calls.c.status == "open", calls.c.lease_expires < now)
                .values(
                    status=case((calls.c.billed, "expired"), else_="cancelled"),
                    cost_nano=case((calls.c.billed, func.coalesce(calls.c.cost_nano, calls.c.worst_nano))),
                    closed_at=now,
                ),
                dialect,
            ),
            Statement(
                requests.update()
                .where(requests.c.closed_at.is_(None), requests.c.lease_expires < now)
                .values(closed_at=now),
                dialect,
            ),
        ]
        self._forget = Statement(
            delete(estimates).where(estimates.c.updated_at < bindparam("before", type_=estimates.c.updated_at.type)),
            dialect,
        )
        self._stale = Statement(
            select(reservations.c.request_id)
            .where(reservations.c.status == "held", reservations.c.lease_expires < now)
            .distinct(),
            dialect,
        )

    def renew(self, cursor: Any, owner: str, until: float) -> None:
        """The owner lives: its open rows stay its own until then."""
        for statement in self._renew:
            statement.run(cursor, {"b_owner": owner, "until": until})

    def settle_expired(self, cursor: Any, now: float) -> int:
        """Settle what expired, whoever's it was. Returns how many calls that were."""
        self._budgets.lock(cursor)
        expired = [statement.run(cursor, {"now": now}).rowcount for statement in self._expire]
        for (request_id,) in self._stale.run(cursor, {"now": now}).fetchall():
            self._budgets.settle(cursor, request_id, "expired")
        self._allowances.settle_expired(cursor, now)
        self._forget.run(cursor, {"before": now - FORGOTTEN_SECONDS})
        return int(expired[0])
