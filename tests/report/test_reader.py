"""Reading the ledger in memory."""

from __future__ import annotations

import pytest

from cheapspec.core.ports import RequestRow
from cheapspec.core.records import LedgerReader
from cheapspec.ledger import MemoryLedger
from cheapspec.ledger.null import NullLedger


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "abcd"),
        ({"since": 200.0}, "bcd"),
        ({"until": 300.0}, "ab"),
        ({"since": 200.0, "until": 201.0}, "b"),
        ({"session": "nightly"}, "bd"),
        ({"session": "nightly", "since": 300.0}, "d"),
        ({"session": "unheard of"}, ""),
    ],
)
def test_a_reader_finds_requests_by_time_and_session(asked: dict[str, float | str], found: str) -> None:
    """``since`` is included, ``until`` is not, a session is its requests."""
    ledger = MemoryLedger()
    for name, at, session in (("a", 100.0, None), ("b", 200.0, "nightly"), ("c", 300.0, "x"), ("d", 400.0, "nightly")):
        ledger.open_request(RequestRow(name, at, "m", "chat", stream=False, session=session))
    reader: LedgerReader = ledger
    assert "".join(record.row.request_id for record in reader.requests(**asked)) == found  # type: ignore[arg-type]


def test_which_ledgers_can_be_read() -> None:
    """The one in memory can, the one that is switched off cannot."""
    assert isinstance(MemoryLedger(), LedgerReader)
    assert not isinstance(NullLedger(), LedgerReader)


def test_it_says_how_much_it_forgot() -> None:
    """Requests that fell out of the list are counted, since no report shows them."""
    ledger = MemoryLedger(capacity=2)
    for name in "abcde":
        ledger.open_request(RequestRow(name, 0.0, "m", "chat", stream=False))
    assert (ledger.forgotten, len(ledger.requests())) == (3, 2)
