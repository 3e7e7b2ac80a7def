"""The ledger in a database: what is written, when it is durable, what happens without a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledgerkit import USAGE, cap_of, closed, opened, reserved, rows

from cheapspec.core.books import Reservations, SessionBook, SessionRow, Trace, TraceBook
from cheapspec.core.effects import Usage
from cheapspec.core.info import Info, Seconds
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.records import LedgerReader
from cheapspec.errors import LedgerError
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.opening import open_ledger
from cheapspec.ledger.store import Store

PRAGMAS = ("journal_mode", "synchronous", "busy_timeout")


@pytest.fixture
def away(tmp_path: Path) -> Iterator[tuple[DatabaseLedger, Path]]:
    """A ledger whose folder cannot be made (a file stands there), and that file."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    ledger = DatabaseLedger(f"sqlite:///{blocked}/ledger.db", buffer=10)
    yield ledger, blocked
    if blocked.is_file():
        blocked.unlink()
    ledger.close()


def test_every_fact_of_a_request_and_its_call_comes_back_as_it_was_written(ledger: DatabaseLedger) -> None:
    """What goes in comes out: tokens, money to the nano-dollar, times, the reply's extra key."""
    row = RequestRow("cs-1", 1_764_000_000.25, "m", "chat", True, "nightly", "w", "s1")
    call = CallRow("cs-1.1", "cs-1", "target", "score", True, 1_764_000_000.5, "0.010000")
    usage = Usage(700, 17, 512, 3, 5, None, "flex", True)
    info = Info(
        "speculate",
        "cs-1",
        rule="exact",
        drafter="ollama:m",
        session="nightly",
        rounds=3,
        ties=1,
        drafted_tokens=96,
        accepted_tokens=80,
        corrected_tokens=2,
        handoff_tokens=14,
        unverified_tokens=4,
        lenient_tokens=5,
        target_calls=4,
        input_tokens=700,
        cached_input_tokens=512,
        output_tokens=17,
        paid_usd=Decimal("0.000412001"),
        baseline_usd=Decimal("0.00098"),
        baseline="exact",
        priced_by="user",
        seconds=Seconds(0.41, 0.22, 0.3, 0.95),
        simulated=True,
        lossy=True,
        fixed_draft_tokens=8,
        local_usd=Decimal("0.0001"),
        forecast_usd=Decimal("-0.0002"),
        target="m@https://api.example/v1",
        prompt_tokens=690,
        cached_prompt_tokens=512,
        reply_tokens=17,
    )
    ledger.open_request(row)
    ledger.open_call(call)
    ledger.close_call(Call("cs-1.1", "ok", usage, "0.000412001", 0.25, 200))
    ledger.close_request("cs-1", info.to_dict())
    (record,) = ledger.requests()
    assert record.row == row
    assert record.info == info.to_dict()
    (made,) = record.calls
    assert made.row == call
    assert (made.status, made.usage, made.cost_usd) == ("ok", usage, Decimal("0.000412001"))
    assert (made.seconds, made.http_status) == (0.25, 200)


def test_a_ledger_is_all_that_its_protocols_say(ledger: DatabaseLedger) -> None:
    """Whoever asks with ``isinstance`` finds budgets, sessions, traces and reading."""
    for protocol in (Reservations, SessionBook, TraceBook, LedgerReader):
        assert isinstance(ledger, protocol)


def test_a_row_is_committed_when_its_ticket_says_so(ledger: DatabaseLedger, url: str) -> None:
    """Another connection sees the open call as soon as the ticket is done, before anything is closed."""
    opened(ledger, "cs-1")
    other = Store(url).connect()
    cursor = other.cursor()
    cursor.execute("SELECT status, worst_nano FROM calls WHERE call_id = 'cs-1.1'")
    assert [tuple(row) for row in cursor.fetchall()] == [("open", 10_000_000)]
    other.close()


async def test_an_event_loop_waits_for_a_ticket_without_being_blocked(ledger: DatabaseLedger) -> None:
    """A task can await the row while other tasks run."""
    loop = asyncio.get_running_loop()
    ledger.open_request(RequestRow("cs-1", time.time(), "m", "chat", False))
    ticket = ledger.open_call(CallRow("cs-1.1", "cs-1", "target", "direct", True, time.time()))
    assert ticket is not None
    written = asyncio.Event()
    ticket.add_done_callback(lambda: loop.call_soon_threadsafe(written.set))
    await asyncio.wait_for(written.wait(), 20)
    assert ticket.done
    late: list[str] = []
    ticket.add_done_callback(lambda: late.append("called"))
    assert late == ["called"]


def test_a_local_call_is_not_waited_for(ledger: DatabaseLedger) -> None:
    """Only what may be billed must be durable first."""
    ledger.open_request(RequestRow("cs-1", time.time(), "m", "chat", False))
    assert ledger.open_call(CallRow("cs-1.1", "cs-1", "draft", "draft", False, time.time())) is None


def test_requests_are_read_by_time_and_by_session_with_those_inside(ledger: DatabaseLedger) -> None:
    """A session's name takes along the sessions that were opened in it."""
    ledger.open_session(SessionRow("s1", "outer", 1.0))
    ledger.open_session(SessionRow("s2", "inner", 2.0, "s1"))
    for number, (session, session_id) in enumerate([("outer", "s1"), ("inner", "s2"), (None, None), ("header", None)]):
        row = RequestRow(f"cs-{number}", float(number), "m", "chat", False, session, None, session_id)
        ledger.open_request(row)

    def found(**query: object) -> list[str]:
        return [record.row.request_id for record in ledger.requests(**query)]  # type: ignore[arg-type]

    assert found() == ["cs-0", "cs-1", "cs-2", "cs-3"]
    assert found(since=1.0, until=3.0) == ["cs-1", "cs-2"]
    assert found(session="outer") == found(session="s1") == ["cs-0", "cs-1"]
    assert found(session="inner") == ["cs-1"]
    assert found(session="header") == ["cs-3"]


def test_a_request_that_closes_gives_up_its_open_calls(ledger: DatabaseLedger) -> None:
    """They were written just before they went out, so the provider may charge them; a later word counts."""
    opened(ledger, "cs-1")
    ledger.open_call(CallRow("cs-1.2", "cs-1", "draft", "draft", False, time.time()))
    ledger.close_request("cs-1", Info("direct", "cs-1").to_dict())
    assert [row["status"] for row in rows(ledger, "calls")] == ["possibly_billed", "cancelled"]
    ledger.close_call(Call("cs-1.1", "ok", USAGE, "0.002"))
    assert [(row["status"], row["cost_nano"]) for row in rows(ledger, "calls")] == [
        ("ok", 2_000_000),
        ("cancelled", None),
    ]


def test_a_row_that_comes_twice_is_kept_once(ledger: DatabaseLedger) -> None:
    """Repeating an insert whose answer was lost does no harm, and takes nothing with it."""
    opened(ledger, "cs-1")
    opened(ledger, "cs-1")
    closed(ledger, "cs-1")
    assert len(rows(ledger, "requests")) == len(rows(ledger, "calls")) == 1
    assert ledger.lost == 0


def test_an_unusable_row_is_dropped_alone(ledger: DatabaseLedger, caplog: pytest.LogCaptureFixture) -> None:
    """Of a batch with a row that the database cannot take, the others are written; one warning is enough."""
    ledger.open_request(RequestRow("cs-bad", time.time(), None, "chat", False))  # type: ignore[arg-type]
    opened(ledger, "cs-1")
    ledger.open_request(RequestRow("cs-bad", time.time(), None, "chat", False))  # type: ignore[arg-type]
    assert ledger.flush()
    assert [row["request_id"] for row in rows(ledger, "requests")] == ["cs-1"]
    assert ledger.lost == 2
    assert len([record for record in caplog.records if "rejects a row" in record.message]) == 1


def test_traces_are_kept_and_text_only_on_request(url: str) -> None:
    """Prompts and replies stay out of a ledger that was not told ``store_text``."""
    trace = Trace("cs-1", 1, "ollama:m", 0, (-0.5, None, float("-inf")), (True, True, False))
    for store_text, told in ((False, (None, None)), (True, ("p", "r"))):
        ledger = DatabaseLedger(url, store_text=store_text)
        opened(ledger, "cs-1")
        ledger.add_trace(trace)
        ledger.add_text("cs-1", "p", "r")
        (row,) = rows(ledger, "requests")
        assert (row["prompt_text"], row["reply_text"]) == told
        (kept,) = rows(ledger, "traces")
        assert (kept["logprobs"], kept["agreed"]) == ("[-0.5, null, null]", "110")
        ledger.close()


def test_what_a_dead_process_left_open_is_settled_at_its_worst_case(url: str) -> None:
    """When the lease is over: billed calls cost their worst case, others nothing, the request is closed."""
    program = """
import os, sys, time
from cheapspec.core.ports import CallRow, RequestRow
from cheapspec.ledger.database import DatabaseLedger
ledger = DatabaseLedger(sys.argv[1], lease_seconds=0.5)
ledger.open_request(RequestRow("cs-1", time.time(), "m", "chat", False))
for n, (side, billed, worst) in enumerate([("target", True, "0.07"), ("draft", False, None), ("target", True, None)]):
    ticket = ledger.open_call(CallRow(f"cs-1.{n}", "cs-1", side, "score", billed, time.time(), worst))
    assert ticket is None or ticket.wait(20)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, url], check=True)
    alive = DatabaseLedger(url)
    deadline = time.monotonic() + 20
    while any(row["status"] == "open" for row in rows(alive, "calls")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    told = [(row["status"], row["cost_nano"]) for row in rows(alive, "calls")]
    assert told == [("expired", 70_000_000), ("cancelled", None), ("expired", None)]
    (record,) = alive.requests()
    assert record.info is None
    assert rows(alive, "requests")[0]["closed_at"] is not None
    alive.close()


def test_a_live_owner_renews_its_leases(url: str) -> None:
    """A call that takes longer than a lease stays open as long as its process lives."""
    slow = DatabaseLedger(url, lease_seconds=2.0)
    opened(slow, "cs-1")
    first = rows(slow, "calls")[0]["lease_expires"]
    deadline = time.monotonic() + 20
    while rows(slow, "calls")[0]["lease_expires"] == first:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert rows(slow, "calls")[0]["status"] == "open"
    slow.close()


def test_a_store_that_is_away_costs_nobody_a_reply(
    away: tuple[DatabaseLedger, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, no waiting; when it is back, what was kept is written, and what fell out is counted."""
    ledger, blocked = away
    caplog.set_level(logging.INFO, logger="cheapspec")
    for number in range(6):
        opened(ledger, f"cs-{number}")
    assert not ledger.flush()
    assert not ledger.available
    assert reserved(ledger, "cs-9", cap_of("5"), "0.1").why == "unavailable"
    with pytest.raises(LedgerError, match="cannot be read"):
        list(ledger.requests())
    blocked.unlink()
    deadline = time.monotonic() + 30
    while not ledger.available:
        ledger.flush()
        assert time.monotonic() < deadline
    assert len(rows(ledger, "calls")) + len(rows(ledger, "requests")) == 10
    assert ledger.lost == 2
    told = [record.message for record in caplog.records if "ledger" in record.message]
    assert ["unavailable" in message for message in told] == [True, False]
    assert "is back: 2 rows were lost" in told[1]


def test_a_server_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report does not go through the time-out again for its own connection, nor closing for nothing to write."""
    pytest.importorskip("psycopg")
    tried: list[Store] = []

    def away(self: Store) -> None:
        tried.append(self)
        raise OSError("no route to host")

    monkeypatch.setattr(Store, "connect", away)
    monkeypatch.setattr("cheapspec.ledger.writer._BACKOFF", (60.0, 60.0))
    ledger = DatabaseLedger("postgresql://nowhere.invalid/books")
    with pytest.raises(LedgerError, match=r"cannot be read: no route to host"):
        list(ledger.requests())
    ledger.close()
    assert len(tried) <= 2  # the thread tries a quick failure twice, in case its connection was stale
    assert ledger.lost == 0


def test_sqlite_runs_in_wal_mode_with_normal_synchronous_and_waits_for_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the writer's connection and on a report's; the mode is the file's, so that whoever opens it has it."""
    found: list[tuple[object, ...]] = []
    begin = Store.begin

    def looking(self: Store, cursor: Any) -> None:
        found.append(tuple(cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS))
        begin(self, cursor)

    monkeypatch.setattr(Store, "begin", looking)
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    opened(ledger, "cs-1")
    with ledger.read() as connection:
        found.append(tuple(connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS))
    assert len(found) > 1
    assert set(found) == {("wal", 1, 5000)}
    ledger.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_report_that_reads_holds_up_no_writer(tmp_path: Path) -> None:
    """A call's row is committed while a reader is in the middle of its view of the tables, which stays as it was."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    opened(ledger, "cs-1")
    with ledger.read() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM calls").scalar()
        opened(ledger, "cs-2")
        assert ledger.flush(20)
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as other:
            assert other.execute("SELECT count(*) FROM calls").fetchone() == (2,)
        assert (before, connection.exec_driver_sql("SELECT count(*) FROM calls").scalar()) == (1, 1)
    assert (ledger.available, ledger.lost) == (True, 0)
    ledger.close()


def test_another_writer_that_holds_the_lock_is_waited_for(tmp_path: Path) -> None:
    """SQLite's default would fail at once."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    assert ledger.flush()
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    released = threading.Timer(0.5, other.rollback)
    released.start()
    opened(ledger, "cs-1")
    released.join()
    other.close()
    assert [row["status"] for row in rows(ledger, "calls")] == ["open"]
    assert ledger.lost == 0
    ledger.close()


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its rows wait in memory, with a warning that says to upgrade; reading it is an error."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    connection = Store(url).connect()
    connection.execute("INSERT INTO schema_version VALUES (999, 0)")
    connection.close()
    ledger = DatabaseLedger(url)
    opened(ledger, "cs-1")
    with pytest.raises(LedgerError, match="upgrade cheapspec"):
        list(ledger.requests())
    assert "upgrade cheapspec" in caplog.text
    ledger.close(1.0)


def test_the_folder_of_the_default_file_is_the_owners_alone(tmp_path: Path) -> None:
    """Made when the ledger is first used, not when it is constructed."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/new/ledger.db")
    assert not (tmp_path / "new").exists()
    assert ledger.flush()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    ledger.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("nonsense", "is no ledger"),
        ("mysql://u:geheim@h/d", r"mysql://\*\*\*@h/d"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_an_unusable_url_is_an_error_that_shows_no_password(given: str, told: str) -> None:
    """It names what to write, when the ledger is made, and survives pickling."""
    with pytest.raises(LedgerError, match=told) as found:
        DatabaseLedger(given)
    assert "geheim" not in str(found.value)
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


def test_clients_of_a_process_share_a_ledger(tmp_path: Path) -> None:
    """One thread and one connection a URL."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    assert open_ledger(url) is open_ledger(url)
    assert open_ledger(url, store_text=True) is not open_ledger(url)
    assert repr(open_ledger(url)) == f"DatabaseLedger('{url}')"


def test_what_is_queued_at_the_end_of_a_process_is_written(url: str) -> None:
    """Nobody has to close a ledger."""
    program = """
import sys, time
from cheapspec.core.ports import RequestRow
from cheapspec.ledger.database import DatabaseLedger
ledger = DatabaseLedger(sys.argv[1])
for n in range(500):
    ledger.open_request(RequestRow(f"cs-{n}", time.time(), "m", "chat", False))
"""
    subprocess.run([sys.executable, "-c", program, url], check=True)
    ledger = DatabaseLedger(url)
    assert len(rows(ledger, "requests")) == 500
    ledger.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_writes_rows_of_its_own(ledger: DatabaseLedger) -> None:
    """With its own thread, connection and name; the parent's open rows and connection stay as they are."""
    opened(ledger, "cs-parent")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            opened(ledger, "cs-child")
            closed(ledger, "cs-child")
            status = 0 if ledger.flush() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    closed(ledger, "cs-parent")
    told = {row["request_id"]: row for row in rows(ledger, "requests")}
    assert {row["decision"] for row in told.values()} == {"direct"}
    assert told["cs-child"]["owner"] != told["cs-parent"]["owner"]
    assert ledger.lost == 0
