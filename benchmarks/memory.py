"""Whether memory grows with the length of a streamed reply.

Python's own allocations (``tracemalloc``) are compared between two chunks of one long stream, which its
reader throws away as it comes; the garbage collector runs before each reading. Two ways:

* ``pass-through``: the reply is the target's own stream, nothing is kept.
* ``hand-off``: a draft is scored, then the target goes on for the rest. Its text, its token ids and the
  caller's view of them are kept, so that a broken stream can be continued: that grows with the reply.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from dataclasses import asdict, dataclass
from typing import Any

import openai

from benchmarks.loopback import server, toy
from cheapspec import OpenAI, Speculation, info

__all__ = ["LIMIT_MIB", "Growth", "measure"]

LIMIT_MIB = 1.0
"""What the project promises for pass-through, between chunks 1,000 and 100,000."""

_MESSAGES: list[Any] = [{"role": "user", "content": "Write without end."}]
_PRICES = {"input": "0.40", "cached_input": "0.04", "output": "3.00"}


@dataclass(frozen=True, slots=True)
class Growth:
    """MiB in use after two numbers of chunks."""

    way: str
    first: int
    last: int
    at_first_mib: float
    at_last_mib: float
    grown_mib: float


def measure(first: int = 1000, last: int = 100_000) -> list[Growth]:
    """Both ways. Raises ``RuntimeError`` when a reply was not answered in the way it is called."""
    return [_pass_through(first, last), _hand_off(first, last)]


def _pass_through(first: int, last: int) -> Growth:
    speculation = Speculation(ledger="memory")
    with server("chat") as url, OpenAI(base_url=f"{url}/v1", api_key="none", speculation=speculation) as client:
        asked: dict[str, Any] = {"model": f"chunks-{last + 1}", "temperature": 0}
        return _growth("pass-through", client, asked, first, last, ("direct", "no_draft"))


def _hand_off(first: int, last: int) -> Growth:
    speculation = Speculation(draft="lookup", target_backend="vllm", draft_tokens=4, prices=_PRICES, ledger="memory")
    with server("target") as url, OpenAI(base_url=f"{url}/v1", api_key="none", speculation=speculation) as client:
        asked: dict[str, Any] = {
            "model": "toy",
            "temperature": 0,
            "max_tokens": 2 * last,  # several tokens may share a chunk
            "prediction": {"type": "content", "content": _beginning()},
        }
        return _growth("hand-off", client, asked, first, last, ("speculate", ""))


def _beginning() -> str:
    """What the target will say first: a draft that holds."""
    model = toy()
    written = model.greedy(model.encode(model.render(_MESSAGES)), 24)
    return model.decode(written).partition("\ufffd")[0]  # not into half a character


def _growth(
    way: str, client: openai.OpenAI, asked: dict[str, Any], first: int, last: int, expected: tuple[str, str]
) -> Growth:
    readings: list[float] = []
    chunks = 0
    tracemalloc.start()
    try:
        stream: Any = client.chat.completions.create(messages=_MESSAGES, stream=True, **asked)
        for _ in stream:
            chunks += 1
            if chunks in (first, last):
                gc.collect()
                readings.append(tracemalloc.get_traced_memory()[0] / 2**20)
            if chunks == last:
                break
        stream.close()
    finally:
        tracemalloc.stop()
    told = info(stream)
    if len(readings) != 2 or told is None or (told.decision, told.reason or "") != expected:
        raise RuntimeError(f"{way}: {chunks} chunks came, decided {told}")
    at_first, at_last = readings
    return Growth(way, first, last, round(at_first, 3), round(at_last, 3), round(at_last - at_first, 3))


def main() -> int:
    """Print JSON."""
    json.dump([asdict(growth) for growth in measure()], sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
