"""The page ``docs/benchmarks.md``: pure text from what was measured, where, and against which promise."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.ledger import LIMIT_MS as LEDGER_LIMIT_MS
from benchmarks.ledger import LedgerTime
from benchmarks.loopback import REPLY_BYTES
from benchmarks.memory import LIMIT_MIB, Growth
from benchmarks.overhead import LIMIT_MS, Added, Streamed

__all__ = ["Machine", "Promise", "Results", "machine", "promises", "render"]

ROUND_LIMIT_MS = 1.0
"""What the project promises for the engine's own work in one round of 256 draft tokens."""

_PACKAGES = ("cheapspec", "openai", "httpx2", "pydantic", "uvicorn")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when. ``load``: processes that wanted a processor in the minute before, ``None`` where unknown."""

    system: str
    processor: str
    cores: int
    python: str
    packages: tuple[tuple[str, str], ...]
    at: datetime
    load: float | None = None

    @property
    def busy(self) -> bool:
        """Whether others were using the machine, so that clock times say little."""
        return self.load is not None and self.load > self.cores / 2


@dataclass(frozen=True, slots=True)
class Results:
    """Everything measured. ``rounds``: median milliseconds of an engine round of ``draft_tokens``, by its kind."""

    added: Sequence[Added] = ()
    streamed: Sequence[Streamed] = ()
    growth: Sequence[Growth] = ()
    rounds: Mapping[str, float] = field(default_factory=dict[str, float])
    draft_tokens: int = 0
    ledger: Sequence[LedgerTime] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """One figure that the project promises to keep below ``limit``."""

    what: str
    found: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """At most the limit."""
        return self.found <= self.limit


def machine() -> Machine:
    """The facts of this machine, before anything is measured."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    packages = tuple((name, version(name)) for name in _PACKAGES)
    system, python = f"{platform.system()} {platform.release()}", platform.python_version()
    return Machine(system, _processor(), os.cpu_count() or 1, python, packages, datetime.now(UTC), load)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def promises(results: Results) -> list[Promise]:
    """What was promised and found; the worst of each kind."""
    out: list[Promise] = []
    if results.added:
        worst = max(results.added[1:], key=lambda row: row.added_p50)
        out.append(Promise(f"pass-through adds ({worst.case})", worst.added_p50, LIMIT_MS, "ms"))
    out += [
        Promise(f"memory grows on {row.way}, chunk {row.first:,} to {row.last:,}", row.grown_mib, LIMIT_MIB, "MiB")
        for row in results.growth
        if row.way == "pass-through"
    ]
    if results.rounds:
        worst_round = max(results.rounds, key=lambda name: results.rounds[name])
        what = f"engine time a round of {results.draft_tokens} draft tokens ({_words(worst_round)})"
        out.append(Promise(what, results.rounds[worst_round], ROUND_LIMIT_MS, "ms"))
    out += [
        Promise(f"the ledger adds ({_target(row)})", row.paired_p50, LEDGER_LIMIT_MS, "ms")
        for row in results.ledger
        if row.target_ms
    ]
    return out


def render(results: Results, where: Machine) -> str:
    """The whole page."""
    parts = [_opening(where), _promises(promises(results))]
    if results.added:
        parts.append(_added(results.added))
    if results.streamed:
        parts.append(_streamed(results.streamed))
    if results.growth:
        parts.append(_growth(results.growth))
    if results.rounds:
        parts.append(_rounds(results))
    if results.ledger:
        parts.append(_ledger(results.ledger))
    return "\n\n".join(parts) + "\n"


def _opening(where: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in where.packages)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; not to be edited. Figures hold for the machine and the versions named here.",
        "",
        f"* {where.at:%Y-%m-%d %H:%M} UTC",
        f"* {where.system}, {where.processor}, {where.cores} cores, Python {where.python}",
        f"* {versions}",
    ]
    if where.load is not None:
        lines.append(f"* load average before the run: {where.load:.1f}")
    if where.busy:
        lines += [
            "",
            "**Other programs were using this machine**: clock times below are too long, and their differences",
        ]
        lines.append("with them. Processor times are nearer to the truth, but suffer too.")
    return "\n".join(lines)


def _promises(found: Sequence[Promise]) -> str:
    rows = [
        (promise.what, f"{promise.found:.3f} {promise.unit}", f"{promise.limit:g} {promise.unit}", _verdict(promise))
        for promise in found
    ]
    return "## Promises\n\n" + _table(("figure", "found", "at most", ""), rows)


def _verdict(promise: Promise) -> str:
    return "met" if promise.met else "**not met**"


def _added(rows: Sequence[Added]) -> str:
    text = (
        f"`openai.OpenAI` and `cheapspec.OpenAI` in turn, request by request, {rows[0].pairs:,} pairs a row, against\n"
        f"a server in another process that answers at once ({REPLY_BYTES:,} bytes, not streamed). Milliseconds; the\n"
        "first row compares openai's client with itself and shows the noise. *CPU* is processor time of the calling\n"
        "thread."
    )
    head = (
        "request",
        "openai p50",
        "p95",
        "cheapspec p50",
        "p95",
        "added p50",
        "openai CPU",
        "cheapspec CPU",
        "added CPU",
    )
    body = [
        (
            row.case,
            f"{row.plain_p50:.3f}",
            f"{row.plain_p95:.3f}",
            f"{row.ours_p50:.3f}",
            f"{row.ours_p95:.3f}",
            f"{row.added_p50:+.3f}",
            f"{row.plain_cpu_p50:.3f}",
            f"{row.ours_cpu_p50:.3f}",
            f"{row.added_cpu_p50:+.3f}",
        )
        for row in rows
    ]
    return f"## Pass-through\n\n{text}\n\n{_table(head, body)}"


def _streamed(rows: Sequence[Streamed]) -> str:
    first = rows[0]
    text = (
        f"The same with streams of {first.chunks} chunks, {first.pairs} pairs a row: milliseconds until the first\n"
        "chunk, then microseconds for each of the others (medians). A passed-through stream is the target's own object."
    )
    head = ("request", "openai first", "cheapspec first", "openai each", "cheapspec each")
    body = [
        (
            row.case,
            f"{row.plain_first_ms:.3f} ms",
            f"{row.ours_first_ms:.3f} ms",
            f"{row.plain_chunk_us:.1f} µs",
            f"{row.ours_chunk_us:.1f} µs",
        )
        for row in rows
    ]
    return f"## Pass-through, streamed\n\n{text}\n\n{_table(head, body)}"


def _growth(rows: Sequence[Growth]) -> str:
    text = (
        "Python's allocations (`tracemalloc`) after two numbers of chunks of one stream, whose reader keeps nothing.\n"
        "A hand-off keeps the reply's text and token ids, so that a broken stream can be continued; nothing is\n"
        "promised for it."
    )
    body = [
        (
            row.way,
            f"{row.first:,}",
            f"{row.last:,}",
            f"{row.at_first_mib:.2f}",
            f"{row.at_last_mib:.2f}",
            f"{row.grown_mib:+.2f}",
        )
        for row in rows
    ]
    head = ("stream", "first reading at chunk", "second at", "MiB at the first", "at the second", "growth")
    return f"## Memory\n\n{text}\n\n{_table(head, body)}"


def _rounds(results: Results) -> str:
    text = (
        f"Processor time of the engine alone in a round of {results.draft_tokens} draft tokens, all accepted, without\n"
        "input or output: planning, judging the prepared scores, showing the text through the stop strings."
    )
    body = [(_words(name), f"{milliseconds:.3f}") for name, milliseconds in results.rounds.items()]
    return f"## Engine\n\n{text}\n\n{_table(('round', 'ms, median'), body)}"


def _ledger(rows: Sequence[LedgerTime]) -> str:
    text = (
        "Two clients in turn, one with its ledger switched off, one with an SQLite file: milliseconds of an\n"
        "unstreamed request. It is sent once its row is committed; what closes it is written while the next is\n"
        "under way, which a target that answers at once leaves no time for."
    )
    head = ("target", "pairs", "off p50", "p95", "on p50", "p95", "median of the differences")
    body = [
        (
            _target(row),
            f"{row.pairs:,}",
            f"{row.off_p50:.3f}",
            f"{row.off_p95:.3f}",
            f"{row.on_p50:.3f}",
            f"{row.on_p95:.3f}",
            f"{row.paired_p50:+.3f}",
        )
        for row in rows
    ]
    return f"## Ledger\n\n{text}\n\n{_table(head, body)}"


def _target(row: LedgerTime) -> str:
    return f"answers after {row.target_ms} ms" if row.target_ms else "answers at once"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
