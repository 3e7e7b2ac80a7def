"""What a process of a crowd does: ``python crowd.py URL write|reserve NAME THREADS TIMES``. Prints JSON.

``write``: each thread writes that many requests, each with a call that it waits for. ``reserve``: each thread
reserves so often, in a budget called ``crowd``, and settles half of what it got.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from decimal import Decimal

from ledgerkit import cap_of, closed, opened, reserved

from cheapspec.ledger.database import DatabaseLedger

CAP, AMOUNT, COST = Decimal("1.00"), Decimal("0.03"), Decimal("0.01")


def together(threads: int, work: Callable[[int], int]) -> list[int]:
    """Each thread's result; they start at once."""
    gate, results = threading.Barrier(threads), [0] * threads

    def one(number: int) -> None:
        gate.wait(60)
        results[number] = work(number)

    crowd = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return results


def write(ledger: DatabaseLedger, name: str, thread: int, times: int) -> int:
    for number in range(times):
        request_id = f"cs-{name}-{thread}-{number}"
        opened(ledger, request_id)
        closed(ledger, request_id, "0.001")
    return times


def reserve(ledger: DatabaseLedger, name: str, thread: int, times: int) -> int:
    got = 0
    for number in range(times):
        request_id = f"cs-{name}-{thread}-{number}"
        if reserved(ledger, request_id, cap_of(str(CAP), "crowd"), str(AMOUNT)).choice is None:
            continue
        got += 1
        opened(ledger, request_id, worst=str(AMOUNT))
        if number % 2:
            closed(ledger, request_id, str(COST))
            ledger.settle(request_id)
    return got


def main(url: str, what: str, name: str, threads: int, times: int) -> None:
    ledger = DatabaseLedger(url)
    work = {"write": write, "reserve": reserve}[what]
    done = together(threads, lambda thread: work(ledger, name, thread, times))
    flushed = ledger.flush(120)
    print(json.dumps({"done": sum(done), "lost": ledger.lost, "flushed": flushed}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
