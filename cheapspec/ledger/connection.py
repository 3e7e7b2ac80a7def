"""The writer's one connection, and whether what it is open on is still what is at the path.

Rules
-----
* An SQLite file that was deleted, moved or replaced takes no rows that anybody will read. Before and after each
  transaction it is looked for, so that none is believed to be written that is not. What was open is let go of, with one
  warning, and the next transaction is in the file that is there now.
* A transaction that was cut short, by an error or by ``KeyboardInterrupt`` in the thread that ran it, leaves nothing:
  the connection is given up, and the next one is a new one.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from cheapspec.ledger.store import Store

__all__ = ["WatchedConnection"]

log = logging.getLogger("cheapspec")


class WatchedConnection:
    """``moved``: the file was found to be another one, until whoever writes has seen to that; ``unreachable``: why
    there was no connection when one was last wanted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Any = None
        self._files: tuple[object, ...] = ()
        self._begun = False
        self.moved = False
        self.unreachable: Exception | None = None

    @property
    def open(self) -> bool:
        """Whether there is a connection; opening one may take its time."""
        return self._connection is not None

    def begin(self) -> Any:
        """A cursor in a transaction that will write. Raises what the driver raises."""
        if self._begun:
            self.drop()
        self.look()
        if self._connection is None:
            try:
                self._connection = self._store.connect()
            except Exception as error:
                self.unreachable = error
                raise
            self.unreachable = None
            self._files = self._store.files()
        cursor = self._connection.cursor()
        self._begun = True
        self._store.begin(cursor)
        return cursor

    def commit(self) -> None:
        """End it."""
        self._connection.commit()
        self._begun = False

    def drop(self) -> None:
        """Let go of it, whatever is under way."""
        connection, self._connection = self._connection, None
        self._begun = False
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()

    def look(self) -> bool:
        """Whether what is open is no longer what is at the path; then it is let go of."""
        if self._connection is None:
            return False
        there = self._store.files()
        if all(was is None or was == now for was, now in zip(self._files, there, strict=True)):
            return False
        self.drop()
        self.moved = True
        log.warning(
            "the ledger %s was deleted, moved or replaced while it was in use; what it held no longer counts here, "
            "budgets and the allowance included: they begin again with the file that is there now",
            self._store.shown,
        )
        return True
