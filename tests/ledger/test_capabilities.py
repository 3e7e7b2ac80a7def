"""What a probe found is kept: the next process has it, an expired or revoked row counts for nothing."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import select

from cheapspec.core.books import Capability, CapabilityBook
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import capabilities

URL, MODEL = "http://host/v1", "m"
FACTS = {"backend": "vllm", "can_score": True, "can_force": False, "qs": 1.0, "eos_ids": [2], "evidence": ["it scores"]}


def found(now: float, seconds: float = 60.0, **more: object) -> Capability:
    return Capability(URL, MODEL, "auto", {**FACTS, **more}, now, now + seconds)


def test_another_process_finds_it_in_the_ledger(tmp_path: Path) -> None:
    """Written by one ledger object, read by another on the same file; columns and facts agree."""
    now = time.time()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    first = DatabaseLedger(url)
    assert isinstance(first, CapabilityBook)
    assert first.capability(URL, MODEL, "auto", now) is None
    first.put_capability(found(now))
    assert first.flush()
    with first.read() as connection:
        [row] = connection.execute(select(capabilities)).all()
    assert (row.can_score, row.can_force, row.can_judge, row.qs, row.qh) == (True, False, False, 1.0, None)
    first.close()
    second = DatabaseLedger(url)
    deadline = time.monotonic() + 10
    told = second.capability(URL, MODEL, "auto", now)
    while told is None and time.monotonic() < deadline:  # its thread may still be reading
        time.sleep(0.01)
        told = second.capability(URL, MODEL, "auto", now)
    assert told == found(now)
    assert second.capability(URL, MODEL, "vllm", now) is None, "another backend was asked for"
    assert second.capability(URL, "other", "auto", now) is None
    second.close()


def test_an_expired_row_counts_for_nothing(tmp_path: Path) -> None:
    """Its time is over, or a contradiction wrote it again as expired: one row an endpoint, and nobody reads it."""
    now = time.time()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    first = DatabaseLedger(url)
    first.put_capability(found(now))
    assert first.capability(URL, MODEL, "auto", now + 61) is None
    first.put_capability(found(now, -1.0))
    assert first.capability(URL, MODEL, "auto", now) is None
    assert first.flush()
    with first.read() as connection:
        assert len(connection.execute(select(capabilities)).all()) == 1
    first.close()
    second = DatabaseLedger(url)
    second.capability(URL, MODEL, "auto", now)
    time.sleep(0.2)
    assert second.capability(URL, MODEL, "auto", now) is None
    second.close()
