"""Acceptance estimates of a database, as a snapshot in memory.

Rules
-----
* Reading is a look into a dictionary: no request ever waits for a store, but for the first of a process, which gives
  the store :data:`PATIENCE` seconds.
* What this process observes is in its own snapshot at once. What others observed comes with the next refresh, which a
  thread of its own makes, every :data:`REFRESH_SECONDS` at most, while there are requests.
* Rows are written by adding: each process sends what it has observed, the store lets what was there fade and adds
  (:func:`cheapspec.core.estimate.merge` as one statement). An observation that is written twice, after a commit
  whose answer was lost, or that is in a snapshot twice until the next refresh, moves a rate by less than its noise.
* Nothing here is locked: two threads may overwrite each other's last observation in the snapshot, never in the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from cheapspec.core.estimate import Counts, Delta, EstimateTable, Row
from cheapspec.errors import LedgerError

__all__ = ["PATIENCE", "REFRESH_SECONDS", "EstimateCache"]

PATIENCE = 0.05
REFRESH_SECONDS = 60.0

log = logging.getLogger("cheapspec")


class EstimateCache:
    """A table over a store. ``read``: all its rows, which may take its time or raise ``LedgerError``."""

    def __init__(self, read: Callable[[], Iterable[Row]], refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._table = EstimateTable()
        self._since: list[tuple[str, str, Delta]] = []  # observed here since the last refresh began
        self._next = 0.0
        self._known = False

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """The snapshot's counts. Begins a refresh when one is due."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._refresh_seconds
            thread = threading.Thread(target=self._refresh, name="cheapspec-estimates", daemon=True)
            thread.start()
            if not self._known:
                self._known = True
                thread.join(PATIENCE)
        return self._table.estimates(target, workload)

    def observed(self, target: str, workload: str, delta: Delta) -> None:
        """Take in what was observed here, and is being written."""
        self._since.append((target, workload, delta))
        self._table.add_estimates(target, workload, delta)

    def _refresh(self) -> None:
        since: list[tuple[str, str, Delta]] = []
        self._since = since
        try:
            table = EstimateTable(self._read())
        except LedgerError as error:
            log.debug("estimates cannot be read: %s", error)
            return
        for target, workload, delta in list(since):
            table.add_estimates(target, workload, delta)
        self._table = table
