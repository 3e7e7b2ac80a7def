"""Acceptance estimates in a ledger: added up by whoever observes, read without waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import select

from cheapspec.core.books import EstimateBook
from cheapspec.core.estimate import KEPT, Count, Delta, EstimateTable, Row
from cheapspec.errors import LedgerError
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.estimates import EstimateCache
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.schema import estimates

KEY: tuple[str, str] = ("ollama:small", "0.9")
ONE: Delta = {KEY: Count(10, 9, 9.7)}
TWO: Delta = {KEY: Count(4, 1, 3.9), ("lookup", "static"): Count(2, 2, 1.8)}


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


@pytest.mark.parametrize("make", [MemoryLedger, EstimateTable])
def test_in_memory_what_was_observed_is_known_at_once(make: Callable[[], EstimateBook]) -> None:
    """By workload, and of all of the target's workloads together; other targets know nothing of it."""
    book = make()
    assert isinstance(book, EstimateBook)
    book.add_estimates("m@u", "one", ONE)
    book.add_estimates("m@u", "two", TWO)
    assert book.estimates("m@u", "one") == ONE
    assert book.estimates("m@u")[KEY].trials == pytest.approx(14, rel=0.01)
    assert book.estimates("other@u", "one") == {} == book.estimates("m@u", "three")


def test_a_table_is_bounded() -> None:
    """The workload that was used last goes last."""
    table = EstimateTable(most=4)
    for number in range(20):
        table.add_estimates("m@u", f"w{number}", ONE)
    assert table.estimates("m@u", "w19") == ONE and table.estimates("m@u", "w1") == {}


def test_rows_are_added_to_and_what_was_there_fades(ledger: DatabaseLedger) -> None:
    """One row a bucket, whoever writes: old · KEPT^new + new, as in memory."""
    ledger.add_estimates("m@u", "one", ONE)
    ledger.add_estimates("m@u", "one", TWO)
    with ledger.read() as connection:
        rows = connection.execute(select(estimates).order_by(estimates.c.drafter)).all()
    assert [(row.target, row.workload, row.drafter, row.bucket) for row in rows] == [
        ("m@u", "one", "lookup", "static"),
        ("m@u", "one", *KEY),
    ]
    assert rows[1].trials == pytest.approx(10 * KEPT**4 + 4)
    assert rows[1].hits == pytest.approx(9 * KEPT**4 + 1)
    assert rows[1].predicted == pytest.approx(9.7 * KEPT**4 + 3.9)


def test_two_processes_learn_from_each_other(url: str) -> None:
    """A second ledger on the same URL starts with what the first one observed, and adds to it."""
    first, second = DatabaseLedger(url), DatabaseLedger(url)
    first.add_estimates("m@u", "one", ONE)
    assert first.estimates("m@u", "one")[KEY].trials >= 10 * KEPT**10
    first.flush()
    second.estimates("m@u", "one")
    until(lambda: KEY in second.estimates("m@u", "one"))
    second.add_estimates("m@u", "one", TWO)
    assert second.estimates("m@u", "one")[KEY].trials == pytest.approx(14, rel=0.01)
    with first.read() as connection:
        second.flush()
        assert connection.execute(select(estimates.c.trials).where(estimates.c.drafter == KEY[0])).scalar_one()
    first.close()
    second.close()


def test_many_writers_lose_nothing(url: str) -> None:
    """Threads and two ledgers add one observation each, a few hundred times: the row has all of them."""
    ledgers = [DatabaseLedger(url), DatabaseLedger(url)]
    one: Delta = {KEY: Count(1, 1, 1)}

    def write(ledger: DatabaseLedger) -> None:
        for _ in range(50):
            ledger.add_estimates("m@u", "one", one)

    threads = [threading.Thread(target=write, args=(ledgers[number % 2],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledgers[1].flush()
    with ledgers[0].read() as connection:
        trials = connection.execute(select(estimates.c.trials)).scalar_one()
    assert trials == pytest.approx((1 - KEPT**200) / (1 - KEPT))
    for ledger in ledgers:
        ledger.close()


def test_a_store_that_hangs_is_not_waited_for() -> None:
    """No question waits; what is observed here is known meanwhile."""
    released = threading.Event()

    def read() -> list[Row]:
        released.wait(30)
        return [("m@u", "one", *KEY, Count(100, 50, 97))]

    cache = EstimateCache(read)
    assert cache.estimates("m@u", "one") == {}
    cache.observed("m@u", "one", ONE)
    assert cache.estimates("m@u", "one") == ONE
    released.set()
    until(lambda: cache.estimates("m@u", "one")[KEY].trials > 100)
    assert cache.estimates("m@u", "one")[KEY].hits == pytest.approx(59, rel=0.01)


def test_a_store_that_cannot_be_read_leaves_the_snapshot_as_it_is() -> None:
    """And it is asked again only when the next refresh is due."""
    asked: list[int] = []

    def read() -> list[Row]:
        asked.append(1)
        raise LedgerError("away")

    cache = EstimateCache(read)
    cache.observed("m@u", "one", ONE)
    assert cache.estimates("m@u", "one") == ONE
    until(lambda: bool(asked))
    assert cache.estimates("m@u", "one") == ONE and asked == [1]


def test_a_refresh_comes_when_it_is_due() -> None:
    """What others have observed since is seen after the stated seconds, without a question having to wait."""
    rows: list[Row] = []
    cache = EstimateCache(lambda: list(rows), refresh_seconds=0.0)
    cache.estimates("m@u", "one")
    rows.append(("m@u", "one", *KEY, Count(100, 50, 97)))
    until(lambda: KEY in cache.estimates("m@u", "one"))


def test_a_snapshot_reads_the_newest_rows_only(ledger: DatabaseLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many workloads a store has seen; a report still counts all of them."""
    monkeypatch.setattr("cheapspec.ledger.database.MOST_ROWS", 3)
    for number in range(5):
        ledger.add_estimates("m@u", f"w{number}", {KEY: Count(1, 1, 1)})
        ledger.flush()
    assert [row[1] for row in ledger.estimate_rows()] == [f"w{number}" for number in range(5)]
    other = EstimateCache(ledger._newest_estimates)
    until(lambda: other.estimates("m@u", "w4") != {})
    assert other.estimates("m@u", "w2") != {} == other.estimates("m@u", "w1")


def test_what_nobody_added_to_for_long_is_deleted(ledger: DatabaseLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """When leases are looked through: a workload of last year does not stay for ever."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 100 * 86400)
    ledger.add_estimates("m@u", "old", ONE)
    monkeypatch.setattr(time, "time", real)
    ledger.add_estimates("m@u", "new", ONE)
    assert ledger.flush()
    assert [row[1] for row in ledger.estimate_rows()] == ["new"]
