"""What probes found, kept so that a new process need not probe (and pay) again.

Rules
-----
* A row counts until it expires; what replies have contradicted is written again as expired.
* Reading costs a request nothing but once: the first question starts a thread that reads all rows that still count, and
  waits :data:`PATIENCE` seconds for it at most. After that memory answers. What another process finds later is
  seen by the next process, or by this one when it has nothing of its own.
* The columns are for people; ``evidence`` is the whole of the facts as JSON, sentences included.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, select

from cheapspec.core.books import Capability
from cheapspec.core.untyped import as_mapping
from cheapspec.errors import LedgerError
from cheapspec.ledger.schema import capabilities

__all__ = ["PATIENCE", "CapabilityCache", "row_of"]

PATIENCE = 0.05
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
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str, str], Capability] = {}
        self._begun = False

    def get(self, base_url: str, model: str, backend: str, now: float) -> Capability | None:
        """The row of an endpoint that still counts at ``now`` (UTC seconds)."""
        with self._lock:
            first, self._begun = not self._begun, True
        if first:
            loading = threading.Thread(target=self._load, args=(now,), name="cheapspec-capabilities", daemon=True)
            loading.start()
            loading.join(PATIENCE)
        with self._lock:
            found = self._rows.get((base_url, model, backend))
        return found if found is not None and found.expires_at > now else None

    def put(self, found: Capability) -> None:
        """What this process knows is newer than what is read."""
        with self._lock:
            self._rows[(found.base_url, found.model, found.backend)] = found

    def _load(self, now: float) -> None:
        try:
            with self._read() as connection:
                rows = connection.execute(
                    select(capabilities)
                    .where(capabilities.c.expires_at > now)
                    .order_by(capabilities.c.probed_at.desc())
                    .limit(_MOST)
                ).all()
        except LedgerError as error:
            log.debug("what was probed before cannot be read: %s", error)
            return
        with self._lock:
            for row in rows:
                found = Capability(
                    row.base_url, row.model, row.backend, _facts(row.evidence), row.probed_at, row.expires_at
                )
                self._rows.setdefault((row.base_url, row.model, row.backend), found)


def _facts(text: str) -> dict[str, Any]:
    try:
        return dict(as_mapping(json.loads(text)))
    except ValueError:
        return {}
