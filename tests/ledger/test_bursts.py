"""Bursts: more at once than the ledger's thread writes in a moment, and how far memory goes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ledgerkit import USAGE, rows

from cheapspec import AsyncOpenAI, Speculation
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.ledger import intake
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.intake import BATCH, Intake
from cheapspec.ledger.operations import Kind, Operation

REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_764_000_000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}


def request(name: str) -> RequestRow:
    return RequestRow(name, time.time(), "m", "chat", False)


def calm(name: str = "") -> Operation:
    return Operation(Kind.OPEN_REQUEST, {"request_id": name})


def held(path: Path) -> sqlite3.Connection:
    """A writer of another program that keeps the database's lock."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def in_time(function: Any) -> Any:
    """What it returns; a failure if it waits for something that never comes."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "it waits for ever"
    return found[0]


def test_a_burst_far_beyond_the_buffer_is_written_whole(url: str) -> None:
    """The buffer is for a store that is away, not for one that works: nothing is dropped, nobody waits."""
    ledger = DatabaseLedger(url, buffer=10)
    assert ledger.flush()
    for number in range(4000):
        name = f"cs-{number}"
        ledger.open_request(request(name))
        ledger.close_request(name, {"decision": "bypass", "reason": "tools"})
    assert [row["decision"] for row in rows(ledger, "requests")] == ["bypass"] * 4000
    assert ledger.lost == 0
    ledger.close()


async def test_a_burst_of_direct_calls_loses_no_row(url: str) -> None:
    """All started in one moment, through the public door: each waits for its row, and each row is closed."""
    ledger = DatabaseLedger(url, buffer=10)
    number = 300

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        return httpx2.Response(200, json=REPLY)

    async with AsyncOpenAI(
        base_url="http://127.0.0.1:1/v1",
        api_key="none",
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
        speculation=Speculation(ledger=ledger, prices={"input": "1", "output": "10"}),
    ) as client:
        message: Any = [{"role": "user", "content": "Well?"}]
        asked = (client.chat.completions.create(model="m", messages=message, temperature=0) for _ in range(number))
        replies = await asyncio.gather(*asked)
    assert len(replies) == number
    assert [row["status"] for row in rows(ledger, "calls")] == ["ok"] * number
    assert [row["decision"] for row in rows(ledger, "requests")] == ["direct"] * number
    assert ledger.lost == 0
    ledger.close()


def test_while_the_store_hangs_memory_is_bounded_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the buffer rows are counted as lost; billed calls go out without a ticket; what was kept is written."""
    monkeypatch.setattr(intake, "STALL_SECONDS", 0.01)
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db", buffer=20)
    ledger._store._busy_seconds = 120.0  # it hangs, and does not give up
    ledger._store.renew()
    assert ledger.flush()
    deadline = time.monotonic() + 60
    given = ledger._writer._intake
    while given._busy_since:  # what it does on opening
        time.sleep(0.01)
    other = held(tmp_path / "ledger.db")
    ledger.open_request(request("cs-first"))
    while given._waiting or not given.hangs:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for number in range(100):
        ledger.open_request(request(f"cs-{number}"))
    assert ledger.open_call(CallRow("cs-0.1", "cs-0", "target", "direct", True, time.time())) is None
    assert (ledger.lost, len(given._waiting)) == (81, 20)
    other.rollback()
    other.close()
    while not ledger.flush():
        assert time.monotonic() < deadline
    kept = {row["request_id"] for row in rows(ledger, "requests")}
    assert kept == {"cs-first", *(f"cs-{number}" for number in range(20))}
    ledger.close()


def test_a_thread_that_works_has_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is what is bounded, whoever is too slow."""
    monkeypatch.setattr(intake, "MOST", 30)
    given = Intake(10)
    assert [given.put(calm()) for _ in range(32)] == [True] * 30 + [False] * 2


def test_an_operation_takes_about_a_kilobyte() -> None:
    """What the stated bounds mean in bytes."""
    ledger = DatabaseLedger("sqlite:////nowhere/ledger.db")
    kept: list[Operation] = []
    ledger._writer.put = kept.append  # type: ignore[method-assign]
    tracemalloc.start()
    for number in range(500):
        name = f"cs-{number:032}"
        ledger.open_request(request(name))
        ledger.open_call(CallRow(f"{name}.1", name, "target", "direct", True, time.time(), "0.01"))
        ledger.close_call(Call(f"{name}.1", "ok", USAGE, "0.001", 0.25, 200))
        ledger.close_request(name, {"decision": "direct", "reason": "tools", "paid_usd": "0.001"})
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 2000
    assert size / len(kept) < 1600


def taken(given: Intake, seconds: float | None = None) -> list[Operation]:
    """What the thread takes next."""
    found: list[Operation] = []
    given.wait(lambda: seconds)
    given.take(found)
    return found


def test_what_is_waited_for_is_taken_with_all_that_was_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request's row does not wake the thread's database by itself: it goes with the row of its call."""
    monkeypatch.setattr(intake, "GATHER_SECONDS", 3600.0)
    given = Intake(100)
    first, second = calm("r"), calm("c")
    found: list[list[Operation]] = []
    thread = threading.Thread(target=lambda: found.append(taken(given)), daemon=True)
    thread.start()
    given.put(first)
    given.put(second)
    given.ring()
    thread.join(60)
    assert found == [[first, second]]


def test_what_is_left_of_a_full_batch_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bells were rung already."""
    monkeypatch.setattr(intake, "GATHER_SECONDS", 3600.0)
    given = Intake(10 * BATCH)
    for _ in range(BATCH + 5):
        given.put(calm())
    given.ring()
    assert [len(in_time(lambda: taken(given))) for _ in range(2)] == [BATCH, 5]


@pytest.mark.parametrize("awake", [0.0, 3600.0])
def test_what_nobody_waits_for_comes_by_itself_after_a_while(monkeypatch: pytest.MonkeyPatch, awake: float) -> None:
    """Whether the thread was asleep, looked around, or had just worked."""
    monkeypatch.setattr(intake, "AWAKE_SECONDS", awake)
    given = Intake(100)
    for _ in range(3):
        operation = calm()
        given.put(operation)
        assert in_time(lambda: taken(given)) == [operation]
    assert in_time(lambda: taken(given, 0.01)) == []
    late: list[list[Operation]] = []
    thread = threading.Thread(target=lambda: late.append(taken(given)), daemon=True)
    thread.start()
    time.sleep(0.2)
    operation = calm()
    given.put(operation)
    thread.join(60)
    assert late == [[operation]]


def test_the_thread_asks_how_long_it_may_sleep_when_it_falls_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that wrote its row by itself may have given it a lease to keep meanwhile."""
    monkeypatch.setattr(intake, "AWAKE_SECONDS", 0.1)
    given, told = Intake(100), iter([None, None])
    assert in_time(lambda: given.wait(lambda: next(told, 0.01))) is None
    assert next(told, "all asked") == "all asked"
