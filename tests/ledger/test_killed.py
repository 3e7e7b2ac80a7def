"""A process that is killed loses no paid call: each is in the ledger, answered or settled at its worst case."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import victims
from ledgerkit import rows

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

HERE = Path(__file__).parent
COST = 10 + 2 * 10  # nano-dollars times a thousand: ten tokens at 1, two at 10 dollars per million


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A helper process that ends when its standard input does."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def paid_for(server: str) -> int:
    with urllib.request.urlopen(f"{server}/count") as answer:
        return int(json.load(answer)["count"])


@contextmanager
def killing(url: str, server: str, *more: str) -> Iterator[Callable[[], None]]:
    """Gives what starts a victim, lets it work for a moment, and kills it."""
    chance = random.Random(5)
    with running("victims.py", url, server, *more) as forker:

        def kill() -> None:
            assert forker.stdin is not None
            forker.stdin.write("\n")
            forker.stdin.flush()
            child = int(line_of(forker))
            time.sleep(chance.uniform(0.0, 0.4))
            os.kill(child, signal.SIGKILL)

        yield kill


def settled(ledger: DatabaseLedger) -> list[dict[str, Any]]:
    """All calls, once the leases of the dead are over."""
    deadline = time.monotonic() + 60
    while any(row["status"] == "open" for row in rows(ledger, "calls")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return rows(ledger, "calls")


KILLS = pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.services)])


@KILLS
def test_every_paid_call_of_a_killed_process_is_in_the_ledger(url: str, kills: int) -> None:
    """Killed at random points with calls under way in several threads, again and again, on one ledger."""
    ledger = DatabaseLedger(url)
    assert ledger.flush()
    paid = written = 0
    with running("counting_server.py") as target:
        server = line_of(target)
        with killing(url, server) as kill:
            for number in range(1, kills + 1):
                kill()
                made = [row for row in rows(ledger, "calls") if row["billed"]]
                # what the dead one had sent may be read late, so that only the sums can be compared
                paid, written = paid_for(server), len(made)
                assert paid <= written <= paid + number * victims.THREADS + victims.THREADS
    made = settled(ledger)
    assert {row["status"] for row in made} <= {"ok", "expired"}
    assert {row["cost_nano"] for row in made if row["status"] == "ok"} == {COST * 1000}
    lost = [row for row in made if row["status"] != "ok"]
    assert len(lost) <= 2 * kills * victims.THREADS  # those under way, and those whose end was not written yet
    assert all(row["cost_nano"] == row["worst_nano"] >= COST * 1000 for row in lost)
    assert sum(row["cost_nano"] for row in made) >= COST * 1000 * paid
    assert ledger.lost == 0
    ledger.close()


@KILLS
def test_every_paid_call_of_a_killed_speculation_is_in_the_ledger(url: str, kills: int) -> None:
    """The same with requests that are scored and then handed off: what the server served, the books have."""
    ledger = DatabaseLedger(url)
    assert ledger.flush()
    with FakeTarget(model=ToyModel(3, replies={victims.QUESTION: victims.REPLY})) as target:
        with killing(url, target.url, "speculate") as kill:
            for _ in range(kills):
                kill()
                assert len([row for row in rows(ledger, "calls") if row["billed"]]) >= len(served(target))
        made = [row for row in settled(ledger) if row["billed"]]
        costs = Counter(served(target))
    assert {row["purpose"] for row in made} == {"score", "continue"}
    assert {row["status"] for row in made} <= {"ok", "expired"}
    answered = Counter(row["cost_nano"] for row in made if row["status"] == "ok")
    assert answered <= costs  # an answered call costs what the server says, neither more nor less
    lost = [row for row in made if row["status"] != "ok"]
    assert len(lost) <= 3 * kills * victims.THREADS
    assert all(row["cost_nano"] == row["worst_nano"] for row in lost)
    unanswered = sorted((costs - answered).elements())
    assert len(unanswered) <= len(lost)
    assert sum(row["cost_nano"] for row in made) >= sum(costs.elements())
    told = {row["request_id"]: row for row in rows(ledger, "requests")}
    assert {row["request_id"] for row in made} <= told.keys()
    assert {row["decision"] for row in told.values()} == {"speculate", None}
    assert ledger.lost == 0
    ledger.close()


def served(target: FakeTarget) -> list[int]:
    """Nano-dollars of each call that the server has counted."""
    paid = [exchange.usage for exchange in target.of("score", "continue", "direct") if exchange.usage]
    return [1000 * (usage["prompt_tokens"] + 10 * usage["completion_tokens"]) for usage in paid]
