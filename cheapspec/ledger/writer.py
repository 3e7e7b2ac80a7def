"""The one thread that writes to a ledger's database.

Rules
-----
* ``put`` never waits and never raises. The thread writes whatever has queued up (:mod:`cheapspec.ledger.intake`) in
  one transaction, so that a crowd of callers shares one commit; who needs to know that a row is written holds its
  ticket.
* A store that cannot be used costs nobody a reply: one warning, tickets are handed back, operations are kept
  (the newest ``buffer`` of them) and written when the store is back. What fell out is counted in ``lost``.
  Reservations are not kept but refused: a cap that cannot be checked is not a cap. Nor are holds of an allowance.
* An SQLite file that was deleted, moved or replaced takes no rows that anybody will read. Before and after each
  transaction it is looked for, so that none is believed to be written that is not; one warning, and the thread goes
  on in the file that is there now, with the rows of what is under way.
* A thread that hangs in the database is not waited for (``ready``).
* One operation that the database rejects is dropped by itself; it does not take others with it.
* A fork waits for the transaction under way. The child starts with a thread, a connection, a queue and an owner's
  name of its own; what the parent had queued, the parent writes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
import weakref
from collections import defaultdict
from dataclasses import replace
from typing import Any

from cheapspec.core.books import Grant
from cheapspec.ledger.allowances import DatabaseAllowances, Held, Released
from cheapspec.ledger.intake import Intake
from cheapspec.ledger.leases import LEASE_SECONDS, RENEW_SECONDS, Leases
from cheapspec.ledger.operations import Kind, Operation, Reserve, Statements
from cheapspec.ledger.reservations import DatabaseBudgets
from cheapspec.ledger.store import Store, TransientError, is_transient

__all__ = ["Writer"]

log = logging.getLogger("cheapspec")

_BACKOFF = (0.2, 5.0)


class Writer:
    """Writes to ``store``. ``owner``: whose rows these are; ``lost``: operations that were dropped; ``unreachable``:
    why there was no connection when one was last wanted.
    """

    def __init__(self, store: Store, *, buffer: int = 10_000, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self._buffer = max(buffer, 1)
        self._lease_seconds = lease_seconds
        dialect = store.engine.dialect
        self._statements = Statements(dialect)
        self._budgets = DatabaseBudgets(dialect)
        self.allowances = DatabaseAllowances(dialect)
        self._leases = Leases(dialect, self._budgets, self.allowances)
        self._start()
        _writers.add(self)

    def _start(self) -> None:
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.lost = 0
        self.down = False
        self.unreachable: Exception | None = None
        self._intake = Intake(self._buffer)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._io = threading.Lock()
        self._forking: set[int] = set()
        self._connection: Any = None
        self._backlog: list[Operation] = []
        self._open: dict[str, Operation] = {}
        self._files: tuple[object, ...] = ()
        self._moved = False
        self._rejected = False
        self._backoff, self._retry_at = _BACKOFF[0], 0.0
        self._next_renewal = self._next_sweep = 0.0

    # --- the callers' side -----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it is worth waiting for a ticket."""
        return not self.down and not self._intake.hangs

    def lease(self) -> float:
        """Until when (UTC seconds since the epoch) the owner answers for a row that it opens now."""
        return time.time() + self._lease_seconds

    def put(self, operation: Operation) -> None:
        """Have it written. One that waits for its ticket gets it in any case."""
        if not self._intake.put(operation):
            self._give_back([operation], keep=False)
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, args=(self._intake,), name="cheapspec-ledger", daemon=True
                    )
                    self._thread.start()

    def close(self, seconds: float) -> None:
        """Write what is queued, as far as the seconds go, and end the thread. A later ``put`` starts a new one."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._intake.end()
        if thread is not None:
            thread.join(seconds)

    # --- around a fork ---------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait until no transaction is under way; one that hangs is not waited for."""
        if self._io.acquire(timeout=1.0):
            self._forking.add(threading.get_ident())

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            self._io.release()

    def after_fork_in_child(self) -> None:
        """Begin anew. What belongs to the parent is kept, not closed."""
        _inherited.append((self.store.renew(), self._connection, self._intake, self._backlog))
        self._start()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self, intake: Intake) -> None:
        running = True
        while running:
            batch, running = intake.take(self._idle_seconds())
            intake.working(True)
            with self._io:
                self._work(batch, last=not running)
            intake.working(False)
        with self._io:
            self._drop_connection()

    def _idle_seconds(self) -> float | None:
        """How long nothing has to be done if nothing comes."""
        now = time.monotonic()
        if self._backlog:
            return max(0.0, self._retry_at - now)
        return max(0.0, self._next_renewal - now) if self._open else None

    def _work(self, batch: list[Operation], *, last: bool) -> None:
        now = time.monotonic()
        if self.down and now < self._retry_at and not (last and (batch or self._backlog)):
            self._give_back(batch)
            return
        pending, self._backlog = [*self._backlog, *batch], []
        try:
            if pending:
                self._write_all(pending)
            self._keep_leases(now)
        except Exception as error:
            self._failed(pending, error)
            return
        if self.down:
            self.down, self._backoff = False, _BACKOFF[0]
            level = logging.WARNING if self.lost else logging.INFO
            log.log(level, "the ledger %s is back: %d rows were lost", self.store.shown, self.lost)

    def _write_all(self, operations: list[Operation]) -> None:
        """In one transaction; once more if the connection was stale or the transaction deadlocked."""
        started = time.monotonic()
        try:
            self._write(operations)
        except Exception as error:
            self._drop_connection()
            if not is_transient(error):
                self._one_by_one(operations, error)
            elif self.down or time.monotonic() - started > 1.0:
                raise
            else:
                self._write(operations, again=True)

    def _one_by_one(self, operations: list[Operation], error: Exception) -> None:
        """Something in the batch was rejected: find it."""
        if len(operations) == 1:
            self.lost += 1
            level = logging.DEBUG if self._rejected else logging.WARNING
            self._rejected = True
            log.log(level, "the ledger %s rejects a row, which is dropped: %s", self.store.shown, _line(error))
            self._give_back(operations, keep=False, lost=False)
            return
        for operation in operations:
            try:
                self._write([operation], again=True)
            except Exception as found:
                self._drop_connection()
                if is_transient(found):
                    raise
                self._one_by_one([operation], found)

    def _write(self, operations: list[Operation], *, again: bool = False) -> None:
        groups: defaultdict[Kind, list[Operation]] = defaultdict(list)
        for operation in operations:
            groups[operation.kind].append(operation)
        cursor = self._cursor()
        self.store.begin(cursor)
        self._begin_anew(cursor)
        if groups.keys() & {Kind.SETTLE, Kind.RESERVE, Kind.ALLOWANCE}:
            self._budgets.lock(cursor)
        grants: list[tuple[Operation, Grant | bool]] = []
        fresh = {operation.values.request_id for operation in groups[Kind.RESERVE]}
        for kind in sorted(groups):
            if kind is Kind.RESERVE:
                grants += [(operation, self._reserve(cursor, operation.values, again)) for operation in groups[kind]]
                for given_up in fresh.intersection(operation.values for operation in groups[Kind.SETTLE]):
                    self._budgets.settle(cursor, given_up)
            elif kind is Kind.SETTLE:
                for operation in groups[kind]:
                    self._budgets.settle(cursor, operation.values)
            elif kind is Kind.ALLOWANCE:
                asked = [operation.values for operation in groups[kind]]
                told = self.allowances.write(cursor, asked, self.owner, self.lease(), again=again)
                grants += zip(groups[kind], told, strict=True)
            elif kind is Kind.FLUSH:
                self._leases.settle_expired(cursor, time.time())
            else:
                self._statements.write(cursor, kind, [operation.values for operation in groups[kind]])
        self._connection.commit()
        if self._look_for_files():
            raise TransientError(f"{self.store.shown} was moved")
        self._moved = False
        for operation, grant in grants:
            if operation.ticket is not None:
                operation.ticket.finish(grant)
        self._wrote(operations)

    def _reserve(self, cursor: Any, asked: Reserve, again: bool) -> Grant:
        return self._budgets.reserve(cursor, asked, self.owner, self.lease(), again=again)

    def _wrote(self, operations: list[Operation]) -> None:
        for operation in operations:
            if operation.ticket is not None:
                operation.ticket.finish(True)
            if operation.kind is Kind.OPEN_REQUEST:
                self._open[operation.values["request_id"]] = operation
            elif operation.kind is Kind.OPEN_CALL:
                self._open[operation.values["call_id"]] = operation
            elif operation.kind in (Kind.CLOSE_CALL, Kind.CLOSE_REQUEST):
                self._open.pop(operation.values["key"], None)

    def _keep_leases(self, now: float) -> None:
        """Renew one's own, settle what others left, each when it is time."""
        if now >= self._next_renewal:
            if self._open:
                cursor = self._cursor()
                self.store.begin(cursor)
                self._leases.renew(cursor, self.owner, self.lease())
                self._connection.commit()
            self._next_renewal = now + RENEW_SECONDS * self._lease_seconds / LEASE_SECONDS
        if now >= self._next_sweep:
            cursor = self._cursor()
            self.store.begin(cursor)
            self._leases.settle_expired(cursor, time.time())
            self._connection.commit()
            self._next_sweep = now + self._lease_seconds

    def _cursor(self) -> Any:
        self._look_for_files()
        if self._connection is None:
            try:
                self._connection = self.store.connect()
            except Exception as error:
                self.unreachable = error
                raise
            self.unreachable = None
            self._files = self.store.files()
        return self._connection.cursor()

    # --- when the file is another one ------------------------------------------------------------

    def _look_for_files(self) -> bool:
        """Whether what is open is no longer what is at the path; then it is let go of."""
        if self._connection is None:
            return False
        there = self.store.files()
        if all(was is None or was == now for was, now in zip(self._files, there, strict=True)):
            return False
        self._drop_connection()
        self._moved = True
        log.warning(
            "the ledger %s was deleted, moved or replaced while it was in use; what it held no longer counts here, "
            "budgets and the allowance included: they begin again with the file that is there now",
            self.store.shown,
        )
        return True

    def _begin_anew(self, cursor: Any) -> None:
        """The rows of what is under way, in the file that took the place of theirs."""
        if not self._moved:
            return
        for kind in (Kind.OPEN_REQUEST, Kind.OPEN_CALL):
            opened = [operation.values for operation in self._open.values() if operation.kind is kind]
            if opened:
                self._statements.write(cursor, kind, [{**row, "lease_expires": self.lease()} for row in opened])

    # --- when the store is away ------------------------------------------------------------------

    def _failed(self, operations: list[Operation], error: Exception) -> None:
        """Nothing of these is known to be written."""
        self._drop_connection()
        self._retry_at = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, _BACKOFF[1])
        if not self.down:
            self.down = True
            log.warning(
                "the ledger %s is unavailable (%s); its rows wait in memory until it is back",
                self.store.shown,
                _line(error),
            )
        self._give_back(operations)

    def _give_back(self, operations: list[Operation], *, keep: bool = True, lost: bool = True) -> None:
        """Nobody waits any longer; rows wait for better times."""
        for operation in operations:
            if operation.kind is Kind.RESERVE:
                asked: Reserve = operation.values
                _finish(operation, Grant(None, asked.caps[0].name if asked.caps else "", why="unavailable"))
                continue
            if isinstance(operation.values, Held):
                _finish(operation, None)
                continue
            if isinstance(operation.values, Released):
                operation.values = replace(operation.values, again=True)
            _finish(operation, False)
            if operation.kind is Kind.FLUSH:
                continue
            if keep:
                self._backlog.append(operation)
            elif lost:
                self.lost += 1
        if (excess := len(self._backlog) - self._buffer) > 0:
            del self._backlog[:excess]
            self.lost += excess

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()


def _finish(operation: Operation, value: object) -> None:
    if operation.ticket is not None:
        operation.ticket.finish(value)
        operation.ticket = None


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
_inherited: list[object] = []


def _each(method: str) -> None:
    for writer in list(_writers):
        getattr(writer, method)()


def _close_all() -> None:
    for writer in list(_writers):
        writer.close(5.0)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork_in_parent"),
        after_in_child=lambda: _each("after_fork_in_child"),
    )
