"""The default ledger: a file in the user's home, and memory with one warning where that cannot be."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from counting_server import Handler
from ledgerkit import opened

from cheapspec import Budget, OpenAI, SettingsError, Speculation
from cheapspec.core.ports import RequestRow
from cheapspec.ledger import opening
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.ledger.opening import default_ledger, open_ledger
from cheapspec.ledger.store import Store

ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Well?"}],
    "temperature": 0,
    "max_tokens": 5,
}
PRICES = {"input": "1", "output": "10"}


@pytest.fixture
def home(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which no setting says where the ledger is."""
    monkeypatch.delenv("CHEAPSPEC_LEDGER")
    yield clean_environment
    for ledger in opening._ledgers.values():
        ledger.close()


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


def client(server: str, **settings: Any) -> OpenAI:
    return OpenAI(base_url=server, api_key="none", speculation=Speculation(prices=PRICES, **settings))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "ledger" in record.getMessage()]


def test_without_a_setting_the_books_are_in_a_file_in_the_users_home(home: Path, server: str) -> None:
    """What two clients of this process asked, another process reads there; the folder is the owner's alone."""
    with client(server) as one, client(server) as two:
        one.chat.completions.create(**ASKED)
        two.chat.completions.create(**ASKED)
        assert one.report().sums.requests == two.report().sums.requests == 2
    command = [sys.executable, "-c", "from cheapspec.cli import app; app()", "report", "--csv"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(told.stdout.splitlines()) == 3
    folder = home / ".cheapspec"
    assert (folder / "ledger.db").is_file()
    assert folder.stat().st_mode & 0o077 == 0


def test_two_clients_share_the_one_default_ledger(home: Path) -> None:
    """One thread, one connection, one cap a budget's name."""
    shared = default_ledger()
    assert isinstance(shared, DatabaseLedger)
    assert default_ledger() is shared
    assert open_ledger() is open_ledger(f"sqlite:///{home}/.cheapspec/ledger.db") is shared


@pytest.mark.parametrize("how", ["keyword", "environment"])
def test_off_switches_it_off(home: Path, server: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is written, and no file made."""
    if how == "environment":
        monkeypatch.setenv("CHEAPSPEC_LEDGER", "off")
    with client(server, **{"ledger": "off"} if how == "keyword" else {}) as asked:
        asked.chat.completions.create(**ASKED)
        assert isinstance(asked._cheapspec.ledger, NullLedger)
        with pytest.raises(SettingsError, match="a budget needs a ledger"):
            asked.session("s", Budget(1))
    assert not (home / ".cheapspec").exists()


def test_memory_keeps_books_and_budgets_without_a_file(home: Path, server: str) -> None:
    """Each client its own, for as long as it lives."""
    with client(server, ledger="memory") as one, client(server, ledger="memory") as two:
        with one.session("s", Budget("0.01")):
            one.chat.completions.create(**ASKED)
        assert (one.report().sums.requests, two.report().sums.requests) == (1, 0)
    assert not (home / ".cheapspec").exists()


def in_the_way(home: Path) -> None:
    (home / ".cheapspec").write_text("")


def no_database(home: Path) -> None:
    (home / ".cheapspec").mkdir()
    (home / ".cheapspec" / "ledger.db").write_text("This is not a database. " * 100)


def newer(home: Path) -> None:
    raw = Store(f"sqlite:///{home}/.cheapspec/ledger.db").connect()
    raw.execute("INSERT INTO schema_version VALUES (999, 0.0)")
    raw.close()


def not_writable(home: Path) -> None:
    """Nobody may write to it, the superuser neither: the file itself says so."""
    (home / ".cheapspec").mkdir()
    (home / ".cheapspec" / "ledger.db").mkdir()


@pytest.mark.parametrize("spoil", [in_the_way, no_database, newer, not_writable])
def test_a_file_that_is_of_no_use_costs_one_warning_and_no_reply(
    home: Path, server: str, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The books of all clients are kept in memory then, budgets too."""
    spoil(home)
    with caplog.at_level(logging.WARNING, "cheapspec"), client(server) as one, client(server) as two:
        for each in (one, two):
            with each.session("s", Budget("0.1")):
                each.chat.completions.create(**ASKED)
        assert one.report().sums.requests == two.report().sums.requests == 2
    (said,) = warnings(caplog)
    assert "kept in memory" in said
    assert str(home) in said or "version 999" in said


def test_a_user_without_a_home_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare container: its user is in no list of users."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(Path, "expanduser", _homeless)
    assert isinstance(default_ledger(), BudgetedMemoryLedger)
    assert default_ledger() is default_ledger()
    opening._fallbacks.clear()


def _homeless(path: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_file_that_another_process_has_locked_is_waited_for(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the ledger's thread, not by who makes a client; nothing is lost."""
    path = home / ".cheapspec" / "ledger.db"
    Store(f"sqlite:///{path}").connect().close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "cheapspec"):
        ledger = default_ledger()
        ledger.open_request(RequestRow("cs-1", time.time(), "m", "chat", False))
    assert time.monotonic() - started < 60
    holder.execute("COMMIT")
    holder.close()
    assert isinstance(ledger, DatabaseLedger)
    assert [record.row.request_id for record in ledger.requests()] == ["cs-1"]
    assert warnings(caplog) == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on_in_the_same_file(home: Path) -> None:
    """It finds the default ledger open, and writes rows of its own."""
    ledger = default_ledger()
    opened(ledger, "cs-parent")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            again = default_ledger()
            opened(again, "cs-child")
            status = 0 if isinstance(again, DatabaseLedger) and again.flush() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {record.row.request_id for record in ledger.requests()} == {"cs-parent", "cs-child"}


def test_importing_the_package_imports_no_database(home: Path) -> None:
    """SQLAlchemy comes with the first client, not with the module; and no file is made by an import."""
    program = "import sys, cheapspec; print([m for m in sys.modules if m.split('.')[0] in ('sqlalchemy', 'sqlite3')])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    assert not (home / ".cheapspec").exists()
