"""What a probe found is kept: the next process has it, an expired or revoked row counts for nothing."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cheapspec.core.books import Capability, CapabilityBook
from cheapspec.errors import LedgerError
from cheapspec.ledger.capabilities import PATIENCE, CapabilityCache
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


class Slow:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.released, self.asked = threading.Event(), threading.Event()

    @contextmanager
    def read(self) -> Generator[Any]:
        self.asked.set()
        self.released.wait(30)
        raise LedgerError("away")
        yield


def test_an_event_loop_never_waits_for_the_store() -> None:
    """A store that hangs costs a coroutine nothing, not even a moment; until it has answered that is said."""
    store = Slow()
    cache = CapabilityCache(store.read)  # type: ignore[arg-type]
    waited: list[float | None] = []
    cache._read_all.wait = lambda timeout=None: waited.append(timeout) or False  # type: ignore[method-assign]

    async def ask() -> None:
        assert cache.get(URL, MODEL, "auto", time.time()) is None
        assert not cache.begin()

    asyncio.run(ask())
    assert waited == [] and store.asked.wait(20)
    cache.get(URL, MODEL, "auto", time.time())
    cache.get(URL, MODEL, "auto", time.time())
    assert waited == [PATIENCE], "a thread waits a moment, once"
    store.released.set()
    deadline = time.monotonic() + 20
    while not cache.begin() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cache.begin()


def test_a_store_that_never_answers_counts_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no endpoint would ever be probed."""
    store = Slow()
    cache = CapabilityCache(store.read)  # type: ignore[arg-type]
    assert not cache.begin()
    monkeypatch.setattr("cheapspec.ledger.capabilities.GIVEN_UP", -1.0)
    assert cache.begin()
    store.released.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reads_for_itself(tmp_path: Path) -> None:
    """The parent's thread was reading, another held the lock: the child has its own of both."""
    now, url = time.time(), f"sqlite:///{tmp_path / 'ledger.db'}"
    first = DatabaseLedger(url)
    first.put_capability(found(now))
    assert first.flush()
    first.close()
    ledger = DatabaseLedger(url)
    cache = ledger._capabilities
    cache._begun, cache._patient = time.monotonic(), False  # a reader that the child will not have
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with cache._lock:
            held.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(15, exit=True)
        deadline = time.monotonic() + 10
        told = None
        while told is None and time.monotonic() < deadline:
            told = ledger.capability(URL, MODEL, "auto", now)
            time.sleep(0.01)
        os._exit(0 if told == found(now) else 2)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.close()
