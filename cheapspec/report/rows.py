"""A report's requests one by one, as CSV (RFC 4180) for spreadsheets.

Unknown money is an empty cell. A cell that a spreadsheet would take for a formula is preceded by an apostrophe
(OWASP, "CSV Injection").
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from cheapspec.core.money import format_usd
from cheapspec.core.records import RequestRecord
from cheapspec.report.entries import KINDS, read_entry

__all__ = ["COLUMNS", "csv_lines"]

_TEXT = ("reason", "rule", "drafter")
_COUNTS = (
    "rounds",
    "drafted_tokens",
    "accepted_tokens",
    "corrected_tokens",
    "handoff_tokens",
    "unverified_tokens",
    "lenient_tokens",
    "target_calls",
    "fixed_draft_tokens",
)
_TIMES = ("draft", "verify", "handoff", "total")

COLUMNS = (
    *("request_id", "at", "session", "model", "kind", "stream", "decision", *_TEXT, *_COUNTS),
    *("input_tokens", "cached_input_tokens", "output_tokens", "paid_usd", "baseline_usd", "saved_usd"),
    *("baseline", "priced_by", "simulated", *(f"seconds_{name}" for name in _TIMES)),
    *("target", "lossy", "local_usd", "forecast_usd", "asked_tier", "service_tier", "price_flags"),
)
"""``at``: ISO 8601, UTC; ``decision`` as the reports call it; money in dollars, times in seconds."""


def csv_lines(records: Iterable[RequestRecord]) -> Iterator[str]:
    """The header, then a line a request, each with its line end."""
    yield _line(COLUMNS)
    for record in records:
        yield _line(_cells(record))


def _cells(record: RequestRecord) -> list[Any]:
    entry = read_entry(record)
    row, info = record.row, entry.info
    told = row.request_id, datetime.fromtimestamp(row.at, UTC).isoformat(), entry.session, row.model, row.kind
    estimated = "" if entry.baseline_usd is None else "estimated" if entry.estimated else "exact"
    cells: list[Any] = [*told, _word(row.stream), KINDS[entry.decision]]
    cells += [getattr(info, name) for name in (*_TEXT, *_COUNTS)]
    cells += [*entry.tokens, *map(format_usd, (entry.paid_usd, entry.baseline_usd, entry.saved_usd))]
    cells += [estimated, info.priced_by, _word(info.simulated)]
    cells += [round(getattr(info.seconds, name), 4) for name in _TIMES]
    cells += [info.target, _word(entry.lossy), *map(format_usd, (info.local_usd, info.forecast_usd))]
    return [*cells, *entry.tiers, " ".join(entry.flags)]


def _word(value: bool) -> str:
    return "true" if value else "false"


def _line(cells: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([_safe(cell) for cell in cells])
    return out.getvalue()


def _safe(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    number = cell.startswith("-") and cell[1:].replace(".", "", 1).isdecimal()  # a loss in dollars
    return cell if number else f"'{cell}"
