"""Where a database ledger lives: its URL, its engine, its connections.

Rules
-----
* ``sqlite:///PATH`` (``~`` is home) or ``postgresql://…``, which needs the extra ``[postgres]``. The folder of
  an SQLite file is made when it is first opened, readable by its owner alone.
* SQLite runs in WAL mode with ``synchronous=NORMAL``: what was committed survives a killed process, not a
  power cut (https://www.sqlite.org/wal.html, section 3, of 2026-11). PostgreSQL is asked for the same
  promise: ``synchronous_commit=off``.
* Nothing is pooled: the writer keeps its one connection, a report opens its own.
* A file that is deleted, moved or replaced while it is open goes on taking rows that nobody can read again: what is
  open is compared with what is at the path (:meth:`Store.files`).
* A process's connections are its own: after a fork the child lets go of its parent's without closing them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from cheapspec.errors import LedgerError
from cheapspec.ledger.migrations import migrate

__all__ = ["BUSY_SECONDS", "DEFAULT_URL", "Store", "TransientError", "is_transient"]

DEFAULT_URL = "sqlite:///~/.cheapspec/ledger.db"
BUSY_SECONDS = 5.0


class TransientError(Exception):
    """The store cannot be used now; it may be later."""


def is_transient(error: BaseException) -> bool:
    """Whether the store is at fault (away, locked, full, read-only, deadlocked) rather than what was written."""
    if isinstance(error, TransientError | OSError | LedgerError):
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, sqlite3.Error):
        return bool(kinds & {"OperationalError", "InterfaceError"}) or type(error) is sqlite3.DatabaseError
    return bool(kinds & {"OperationalError", "InterfaceError", "InternalError", "InsufficientPrivilege"})


class Store:
    """One database. Making it opens nothing.

    :param busy_seconds: how long to wait for another process's lock, and for a connection.
    :raises LedgerError: the URL is unusable, or the driver is not installed.
    """

    def __init__(self, url: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.url = _parsed(url)
        self._busy_seconds = busy_seconds
        self.dialect = self.url.get_backend_name()
        self.shown = self.url.render_as_string(hide_password=True)
        self.engine = self._engine()

    def _engine(self) -> Engine:
        try:
            if self.dialect == "sqlite":
                wait = self._busy_seconds  # one thread at a time uses a connection: the writer's lock sees to it
                given = {"timeout": wait, "check_same_thread": False}
                engine = create_engine(self.url, poolclass=NullPool, connect_args=given)

                def set_up(connection: Any, _record: object) -> None:
                    _set_up_sqlite(connection, wait)

                event.listen(engine, "connect", set_up)
                event.listen(engine, "begin", _begin_reading)
                return engine
            given = {"connect_timeout": max(1, int(self._busy_seconds))}
            engine = create_engine(self.url, poolclass=NullPool, connect_args=given)
            event.listen(engine, "connect", _set_up_postgresql)
        except ImportError as error:
            raise LedgerError(
                f"the ledger {self.shown} needs a driver that is not installed ({error}): pip install "
                "'cheapspec[postgres]'"
            ) from None
        return engine

    def connect(self) -> Any:
        """A DBAPI connection with the tables brought up to date. It is the caller's to close.

        :raises LedgerError: the tables were made by a newer version.
        """
        raw = self.connect_as_is()
        try:
            migrate(raw, self.dialect)
        except BaseException:
            with contextlib.suppress(Exception):
                raw.close()
            raise
        return raw

    def connect_as_is(self) -> Any:
        """A DBAPI connection to whatever is there. It is the caller's to close."""
        if self.dialect == "sqlite" and self.url.database:
            Path(self.url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = self.engine.raw_connection()
        raw = connection.driver_connection
        connection.detach()  # the pool forgets it
        return raw

    def files(self) -> tuple[tuple[int, int] | None, ...]:
        """Device and inode of SQLite's file and of its write-ahead log, which stay the same while somebody has them
        open; ``None`` for one that is not there. Empty for a server, which sees to its own files.
        """
        if self.dialect != "sqlite" or not self.url.database:
            return ()
        return _inode(self.url.database), _inode(f"{self.url.database}-wal")

    def begin(self, cursor: Any) -> None:
        """Begin a transaction that will write."""
        if self.dialect == "sqlite":
            cursor.execute("BEGIN IMMEDIATE")  # a read that later writes could not wait for another's lock

    def renew(self) -> object:
        """After a fork, in the child. Returns the parent's engine, to be kept: collecting it would close it."""
        old, self.engine = self.engine, self._engine()
        return old


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _parsed(url: str) -> URL:
    try:
        made = make_url(url)
        backend = made.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend = ""
        made = None
    if made is not None and backend == "postgres":
        backend, made = "postgresql", made.set(drivername="postgresql")
    if made is None or backend not in {"sqlite", "postgresql"}:
        raise LedgerError(f"{_hidden(url)!r} is no ledger: write sqlite:///PATH, postgresql://HOST/DATABASE or off")
    if backend == "postgresql":
        return made.set(drivername="postgresql+psycopg")
    if not made.database or made.database == ":memory:":
        raise LedgerError(f"{url!r} names no file: write sqlite:///PATH")
    try:
        path = Path(made.database).expanduser().absolute()
    except RuntimeError as error:  # nobody's home is known
        raise LedgerError(f"{url!r}: {error}") from None
    return made.set(drivername="sqlite", database=str(path))


def _hidden(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, mark, _ = head.partition("://")
    return f"{scheme}{mark}***{at}{tail}" if at else url


def _set_up_sqlite(connection: Any, busy_seconds: float) -> None:
    connection.isolation_level = None  # transactions are begun here, not by the driver
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:  # another process is switching: SQLite does not wait for that lock
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")  # one view of the tables for all of a report's queries


def _set_up_postgresql(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO off")
    connection.commit()
