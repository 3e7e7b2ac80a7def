"""Traces come back from every ledger as they were given, bounded where they are kept in memory, and never with text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ledgerkit import closed, opened, rows

from cheapspec.core.books import Trace, TraceBook
from cheapspec.core.records import TraceReader
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.schema import traces

Book = BudgetedMemoryLedger | DatabaseLedger


def some(request_id: str, number: int = 1, bits: Sequence[bool] = (True, True, False)) -> Trace:
    logprobs = (-0.25, None, -3.5)[: len(bits)]
    return Trace(request_id, number, "ollama:d", 4 * number, logprobs, tuple(bits), ended=False, model="t-1")


def test_rounds_are_read_with_their_request(book: Book) -> None:
    """In order, oldest request first; a request without rounds is there too, for it may be replayed as well."""
    assert isinstance(book, TraceBook) and isinstance(book, TraceReader)
    for name in ("r-1", "r-2"):
        opened(book, name, session="s" if name == "r-1" else None)
    given = [some("r-1", 1), some("r-1", 2, (True,))]
    for trace in given:
        book.add_trace(trace)
    for name in ("r-1", "r-2"):
        closed(book, name)
    read = list(book.traced())
    assert [(record.row.request_id, len(rounds)) for record, rounds in read] == [("r-1", 2), ("r-2", 0)]
    assert list(read[0][1]) == given
    assert [record.row.request_id for record, _ in book.traced(session="s")] == ["r-1"]
    assert list(book.traced(until=0.0)) == []


def test_many_requests_are_read_page_by_page(ledger: DatabaseLedger) -> None:
    """More than a page: none is lost or doubled."""
    for number in range(520):
        opened(ledger, f"r-{number:04}", billed=False)
        ledger.add_trace(some(f"r-{number:04}"))
    read = list(ledger.traced())
    assert len({record.row.request_id for record, _ in read}) == 520
    assert all(len(rounds) == 1 for _, rounds in read)


def test_a_spoilt_row_is_unknown_not_a_crash(ledger: DatabaseLedger) -> None:
    """What another program wrote into the table does not keep the rest from being read."""
    opened(ledger, "r-1")
    ledger.add_trace(some("r-1", 1))
    ledger.add_trace(some("r-1", 2))
    assert ledger.flush()
    with ledger.read() as connection:
        connection.execute(traces.update().where(traces.c.round == 1).values(logprobs="oops"))
        connection.execute(traces.update().where(traces.c.round == 2).values(logprobs='["x", -1]'))
        connection.commit()
    (_, read), *_ = ledger.traced()
    assert [trace.logprobs for trace in read] == [(None, None, None), (None, -1.0, None)]


def test_memory_keeps_so_many_positions_and_no_more() -> None:
    """The oldest rounds go first, whatever request they belong to; the requests stay."""
    ledger = MemoryLedger(trace_tokens=7)
    for name in ("r-1", "r-2"):
        opened(ledger, name)
    for number in (1, 2):
        ledger.add_trace(some("r-1", number))
    ledger.add_trace(some("r-2"))
    read = {record.row.request_id: rounds for record, rounds in ledger.traced()}
    assert [trace.round for trace in read["r-1"]] == [2] and len(read["r-2"]) == 1
    for number in range(3, 9):
        ledger.add_trace(some("r-2", number))
    assert [len(rounds) for _, rounds in ledger.traced()] == [0, 2]


def test_memory_forgets_a_requests_traces_with_it() -> None:
    """Nor does a trace of a request that is not kept any more do harm."""
    ledger = MemoryLedger(capacity=1, trace_tokens=5)
    for name in ("r-1", "r-2"):
        opened(ledger, name)
        ledger.add_trace(some(name))
    ledger.add_trace(some("r-1"))
    assert [(record.row.request_id, len(rounds)) for record, rounds in ledger.traced()] == [("r-2", 1)]
    assert ledger.totals().lost == 1


def test_no_text_is_kept_with_a_trace(ledger: DatabaseLedger) -> None:
    """Numbers, names and bits: that is all a row of the table holds."""
    opened(ledger, "r-1")
    ledger.add_trace(some("r-1"))
    (row,) = rows(ledger, "traces")
    assert json.loads(row["logprobs"]) == [-0.25, None, -3.5] and row["agreed"] == "110"
    assert set(row) == {"request_id", "round", "drafter", "position", "logprobs", "agreed", "ended", "model"}


def test_memory_keeps_no_text() -> None:
    """It is asked to, and does nothing."""
    ledger = MemoryLedger()
    opened(ledger, "r-1")
    ledger.add_text("r-1", "prompt", "reply")
    assert "prompt" not in repr(list(ledger.traced()))
