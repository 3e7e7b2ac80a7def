"""What a caller holds while the ledger's thread writes: waitable from a thread, from an event loop by callback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["WriteTicket"]

R = TypeVar("R")


class WriteTicket(Generic[R]):
    """Implements :class:`cheapspec.core.books.Ticket`. Finished once; later values are passed over."""

    __slots__ = ("_callbacks", "_done", "_lock", "_value")

    def __init__(self) -> None:
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
        if self._lock.acquire(timeout=max(0.0, seconds)):
            self._lock.release()  # the next one may look too
        return self._done

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

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
