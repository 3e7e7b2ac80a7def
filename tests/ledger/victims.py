"""Processes to be killed: ``python victims.py LEDGER_URL TARGET_URL``.

For each line on standard input it forks a client that asks without end, in a few threads, and prints the child's
process id once the first answer came; the next line reaps it. Forking saves the imports: a victim costs
milliseconds.
"""

from __future__ import annotations

import os
import sys
import threading

from cheapspec import OpenAI, Speculation
from cheapspec.ledger.database import DatabaseLedger

THREADS = 3
LEASE_SECONDS = 1.0
PRICES = {"input": "1", "output": "10"}


def victim(ledger_url: str, target_url: str, pipe: int) -> None:
    ledger = DatabaseLedger(ledger_url, lease_seconds=LEASE_SECONDS)
    client = OpenAI(
        base_url=f"{target_url}/v1", api_key="none", speculation=Speculation(ledger=ledger, prices=PRICES, draft=None)
    )

    def ask() -> None:
        while True:
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Well?"}], temperature=0, max_tokens=5
            )

    client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Well?"}], temperature=0, max_tokens=5
    )
    os.write(pipe, b"1")
    for _ in range(THREADS):
        threading.Thread(target=ask).start()


def main(ledger_url: str, target_url: str) -> None:
    for _ in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            victim(ledger_url, target_url, writer)
            return
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
