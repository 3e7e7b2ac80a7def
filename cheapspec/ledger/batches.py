"""A batch of operations as one transaction: which statements, in which order.

Rules
-----
* Kind by kind, since within a request the kinds follow one another (:mod:`cheapspec.ledger.operations`).
* Budgets and allowances are decided inside the transaction; their answers are given when it is committed.
* What is under way is remembered until it is closed: in a file that took the place of another its rows are written
  again, so that they can be closed there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Dialect

from cheapspec.ledger.allowances import DatabaseAllowances
from cheapspec.ledger.leases import Leases
from cheapspec.ledger.operations import Kind, Operation, Reserve, Statements
from cheapspec.ledger.reservations import DatabaseBudgets

__all__ = ["Batches"]

_LOCKED = {Kind.SETTLE, Kind.RESERVE, Kind.ALLOWANCE}


class Batches:
    """Runs on the writer's cursor, inside its transaction. ``under_way``: rows that were opened and not closed."""

    def __init__(self, dialect: Dialect) -> None:
        self._statements = Statements(dialect)
        self._budgets = DatabaseBudgets(dialect)
        self.allowances = DatabaseAllowances(dialect)
        self.leases = Leases(dialect, self._budgets, self.allowances)
        self.under_way: dict[str, Operation] = {}

    def write(
        self, cursor: Any, operations: Sequence[Operation], owner: str, lease: float, now: float, *, again: bool
    ) -> list[tuple[Operation, object]]:
        """Write them all. What those who asked for something are to be told. ``again``: an earlier try may have been
        committed; ``lease``: until when the owner answers for what is opened; ``now``: UTC seconds since the epoch.
        """
        groups: defaultdict[Kind, list[Operation]] = defaultdict(list)
        for operation in operations:
            groups[operation.kind].append(operation)
        if groups.keys() & _LOCKED:
            self._budgets.lock(cursor)
        answers: list[tuple[Operation, object]] = []
        fresh = {operation.values.request_id for operation in groups[Kind.RESERVE]}
        for kind in sorted(groups):
            if kind is Kind.RESERVE:
                for operation in groups[kind]:
                    asked: Reserve = operation.values
                    answers.append((operation, self._budgets.reserve(cursor, asked, owner, lease, again=again)))
                for given_up in fresh.intersection(operation.values for operation in groups[Kind.SETTLE]):
                    self._budgets.settle(cursor, given_up)
            elif kind is Kind.SETTLE:
                for operation in groups[kind]:
                    self._budgets.settle(cursor, operation.values)
            elif kind is Kind.ALLOWANCE:
                told = self.allowances.write(cursor, [one.values for one in groups[kind]], owner, lease, again=again)
                answers += zip(groups[kind], told, strict=True)
            elif kind is Kind.FLUSH:
                self.leases.settle_expired(cursor, now)
            else:
                self._statements.write(cursor, kind, [operation.values for operation in groups[kind]])
        return answers

    def begin_anew(self, cursor: Any, lease: float) -> None:
        """The rows of what is under way, in the file that took the place of theirs."""
        for kind in (Kind.OPEN_REQUEST, Kind.OPEN_CALL):
            opened = [operation.values for operation in self.under_way.values() if operation.kind is kind]
            if opened:
                self._statements.write(cursor, kind, [{**row, "lease_expires": lease} for row in opened])

    def wrote(self, operations: Sequence[Operation]) -> None:
        """They are committed."""
        for operation in operations:
            if operation.kind is Kind.OPEN_REQUEST:
                self.under_way[operation.values["request_id"]] = operation
            elif operation.kind is Kind.OPEN_CALL:
                self.under_way[operation.values["call_id"]] = operation
            elif operation.kind in (Kind.CLOSE_CALL, Kind.CLOSE_REQUEST):
                self.under_way.pop(operation.values["key"], None)
