"""Puts what a ledger keeps of a request together to a trace that can be replayed.

Rules
-----
* Only requests that could have been speculated on: those that were, and those that went direct for a reason of the
  moment (:data:`MOMENTARY`). What the exact rule cannot serve at all costs the same under every policy.
* The counts of tokens must be known, else there is nothing to price.
* Rounds give the known positions; everything else is *not known* (:mod:`cheapspec.core.imputation`).
* A claim that the reply ends is a last entry without a log-probability, in a row that has some. An agreed one at the
  reply's last position is the end of the turn.
* The ledger does not keep why a reply ended. It was cut at the caller's limit if the rounds reach its last token and
  the target did not end its turn; of a reply that the target finished by itself a turn's end is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from cheapspec.core.books import Trace
from cheapspec.core.estimate import SAMPLED
from cheapspec.core.records import RequestRecord
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow

__all__ = ["GIVEN_TEXT", "MOMENTARY", "assemble"]

GIVEN_TEXT = frozenset({"lookup", "prediction"})
"""Drafters without log-probabilities."""

MOMENTARY = frozenset(
    {
        "allowance",
        "budget",
        "cooldown",
        "disabled",
        "draft_busy",
        "draft_deadline",
        "latency",
        "no_draft",
        "not_probed",
        "not_worth_it",
        "price_unknown",
        "retry",
    }
)
"""Reasons that say nothing about the request itself."""


def assemble(record: RequestRecord, rounds: Sequence[Trace]) -> RequestTrace | None:
    """The trace of a request, from its rounds in order; ``None``: there is nothing to replay."""
    info = record.info or {}
    momentary = info.get("decision") == "direct" and info.get("reason") in MOMENTARY
    prompt, reply = info.get("prompt_tokens"), info.get("reply_tokens")
    if not (info.get("decision") == "speculate" or momentary) or not isinstance(prompt, int):
        return None
    if not isinstance(reply, int) or not reply:
        return None
    finish = _finish(rounds, reply)
    told: dict[str, list[Trace]] = {}
    for one in rounds:
        told.setdefault(one.drafter or "draft", []).append(one)
    cached = info.get("cached_prompt_tokens")
    target = info.get("target")
    return RequestTrace(
        id=record.row.request_id,
        workload=record.row.workload or record.row.model,
        prompt_tokens=prompt,
        reply_tokens=reply,
        finish=finish,
        cached_prompt_tokens=min(cached, prompt) if isinstance(cached, int) else 0,
        max_tokens=reply if finish == "length" else None,
        target=target if isinstance(target, str) else record.row.model,
        drafts=tuple(_model(name, own, reply, finish) for name, own in told.items() if not _given(name)),
        statics=tuple(_static(name, own, reply, finish) for name, own in told.items() if _given(name)),
    )


def _given(drafter: str) -> bool:
    return drafter.removesuffix(SAMPLED) in GIVEN_TEXT


def _finish(rounds: Sequence[Trace], reply: int) -> str:
    """``length`` if the rounds' last token is the reply's last and the turn did not end there."""
    if not rounds or any(one.ended for one in rounds):
        return "stop"
    last = max(one.position + sum(one.agreed) for one in rounds)
    return "length" if last + 1 >= reply else "stop"


def _model(drafter: str, rounds: Sequence[Trace], reply: int, finish: str) -> DraftRow:
    logprobs: list[float | None] = [None] * reply
    agreed: list[bool | None] = [None] * reply
    ends: set[int] = set()
    for one in rounds:
        count = len(one.agreed)
        claims = bool(count) and one.logprobs[-1] is None and any(known is not None for known in one.logprobs)
        for offset, (logprob, bit) in enumerate(zip(one.logprobs, one.agreed, strict=False)):
            at = one.position + offset
            if at >= reply:
                break
            logprobs[at], agreed[at] = logprob, bit
            if claims and offset == count - 1 and (not bit or (at == reply - 1 and finish == "stop")):
                ends.add(at)
    return DraftRow(drafter, tuple(logprobs), tuple(agreed), frozenset(ends))


def _static(drafter: str, rounds: Sequence[Trace], reply: int, finish: str) -> StaticRow:
    """A proposal that holds for k tokens holds for k - 1 from its second one on."""
    last = reply - (finish == "stop")
    proposed: list[int | None] = [None] * reply
    right: list[int | None] = [None] * reply
    for one in rounds:
        held = sum(one.agreed)
        for offset in range(min(held + 1, len(one.agreed), max(0, reply - one.position))):
            at = one.position + offset
            proposed[at] = len(one.agreed) - offset
            right[at] = max(0, min(held - offset, last - at))
    return StaticRow(drafter, tuple(proposed), tuple(right))
