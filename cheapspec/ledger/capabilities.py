"""What probes found, kept so that a new process need not probe (and pay) again.

Rules
-----
* A row counts until it expires; what replies have contradicted is written again as expired.
* A thread reads all rows that still count, from when a client is made on; memory answers. Nobody waits on an event
  loop. Where there is none, the first question waits :data:`PATIENCE` seconds for that thread at most. A store that has
  not answered after :data:`GIVEN_UP` seconds counts as empty. What another process finds later is seen by the next one.
* A forked child reads for itself, with a lock of its own.
* The columns are for people; ``evidence`` is the whole of the facts as JSON, sentences included.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from cheapspec.core.books import Capability
from cheapspec.core.untyped import as_mapping
from cheapspec.errors import LedgerError
from cheapspec.ledger.forks import renewed_after_fork
from cheapspec.ledger.schema import capabilities

__all__ = ["GIVEN_UP", "PATIENCE", "CapabilityCache", "row_of"]

PATIENCE = 0.05
GIVEN_UP = 5.0
_MOST = 1000
_BOOLS = ("can_score", "can_force", "can_continue", "can_judge", "reports_cached_tokens")

log = logging.getLogger("cheapspec")


def row_of(found: Capability) -> dict[str, Any]:
    """A capability as the table's columns."""
    facts = found.facts
    return {
        "base_url": found.base_url,
        "model": found.model,
        "backend": found.backend,
        **{name: bool(facts.get(name)) for name in _BOOLS},
        "qs": facts.get("qs"),
        "qh": facts.get("qh"),
        "evidence": json.dumps(dict(facts)),
        "probed_at": found.probed_at,
        "expires_at": found.expires_at,
    }


class CapabilityCache:
    """The rows in memory. ``read``: the ledger's, which may wait for its store."""

    def __init__(self, read: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._read = read
        self._rows: dict[tuple[str, str, str], Capability] = {}
        self.renew()
        _caches.add(self)

    def renew(self) -> None:
        """Begin anew, with what is known (after a fork, in the child)."""
        self._lock = threading.RLock()
        self._read_all = threading.Event()
        self._begun: float | None = None
        self._patient = True

    def begin(self) -> bool:
        """Start to read, if nobody has. Whether all that will be known is known. Returns at once."""
        with self._lock:
            first = self._begun is None
            if self._begun is None:
                self._begun = time.monotonic()
            over = self._read_all.is_set() or time.monotonic() - self._begun > GIVEN_UP
        if first:
            told = self._read_all
            threading.Thread(target=self._load, args=(told,), name="cheapspec-capabilities", daemon=True).start()
        return over

    def get(self, base_url: str, model: str, backend: str, now: float) -> Capability | None:
        """The row of an endpoint that still counts at ``now`` (UTC seconds)."""
        if not self.begin() and self._patient and not _on_a_loop():
            self._read_all.wait(PATIENCE)
            self._patient = False
        with self._lock:
            found = self._rows.get((base_url, model, backend))
        return found if found is not None and found.expires_at > now else None

    def put(self, found: Capability) -> None:
        """What this process knows is newer than what is read."""
        with self._lock:
            self._rows[(found.base_url, found.model, found.backend)] = found

    def _load(self, told: threading.Event) -> None:
        try:
            self._load_rows(time.time())
        finally:
            told.set()

    def _load_rows(self, now: float) -> None:
        try:
            with self._read() as connection:
                rows = connection.execute(
                    select(capabilities)
                    .where(capabilities.c.expires_at > now)
                    .order_by(capabilities.c.probed_at.desc())
                    .limit(_MOST)
                ).all()
        except (LedgerError, SQLAlchemyError) as error:
            log.debug("what was probed before cannot be read: %s", error)
            return
        with self._lock:
            for row in rows:
                found = Capability(
                    row.base_url, row.model, row.backend, _facts(row.evidence), row.probed_at, row.expires_at
                )
                self._rows.setdefault((row.base_url, row.model, row.backend), found)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_caches = renewed_after_fork(CapabilityCache)


def _facts(text: str) -> dict[str, Any]:
    try:
        return dict(as_mapping(json.loads(text)))
    except ValueError:
        return {}
