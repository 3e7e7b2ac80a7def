"""Sessions: which requests belong to which ``with`` block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from ledgerkit import rows

from cheapspec import LedgerError, OpenAI, Speculation
from cheapspec.errors import SettingsError
from cheapspec.ledger.budgets import Budget
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.sessions import Session, current_session, session_caps

REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_764_000_000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}


@pytest.fixture
def book() -> BudgetedMemoryLedger:
    """Sessions ask nothing of a ledger: one will do."""
    return BudgetedMemoryLedger()


def here(book: BudgetedMemoryLedger) -> str | None:
    session = current_session(book)
    return None if session is None else session.name


def in_thread(book: BudgetedMemoryLedger) -> str | None:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(here, book).result()


def test_a_block_is_its_requests_session_and_blocks_nest(book: BudgetedMemoryLedger) -> None:
    """Inside the innermost counts, after it the one around, in the end none."""
    assert here(book) is None
    with Session(book, "outer"):
        with Session(book, "inner") as inner:
            assert here(book) == "inner"
            assert [session.name for session in inner.chain()] == ["inner", "outer"]
        assert here(book) == "outer"
    assert here(book) is None


def test_a_block_ends_with_an_error_too(book: BudgetedMemoryLedger) -> None:
    """The next request is outside."""
    with pytest.raises(ZeroDivisionError), Session(book, "s"):
        raise ZeroDivisionError
    assert here(book) is None


async def test_tasks_take_the_session_that_they_were_made_in(book: BudgetedMemoryLedger) -> None:
    """Siblings do not see each other's, and a task keeps its own after the block."""
    go_on = asyncio.Event()

    async def asks() -> list[str | None]:
        first = here(book)
        await go_on.wait()
        return [first, here(book), await asyncio.to_thread(here, book)]

    with Session(book, "a"):
        one = asyncio.create_task(asks())
        await asyncio.sleep(0)
    with Session(book, "b"):
        other = asyncio.create_task(asks())
        await asyncio.sleep(0)
    go_on.set()
    assert await one == ["a", "a", "a"]
    assert await other == ["b", "b", "b"]
    assert here(book) is None


def test_a_thread_that_is_started_inside_belongs_to_the_session(book: BudgetedMemoryLedger) -> None:
    """Though context variables do not reach it."""
    with Session(book, "outer"), Session(book, "inner"):
        assert in_thread(book) == "inner"
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: here(book), range(16))) == {"inner"}
    assert in_thread(book) is None


def test_a_thread_that_is_older_does_not_unless_it_is_bound(book: BudgetedMemoryLedger) -> None:
    """A server's pool has requests of others."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(here, book).result()  # the thread is there
        with Session(book, "s") as session:
            assert pool.submit(here, book).result() is None
            assert pool.submit(session.bind(here), book).result() == "s"
            context = contextvars.copy_context()
            assert pool.submit(context.run, here, book).result() == "s"


def test_a_thread_between_unrelated_sessions_belongs_to_none(book: BudgetedMemoryLedger) -> None:
    """Two threads have a session each: a third cannot know whose it is."""
    both, done = threading.Barrier(3), threading.Event()

    def holds(name: str) -> None:
        with Session(book, name):
            both.wait(20)
            done.wait(20)

    threads = [threading.Thread(target=holds, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    both.wait(20)
    assert in_thread(book) is None
    done.set()
    for thread in threads:
        thread.join()


def test_a_session_that_a_thread_opens_is_not_inside_another_threads(book: BudgetedMemoryLedger) -> None:
    """A server answers each request in a thread, some of which start while another's session is open."""

    def opens() -> Session | None:
        with Session(book, "own") as session:
            return session.parent

    with Session(book, "outer") as outer, ThreadPoolExecutor(1) as pool:
        assert pool.submit(opens).result() is None
        assert pool.submit(outer.bind(opens)).result() is outer


def test_a_session_is_its_ledgers(book: BudgetedMemoryLedger) -> None:
    """Clients on another ledger are not in it; one of theirs inside has no parent here."""
    other = BudgetedMemoryLedger()
    with Session(book, "mine"), Session(other, "theirs") as theirs:
        assert here(book) == "mine"
        assert here(other) == "theirs"
        assert theirs.parent is None
        assert in_thread(other) == "theirs"


def test_a_generator_may_leave_its_block_in_another_context(book: BudgetedMemoryLedger) -> None:
    """An async generator is often closed by another task."""

    async def streams() -> None:
        async def chunks():  # type: ignore[no-untyped-def]
            with Session(book, "s"):
                yield here(book)

        generator = chunks()
        assert await asyncio.create_task(anext(generator)) == "s"
        await asyncio.create_task(generator.aclose())

    asyncio.run(streams())
    assert here(book) is None


def test_a_request_counts_in_every_budget_around_it(book: BudgetedMemoryLedger) -> None:
    """Of two under one name the lower cap holds."""
    with Session(book, "outer", Budget(5)), Session(book, "plain"), Session(book, "inner", Budget(1, "day")) as inner:
        assert [(cap.name, cap.period, cap.usd) for cap in session_caps(inner, 0.0)] == [
            ("session:inner", "1970-01-01", Decimal(1)),
            ("session:outer", "", Decimal(5)),
        ]
        with Session(book, "outer", Budget(2)) as again:
            assert [cap.usd for cap in session_caps(again, 0.0)] == [Decimal(2), Decimal(1)]
    assert session_caps(None, 0.0) == ()


def test_a_session_is_used_once_and_has_a_name(book: BudgetedMemoryLedger) -> None:
    """Misuse is an error that says so."""
    session = Session(book, "s")
    with session:
        pass
    with pytest.raises(SettingsError, match="opened before"), session:
        pass
    for name in ("", "a\nb"):
        with pytest.raises(SettingsError, match="session name"):
            Session(book, name)


def test_sessions_are_rows_of_the_ledger(ledger: DatabaseLedger) -> None:
    """With their parents, when they were opened and closed."""
    with Session(ledger, "outer") as outer, Session(ledger, "inner") as inner:
        assert all(row["closed_at"] is None for row in rows(ledger, "sessions"))
    told = {row["session_id"]: row for row in rows(ledger, "sessions")}
    assert (told[inner.id]["name"], told[inner.id]["parent_id"]) == ("inner", outer.id)
    assert told[outer.id]["parent_id"] is None
    assert all(row["closed_at"] >= row["at"] for row in told.values())


@pytest.mark.parametrize("kind", ["memory", "database"])
def test_a_session_reports_what_was_asked_inside_it_and_nothing_else(kind: str, tmp_path: Path) -> None:
    """Sessions inside it included; one of the same name that was opened before is another block."""
    where = "memory" if kind == "memory" else f"sqlite:///{tmp_path}/ledger.db"
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=REPLY))
    with OpenAI(
        base_url="http://127.0.0.1:1/v1", api_key="none", http_client=httpx2.Client(transport=transport),
        speculation=Speculation(ledger=where, prices={"input": "1", "output": "10"}),
    ) as client:  # fmt: skip

        def ask() -> None:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Well?"}], temperature=0)

        ask()
        with client.session("nightly"):
            ask()
        with client.session("nightly") as session:
            ask()
            with client.session("part") as part:
                ask()
        told, inner = session.report(), part.report()
        assert (told.session, inner.session) == ("nightly", "part")
        assert (told.sums.requests, inner.sums.requests, client.report().sums.requests) == (2, 1, 4)
        assert (told.sums.paid_usd, inner.sums.paid_usd) == (Decimal("0.00006"), Decimal("0.00003"))
        assert "session nightly" in str(told)
        if kind == "database":
            cast(DatabaseLedger, session.ledger).close()


def test_a_session_without_a_ledger_cannot_report() -> None:
    """It says so, rather than that nothing was asked."""
    client = OpenAI(base_url="http://127.0.0.1:1/v1", api_key="none", speculation=Speculation(ledger="off"))
    with client, client.session("s") as session, pytest.raises(LedgerError, match="nothing to report"):
        session.report()
