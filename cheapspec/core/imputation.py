"""Fills in what a trace of production does not know, so that it can be replayed; and says how much that is.

Rules
-----
* Production knows a draft only as far as it was scored and held. What lies beyond is *estimated*: each unknown
  position takes the log-probability and the agreement of one known position of the same drafter and workload. With
  fewer than :data:`ENOUGH` of those, of the same drafter anywhere; without any the drafter proposes nothing there.
* Positions were looked at one after the other until the first miss, so a known position is one trial of "does it
  hold, given that all before it did": the draw is from those trials, and long runs come out as often as they should.
* Which one is taken follows from the request's id, the drafter and the position by a hash: the same traces always
  give the same replay, and no two requests share their luck.
* Text that given-text drafters would have proposed elsewhere cannot be guessed: there they propose nothing.
* A draft is assumed to end its turn where the target ends its own, if it agrees there, and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cheapspec.core.traces import DraftRow, RequestTrace

__all__ = ["ENOUGH", "Completed", "complete"]

ENOUGH = 50
"""Known positions of a workload from which on it is its own sample."""

_Seen = tuple[float | None, bool]


@dataclass(frozen=True, slots=True)
class Completed:
    """A trace without unknown positions. ``estimated``: positions that were filled in, by drafter."""

    trace: RequestTrace
    estimated: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])


def complete(traces: Sequence[RequestTrace]) -> list[Completed]:
    """Fill in every row of every trace; requests that were never drafted get a row a known drafter of theirs."""
    pools = _pools(traces)
    return [_complete(trace, pools) for trace in traces]


def _pools(traces: Sequence[RequestTrace]) -> dict[tuple[str, str | None], list[_Seen]]:
    """Known positions by drafter and workload, and by drafter alone (``None``)."""
    pools: dict[tuple[str, str | None], list[_Seen]] = {}
    for trace in traces:
        for row in trace.drafts:
            for at, bit in enumerate(row.agreed):
                if bit is not None and at not in row.ends:
                    for workload in (trace.workload, None):
                        pools.setdefault((row.drafter, workload), []).append((row.logprobs[at], bit))
    return pools


def _complete(trace: RequestTrace, pools: Mapping[tuple[str, str | None], list[_Seen]]) -> Completed:
    rows = {row.drafter: row for row in trace.drafts}
    if not rows and not trace.statics:
        unknown = (None,) * trace.reply_tokens
        known = sorted({drafter for drafter, workload in pools if workload == trace.workload})
        rows = {drafter: DraftRow(drafter, unknown, unknown) for drafter in known}
    filled, estimated = list[DraftRow](), dict[str, frozenset[int]]()
    for drafter, row in rows.items():
        missing = frozenset(at for at, bit in enumerate(row.agreed) if bit is None)
        pool = pools.get((drafter, trace.workload), [])
        pool = pool if len(pool) >= ENOUGH else pools.get((drafter, None), [])
        filled.append(_fill(trace, row, missing, pool) if missing else row)
        if missing:
            estimated[drafter] = missing
    return Completed(replace(trace, drafts=tuple(filled)), estimated)


def _fill(trace: RequestTrace, row: DraftRow, missing: frozenset[int], pool: Sequence[_Seen]) -> DraftRow:
    logprobs, agreed, ends = list(row.logprobs), list(row.agreed), set(row.ends)
    turn_ends = trace.reply_tokens - 1 if trace.finish != "length" else -1
    for at in sorted(missing):
        if not pool:
            ends.add(at)  # a draft that ends at once is none
            agreed[at] = False
            continue
        logprobs[at], agreed[at] = pool[_pick(f"{trace.id}\0{row.drafter}\0{at}", len(pool))]
        if at == turn_ends and agreed[at]:
            ends.add(at)
    return replace(row, logprobs=tuple(logprobs), agreed=tuple(agreed), ends=frozenset(ends))


def _pick(key: str, count: int) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count
