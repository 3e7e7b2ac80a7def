"""Case B08: parallel calls never pass the same budget check."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import crowd
import pytest
from ledgerkit import cap_of, closed, opened, reserved, rows

from cheapspec.core.books import Cap, Grant
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import budgets
from cheapspec.ledger.store import Store

NANO = Decimal("1e-9")
FOUR = [f"cs-{number}" for number in range(4)]


def spent_before(book: Any) -> Cap:
    """A budget of 5.00 of which 4.752720 are spent."""
    cap = cap_of("5.00")
    assert reserved(book, "cs-old", cap, "4.80").choice == 0
    opened(book, "cs-old")
    closed(book, "cs-old", "4.752720")
    book.settle("cs-old")
    return cap


def test_b08_of_four_threads_two_are_admitted(book: Any) -> None:
    """The third would reach 5.017920."""
    cap = spent_before(book)
    with ThreadPoolExecutor(4) as pool:
        grants = list(pool.map(lambda name: reserved(book, name, cap, "0.0884"), FOUR))
    assert sorted(grant.choice is None for grant in grants) == [False, False, True, True]
    assert {grant.left_usd for grant in grants if grant.choice is None} <= {Decimal("0.07048"), Decimal("0.15888")}


async def test_b08_of_four_tasks_two_are_admitted(book: Any) -> None:
    """Tasks wait for their answers in the event loop, which is not blocked meanwhile."""
    cap = spent_before(book)
    loop = asyncio.get_running_loop()

    async def ask(name: str) -> Grant:
        made = book.reserve(name, [cap], [Decimal("0.0884")])
        if isinstance(made, Grant):
            return made
        answered = asyncio.Event()
        made.add_done_callback(lambda: loop.call_soon_threadsafe(answered.set))
        await asyncio.wait_for(answered.wait(), 20)
        assert made.value is not None
        value: Grant = made.value
        return value

    grants = await asyncio.gather(*map(ask, FOUR))
    assert sorted(grant.choice is None for grant in grants) == [False, False, True, True]


def test_b08_of_four_processes_two_are_admitted(ledger: DatabaseLedger, url: str) -> None:
    """One ledger, four processes."""
    spent_before(ledger)
    ledger.flush()
    program = """
import sys
from ledgerkit import cap_of, reserved
from cheapspec.ledger.database import DatabaseLedger
sys.exit(reserved(DatabaseLedger(sys.argv[1]), sys.argv[2], cap_of("5.00"), "0.0884").choice is None)
"""
    folder = Path(__file__).parent
    running = [subprocess.Popen([sys.executable, "-c", program, url, name], cwd=folder) for name in FOUR]
    assert sorted(process.wait(120) for process in running) == [0, 0, 1, 1]
    (budget,) = rows(ledger, "budgets")
    assert (budget["spent_nano"] + budget["reserved_nano"]) * NANO == Decimal("4.929520")


def test_b08_a_crash_releases_what_its_calls_did_not_cost(url: str) -> None:
    """When the lease is over: a request that had sent nothing gives all back, another its worst case less."""
    program = """
import os, sys
from ledgerkit import cap_of, opened, reserved
from cheapspec.ledger.database import DatabaseLedger
ledger = DatabaseLedger(sys.argv[1], lease_seconds=0.5)
for name in ("cs-unsent", "cs-sent"):
    assert reserved(ledger, name, cap_of("5.00"), "2.50").choice == 0
opened(ledger, "cs-sent", worst="1.25")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, url], cwd=Path(__file__).parent, check=True)
    ledger = DatabaseLedger(url)
    told: list[dict[str, Any]] = []
    for _ in range(200):
        told = rows(ledger, "reservations")
        if all(row["status"] == "expired" for row in told):
            break
        time.sleep(0.1)
    assert [(row["request_id"], row["charged_nano"] * NANO) for row in told] == [
        ("cs-sent", Decimal("1.25")),
        ("cs-unsent", Decimal(0)),
    ]
    assert reserved(ledger, "cs-next", cap_of("5.00"), "3.75").choice == 0
    ledger.close()


@pytest.mark.parametrize("threads", [64])
def test_b08_reservations_of_64_threads_never_exceed_the_cap(book: Any, threads: int) -> None:
    """While some settle and others reserve."""

    def work(number: int) -> int:
        got = 0
        for turn in range(4):
            request_id = f"cs-{number}-{turn}"
            if reserved(book, request_id, cap_of("1"), "0.03").choice is not None:
                got += 1
                opened(book, request_id, worst="0.03")
                if turn % 2:
                    closed(book, request_id, "0.01")
                    book.settle(request_id)
        return got

    admitted = sum(crowd.together(threads, work))
    assert 33 <= admitted <= 100
    left = reserved(book, "cs-last", cap_of("1"), "1")
    assert left.left_usd is not None
    assert 0 <= left.left_usd < Decimal("0.03")


async def test_b08_reservations_of_64_tasks_never_exceed_the_cap(book: Any) -> None:
    """All at once from one event loop."""
    asked = [await asyncio.to_thread(book.reserve, f"cs-{n}", [cap_of("1")], [Decimal("0.03")]) for n in range(64)]

    async def answer(made: Any) -> Grant:
        if not isinstance(made, Grant):
            assert await asyncio.to_thread(made.wait, 20)
            made = made.value
        assert isinstance(made, Grant)
        return made

    grants = await asyncio.gather(*map(answer, asked))
    assert sum(grant.choice is not None for grant in grants) == 33


def test_b08_reservations_of_4_processes_never_exceed_the_cap(url: str) -> None:
    """While they settle, a reader looks: what is reserved and spent stays under the cap at every moment."""
    store = Store(url)
    store.connect().close()
    command = [sys.executable, str(Path(crowd.__file__)), url, "reserve"]
    running = [
        subprocess.Popen([*command, f"p{number}", "8", "8"], stdout=subprocess.PIPE, text=True) for number in range(4)
    ]
    highest = 0
    while any(process.poll() is None for process in running):
        with store.engine.connect() as connection:
            for budget in connection.execute(budgets.select()):
                highest = max(highest, budget.reserved_nano + budget.spent_nano)
    told = [json.loads(process.communicate()[0]) for process in running]
    assert all(each["flushed"] and not each["lost"] for each in told)
    assert highest * NANO <= crowd.CAP
    ledger = DatabaseLedger(url)
    (budget,) = rows(ledger, "budgets")
    held = [row for row in rows(ledger, "reservations") if row["status"] == "held"]
    settled = [row for row in rows(ledger, "reservations") if row["status"] == "settled"]
    assert len(held) + len(settled) == sum(each["done"] for each in told)
    assert budget["reserved_nano"] * NANO == len(held) * crowd.AMOUNT
    assert budget["spent_nano"] * NANO == len(settled) * crowd.COST
    assert crowd.CAP - crowd.AMOUNT < (budget["reserved_nano"] + budget["spent_nano"]) * NANO <= crowd.CAP
    ledger.close()
