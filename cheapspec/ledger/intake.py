"""What callers hand to the ledger's thread, and how the thread waits for it.

Rules
-----
* Nobody who gives waits. What is *urgent* (somebody waits for its ticket, budgets, a report) wakes the thread; all
  else waits :data:`GATHER_SECONDS` for company. So a request costs one transaction, not four: its row is written with
  its call's, and with what closes the request before. (A transaction of one row costs most of what one of four
  does, and what closes a request written by itself takes the processor from the next.)
* Who is killed in that time has not written an end: the call's row is open, and is settled at its worst case
  (:mod:`cheapspec.ledger.leases`). That row itself is always urgent.
* A burst is not dropped: whoever sends a billed call waits for its row, so that what queues up is a few operations a
  request under way. The bound is for memory: :data:`MOST` operations (a kilobyte each at most) while the thread works,
  ``buffer`` of them while it hangs in the database. What is over it is refused.
"""

from __future__ import annotations

import queue
import time
from collections import deque

from cheapspec.ledger.operations import Kind, Operation

__all__ = ["BATCH", "GATHER_SECONDS", "MOST", "STALL_SECONDS", "Intake"]

BATCH = 1000
"""So many operations are written in one transaction at most."""

GATHER_SECONDS = 0.05
MOST = 200_000
STALL_SECONDS = 2.0
"""A transaction that takes longer hangs: nobody waits for the thread any more."""

_URGENT = frozenset({Kind.SETTLE, Kind.RESERVE, Kind.FLUSH})


class Intake:
    """Of one thread. ``buffer``: operations kept while the thread hangs."""

    def __init__(self, buffer: int) -> None:
        self._buffer = buffer
        self._waiting: deque[Operation | None] = deque()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._awake = self._more = False
        self._busy_since = 0.0

    # --- the callers' side -----------------------------------------------------------------------

    def put(self, operation: Operation) -> bool:
        """Hand it over; whether there was room."""
        waiting = len(self._waiting)
        if waiting >= self._buffer and (waiting >= MOST or self.hangs):
            return False
        self._waiting.append(operation)
        urgent = operation.ticket is not None or operation.kind in _URGENT
        if urgent or not self._awake:
            self._awake = True
            self._bell.put(urgent)
        return True

    def end(self) -> None:
        """No more will come."""
        self._waiting.append(None)
        self._bell.put(True)

    @property
    def hangs(self) -> bool:
        """Whether the thread has been in the database for longer than it should."""
        since = self._busy_since
        return bool(since) and time.monotonic() - since > STALL_SECONDS

    # --- the thread's side -----------------------------------------------------------------------

    def working(self, busy: bool) -> None:
        """The thread enters the database, or is back."""
        self._busy_since = time.monotonic() if busy else 0.0

    def take(self, seconds: float | None) -> tuple[list[Operation], bool]:
        """What has been given, after waiting so long for it at most; and whether more may come."""
        if not self._more:
            self._wait(seconds)
        while not self._bell.empty():  # first the bells, then what they were rung for: none is missed
            self._bell.get()
        batch: list[Operation] = []
        while self._waiting and len(batch) < BATCH:
            operation = self._waiting.popleft()
            if operation is None:
                self._more = False
                return batch, False
            batch.append(operation)
        self._more = len(batch) == BATCH  # then the bell may have been rung for what is left
        return batch, True

    def _wait(self, seconds: float | None) -> None:
        gather = GATHER_SECONDS if seconds is None else min(seconds, GATHER_SECONDS)
        if self._rung(gather) or self._waiting:
            return
        self._awake = False  # from now on whatever comes rings
        if not self._waiting and self._rung(seconds) is False:
            self._rung(GATHER_SECONDS)  # the first of a few
        self._awake = True

    def _rung(self, seconds: float | None) -> bool | None:
        """Wait for the bell: whether it was urgent; ``None``: nobody rang."""
        try:
            return self._bell.get(timeout=seconds)
        except queue.Empty:
            return None
