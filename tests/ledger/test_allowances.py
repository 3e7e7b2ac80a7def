"""The allowance that processes share in a ledger: however many gamble at once, and whoever dies, the bound holds."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import gamblers
import pytest
from crowd import together
from ledgerkit import opened, rows

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

HERE = Path(__file__).parent
SEED, CAP = Decimal("0.05"), Decimal("0.5")
ALL = ("all",)
NANO = 10**9


def holds(ledger: DatabaseLedger, request_id: str, worst: str, *accounts: str, seed: Decimal = SEED) -> bool | None:
    """Whether the request may hold so much."""
    ticket = ledger.hold(request_id, accounts or ALL, Decimal(worst), seed)
    assert ticket.wait(30)
    return ticket.value


def released(ledger: DatabaseLedger, request_id: str, change: str | None, held: str | None, *accounts: str) -> None:
    told = None if change is None else Decimal(change)
    ledger.release(request_id, accounts or ALL, told, CAP, None if held is None else Decimal(held))


def account(ledger: DatabaseLedger, name: str = "all") -> tuple[Decimal, Decimal]:
    """Its balance, and what is held of it."""
    row = next(row for row in rows(ledger, "allowances") if row["account"] == name)
    return Decimal(row["balance_nano"]) / NANO, Decimal(row["open_nano"]) / NANO


def test_the_seed_is_all_that_may_be_held_and_a_new_hold_replaces_the_old(ledger: DatabaseLedger) -> None:
    """A fresh account bears the seed and not a nano-dollar more, whoever asks."""
    assert holds(ledger, "a", "0.03")
    assert not holds(ledger, "b", "0.020000001")
    assert holds(ledger, "a", "0.04") and account(ledger) == (0, Decimal("0.04"))
    assert not holds(ledger, "a", "0.06") and account(ledger) == (0, Decimal("0.04"))
    assert holds(ledger, "b", "0.01") and not holds(ledger, "c", "0.000000001")
    assert ledger.balance(ALL) == -SEED
    released(ledger, "a", "-0.01", "0.04")
    assert account(ledger) == (Decimal("-0.01"), Decimal("0.01"))
    assert {row["request_id"] for row in rows(ledger, "risks")} == {"b"}


def test_all_accounts_of_a_request_bear_it_or_none(ledger: DatabaseLedger) -> None:
    """What one of three cannot bear is taken from none of them."""
    released(ledger, "lost", "-0.04", None, "workload:a")
    assert not holds(ledger, "x", "0.02", "all", "session:s", "workload:a")
    assert account(ledger) == (0, 0) and account(ledger, "session:s") == (0, 0)
    assert account(ledger, "workload:a") == (Decimal("-0.04"), 0)
    assert holds(ledger, "y", "0.05", "all", "session:s", "workload:b")
    assert [row["account"] for row in rows(ledger, "risks")] == ["all", "session:s", "workload:b"]


def test_savings_are_capped_and_losses_are_not(ledger: DatabaseLedger) -> None:
    """Old luck cannot pay for a long run of losses; unknown money is what was held."""
    released(ledger, "lucky", "100", None)
    assert account(ledger)[0] == CAP
    assert holds(ledger, "x", "0.55") and not holds(ledger, "y", "0.000000001")
    released(ledger, "x", None, "0.55")
    assert account(ledger) == (Decimal("-0.05"), 0)
    released(ledger, "unlucky", "-3", None)
    assert account(ledger)[0] == Decimal("-3.05")


def test_what_is_too_much_for_a_ledger_is_refused(ledger: DatabaseLedger) -> None:
    """An amount that 64 bits cannot hold is no bound."""
    assert holds(ledger, "x", "1e12") is False


def test_what_the_dead_held_is_lost_and_who_lives_after_all_is_believed(url: str) -> None:
    """A lease that is over costs the account what was held; a late word takes its place."""
    dead, other = DatabaseLedger(url, lease_seconds=0.05), DatabaseLedger(url)
    assert holds(dead, "x", "0.02") and holds(dead, "y", "0.03")
    time.sleep(0.2)
    assert other.flush()
    assert account(other) == (-SEED, 0) and not rows(other, "risks")
    assert not holds(other, "z", "0.01")
    released(dead, "x", "-0.005", "0.02")
    assert dead.flush() and account(other) == (Decimal("-0.035"), 0)
    dead.close()
    other.close()


def test_a_lease_is_renewed_while_its_owner_lives(url: str) -> None:
    """A slow request keeps what it holds."""
    ledger, other = DatabaseLedger(url, lease_seconds=0.6), DatabaseLedger(url)
    opened(ledger, "x")
    assert holds(ledger, "x", "0.02")
    time.sleep(1.5)
    assert other.flush() and account(other) == (0, Decimal("0.02"))
    ledger.close()
    other.close()


def test_a_ledger_that_is_away_says_that_it_does_not_know(tmp_path: Path) -> None:
    """Then nothing is risked; what was lost meanwhile is written when it is back."""
    folder = tmp_path / "away"
    folder.write_text("not a folder")
    ledger = DatabaseLedger(f"sqlite:///{folder}/ledger.db")
    assert holds(ledger, "x", "0.01") is None
    assert holds(ledger, "x", "0.01") is None, "and nobody waits for it"
    released(ledger, "x", "-0.03", None)
    released(ledger, "y", "7", None)
    folder.unlink()
    deadline = time.monotonic() + 30
    while not ledger.available or not ledger.flush():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert account(ledger)[0] == Decimal("-0.03"), "what was saved may have been written before"
    ledger.close()


def test_threads_on_two_ledgers_never_hold_too_much(url: str) -> None:
    """64 threads hold, lose all of it or some, or earn, on two writers; at every moment the books bear it."""
    ledgers, watched, over = [DatabaseLedger(url), DatabaseLedger(url)], DatabaseLedger(url), threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not over.is_set():
            seen.extend(row["balance_nano"] - row["open_nano"] for row in rows(watched, "allowances"))
            time.sleep(0.01)

    def work(number: int) -> int:
        chance, ledger, got = random.Random(number), ledgers[number % 2], 0
        for turn in range(8):
            request_id, mine = f"{number}-{turn}", f"workload:{number % 3}"
            worst = f"0.0{chance.randint(10, 40)}"
            if not holds(ledger, request_id, worst, "all", mine):
                released(ledger, request_id, "0.002", "0", "all", mine)
                continue
            got += 1
            kept = chance.choice(["-" + worst, "-0.001", None])
            released(ledger, request_id, kept, worst, "all", mine)
        return got

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert sum(together(64, work)) > 2
    over.set()
    watcher.join()
    for ledger in ledgers:
        assert ledger.flush(60) and ledger.lost == 0
    assert {row["open_nano"] for row in rows(watched, "allowances")} == {0} and not rows(watched, "risks")
    assert seen and min(seen) >= -SEED * NANO
    for ledger in (*ledgers, watched):
        ledger.close()


# --- real clients, whose predictions never hold --------------------------------------------------------

STAKE = "0.0008"


@contextmanager
def gambling(url: str, target: str, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone at the end, however the test ends."""
    command = [sys.executable, "gamblers.py", url, target, STAKE, *map(str, numbers)]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def bears(ledger: DatabaseLedger) -> int:
    """The promise, as anyone can read it in the ledger now, probes included. How many requests it is about."""
    with ledger.read() as connection:
        told = connection.exec_driver_sql(
            "SELECT (SELECT SUM(cost_nano) FROM calls WHERE calls.request_id = requests.request_id), baseline_nano "
            "FROM requests WHERE paid_nano IS NOT NULL AND baseline_nano IS NOT NULL"
        ).all()
        left = connection.exec_driver_sql("SELECT balance_nano - open_nano FROM allowances").scalars().all()
    paid, baseline = sum(row[0] or 0 for row in told), sum(row[1] for row in told)
    assert paid <= Decimal("1.02") * baseline + Decimal(STAKE) * NANO
    assert all(one >= -Decimal(STAKE) * NANO for one in left)
    return len(told)


def cost(usage: dict[str, Any]) -> int:
    """Nano-dollars."""
    return 1000 * (usage["prompt_tokens"] + 20 * usage["completion_tokens"])


CROWDS = pytest.mark.parametrize(
    ("threads", "tasks", "processes"), [(16, 16, 1), pytest.param(64, 64, 4, marks=pytest.mark.services)]
)


@CROWDS
def test_a_crowd_of_gamblers_costs_no_more_than_was_stated(url: str, threads: int, tasks: int, processes: int) -> None:
    """Threads, tasks and processes whose predictions never hold: what the server counted is within two per cent and the
    seed of what the same requests cost alone, and so is what the ledger says at every moment."""
    ledger = DatabaseLedger(url)
    assert ledger.flush()
    with FakeTarget(model=ToyModel(3)) as target, ExitStack() as stack:
        crowd = [stack.enter_context(gambling(url, target.url, threads, tasks, 2)) for _ in range(processes)]
        while any(process.poll() is None for process in crowd):
            bears(ledger)
            time.sleep(0.1)
        assert [line_of(process) for process in crowd] == ["begun"] * processes
        assert sum(int(line_of(process)) for process in crowd) == 2 * processes * (threads + tasks)
        served = [one.usage for one in target.of("score", "continue", "direct") if one.usage]
    assert bears(ledger) == 2 * processes * (threads + tasks)
    told, made = rows(ledger, "requests"), rows(ledger, "calls")
    assert sum(map(cost, served)) == sum(row["cost_nano"] for row in made if row["billed"])
    assert sum(map(cost, served)) <= Decimal("1.02") * sum(row["baseline_nano"] for row in told) + Decimal(STAKE) * NANO
    assert {row["reason"] for row in told if row["decision"] == "direct"} & {"allowance"}
    assert target.of("score"), "the seed let some try"
    assert not rows(ledger, "risks") and {row["open_nano"] for row in rows(ledger, "allowances")} == {0}
    ledger.close()


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.services)])
def test_killed_gamblers_have_lost_what_they_held(url: str, kills: int) -> None:
    """Processes killed in the middle, again and again: the books bear it at every moment, and a request of which
    nobody knows the end costs what it held."""
    ledger, chance = DatabaseLedger(url, lease_seconds=gamblers.LEASE_SECONDS), random.Random(7)
    assert ledger.flush()
    with FakeTarget(model=ToyModel(3)) as target:
        for _ in range(kills):
            with gambling(url, target.url, 6, 6, 0) as process:
                assert line_of(process) == "begun"
                before, end = bears(ledger), time.monotonic() + 30
                while bears(ledger) == before:
                    assert time.monotonic() < end
                time.sleep(chance.uniform(0.0, 0.5))
                bears(ledger)
            bears(ledger)
        deadline = time.monotonic() + 60
        while rows(ledger, "risks"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert bears(ledger) > 0
    assert {row["open_nano"] for row in rows(ledger, "allowances")} == {0}
    ledger.close()
