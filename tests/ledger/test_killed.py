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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import victims
from ledgerkit import rows

from cheapspec.ledger.database import DatabaseLedger

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


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.services)])
def test_every_paid_call_of_a_killed_process_is_in_the_ledger(url: str, kills: int) -> None:
    """Killed at random points with calls under way in several threads, again and again, on one ledger."""
    chance = random.Random(5)
    ledger = DatabaseLedger(url)
    assert ledger.flush()
    paid = written = 0
    with running("counting_server.py") as target:
        server = line_of(target)
        with running("victims.py", url, server) as forker:
            assert forker.stdin is not None
            for number in range(1, kills + 1):
                forker.stdin.write("\n")
                forker.stdin.flush()
                child = int(line_of(forker))
                time.sleep(chance.uniform(0.0, 0.4))
                os.kill(child, signal.SIGKILL)
                made = [row for row in rows(ledger, "calls") if row["billed"]]
                # what the dead one had sent may be read late, so that only the sums can be compared
                paid, written = paid_for(server), len(made)
                assert paid <= written <= paid + number * victims.THREADS + victims.THREADS
    deadline = time.monotonic() + 60
    while any(row["status"] == "open" for row in rows(ledger, "calls")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    made = rows(ledger, "calls")
    assert {row["status"] for row in made} <= {"ok", "expired"}
    assert {row["cost_nano"] for row in made if row["status"] == "ok"} == {COST * 1000}
    lost = [row for row in made if row["status"] != "ok"]
    assert len(lost) <= kills * victims.THREADS
    assert all(row["cost_nano"] == row["worst_nano"] >= COST * 1000 for row in lost)
    assert sum(row["cost_nano"] for row in made) >= COST * 1000 * paid
    assert ledger.lost == 0
    ledger.close()
