"""Acceptance estimates of a database, as a snapshot in memory.

Rules
-----
* Reading is a look into a dictionary: no request ever waits for a store. The first refresh begins with the ledger.
* What this process observes is in its own snapshot at once. What others observed comes with the next refresh, which a
  thread of its own makes, every :data:`REFRESH_SECONDS` at most, while there are requests.
* Of the rows the newest :data:`MOST_ROWS` are read; what nobody added to for :data:`FORGOTTEN_SECONDS` is deleted when
  leases are looked through (:mod:`cheapspec.ledger.leases`).
* Rows are written by adding: each process sends what it has observed, the store lets what was there fade and adds
  (:func:`cheapspec.core.estimate.merge` as one statement). An observation that is written twice, after a commit
  whose answer was lost, or that is in a snapshot twice until the next refresh, moves a rate by less than its noise.
* The lock is held for the time of a look into a dictionary, never while the store is read. A forked child has its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from cheapspec.core.estimate import Counts, Delta, EstimateTable, Row
from cheapspec.errors import LedgerError
from cheapspec.ledger.forks import renewed_after_fork

__all__ = ["FORGOTTEN_SECONDS", "MOST_ROWS", "REFRESH_SECONDS", "EstimateCache"]

REFRESH_SECONDS = 60.0
MOST_ROWS = 10_000
"""So many rows, the newest, are read in a refresh: some hundred workloads of a few drafters."""

FORGOTTEN_SECONDS = 90 * 86400.0
"""A row that nobody added to for so long is deleted."""

log = logging.getLogger("cheapspec")


class EstimateCache:
    """A table over a store. ``read``: all its rows, which may take its time or raise ``LedgerError``."""

    def __init__(self, read: Callable[[], Iterable[Row]], refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._table = EstimateTable()
        self._since: list[tuple[str, str, Delta]] = []  # observed here since the last refresh began
        self._lock = threading.Lock()
        self._next = 0.0
        _caches.add(self)

    def renew(self) -> None:
        """After a fork, in the child: a thread that held the lock, or was reading, is not there."""
        self._lock, self._next = threading.Lock(), 0.0

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """The snapshot's counts. Begins a refresh when one is due."""
        self.refresh()
        with self._lock:
            return self._table.estimates(target, workload)

    def refresh(self) -> None:
        """Begin to read what others have observed, if it is time to. Returns at once."""
        now = time.monotonic()
        with self._lock:
            due = now >= self._next
            if due:
                self._next = now + self._refresh_seconds
        if due:
            threading.Thread(target=self._refresh, name="cheapspec-estimates", daemon=True).start()

    def observed(self, target: str, workload: str, delta: Delta) -> None:
        """Take in what was observed here, and is being written."""
        with self._lock:
            self._since.append((target, workload, delta))
            self._table.add_estimates(target, workload, delta)

    def _refresh(self) -> None:
        since: list[tuple[str, str, Delta]] = []
        with self._lock:
            self._since = since
        try:
            table = EstimateTable(self._read())
        except LedgerError as error:
            log.debug("estimates cannot be read: %s", error)
            return
        with self._lock:
            for target, workload, delta in since:
                table.add_estimates(target, workload, delta)
            self._table = table


_caches = renewed_after_fork(EstimateCache)
