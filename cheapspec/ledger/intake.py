"""What callers hand to the ledger's thread, and how the thread waits for it.

Rules
-----
* Nobody who gives waits. What is given is taken by whoever writes next: the thread after :data:`GATHER_SECONDS`, or
  sooner a caller who must know that its row is there (:mod:`cheapspec.ledger.writer`). So a request costs one
  transaction, not four: its row is written with its call's, and with what closes the request before. (A transaction of
  one row costs most of what one of four does.)
* Waking the thread costs the caller the processor, so it is done only where somebody waits and cannot write himself
  (:meth:`Intake.ring`), for what budgets get back, and when the thread is asleep: it looks by itself while there is
  traffic, and goes to sleep after :data:`AWAKE_SECONDS` without.
* Who is killed in that time has not written an end: the call's row is open, and is settled at its worst case
  (:mod:`cheapspec.ledger.leases`). For that row itself whoever sends the call waits.
* A burst is not dropped: what queues up is a few operations a request under way. The bound is for memory:
  :data:`MOST` operations (a kilobyte each at most) while the thread works, ``buffer`` of them while it hangs in the
  database. What is over it is refused.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable

from cheapspec.ledger.operations import Kind, Operation

__all__ = ["AWAKE_SECONDS", "BATCH", "GATHER_SECONDS", "MOST", "STALL_SECONDS", "Intake"]

BATCH = 1000
"""So many operations are written in one transaction at most."""

GATHER_SECONDS = 0.05
AWAKE_SECONDS = 2.0
MOST = 200_000
STALL_SECONDS = 2.0
"""A transaction that takes longer hangs: nobody waits for the thread any more."""


class Intake:
    """Of one writer. ``buffer``: operations kept while the database hangs."""

    def __init__(self, buffer: int) -> None:
        self._buffer = buffer
        self._waiting: deque[Operation] = deque()
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
        if operation.kind is Kind.SETTLE:
            self.ring()
        elif not self._awake:
            self._awake = True
            self._bell.put(False)
        return True

    def ring(self) -> None:
        """Somebody waits."""
        self._awake = True
        self._bell.put(True)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def hangs(self) -> bool:
        """Whether somebody has been in the database for longer than it should take."""
        since = self._busy_since
        return bool(since) and time.monotonic() - since > STALL_SECONDS

    # --- the side of whoever writes; one at a time -----------------------------------------------

    def working(self, busy: bool) -> None:
        """Somebody enters the database, or is back."""
        self._busy_since = time.monotonic() if busy else 0.0

    def take(self, into: list[Operation]) -> None:
        """Move what was given to the end of a list, :data:`BATCH` operations at most. What interrupts this
        (``KeyboardInterrupt``) may leave an operation in both places, never in none.
        """
        number = min(len(self._waiting), BATCH)
        for _ in range(number):
            into.append(self._waiting[0])
            self._waiting.popleft()
        self._more = number == BATCH  # the bell may have been rung for what is left

    def wait(self, idle: Callable[[], float | None]) -> None:
        """For the thread: until there is something to write. ``idle`` says how many seconds it may wait for that now
        (``None``: for ever).
        """
        quiet = time.monotonic() + AWAKE_SECONDS
        while not self._more:
            seconds = idle()
            due = seconds is not None and seconds <= GATHER_SECONDS
            if self._rung(seconds if due else GATHER_SECONDS) or self._waiting or due:
                break
            if time.monotonic() >= quiet:
                self._sleep(idle)
                break
        while not self._bell.empty():  # all that the bells were rung for is taken next
            self._bell.get()

    def _sleep(self, idle: Callable[[], float | None]) -> None:
        self._awake = False  # from now on whatever comes rings
        if not self._waiting and self._rung(idle()) is False:
            self._rung(GATHER_SECONDS)  # the first of a few
        self._awake = True

    def _rung(self, seconds: float | None) -> bool | None:
        """Wait for the bell: whether it was urgent; ``None``: nobody rang."""
        try:
            return self._bell.get(timeout=seconds)
        except queue.Empty:
            return None
