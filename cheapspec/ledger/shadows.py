"""Findings about lossy rules in a database: read back for ``tune``, and a snapshot in memory for whoever answers.

Rules
-----
* No request waits for the store: how many of a workload were shadowed, and which certificates stand, is looked up in a
  snapshot. It is read when the ledger's first client is made, and again every :data:`REFRESH_SECONDS` at most, by a
  thread of its own, while there are requests that ask.
* What this process writes is in its own snapshot at once. Processes that count together may shadow a few requests more
  than were asked for, those under way at the same time, and never fewer.
* A fork's child reads for itself, with a lock of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, and_, case, func, select
from sqlalchemy.exc import SQLAlchemyError

from cheapspec.core.shadows import AUDIT, SHADOW, CertificateRow, ShadowRow
from cheapspec.errors import LedgerError
from cheapspec.ledger.certificates import read_certificates
from cheapspec.ledger.forks import renewed_after_fork
from cheapspec.ledger.schema import certificates, shadows

__all__ = ["REFRESH_SECONDS", "ShadowCache", "read_shadows", "row_of"]

REFRESH_SECONDS = 30.0
_PAGE = 1000
_NAMES = tuple(field.name for field in fields(ShadowRow))

log = logging.getLogger("cheapspec")


def row_of(found: ShadowRow) -> dict[str, Any]:
    """A finding as the table's columns."""
    return asdict(found)


def read_shadows(
    connection: Connection, workload: str | None, since: float | None, until: float | None
) -> Iterator[ShadowRow]:
    """See :class:`cheapspec.core.shadows.ShadowReader`."""
    query = select(shadows).order_by(shadows.c.at, shadows.c.request_id, shadows.c.rule)
    if workload is not None:
        query = query.where(shadows.c.workload == workload)
    if since is not None:
        query = query.where(shadows.c.at >= since)
    if until is not None:
        query = query.where(shadows.c.at < until)
    found = connection.execute(query)
    while page := found.fetchmany(_PAGE):
        for row in page:
            yield ShadowRow(**{name: getattr(row, name) for name in _NAMES})


@dataclass(slots=True)
class _Snapshot:
    """``shadowed``: requests by (workload, target, draft); ``standing``: certificates; ``audits``: by certificate."""

    shadowed: dict[tuple[str, str, str], int] = field(default_factory=dict[tuple[str, str, str], int])
    standing: dict[str, CertificateRow] = field(default_factory=dict[str, CertificateRow])
    audits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def add(self, row: ShadowRow, seen: set[str]) -> None:
        """``seen``: requests that are counted already."""
        if row.kind == SHADOW:
            if row.request_id not in seen:
                seen.add(row.request_id)
                key = (row.workload, row.target, row.draft)
                self.shadowed[key] = self.shadowed.get(key, 0) + 1
        elif row.bad is not None:
            for name, made in self.standing.items():
                if _of(row, made):
                    asked, bad = self.audits.get(name, (0, 0))
                    self.audits[name] = asked + 1, bad + row.bad


def _of(row: ShadowRow, made: CertificateRow) -> bool:
    scope = (made.workload, made.rule, made.target) == (row.workload, row.rule, row.target)
    return scope and row.at >= made.at


class ShadowCache:
    """``read``: opens the ledger's tables, which may wait or raise ``LedgerError``."""

    def __init__(
        self, read: Callable[[], AbstractContextManager[Connection]], refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._snapshot = _Snapshot()
        self._since: list[ShadowRow | CertificateRow] = []  # written here since the last refresh began
        self._seen: set[str] = set()
        self.renew()
        _caches.add(self)

    def renew(self) -> None:
        """After a fork, in the child: a thread that held the lock, or was reading, is not there."""
        self._lock, self._next = threading.RLock(), 0.0

    # --- for whoever answers ---------------------------------------------------------------------

    def shadowed(self, workload: str, target: str, draft: str) -> int:
        self.refresh()
        with self._lock:
            return self._snapshot.shadowed.get((workload, target, draft), 0)

    def certificates(self, workload: str, target: str) -> tuple[CertificateRow, ...]:
        self.refresh()
        with self._lock:
            made = [one for one in self._snapshot.standing.values() if (one.workload, one.target) == (workload, target)]
        return tuple(sorted(made, key=lambda one: -one.at))

    def audits(self, row: CertificateRow) -> tuple[int, int]:
        with self._lock:
            return self._snapshot.audits.get(row.certificate_id, (0, 0))

    # --- what is written here --------------------------------------------------------------------

    def found(self, row: ShadowRow) -> None:
        """Take in a finding that is being written."""
        with self._lock:
            self._since.append(row)
            self._snapshot.add(row, self._seen)

    def certified(self, row: CertificateRow) -> None:
        """Take in a certificate, or its revocation, that is being written."""
        with self._lock:
            self._since.append(row)
            self._put(self._snapshot, row)

    @staticmethod
    def _put(snapshot: _Snapshot, row: CertificateRow) -> None:
        if row.revoked_at is None:
            snapshot.standing.setdefault(row.certificate_id, row)
        else:
            snapshot.standing.pop(row.certificate_id, None)

    # --- the store -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Begin to read what others have written, if it is time to. Returns at once."""
        now = time.monotonic()
        with self._lock:
            due = now >= self._next
            if due:
                self._next = now + self._refresh_seconds
        if due:
            threading.Thread(target=self.refresh_now, name="cheapspec-shadows", daemon=True).start()

    def refresh_now(self) -> None:
        """Read the store, in this thread."""
        since: list[ShadowRow | CertificateRow] = []
        with self._lock:
            self._since, self._seen = since, set()
        try:
            with self._read() as connection:
                snapshot = _read_snapshot(connection)
                with self._lock:
                    told = {row.request_id for row in since if isinstance(row, ShadowRow)}
                there = _written(connection, told)
        except (LedgerError, SQLAlchemyError) as error:
            log.debug("shadows and certificates cannot be read: %s", error)
            return
        with self._lock:
            seen = {request_id for request_id, kind in there if kind == SHADOW}
            for row in since:
                if isinstance(row, CertificateRow):
                    self._put(snapshot, row)
                elif (row.request_id, row.kind) not in there:
                    snapshot.add(row, seen)
            self._snapshot, self._seen = snapshot, seen


def _read_snapshot(connection: Connection) -> _Snapshot:
    requests = func.count(shadows.c.request_id.distinct())
    key = (shadows.c.workload, shadows.c.target, shadows.c.draft)
    counts = connection.execute(select(*key, requests).where(shadows.c.kind == SHADOW).group_by(*key)).all()
    standing = {row.certificate_id: row for row in read_certificates(connection, standing=True)}
    scope = and_(*(shadows.c[name] == certificates.c[name] for name in ("workload", "rule", "target")))
    bad = func.sum(case((shadows.c.bad, 1), else_=0))
    audited = (
        select(certificates.c.certificate_id, func.count(), bad)
        .join_from(certificates, shadows, and_(scope, shadows.c.at >= certificates.c.at))
        .where(certificates.c.revoked_at.is_(None), shadows.c.kind == AUDIT, shadows.c.bad.is_not(None))
        .group_by(certificates.c.certificate_id)
    )
    audits = {name: (int(asked), int(wrong)) for name, asked, wrong in connection.execute(audited).all()}
    return _Snapshot({(row[0], row[1], row[2]): int(row[3]) for row in counts}, standing, audits)


def _written(connection: Connection, request_ids: set[str]) -> set[tuple[str, str]]:
    """Which of these are in the store, as (request, kind)."""
    if not request_ids:
        return set()
    rows = connection.execute(
        select(shadows.c.request_id, shadows.c.kind).where(shadows.c.request_id.in_(list(request_ids)[-_PAGE:]))
    )
    return {(row.request_id, row.kind) for row in rows.all()}


_caches = renewed_after_fork(ShadowCache)
