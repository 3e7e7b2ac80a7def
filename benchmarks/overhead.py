"""What passing a request through adds to ``openai.OpenAI``'s own time.

Rules
-----
* Both clients talk to the same server, request by request in turn, the order changing from pair to pair.
* A case is a way in which a request is not speculated. The first compares openai's client with
  itself: what it shows is noise.
* *Added* is the difference of the two medians. Beside it stands the same of the calling thread's processor
  time, which other programs on the machine disturb less.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import openai

from benchmarks.loopback import server
from cheapspec import OpenAI, Speculation, info

__all__ = ["LIMIT_MS", "Added", "Streamed", "measure", "measure_streamed"]

LIMIT_MS = 0.3
"""What the project promises: added median of an unstreamed request."""

_PRICES = {"input": "0.40", "cached_input": "0.04", "output": "3.00"}
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
_MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Say something of about one kilobyte."},
]


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    speculation: Speculation | None
    expected: tuple[str, str] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def client(self, url: str) -> openai.OpenAI:
        """``None`` as speculation means openai's own client."""
        common: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "none"}
        return openai.OpenAI(**common) if self.speculation is None else OpenAI(**common, speculation=self.speculation)


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds of a request: openai's client, ours, and the difference; ``cpu`` is processor time."""

    case: str
    pairs: int
    plain_p50: float
    plain_p95: float
    ours_p50: float
    ours_p95: float
    added_p50: float
    plain_cpu_p50: float
    ours_cpu_p50: float
    added_cpu_p50: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """A streamed reply: milliseconds to its first chunk, microseconds for each of the others (medians)."""

    case: str
    pairs: int
    chunks: int
    plain_first_ms: float
    ours_first_ms: float
    plain_chunk_us: float
    ours_chunk_us: float


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of every call."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


def _cases() -> list[_Case]:
    memory: dict[str, Any] = {"ledger": "memory"}  # what the database adds is benchmarks.ledger's to say
    lookup: dict[str, Any] = {"draft": "lookup", "prices": _PRICES, **memory}
    return [
        _Case("openai.OpenAI against itself", None),
        _Case("no draft model configured", Speculation(**memory), ("direct", "no_draft")),
        _Case("bypass: tools", Speculation(**lookup), ("bypass", "tools"), {"tools": [_TOOL]}),
        _Case("disabled", Speculation(**lookup, enabled=False), ("bypass", "disabled")),
        _Case("target that cannot score", Speculation(**lookup, target_backend="generic"), ("direct", "cannot_score")),
    ]


def measure(pairs: int = 2000, warm_up: int = 200) -> list[Added]:
    """One row a case. Raises ``RuntimeError`` when a case was decided otherwise than it is called."""
    with server("chat") as url:
        return [_compare(case, url, pairs, warm_up) for case in _cases()]


def _compare(case: _Case, url: str, pairs: int, warm_up: int) -> Added:
    asked: dict[str, Any] = {"model": "bench", "messages": _MESSAGES, "temperature": 0, **case.fields}
    with _Case("plain", None).client(url) as plain, case.client(url) as ours:
        create: tuple[Any, Any] = (plain.chat.completions.create, ours.chat.completions.create)
        _check(case, ours.chat.completions.with_raw_response.create(**asked))
        one, other = _interleave(create, asked, pairs, warm_up)
    wall = (_ms(one.wall, 50), _ms(one.wall, 95), _ms(other.wall, 50), _ms(other.wall, 95))
    cpu = (_ms(one.cpu, 50), _ms(other.cpu, 50))
    added, added_cpu = round(wall[2] - wall[0], 4), round(cpu[1] - cpu[0], 4)
    return Added(case.name, pairs, *wall, added, *cpu, added_cpu)


def measure_streamed(pairs: int = 100, chunks: int = 200, warm_up: int = 10) -> list[Streamed]:
    """The same for streams, without the bypass (which takes the same way as ``disabled``)."""
    rows: list[Streamed] = []
    with server("chat") as url:
        for case in _cases():
            if case.fields:
                continue
            asked: dict[str, Any] = {"model": f"chunks-{chunks}", "messages": _MESSAGES, "temperature": 0}
            with _Case("plain", None).client(url) as plain, case.client(url) as ours:
                _check(case, _consume(ours, asked)[1])
                runs: list[tuple[list[float], list[float]]] = [([], []), ([], [])]
                for pair in range(pairs + warm_up):
                    for side in (0, 1) if pair % 2 else (1, 0):
                        first, each = _stream_once((plain, ours)[side], asked, chunks)
                        if pair >= warm_up:
                            runs[side][0].append(first)
                            runs[side][1].append(each)
            (plain_first, plain_each), (ours_first, ours_each) = runs
            first_ms = (_ms(plain_first, 50), _ms(ours_first, 50))
            rows.append(Streamed(case.name, pairs, chunks, *first_ms, _us(plain_each), _us(ours_each)))
    return rows


def _stream_once(client: openai.OpenAI, asked: dict[str, Any], chunks: int) -> tuple[float, float]:
    """Seconds to the first chunk, and for each later one."""
    times, _ = _consume(client, asked)
    if len(times) != chunks + 3:  # the start, an opening and a closing chunk
        raise RuntimeError(f"{len(times) - 1} chunks came")
    return times[1] - times[0], (times[-1] - times[1]) / (len(times) - 2)


def _consume(client: openai.OpenAI, asked: dict[str, Any]) -> tuple[list[float], Any]:
    times = [time.perf_counter()]
    stream: Any = client.chat.completions.create(**asked, stream=True)
    times.extend(time.perf_counter() for _ in stream)
    return times, stream


def _check(case: _Case, reply: Any) -> None:
    told = info(reply)
    found = None if told is None else (told.decision, told.reason or "")
    if found != case.expected:
        raise RuntimeError(f"{case.name}: decided {found}, not {case.expected}")


def _interleave(
    calls: Sequence[Callable[..., object]], asked: Mapping[str, Any], pairs: int, warm_up: int
) -> tuple[_Times, _Times]:
    """Both calls in turn, in pairs whose order alternates."""
    times = (_Times(), _Times())
    gc.collect()
    for pair in range(pairs + warm_up):
        for side in (0, 1) if pair % 2 else (1, 0):
            started, worked = time.perf_counter(), time.thread_time()
            calls[side](**asked)
            work, taken = time.thread_time() - worked, time.perf_counter() - started
            if pair >= warm_up:
                times[side].wall.append(taken)
                times[side].cpu.append(work)
    return times


def _ms(seconds: Sequence[float], percentile: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percentile - 1] * 1e3, 4)


def _us(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1e6, 2)


def main() -> int:
    """Print JSON."""
    found = {"requests": [asdict(row) for row in measure()], "streams": [asdict(row) for row in measure_streamed()]}
    json.dump(found, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
