"""Estimates are shared by threads and by what they fork."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from cheapspec.core.effects import Note
from cheapspec.core.estimate import Count, Delta, EstimateTable, Row
from cheapspec.drive.learning import Learning
from cheapspec.ledger.estimates import EstimateCache
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.null import NullLedger

KEY: tuple[str, str] = ("ollama:small", "0.9")
ONE: Delta = {KEY: Count(1, 1, 1)}


class Cached:
    """A cache over an empty store, as a book."""

    def __init__(self) -> None:
        self._cache = EstimateCache(list[Row])
        self.estimates = self._cache.estimates
        self.add_estimates = self._cache.observed


class Learned:
    """What a client learns under a ledger that keeps nothing, as a book."""

    def __init__(self) -> None:
        self._learning = Learning(NullLedger())

    def estimates(self, target: str, workload: str | None = None) -> object:
        told = self._learning.estimates(target, workload or "")
        return told.background if workload is None else told.counts

    def add_estimates(self, target: str, workload: str, delta: Delta) -> None:
        self._learning.observe(target, workload, Note("estimates", {"delta": delta}))


@pytest.fixture
def switch_often() -> Iterator[Callable[[], None]]:
    """From when it is called on, threads take turns as often as they can. Not while they start: measuring coverage
    sets a trace function in each, and two that are set at once are an error of the interpreter.
    """
    before = sys.getswitchinterval()
    yield lambda: sys.setswitchinterval(1e-6)
    sys.setswitchinterval(before)


@pytest.mark.parametrize("make", [MemoryLedger, Cached, Learned])
def test_threads_beyond_the_bound_raise_nothing_and_lose_nothing(
    make: Callable[[], MemoryLedger], monkeypatch: pytest.MonkeyPatch, switch_often: Callable[[], None]
) -> None:
    """Four threads count under more workloads than are kept, ask and list: every observation is in the background."""
    small = EstimateTable.__init__
    monkeypatch.setattr(EstimateTable, "__init__", lambda self, rows=(), most=20: small(self, rows, most))
    book, wrong = make(), list[BaseException]()
    book.estimates("m@u")  # a first refresh is over, or under way

    everyone = threading.Barrier(4, action=switch_often)

    def count(first: int) -> None:
        try:
            everyone.wait()
            for number in range(400):
                book.add_estimates("m@u", f"w{first}-{number}", ONE)
                book.estimates("m@u", f"w{first}-{number // 2}")
                if isinstance(book, MemoryLedger) and number % 20 == 0:
                    assert len(book.estimate_rows()) <= 20
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=count, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert book.estimates("m@u")[KEY].trials > 1600 * 0.8  # faded, none lost: (1 - KEPT^1600) / (1 - KEPT) = 1319


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("make", [MemoryLedger, Cached])
def test_a_forked_child_does_not_wait_for_a_thread_that_is_not_there(make: Callable[[], MemoryLedger]) -> None:
    """A thread holds the lock while another forks: the child counts and asks."""
    book = make()
    lock = book._lock if isinstance(book, MemoryLedger) else book._cache._lock
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(10, exit=True)
        book.add_estimates("m@u", "w", ONE)
        book.estimates("m@u", "w")
        os._exit(0)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
