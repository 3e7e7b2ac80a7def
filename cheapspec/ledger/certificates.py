"""Certificates of lossy rules in a database: written once, revoked for everybody, read back.

Rules
-----
* A row is never changed but to be revoked, and a revocation is never taken back.
* What was promised is checked by whoever uses it (:mod:`cheapspec.drive.certified`), not believed because it is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, select

from cheapspec.core.shadows import CertificateRow
from cheapspec.ledger.schema import certificates

__all__ = ["read_certificates", "row_of"]

_NAMES = tuple(field.name for field in fields(CertificateRow))


def row_of(made: CertificateRow) -> dict[str, Any]:
    """A certificate as the table's columns."""
    return asdict(made)


def read_certificates(connection: Connection, *, standing: bool = False) -> list[CertificateRow]:
    """All certificates, the oldest first. ``standing``: only those that are not revoked."""
    query = select(certificates).order_by(certificates.c.at, certificates.c.certificate_id)
    if standing:
        query = query.where(certificates.c.revoked_at.is_(None))
    return _read(connection.execute(query))


def _read(rows: Iterable[Any]) -> list[CertificateRow]:
    return [CertificateRow(**{name: getattr(row, name) for name in _NAMES}) for row in rows]
