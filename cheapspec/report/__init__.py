"""From the ledger to totals, tables and pages."""

from cheapspec.report.figures import (
    Calibration,
    Forecast,
    Group,
    Headroom,
    Latency,
    Lossy,
    Reason,
    Report,
    Sums,
    Tokens,
)
from cheapspec.report.totals import make_report, report_of

__all__ = [
    "Calibration",
    "Forecast",
    "Group",
    "Headroom",
    "Latency",
    "Lossy",
    "Reason",
    "Report",
    "Sums",
    "Tokens",
    "make_report",
    "report_of",
]
