"""The accounts of an allowance (:mod:`cheapspec.core.allowance`) in the database, and what requests hold of them.

Rules
-----
* ``balance_nano`` of an account is what its settled requests saved, the allowance's share of their baselines added:
  negative for losses. The seed is not in it: whoever asks says how much may be lost besides.
* One conditional ``UPDATE`` an account admits: the database decides, so that no two writers can both risk the last
  dollar. A request is admitted in all of its accounts or in none. A request's new hold takes the place of its old one.
* A release takes the place of the hold; what is saved is capped, a loss never is.
* What a dead owner's requests hold is lost, when its lease expires. If the owner lives after all, its word counts.
* A release may be written twice (a commit whose answer was lost is repeated): then only what cannot make room is.
* An account that nobody used for :data:`FORGOTTEN_SECONDS` is forgotten, but for the one of all requests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Dialect, bindparam, case, delete, select

from cheapspec.core.records import AccountRecord
from cheapspec.ledger.money import from_nano
from cheapspec.ledger.operations import Statement, insert_ignoring, insert_replacing
from cheapspec.ledger.schema import allowances, risks

__all__ = ["FORGOTTEN_SECONDS", "DatabaseAllowances", "Held", "Released", "read_accounts"]

FORGOTTEN_SECONDS = 90 * 86400.0
_KNOWN = 10_000
_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Held:
    """A request asks to hold so much. Nano-dollars."""

    request_id: str
    accounts: tuple[str, ...]
    worst: int
    seed: int


@dataclass(frozen=True, slots=True)
class Released:
    """A request is over. Nano-dollars. ``change``: of the balances, ``None``: what it holds is lost. ``held``: what it
    is thought to hold, ``None``: it never asked. ``again``: it may have been written before.
    """

    request_id: str
    accounts: tuple[str, ...]
    change: int | None
    cap: int
    held: int | None
    again: bool = False


class DatabaseAllowances:
    """Runs on the writer's cursor, inside its transaction. ``known``: what was left of accounts when they were last
    asked, without the seed.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.known: dict[str, int] = {}
        balance, opened = allowances.c.balance_nano, allowances.c.open_nano
        whole = balance.type
        same = allowances.c.account == bindparam("b_account")
        more, change, cap = (bindparam(name, type_=whole) for name in ("more", "change", "cap"))
        now = bindparam("now", type_=allowances.c.at.type)
        self._open = insert_ignoring(allowances, dialect, [column.name for column in allowances.columns])
        self._take = Statement(
            allowances.update()
            .where(same, balance - opened + bindparam("seed", type_=whole) >= more)
            .values(open_nano=opened + more, at=now),
            dialect,
        )
        changed = case(
            (change < 0, balance + change),
            (balance + change <= cap, balance + change),
            (balance >= cap, balance),
            else_=cap,
        )
        self._move = Statement(
            allowances.update()
            .where(same)
            .values(balance_nano=changed, open_nano=opened - bindparam("freed", type_=whole), at=now),
            dialect,
        )
        self._left = Statement(select(balance - opened).where(same), dialect)
        self._hold = insert_replacing(risks, dialect)
        mine = risks.c.request_id == bindparam("key")
        self._held = Statement(select(risks.c.account, risks.c.amount_nano).where(mine), dialect)
        self._drop = Statement(delete(risks).where(mine), dialect)
        stale = risks.c.lease_expires < now
        self._stale = Statement(select(risks.c.request_id, risks.c.account, risks.c.amount_nano).where(stale), dialect)
        self._forget = Statement(
            delete(allowances).where(allowances.c.at < now, opened == 0, allowances.c.account != "all"), dialect
        )

    def write(
        self, cursor: Any, asked: Sequence[Held | Released], owner: str, lease_expires: float, *, again: bool = False
    ) -> list[bool]:
        """In their order, but what requests that never held anything earned comes first. For each: whether it holds, or
        is released. ``again``: an earlier try may have been committed.
        """
        earned: dict[tuple[str, int], int] = {}
        for one in asked:
            if isinstance(one, Released) and one.held is None and (one.change or 0) > 0 and not (again or one.again):
                for account in one.accounts:
                    earned[account, one.cap] = earned.get((account, one.cap), 0) + (one.change or 0)
        for (account, cap), change in earned.items():
            self._moved(cursor, account, change, cap)
        told: list[bool] = []
        for one in asked:
            if isinstance(one, Held):
                told.append(self._admit(cursor, one, owner, lease_expires))
            else:
                self._release(cursor, one, again=again or one.again)
                told.append(True)
        return told

    def _admit(self, cursor: Any, asked: Held, owner: str, lease_expires: float) -> bool:
        held = dict(self._held.run(cursor, {"key": asked.request_id}).fetchall())
        taken: list[tuple[str, int]] = []
        for account in asked.accounts:
            more = asked.worst - held.get(account, 0)
            if more > 0 and not self._taken(cursor, account, more, asked.seed):
                for other, amount in taken:
                    self._moved(cursor, other, 0, 0, freed=amount)
                self._look(cursor, asked.accounts)
                return False
            if more > 0:
                taken.append((account, more))
        row = {"request_id": asked.request_id, "owner": owner, "lease_expires": lease_expires, "at": time.time()}
        for account, _ in taken:
            self._hold.run(cursor, {**row, "account": account, "amount_nano": asked.worst})
        self._look(cursor, asked.accounts)
        return True

    def _taken(self, cursor: Any, account: str, more: int, seed: int) -> bool:
        values = {"b_account": account, "more": more, "seed": seed, "now": time.time()}
        if self._take.run(cursor, values).rowcount:
            return True
        self._begun(cursor, account)
        return bool(self._take.run(cursor, values).rowcount)

    def _begun(self, cursor: Any, account: str) -> None:
        self._open.run(cursor, {"account": account, "balance_nano": 0, "open_nano": 0, "at": time.time()})

    def _look(self, cursor: Any, accounts: Sequence[str]) -> None:
        if len(self.known) > _KNOWN:
            self.known.clear()
        for account in accounts:
            found = self._left.run(cursor, {"b_account": account}).fetchone()
            self.known[account] = 0 if found is None else int(found[0])

    def _release(self, cursor: Any, over: Released, *, again: bool) -> None:
        change = over.change
        if over.held is None:  # what it earned is written already
            if change is not None and change < 0:
                for account in over.accounts:
                    self._moved(cursor, account, change, over.cap)
            return
        held = dict(self._held.run(cursor, {"key": over.request_id}).fetchall())
        if not held and again:
            return
        expired = over.held if not held else 0
        for account in over.accounts:
            freed = held.get(account, 0)
            moved = -freed if change is None else change + expired
            self._moved(cursor, account, moved, over.cap, freed=freed)
        self._drop.run(cursor, {"key": over.request_id})

    def _moved(self, cursor: Any, account: str, change: int, cap: int, *, freed: int = 0) -> None:
        values = {"b_account": account, "change": change, "cap": cap, "freed": freed, "now": time.time()}
        if self._move.run(cursor, values).rowcount == 0:
            self._begun(cursor, account)
            self._move.run(cursor, values)

    def settle_expired(self, cursor: Any, now: float) -> None:
        """What the dead held is lost; what was forgotten goes."""
        stale = self._stale.run(cursor, {"now": now}).fetchall()
        for _, account, amount in stale:
            self._moved(cursor, account, -amount, 0, freed=amount)
        for request_id in {row[0] for row in stale}:
            self._drop.run(cursor, {"key": request_id})
        self._forget.run(cursor, {"now": now - FORGOTTEN_SECONDS})


def read_accounts(connection: Connection) -> list[AccountRecord]:
    """All accounts, that of all requests first, then by name."""
    order = (case((allowances.c.account == "all", 0), else_=1), allowances.c.account)
    return [
        AccountRecord(row.account, from_nano(row.balance_nano) or _NOTHING, from_nano(row.open_nano) or _NOTHING)
        for row in connection.execute(select(allowances).order_by(*order))
    ]
