"""Budgets without a database: the ledger in memory that can also reserve.

The same rules as :mod:`cheapspec.ledger.reservations`, for one process. Budgets are forgotten with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import RLock

from cheapspec.core.books import Cap, Grant
from cheapspec.core.ports import Call, CallRow
from cheapspec.ledger.budgets import Charged, charge_of, distinct
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.money import from_nano, to_nano

__all__ = ["BudgetedMemoryLedger"]

_KEPT = 10_000


@dataclass(slots=True)
class _Account:
    """Nano-dollars of one budget and period."""

    reserved: int = 0
    spent: int = 0


@dataclass(slots=True)
class _Held:
    """What one request holds: its amount in each account, what it was charged, its calls."""

    amount: int
    accounts: list[_Account]
    settled: bool = False
    charged: int = 0
    calls: dict[str, Charged] = field(default_factory=dict[str, Charged])


class BudgetedMemoryLedger(MemoryLedger):
    """A :class:`MemoryLedger` that is a :class:`cheapspec.core.books.Reservations` too."""

    def __init__(self, capacity: int = 10_000) -> None:
        super().__init__(capacity)
        self._budget_lock = RLock()
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._holder: dict[str, str] = {}

    def renew_locks(self) -> None:
        super().renew_locks()
        self._budget_lock = RLock()

    def reserve(self, request_id: str, caps: Sequence[Cap], amounts: Sequence[Decimal | None]) -> Grant:
        caps = distinct(caps)
        with self._budget_lock:
            grant = Grant(0)
            for choice, usd in enumerate(amounts):
                amount = to_nano(usd, up=True)
                grant = self._room(caps, amount, choice)
                if grant.choice is not None:
                    accounts = [self._account(cap) for cap in caps]
                    for account in accounts:
                        account.reserved += amount or 0
                    self._held[request_id] = _Held(amount or 0, accounts)
                    self._forget()
                    break
            return grant

    def _room(self, caps: Sequence[Cap], amount: int | None, choice: int) -> Grant:
        for cap in caps:
            if amount is None:
                if not cap.allow_unknown:
                    return Grant(None, cap.name, why="unknown")
                continue
            account = self._account(cap)
            left = (to_nano(cap.usd) or 0) - account.reserved - account.spent
            if amount > left:
                return Grant(None, cap.name, from_nano(max(0, left)), "exceeded")
        return Grant(choice)

    def _account(self, cap: Cap) -> _Account:
        return self._accounts.setdefault((cap.name, cap.period), _Account())

    def _forget(self) -> None:
        """What was settled long ago is not asked for again."""
        while len(self._held) > _KEPT and next(iter(self._held.values())).settled:
            _, oldest = self._held.popitem(last=False)
            for call_id in oldest.calls:
                self._holder.pop(call_id, None)

    def open_call(self, row: CallRow) -> None:
        super().open_call(row)
        with self._budget_lock:
            held = self._held.get(row.request_id)
            if held is not None:
                worst = to_nano(row.worst_usd, up=True)
                held.calls[row.call_id] = Charged(row.billed, "open", None, None, worst)
                self._holder[row.call_id] = row.request_id

    def close_call(self, call: Call) -> None:
        super().close_call(call)
        with self._budget_lock:
            held = self._held.get(self._holder.get(call.call_id, ""))
            if held is not None:
                held.calls[call.call_id] = replace(
                    held.calls[call.call_id],
                    status=call.status,
                    cost=to_nano(call.cost_usd),
                    budget=to_nano(call.budget_usd),
                )

    def settle(self, request_id: str) -> None:
        with self._budget_lock:
            held = self._held.get(request_id)
            if held is None:
                return
            charge = charge_of(held.calls.values(), held.amount)
            for account in held.accounts:
                account.reserved -= 0 if held.settled else held.amount
                account.spent += charge - held.charged
            held.settled, held.charged = True, charge
