"""Clients whose predictions are always wrong: ``python gamblers.py LEDGER_URL TARGET_URL SEED THREADS TASKS TIMES``.

Each thread, then each task, asks so often (0: without end), all at once. Prints a line once everybody has begun, and
then how many requests were answered.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from cheapspec import AsyncOpenAI, OpenAI, Speculation
from cheapspec.ledger.database import DatabaseLedger

LEASE_SECONDS = 1.0
PRICES = {"input": "1", "output": "20"}
WRONG = "Nothing of this will ever be said, not a word, and not at the beginning either."


def asked(name: str, number: int) -> dict[str, Any]:
    return {
        "model": "toy",
        "messages": [{"role": "user", "content": f"{name}, {number}?"}],
        "temperature": 0,
        "max_tokens": 12,
        "prediction": {"type": "content", "content": WRONG},
        "extra_body": {"cheapspec": {"workload": f"w{number % 5}"}},
    }


def main(ledger_url: str, target_url: str, seed: str, threads: int, tasks: int, times: int) -> None:
    ledger = DatabaseLedger(ledger_url, lease_seconds=LEASE_SECONDS)
    speculation = Speculation(ledger=ledger, prices=PRICES, draft="lookup", target_backend="vllm", seed_usd=seed)
    given: dict[str, Any] = {"base_url": f"{target_url}/v1", "api_key": "none", "speculation": speculation}
    answered, gate = [0] * (threads + tasks), threading.Barrier(threads + 1)

    def work(client: OpenAI, mine: int) -> None:
        gate.wait(60)
        while not times or answered[mine] < times:
            client.chat.completions.create(**asked(f"thread {mine}", answered[mine]))
            answered[mine] += 1

    async def work_too(client: AsyncOpenAI, mine: int) -> None:
        while not times or answered[mine] < times:
            await client.chat.completions.create(**asked(f"task {mine}", answered[mine]))
            answered[mine] += 1

    async def all_tasks() -> None:
        async with AsyncOpenAI(**given) as client:
            await asyncio.gather(*(work_too(client, mine) for mine in range(threads, threads + tasks)))

    with OpenAI(**given) as client:
        crowd = [threading.Thread(target=work, args=(client, mine), daemon=True) for mine in range(threads)]
        for thread in crowd:
            thread.start()
        gate.wait(60)
        print("begun", flush=True)
        asyncio.run(all_tasks())
        for thread in crowd:
            thread.join()
    ledger.close(60)
    print(sum(answered), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]))
