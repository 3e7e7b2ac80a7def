"""What the ledger in a database adds to a request.

Rules
-----
* Two clients of ours ask the same server, request by request in turn, the order changing from pair to pair: one has
  its ledger switched off, the other an SQLite file on this machine's disk.
* *Added* is the median of the differences of the pairs. A request of the second client is only sent once its row is
  committed: that is what it waits for.
* What closes a request is written while the next one is under way. So there are two rows: a target that takes 100 ms,
  as the fastest models do, and for comparison one that answers at once, where the closing rows of one request
  are in the time of the next. The promise is about the former.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.loopback import server
from cheapspec import OpenAI, Speculation
from cheapspec.ledger.database import DatabaseLedger

__all__ = ["LIMIT_MS", "LedgerTime", "measure", "measure_all"]

LIMIT_MS = 0.5
"""What the project promises: added median of an unstreamed request."""

SLOW_MS = 100
"""What the target takes that the promise is about: few models answer in less."""

_MESSAGES = [{"role": "user", "content": "Say something of about one kilobyte."}]


@dataclass(frozen=True, slots=True)
class LedgerTime:
    """Milliseconds of a request without and with the ledger; ``added_p50``: the difference of the medians,
    ``paired_p50``: the median of the differences. ``target_ms``: what the target takes to answer.
    """

    target_ms: int
    pairs: int
    off_p50: float
    off_p95: float
    on_p50: float
    on_p95: float
    added_p50: float
    paired_p50: float


def measure_all(pairs: int = 1000, slow_pairs: int = 300, warm_up: int = 100) -> list[LedgerTime]:
    """The target that takes its time, then the one that answers at once."""
    return [measure(slow_pairs, min(warm_up, 20), target_ms=SLOW_MS), measure(pairs, warm_up)]


def measure(pairs: int, warm_up: int, *, target_ms: int = 0) -> LedgerTime:
    """Raises ``RuntimeError`` when a row is missing afterwards."""
    with tempfile.TemporaryDirectory() as folder, server("chat") as url:
        ledger = DatabaseLedger(f"sqlite:///{Path(folder, 'ledger.db')}")
        asked: dict[str, Any] = {"model": f"after-{target_ms}", "messages": _MESSAGES, "temperature": 0}
        common: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "none"}
        times: tuple[list[float], list[float]] = ([], [])
        with (
            OpenAI(**common, speculation=Speculation(ledger="off")) as off,
            OpenAI(**common, speculation=Speculation(ledger=ledger)) as on,
        ):
            create = (off.chat.completions.create, on.chat.completions.create)
            gc.collect()
            for pair in range(pairs + warm_up):
                for side in (0, 1) if pair % 2 else (1, 0):
                    started = time.perf_counter()
                    create[side](**asked)
                    taken = time.perf_counter() - started
                    if pair >= warm_up:
                        times[side].append(taken)
        kept = sum(1 for record in ledger.requests() if record.calls[0].status == "ok")
        ledger.close()
        if kept != pairs + warm_up:
            raise RuntimeError(f"{kept} of {pairs + warm_up} requests are in the ledger")
    one, other = times
    return LedgerTime(
        target_ms,
        pairs,
        _ms(one, 50),
        _ms(one, 95),
        _ms(other, 50),
        _ms(other, 95),
        round(_ms(other, 50) - _ms(one, 50), 4),
        round(statistics.median(b - a for a, b in zip(one, other, strict=True)) * 1e3, 4),
    )


def _ms(seconds: list[float], percentile: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percentile - 1] * 1e3, 4)


def main() -> int:
    """Print JSON."""
    json.dump([asdict(row) for row in measure_all()], sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
