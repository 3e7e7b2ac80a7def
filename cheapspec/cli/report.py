"""``cheapspec report``: what the ledger adds up to, for eyes, scripts, spreadsheets and browsers."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from cheapspec.core.records import LedgerReader, RequestRecord
from cheapspec.errors import CheapspecError, LedgerError, SettingsError
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.store import DEFAULT_URL, Store
from cheapspec.report import make_report
from cheapspec.report.allowance import headrooms
from cheapspec.report.audits import with_audits
from cheapspec.report.page import page
from cheapspec.report.rows import csv_lines
from cheapspec.report.text import show
from cheapspec.report.totals import calibrations
from cheapspec.settings import Speculation
from cheapspec.settings.sources import gather

__all__ = ["opened_ledger", "parse_since", "run"]

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STEP = 200


def run(
    session: str | None, since: str | None, ledger: str | None, *, as_json: bool, as_csv: bool, html: Path | None
) -> int:
    """Returns the exit status. Raises ``SettingsError`` for misuse, ``LedgerError`` for a store that cannot be read."""
    if as_json + as_csv + (html is not None) > 1:
        raise SettingsError("choose one of --json, --csv and --html.")
    start = None if since is None else parse_since(since, time.time())
    with (
        opened_ledger(ledger) as (reader, missing),
        _counting(reader.requests(since=start, session=session)) as records,
    ):
        if as_csv:
            for line in csv_lines(records):
                sys.stdout.write(line)
            return 0
        report = make_report(records, since=start, session=session)
        allowance = headrooms(reader, Speculation().seed_usd, session)
        report = replace(report, calibration=calibrations(reader), allowance=allowance)
        report = with_audits(report, reader, since=start, session=session)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2, allow_nan=False))
    elif html is not None:
        _write(html, page(report))
    elif not (report.sums.requests or report.sums.probes):
        print(missing or _nothing(session, since))
    else:
        show(Console(highlight=False), report)
    return 0


def parse_since(text: str, now: float) -> float:
    """``24h``, ``7d`` (also ``m`` minutes, ``w`` weeks) before ``now``, or a date or time in ISO 8601, UTC unless it
    says otherwise. Seconds since the epoch.

    :raises SettingsError: it is neither, or outside of the years 1 to 9999.
    """
    try:
        if found := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower()):
            start = now - int(found[1]) * _UNITS[found[2]]
        else:
            moment = datetime.fromisoformat(text.strip())
            start = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(start, UTC)  # reports show it as a date
    except (ValueError, OverflowError, OSError):
        raise SettingsError(f"--since {text!r}: write 24h, 7d or a date such as 2026-11-29.") from None
    return start


@contextmanager
def opened_ledger(asked: str | None) -> Generator[tuple[LedgerReader, str]]:
    """The ledger to read; and, where there is none yet, an empty one with the sentence that says so."""
    url, origin = _url(asked)
    if url == "off":
        raise LedgerError(f"the ledger is switched off ({origin}), so there is nothing to report.")
    if url == "memory":
        raise LedgerError(f"the books are kept in memory ({origin}): only the program that kept them can report them.")
    store = Store(url)
    path = store.url.database
    if store.dialect == "sqlite" and path and not Path(path).exists():
        if asked is not None:
            raise LedgerError(f"there is no ledger at {path}.")
        yield MemoryLedger(), f"There is no ledger yet: {path} is made by the first request ({origin})."
        return
    from cheapspec.ledger.database import DatabaseLedger

    logging.getLogger("cheapspec").addHandler(logging.NullHandler())  # what is wrong is said once, by the error
    database = DatabaseLedger(url)
    try:
        yield database, ""
    finally:
        database.close()


def _url(asked: str | None) -> tuple[str, str]:
    if asked is not None:
        return asked, "--ledger"
    setting = gather({}, Speculation.model_fields).get("ledger")
    if setting is None:
        return DEFAULT_URL, "the default ledger"
    return str(setting.value), setting.origin


@contextmanager
def _counting(records: Iterable[RequestRecord]) -> Generator[Iterator[RequestRecord]]:
    """The records; how many were read shows on a terminal, on standard error, and goes away at the end."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading the ledger", total=None)

        def read() -> Iterator[RequestRecord]:
            for number, record in enumerate(records, 1):
                if number % _STEP == 0:
                    progress.update(task, description=f"reading the ledger: {number:,} requests")
                yield record

        yield read()


def _nothing(session: str | None, since: str | None) -> str:
    which = "" if session is None else f" of session {session!r}"
    when = "" if since is None else f" since {since}"
    return f"The ledger has no requests{which}{when}."


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise CheapspecError(f"{path} cannot be written ({error.strerror or error}).") from None
    print(f"Wrote {path}.")
