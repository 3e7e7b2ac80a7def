"""Who writes to a ledger's database: one thread, and callers that wait anyway.

Rules
-----
* ``put`` never waits and never raises. What has queued up (:mod:`cheapspec.ledger.intake`) is written in one
  transaction (:mod:`cheapspec.ledger.batches`), so that a crowd of callers shares one commit; who needs to know that a
  row is written holds its ticket.
* One writes at a time, under a lock. A thread that waits for its ticket writes by itself, with all that has queued up,
  where it would only wait for another to do the same: waking a thread and being woken takes longer than a small
  transaction. It does so on SQLite alone, whose waits have an end (a server may never answer), on a connection that is
  open, and never for long: what needs time, or is refused at first, is the thread's. An event loop never does.
* A store that cannot be used costs nobody a reply: one warning, tickets are handed back, operations are kept
  (the newest ``buffer`` of them) and written when the store is back. What fell out is counted in ``lost``.
  Reservations are not kept but refused: a cap that cannot be checked is not a cap. Nor are holds of an allowance.
* A thread that hangs in the database is not waited for (``ready``).
* One operation that the database rejects is dropped by itself; it does not take others with it.
* Whoever is interrupted while writing (``KeyboardInterrupt``) leaves all of it for the thread to write again.
* A fork waits for the transaction under way. The child starts with a thread, a connection, a queue and an owner's
  name of its own; what the parent had queued, the parent writes.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cheapspec.core.books import Grant
from cheapspec.ledger.allowances import DatabaseAllowances, Held, Released
from cheapspec.ledger.batches import Batches
from cheapspec.ledger.connection import WatchedConnection
from cheapspec.ledger.intake import Intake
from cheapspec.ledger.leases import LEASE_SECONDS, RENEW_SECONDS
from cheapspec.ledger.operations import Kind, Operation, Reserve
from cheapspec.ledger.store import Store, TransientError, is_transient
from cheapspec.ledger.tickets import WriteTicket

__all__ = ["Writer"]

log = logging.getLogger("cheapspec")

_BACKOFF = (0.2, 5.0)
_FEW = 32
"""A caller writes so many operations at most, its own among them."""


class Writer:
    """Writes to ``store``. ``owner``: whose rows these are; ``lost``: operations that were dropped."""

    def __init__(self, store: Store, *, buffer: int = 10_000, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self._buffer = max(buffer, 1)
        self._lease_seconds = lease_seconds
        self._lends = store.dialect == "sqlite"
        self._batches = Batches(store.engine.dialect)
        self._start()
        _writers.add(self)

    def _start(self) -> None:
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.lost = 0
        self.down = False
        self._intake = Intake(self._buffer)
        self._thread: threading.Thread | None = None
        self._former: threading.Thread | None = None
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._io = threading.Lock()
        self._forking: set[int] = set()
        self._connection = WatchedConnection(self.store)
        self._batches.under_way = {}
        self._pending: list[Operation] = []
        self._unsure = self._rejected = False
        self._backoff, self._retry_at = _BACKOFF[0], 0.0
        self._next_renewal = self._next_sweep = 0.0

    # --- the callers' side -----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it is worth waiting for a ticket."""
        return not self.down and not self._intake.hangs

    @property
    def allowances(self) -> DatabaseAllowances:
        """The accounts of the allowance, as far as they were seen."""
        return self._batches.allowances

    @property
    def unreachable(self) -> Exception | None:
        """Why there was no connection when one was last wanted."""
        return self._connection.unreachable

    def lease(self) -> float:
        """Until when (UTC seconds since the epoch) the owner answers for a row that it opens now."""
        return time.time() + self._lease_seconds

    def ticket(self) -> WriteTicket[Any]:
        """For an operation that somebody will wait for."""
        return WriteTicket(self._wanted)

    def put(self, operation: Operation) -> None:
        """Have it written. One that waits for its ticket gets it in any case."""
        if not self._intake.put(operation):
            if not self._dropped(operation):
                self.lost += 1
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._leaving = threading.Event()
                    told = (self._intake, self._leaving, self._former)
                    self._thread = threading.Thread(target=self._run, args=told, name="cheapspec-ledger", daemon=True)
                    self._thread.start()

    def _wanted(self, lends: bool) -> None:
        """Somebody waits for a ticket: a thread, which may write by itself, or an event loop."""
        given = len(self._intake)
        if not given:  # it was taken, and is being written
            return
        lends = lends and self._lends and given <= _FEW and self.ready and self._connection.open
        if lends and not self._pending and self._io.acquire(blocking=False):
            try:
                self._lent()
            finally:
                self._io.release()
                if self._pending:  # it was cut short, or refused
                    self._intake.ring()
        else:
            self._intake.ring()

    def close(self, seconds: float) -> None:
        """Write what is queued, as far as the seconds go, and end the thread. A later ``put`` starts a new one."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._former = thread
                self._leaving.set()
                self._intake.ring()
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
        _inherited.append((self.store.renew(), self._connection, self._intake, self._pending))
        self._start()

    # --- whoever writes, under the lock ----------------------------------------------------------

    def _run(self, intake: Intake, leaving: threading.Event, former: threading.Thread | None) -> None:
        """The thread."""
        if former is not None:
            former.join()

        def idle() -> float | None:
            return 0.0 if leaving.is_set() else self._idle_seconds()

        last = False
        while not (last and not len(intake)):
            intake.wait(idle)
            last = leaving.is_set()
            with self._io:
                self._work(last=last)
        with self._io:
            self._connection.drop()

    def _idle_seconds(self) -> float | None:
        """How long nothing has to be done if nothing comes."""
        now = time.monotonic()
        if self._pending:
            return max(0.0, self._retry_at - now)
        return max(0.0, self._next_renewal - now) if self._batches.under_way else None

    def _lent(self) -> None:
        """In the thread of a caller that waits. What does not go well here is left to the thread."""
        self._intake.take(self._pending)
        self._intake.working(True)
        try:
            self._write(self._pending)
        except Exception:
            self._connection.drop()
        else:
            self._pending, self._unsure = [], False
        finally:
            self._intake.working(False)

    def _work(self, *, last: bool) -> None:
        now, known = time.monotonic(), len(self._pending)
        self._intake.take(self._pending)
        if self.down and now < self._retry_at and not (last and self._pending):
            self._hand_back(known)
            return
        self._intake.working(True)
        try:
            if self._pending:
                self._write_all()
            self._keep_leases(now)
        except Exception as error:
            self._failed(error)
        else:
            self._is_back()
        finally:
            self._intake.working(False)

    def _write_all(self) -> None:
        """In one transaction; once more if the connection was stale or the transaction deadlocked."""
        started = time.monotonic()
        try:
            self._write(self._pending)
        except Exception as error:
            self._connection.drop()
            if not is_transient(error):
                self._one_by_one()
            elif self.down or time.monotonic() - started > 1.0:
                raise
            else:
                self._write(self._pending)
        self._pending, self._unsure = [], False

    def _one_by_one(self) -> None:
        """Something in the batch is rejected: it is dropped."""
        while self._pending:
            operation = self._pending[0]
            try:
                self._write([operation])
            except Exception as error:
                self._connection.drop()
                if is_transient(error):
                    raise
                self.lost += 1
                level = logging.DEBUG if self._rejected else logging.WARNING
                self._rejected = True
                log.log(level, "the ledger %s rejects a row, which is dropped: %s", self.store.shown, _line(error))
                self._dropped(operation)
            del self._pending[0]

    def _write(self, operations: Sequence[Operation]) -> None:
        again, self._unsure = self._unsure, True
        cursor = self._begin()
        answers = self._batches.write(cursor, operations, self.owner, self.lease(), time.time(), again=again)
        self._connection.commit()
        if self._connection.look():
            raise TransientError(f"{self.store.shown} was moved")
        self._connection.moved = False
        self._batches.wrote(operations)
        for operation, answer in answers:
            _finish(operation, answer)
        for operation in operations:
            _finish(operation, True)

    def _begin(self) -> Any:
        cursor = self._connection.begin()
        if self._connection.moved:
            self._batches.begin_anew(cursor, self.lease())
        return cursor

    def _keep_leases(self, now: float) -> None:
        """Renew one's own, settle what others left, each when it is time."""
        leases = self._batches.leases
        if now >= self._next_renewal:
            if self._batches.under_way:
                leases.renew(self._begin(), self.owner, self.lease())
                self._connection.commit()
            self._next_renewal = now + RENEW_SECONDS * self._lease_seconds / LEASE_SECONDS
        if now >= self._next_sweep:
            leases.settle_expired(self._begin(), time.time())
            self._connection.commit()
            self._next_sweep = now + self._lease_seconds

    # --- when the store is away ------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        """Nothing of what is pending is known to be written."""
        self._connection.drop()
        self._retry_at = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, _BACKOFF[1])
        if not self.down:
            self.down = True
            said = "the ledger %s is unavailable (%s); its rows wait in memory until it is back"
            log.warning(said, self.store.shown, _line(error))
        self._hand_back()
        self._unsure = False  # what may be repeated with harm knows by itself

    def _is_back(self) -> None:
        if self.down:
            self.down, self._backoff = False, _BACKOFF[0]
            level = logging.WARNING if self.lost else logging.INFO
            log.log(level, "the ledger %s is back: %d rows were lost", self.store.shown, self.lost)

    def _hand_back(self, known: int = 0) -> None:
        """Nobody waits any longer for what is pending (the first ``known`` were handed back before); rows are kept."""
        kept = [operation for operation in self._pending[known:] if not self._dropped(operation)]
        kept = self._pending[:known] + kept
        excess = max(0, len(kept) - self._buffer)
        self.lost += excess
        self._pending = kept[excess:]

    @staticmethod
    def _dropped(operation: Operation) -> bool:
        """Its ticket is handed back. Whether that is all: it is a question, and no row that could be kept."""
        values = operation.values
        if operation.kind is Kind.RESERVE:
            asked: Reserve = values
            _finish(operation, Grant(None, asked.caps[0].name if asked.caps else "", why="unavailable"))
            return True
        if isinstance(values, Released):
            operation.values = replace(values, again=True)
        _finish(operation, None if isinstance(values, Held) else False)
        return operation.kind is Kind.FLUSH or isinstance(values, Held)


def _finish(operation: Operation, value: object) -> None:
    if operation.ticket is not None:
        operation.ticket.finish(value)


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
