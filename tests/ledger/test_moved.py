"""A ledger's file that is deleted, moved or replaced while in use: noticed, said once, and gone on without loss."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledgerkit import cap_of, closed, opened, reserved, rows

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.store import Store


def delete(path: Path) -> None:
    """With its log and index, as a user cleans up."""
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def delete_file_alone(path: Path) -> None:
    path.unlink()


def delete_log_alone(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    """By the ledger of another process."""
    other = path.with_name("other.db")
    made = DatabaseLedger(f"sqlite:///{other}")
    opened(made, "cs-other")
    closed(made, "cs-other")
    made.close()
    delete(path)
    other.rename(path)


WAYS = [delete, delete_file_alone, delete_log_alone, rename, delete_folder, replace]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[DatabaseLedger]:
    made = DatabaseLedger(f"sqlite:///{path}")
    yield made
    made.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("way", WAYS)
def test_later_rows_go_to_the_file_that_is_there(
    ledger: DatabaseLedger, path: Path, way: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """None is lost, one warning names the file and says that budgets begin again, and the ledger stays usable."""
    opened(ledger, "cs-before")
    closed(ledger, "cs-before")
    assert ledger.flush()
    way(path)
    for name in ("cs-1", "cs-2", "cs-3"):
        opened(ledger, name)
        closed(ledger, name)
    assert ledger.flush()
    assert {"cs-1", "cs-2", "cs-3"} <= {record.row.request_id for record in ledger.requests()}
    found = {row["request_id"]: (row["status"], row["cost_nano"]) for row in rows(ledger, "calls")}
    assert [found[name] for name in ("cs-1", "cs-2", "cs-3")] == [("ok", 1_000_000)] * 3
    assert ("cs-other" in found) is (way is replace)
    assert (ledger.available, ledger.lost) == (True, 0)
    (told,) = warnings(caplog)
    assert str(path) in told
    assert "deleted, moved or replaced" in told
    assert "budgets" in told


@pytest.mark.parametrize("way", [delete, rename])
def test_what_is_under_way_is_closed_in_the_new_file(
    ledger: DatabaseLedger, path: Path, way: Callable[[Path], None]
) -> None:
    """A paid call whose row was opened in the old file has a row, and its cost, in the new one."""
    opened(ledger, "cs-1")
    way(path)
    closed(ledger, "cs-1", "0.002")
    (call,) = rows(ledger, "calls")
    assert (call["status"], call["cost_nano"]) == ("ok", 2_000_000)
    (request,) = rows(ledger, "requests")
    assert request["decision"] == "direct"


def test_a_commit_into_a_file_that_has_just_gone_is_not_believed(
    ledger: DatabaseLedger, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted in the middle of a transaction, it is written again before anybody is told that it is written."""
    assert ledger.flush()
    begin, pending = Store.begin, [path]

    def vanishing(self: Store, cursor: Any) -> None:
        begin(self, cursor)
        if pending:
            delete(pending.pop())

    monkeypatch.setattr(Store, "begin", vanishing)
    granted = reserved(ledger, "cs-1", cap_of("1"), "0.6")
    opened(ledger, "cs-1")
    assert granted.choice == 0
    assert reserved(ledger, "cs-2", cap_of("1"), "0.6").why == "exceeded"
    assert [row["status"] for row in rows(ledger, "calls")] == ["open"]
    assert len(warnings(caplog)) == 1


def test_other_processes_that_come_and_go_are_no_move(
    ledger: DatabaseLedger, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers, writers, a vacuum and a truncated log leave the file the same."""
    opened(ledger, "cs-1")
    other = DatabaseLedger(f"sqlite:///{path}")
    opened(other, "cs-2")
    closed(other, "cs-2")
    other.close()
    connection = Store(f"sqlite:///{path}").connect()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.close()
    closed(ledger, "cs-1")
    assert [row["status"] for row in rows(ledger, "calls")] == ["ok", "ok"]
    ledger.close()
    opened(ledger, "cs-3")
    assert len(rows(ledger, "calls")) == 3
    assert warnings(caplog) == []
