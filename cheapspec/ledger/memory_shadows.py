"""What lossy rules were seen to lose, and certificates, in memory (:class:`cheapspec.core.shadows.ShadowBook`).

Rules
-----
* The newest findings are kept, ``capacity`` of them. How many requests were shadowed is remembered longer.
* Text is never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import RLock

from cheapspec.core.shadows import AUDIT, SHADOW, CertificateRow, ShadowRow

__all__ = ["ShadowTable"]


class ShadowTable:
    """Safe to share between threads."""

    def __init__(self, capacity: int) -> None:
        self._most_findings = capacity
        self._findings: OrderedDict[tuple[str, str, str], ShadowRow] = OrderedDict()
        self._counted: OrderedDict[str, None] = OrderedDict()
        self._shadowed: dict[tuple[str, str, str], int] = {}
        self._certificates: dict[str, CertificateRow] = {}
        self._shadow_lock = RLock()

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._shadow_lock = RLock()

    def shadowed(self, workload: str, target: str, draft: str) -> int:
        with self._shadow_lock:
            return self._shadowed.get((workload, target, draft), 0)

    def add_shadow(self, row: ShadowRow) -> None:
        with self._shadow_lock:
            if row.kind == SHADOW and row.request_id not in self._counted:
                scope = (row.workload, row.target, row.draft)
                self._shadowed[scope] = self._shadowed.get(scope, 0) + 1
                self._counted[row.request_id] = None
            kept = row if row.draft_text is None else replace(row, draft_text=None)
            self._findings.setdefault((row.request_id, row.rule, row.kind), kept)
            for table in (self._findings, self._counted):
                if len(table) > self._most_findings:
                    table.popitem(last=False)

    def certificates(self, workload: str, target: str) -> tuple[CertificateRow, ...]:
        with self._shadow_lock:
            made = [
                one
                for one in self._certificates.values()
                if (one.workload, one.target) == (workload, target) and one.revoked_at is None
            ]
        return tuple(sorted(made, key=lambda one: -one.at))

    def put_certificate(self, row: CertificateRow) -> None:
        with self._shadow_lock:
            self._certificates.setdefault(row.certificate_id, row)

    def revoke(self, row: CertificateRow, at: float, why: str) -> None:
        with self._shadow_lock:
            known = self._certificates.get(row.certificate_id)
            if known is not None and known.revoked_at is None:
                self._certificates[row.certificate_id] = replace(known, revoked_at=at, revoked_why=why)

    def audits(self, row: CertificateRow) -> tuple[int, int]:
        with self._shadow_lock:
            told = [
                one.bad
                for one in self._findings.values()
                if one.kind == AUDIT
                and (one.workload, one.rule, one.target) == (row.workload, row.rule, row.target)
                and one.at >= row.at
                and one.bad is not None
            ]
        return len(told), sum(told)

    def shadow_rows(
        self, *, workload: str | None = None, since: float | None = None, until: float | None = None
    ) -> list[ShadowRow]:
        """See :class:`cheapspec.core.shadows.ShadowReader`."""
        with self._shadow_lock:
            rows = [
                one
                for one in self._findings.values()
                if (workload is None or one.workload == workload)
                and (since is None or one.at >= since)
                and (until is None or one.at < until)
            ]
        return sorted(rows, key=lambda one: (one.at, one.request_id, one.rule))

    def certificate_rows(self) -> list[CertificateRow]:
        with self._shadow_lock:
            return sorted(self._certificates.values(), key=lambda one: (one.at, one.certificate_id))
