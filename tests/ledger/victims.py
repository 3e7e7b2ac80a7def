"""Processes to be killed: ``python victims.py LEDGER_URL TARGET_URL [speculate]``.

For each line on standard input it forks a client that asks without end, in a few threads, and prints the child's
process id once the first answer came; the next line reaps it. Forking saves the imports: a victim costs
milliseconds. With ``speculate`` each request carries a prediction that holds for a while, so that it is scored and then
handed off: two paid calls.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from cheapspec import OpenAI, Speculation
from cheapspec.ledger.database import DatabaseLedger

THREADS = 3
LEASE_SECONDS = 1.0
PRICES = {"input": "1", "output": "10"}
QUESTION = "Well?"
REPLY = "One, two, three in Paris is the answer."
PREDICTED = "One, two, three in Madrid."
ASKED: dict[str, Any] = {
    "model": "toy",
    "messages": [{"role": "user", "content": QUESTION}],
    "temperature": 0,
    "max_tokens": 20,
}


def victim(ledger_url: str, target_url: str, pipe: int, *, speculate: bool) -> None:
    ledger = DatabaseLedger(ledger_url, lease_seconds=LEASE_SECONDS)
    more: dict[str, Any] = {"target_backend": "vllm", "draft_tokens": 64} if speculate else {}
    speculation = Speculation(ledger=ledger, prices=PRICES, draft=None, **more)
    client = OpenAI(base_url=f"{target_url}/v1", api_key="none", speculation=speculation)
    asked = {**ASKED, "prediction": {"type": "content", "content": PREDICTED}} if speculate else ASKED

    def ask() -> None:
        while True:
            client.chat.completions.create(**asked)

    client.chat.completions.create(**asked)
    os.write(pipe, b"1")
    for _ in range(THREADS):
        threading.Thread(target=ask).start()


def main(ledger_url: str, target_url: str, *more: str) -> None:
    for _ in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            victim(ledger_url, target_url, writer, speculate="speculate" in more)
            return
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
