"""The ledgers of this process: one a place, shared by all clients that name it; and the one that nobody named.

Rules
-----
* Clients on one URL, however they write it, share one ledger: its thread, its connection, its sessions. Those that keep
  text and those that do not (``store_text``) have one each.
* Without a setting the ledger is the file ``~/.cheapspec/ledger.db``. It is opened once when it is first asked for.
  If that fails (no home, a read-only disk, a file that is no database, tables of a newer version), the books are
  kept in memory, one warning says so, and all clients share those: a ledger that nobody asked for must not cost
  anyone an error, and half of the books here and half there would be of no use.
* A file that is only locked by somebody else is usable: the ledger's thread waits for it. So is a ledger that a setting
  names, whatever is wrong with it: its rows wait until it is back (:mod:`cheapspec.ledger.writer`).
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading

from sqlalchemy.exc import SQLAlchemyError

from cheapspec.errors import LedgerError
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.store import DEFAULT_URL, Store

__all__ = ["default_ledger", "open_ledger"]

log = logging.getLogger("cheapspec")

_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_TRY_SECONDS = 0.2

_ledgers: dict[tuple[str, bool], DatabaseLedger] = {}
_fallbacks: dict[str, BudgetedMemoryLedger] = {}
_lock = threading.RLock()


def open_ledger(url: str = DEFAULT_URL, *, store_text: bool = False) -> DatabaseLedger:
    """The process's ledger at this URL, made when first asked for.

    :raises LedgerError: the URL is unusable, or its driver is not installed.
    """
    place = _place(Store(url))
    with _lock:
        if (place, store_text) not in _ledgers:
            _ledgers[place, store_text] = DatabaseLedger(url, store_text=store_text)
        return _ledgers[place, store_text]


def default_ledger(url: str = DEFAULT_URL, *, store_text: bool = False) -> DatabaseLedger | BudgetedMemoryLedger:
    """The process's ledger where no setting names one: in memory if the file is of no use. Never raises."""
    place = url
    with _lock:
        try:
            store = Store(url, busy_seconds=_TRY_SECONDS)
            place = _place(store)
            if place in _fallbacks:
                return _fallbacks[place]
            if not any(place == opened for opened, _ in _ledgers):
                _try(store)
            return open_ledger(url, store_text=store_text)
        except (LedgerError, SQLAlchemyError, sqlite3.Error, OSError) as error:
            if place not in _fallbacks:
                _fallbacks[place] = BudgetedMemoryLedger()
                log.warning(
                    "the default ledger cannot be used (%s), so the books of this process are kept in memory and end "
                    "with it; set ledger (CHEAPSPEC_LEDGER) to a database's URL, 'memory' or 'off'",
                    _told(place, error),
                )
            return _fallbacks[place]


def _place(store: Store) -> str:
    return store.url.render_as_string(hide_password=False)


def _try(store: Store) -> None:
    """Open it for writing, and let go of it."""
    try:
        store.connect().close()
    except (SQLAlchemyError, sqlite3.Error) as error:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
        if code & 0xFF not in _LOCKED:
            raise


def _told(place: str, error: Exception) -> str:
    """What is wrong, and where: SQLite's own words leave out the file."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    what = said[0] if said else type(error).__name__
    path = place.removeprefix("sqlite:///")
    return what if path in what or isinstance(error, LedgerError) else f"{path}: {what}"


def _renew_lock() -> None:
    """After a fork, in the child: a thread that held it is not there."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
