"""What the ledger in a database adds to a request.

Rules
-----
* Two clients of ours ask the same server, request by request in turn, the order changing from pair to pair: one has
  its ledger switched off, the other an SQLite file on this machine's disk.
* *Added* is the difference of the two medians. A request of the second client is only sent once its row is
  committed; the rows of its end are written while the next requests run, and what that takes from them is in
  the figure.
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

__all__ = ["LIMIT_MS", "LedgerTime", "measure"]

LIMIT_MS = 0.5
"""What the project promises: added median of an unstreamed request."""

_MESSAGES = [{"role": "user", "content": "Say something of about one kilobyte."}]


@dataclass(frozen=True, slots=True)
class LedgerTime:
    """Milliseconds of a request without and with the ledger, and the difference of the medians."""

    pairs: int
    off_p50: float
    off_p95: float
    on_p50: float
    on_p95: float
    added_p50: float
    paired_p50: float


def measure(pairs: int = 2000, warm_up: int = 200) -> LedgerTime:
    """Raises ``RuntimeError`` when a row is missing afterwards."""
    with tempfile.TemporaryDirectory() as folder, server("chat") as url:
        ledger = DatabaseLedger(f"sqlite:///{Path(folder, 'ledger.db')}")
        asked: dict[str, Any] = {"model": "bench", "messages": _MESSAGES, "temperature": 0}
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
    json.dump(asdict(measure()), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
