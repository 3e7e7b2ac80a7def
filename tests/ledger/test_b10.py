"""Case B10: no row is lost and nothing raises when processes write and a report reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import crowd
from ledgerkit import rows
from sqlalchemy import func, select

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import calls, requests


def test_b10_four_processes_of_eight_threads_lose_none_of_3200_rows(url: str) -> None:
    """A report runs in a loop meanwhile, and sees no request without the call that was written with it."""
    ledger = DatabaseLedger(url)
    assert ledger.flush()
    command = [sys.executable, str(Path(crowd.__file__)), url, "write"]
    running = [
        subprocess.Popen([*command, f"p{number}", "8", "100"], stdout=subprocess.PIPE, text=True) for number in range(4)
    ]
    reports = 0
    sums = (
        select(func.count(), func.sum(calls.c.cost_nano))
        .select_from(requests.join(calls, calls.c.request_id == requests.c.request_id))
        .where(calls.c.status == "ok")
    )
    while any(process.poll() is None for process in running):
        with ledger.read() as connection:
            count, cost = connection.execute(sums).one()
            assert (cost or 0) == count * 1_000_000
        reports += 1
    told = [json.loads(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    assert told == [{"done": 800, "lost": 0, "flushed": True}] * 4
    assert reports > 0
    kept = rows(ledger, "requests")
    assert len(kept) == 3200
    assert all(row["decision"] == "direct" for row in kept)
    made = rows(ledger, "calls")
    assert len(made) == 3200
    assert {row["status"] for row in made} == {"ok"}
    assert ledger.lost == 0
    ledger.close()
