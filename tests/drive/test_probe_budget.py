"""A probe under budgets: it reserves for itself, or is not made."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doorway import ASKED, Doorway, call, entered
from sqlalchemy import select

from cheapspec import Budget
from cheapspec.core.books import Cap, Grant
from cheapspec.drive.state import targets
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.schema import budgets

NAMED = "s"


class Watched(BudgetedMemoryLedger):
    """Remembers what was asked for, and the most that was ever taken of the budget."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Decimal | None, bool]] = []
        self.most = Decimal(0)

    def reserve(self, request_id: str, caps: Sequence[Cap], amounts: Sequence[Decimal | None]) -> Grant:
        made = super().reserve(request_id, caps, amounts)
        self.asked.append((request_id, amounts[-1], made.choice is not None))
        self._look()
        return made

    def settle(self, request_id: str) -> None:
        super().settle(request_id)
        self._look()

    def _look(self) -> None:
        for account in self._accounts.values():
            self.most = max(self.most, Decimal(account.reserved + account.spent).scaleb(-9))

    def left(self) -> tuple[Decimal, Decimal]:
        [account] = self._accounts.values()
        return Decimal(account.reserved).scaleb(-9), Decimal(account.spent).scaleb(-9)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def idle() -> bool:
    return not any(thread.name == "cheapspec-probe" for thread in threading.enumerate())


def ask(way: Doorway, ledger: Any, usd: Decimal) -> None:
    """One request under a budget, and whatever goes on beside it."""

    async def scenario() -> None:
        given = way.speculation(ledger=ledger, target_backend="auto", draft_tokens=None, allowance=1, seed_usd=1)
        async with entered(way.client(given)) as client:
            with client.session(NAMED, budget=Budget(usd=usd)):
                await call(client.chat.completions.create, **ASKED, max_tokens=20)
            if way.door == "sync":
                until(idle)
            else:
                for _ in range(500):
                    if not [one for one in asyncio.all_tasks() if "probing" in repr(one) or "obey" in repr(one)]:
                        break
                    await asyncio.sleep(0.01)

    way.run(scenario)


def spent(ledger: Any) -> Decimal:
    return sum((one.cost_usd or Decimal(0) for row in ledger.requests() for one in row.calls), Decimal(0))


def test_a_probe_reserves_each_of_its_calls(way: Doorway) -> None:
    """What is taken never exceeds the cap; in the end it is what all calls cost, and nothing is held."""
    ledger = Watched()
    ask(way, ledger, Decimal("0.05"))
    probes = [one for row in ledger.requests() for one in row.calls if one.row.purpose == "probe" and one.row.billed]
    assert probes
    reserved = {request_id for request_id, _, granted in ledger.asked if granted}
    assert reserved >= {one.row.call_id for one in probes}
    assert ledger.left() == (Decimal(0), spent(ledger))
    assert ledger.most <= Decimal("0.05")


def test_without_room_there_is_no_probe(way: Doorway) -> None:
    """The cap has room for the request alone: it is answered, and no probe goes out beside it."""
    ledger = Watched()
    ask(way, ledger, Decimal("0.05"))
    alone = next(usd for request_id, usd, _ in ledger.asked if "probe" not in request_id)
    assert alone is not None
    targets.clear()
    small = Watched()
    ask(way, small, alone)
    [row] = small.requests()
    assert [one.row.purpose for one in row.calls if one.row.billed] == ["direct"]
    assert small.most <= alone
    assert small.left() == (Decimal(0), spent(small))


def test_in_a_database_nothing_stays_held(way: Doorway, tmp_path: Path) -> None:
    """The same with the ledger that processes share."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ask(way, ledger, Decimal("0.05"))
    ledger.flush()
    with ledger.read() as connection:
        [row] = connection.execute(select(budgets)).all()
    assert row.reserved_nano == 0
    assert Decimal(row.spent_nano).scaleb(-9) == pytest.approx(spent(ledger), abs=Decimal("1e-8"))
    ledger.close()
