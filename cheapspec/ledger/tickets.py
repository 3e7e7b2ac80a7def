"""What a caller holds until its row is written: waitable from a thread, from an event loop by callback.

A ticket that nobody waits for hurries nobody. Who begins to wait says so (``wanted``), and a thread that waits may be
asked to do the writing itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["WriteTicket"]

R = TypeVar("R")


class WriteTicket(Generic[R]):
    """Implements :class:`cheapspec.core.books.Ticket`. Finished once; later values are passed over.

    :param wanted: called when somebody begins to wait: with ``True`` from a thread that has nothing else to do.
    """

    __slots__ = ("_callbacks", "_done", "_lock", "_value", "_wanted")

    def __init__(self, wanted: Callable[[bool], object] | None = None) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()  # held until it is done: a lock is the cheapest thing to wait for
        self._lock.acquire()
        self._done = False
        self._value: R | None = None
        self._callbacks: list[Callable[[], object]] = []

    @property
    def done(self) -> bool:
        return self._done

    @property
    def value(self) -> R | None:
        return self._value

    def wait(self, seconds: float) -> bool:
        if not self._done and self._wanted is not None:
            until = time.monotonic() + seconds
            self._wanted(True)
            seconds = until - time.monotonic()
        if self._lock.acquire(timeout=max(0.0, seconds)):
            self._lock.release()  # the next one may look too
        return self._done

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        self._callbacks.append(callback)
        if self._done:
            self._call_back()
        elif self._wanted is not None:
            self._wanted(False)

    def finish(self, value: R | None = None) -> None:
        """It is done; who waits goes on."""
        if self._done:
            return
        self._value = value
        self._done = True
        self._lock.release()
        self._call_back()

    def _call_back(self) -> None:
        """Each callback once, though both sides may be here: ``pop`` is atomic."""
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()
