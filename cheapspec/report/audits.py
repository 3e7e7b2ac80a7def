"""How often the target agreed with what went out on a rule's word, as far as it was asked.

The interval is that of Clopper and Pearson (Biometrika 26, 1934, 404–413), two-sided, with 95 % confidence. A request
whose replies nothing compared is audited and in no share.
"""

from __future__ import annotations

from dataclasses import replace

from cheapspec.core.records import LedgerReader
from cheapspec.core.shadows import AUDIT, ShadowReader
from cheapspec.report.figures import Report
from cheapspec.rules.certificates import upper_bound

__all__ = ["CONFIDENCE", "interval", "with_audits"]

CONFIDENCE = 0.95


def interval(n: int, agreed: int) -> tuple[float, float]:
    """Where the true share lies, of which ``agreed`` of ``n`` were seen (``n`` at least 1)."""
    one_sided = (1 + CONFIDENCE) / 2
    return 1 - upper_bound(n, n - agreed, one_sided), upper_bound(n, agreed, one_sided)


def with_audits(
    report: Report,
    ledger: object,
    *,
    since: float | None = None,
    until: float | None = None,
    session: str | None = None,
) -> Report:
    """The report with what audits of the same requests found.

    :raises LedgerError: the store cannot be read.
    """
    if not report.lossy.audited or not isinstance(ledger, ShadowReader) or not isinstance(ledger, LedgerReader):
        return report
    rows = [row for row in ledger.shadow_rows(since=since) if row.kind == AUDIT and row.equal is not None]
    if until is not None or session is not None:  # an audit comes after its request
        asked = {record.row.request_id for record in ledger.requests(since=since, until=until, session=session)}
        rows = [row for row in rows if row.request_id in asked]
    if not rows:
        return report
    agreed = sum(bool(row.equal) for row in rows)
    share = agreed / len(rows)
    return replace(report, lossy=replace(report.lossy, agreement=share, interval=interval(len(rows), agreed)))
