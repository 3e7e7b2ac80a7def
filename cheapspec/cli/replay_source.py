"""Where ``cheapspec replay`` gets its requests from: the ledger, or files of traces; and what is known of their speed.

Rules
-----
* A ledger's request is replayed if it could have been speculated on and its tokens are known
  (:mod:`cheapspec.core.assembly`); how many were left out, and why, is part of the answer.
* Requests are grouped by target: each has its own prices, its own speed and its own estimates.
* Speeds are measured from the ledger's calls; a file of traces has none, and the stated prior stands in.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cheapspec.cli.report import opened_ledger
from cheapspec.core.assembly import assemble
from cheapspec.core.records import RequestRecord, TraceReader
from cheapspec.core.speed import DraftSpeed, TargetSpeed
from cheapspec.core.traces import RequestTrace, load_trace
from cheapspec.core.untyped import as_mapping, is_number
from cheapspec.errors import CheapspecError

__all__ = ["Source", "from_files", "from_ledger"]


@dataclass(slots=True)
class Source:
    """``traces`` in the order in which they were asked. ``left_out``: how many requests are not among them, by reason.
    ``target_speeds`` (by target), ``draft_speed``: as far as calls tell.
    """

    name: str
    traces: list[RequestTrace] = field(default_factory=list[RequestTrace])
    left_out: Counter[str] = field(default_factory=Counter[str])
    target_speeds: dict[str, TargetSpeed] = field(default_factory=dict[str, TargetSpeed])
    draft_speed: DraftSpeed = field(default_factory=DraftSpeed)

    def by_target(self) -> dict[str, list[RequestTrace]]:
        """Traces by ``MODEL@BASE_URL`` (or whatever the recorder called it; empty: it did not say)."""
        groups: dict[str, list[RequestTrace]] = {}
        for trace in self.traces:
            groups.setdefault(trace.target or "", []).append(trace)
        return groups


def from_files(paths: Iterable[Path]) -> Source:
    """Lines of :func:`cheapspec.core.traces.dump_trace`; a name that ends in ``.gz`` is compressed.

    :raises CheapspecError: a file cannot be read, or holds something else; the message names file and line.
    """
    told = [str(path) for path in paths]
    source = Source(", ".join(told))
    for name in told:
        source.traces += _read(Path(name))
    if not source.traces:
        raise CheapspecError(f"{source.name}: there is no trace in it, so there is nothing to replay.")
    return source


def from_ledger(asked: str | None, since: float | None, session: str | None) -> Source:
    """The ledger's requests with their rounds.

    :raises LedgerError: there is no ledger, or it cannot be read.
    :raises CheapspecError: it has nothing that could be replayed; the message says what it has instead.
    """
    with opened_ledger(asked) as (reader, missing):
        if missing or not isinstance(reader, TraceReader):
            raise CheapspecError(missing or "this ledger keeps no traces.")
        source = Source("the ledger")
        for record, rounds in reader.traced(since=since, session=session):
            trace = assemble(record, rounds)
            if trace is None:
                source.left_out[_why(record)] += 1
            else:
                source.traces.append(trace)
                _measure(source, record, trace.target or "")
    if not source.traces:
        which = f" of session {session!r}" if session else ""
        when = " since then" if since is not None else ""
        others = ", ".join(f"{count} {why}" for why, count in source.left_out.most_common()) or "none at all"
        raise CheapspecError(f"the ledger has no requests{which}{when} that could be replayed: {others}.")
    return source


def _read(path: Path) -> Iterator[RequestTrace]:
    opened = gzip.open if path.suffix == ".gz" else open
    number = 1
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield load_trace(str(line))
                number += 1
    except (OSError, EOFError) as error:
        raise CheapspecError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    except ValueError as error:
        raise CheapspecError(f"{path}, line {number}: {error}.") from None


def _why(record: RequestRecord) -> str:
    """What to call a request that is left out."""
    info = record.info
    if info is None:
        return "unfinished"
    decision = str(info.get("decision"))
    if decision == "speculate" or (decision == "direct" and info.get("prompt_tokens") is None):
        return "of unknown length"
    return f"{decision} ({info.get('reason')})"


def _measure(source: Source, record: RequestRecord, target: str) -> None:
    for call in record.calls:
        usage = call.usage
        if call.row.billed and call.status == "ok" and usage is not None and call.seconds is not None:
            fresh = usage.input_tokens - (usage.cached_tokens or 0)
            seen = source.target_speeds.get(target, TargetSpeed())
            source.target_speeds[target] = seen.observe(fresh, usage.output_tokens, call.seconds)
    info = record.info or {}
    seconds, tokens = as_mapping(info.get("seconds")).get("draft"), info.get("drafted_tokens")
    if is_number(seconds) and seconds > 0 and isinstance(tokens, int) and tokens:
        source.draft_speed = source.draft_speed.observe(tokens, seconds)
