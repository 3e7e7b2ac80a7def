"""A draft that nobody has written yet, and a prompt that nobody has counted: what they are like, as far as is known.

Rules
-----
* How often its tokens fall into each class of draft probability is taken from what this workload has shown, else from
  the target's other workloads, else from the measured table (:data:`MIX`).
* The prompt is counted on the long side, since a context that is taken for short flatters a plan.
* The classes are spread evenly over the draft, so that its beginning is like the whole.
* Its tokens have log-probabilities and no text. A plan made with it is a forecast; the engine plans with a real draft.
"""

from __future__ import annotations

import math

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.drafting import Draft
from cheapspec.core.estimate import AGREEMENT, END, START, STATIC, Counts, Estimates, bucket_of
from cheapspec.core.request import Request

__all__ = ["MIX", "assumed_draft", "assumed_prompt"]

MIX: tuple[int, ...] = (27, 88, 154, 197, 217, 223, 227, 234, 303, 659, 2900)
"""Positions in each class of :data:`~cheapspec.core.estimate.AGREEMENT`, of the same measurement."""

_BYTES_A_TOKEN, _TOKENS_A_MESSAGE = 3, 8
"""On the long side: English has four to five bytes a token, a chat template some four tokens a message."""

_LOGPROBS = tuple(math.log(edge) if edge else math.log(0.05) for edge, _ in AGREEMENT)
_CLASSES: dict[str, float | None] = {**{bucket_of(logprob): logprob for logprob in _LOGPROBS}, bucket_of(None): None}
_MEASURED: dict[str, float] = {bucket_of(logprob): float(count) for logprob, count in zip(_LOGPROBS, MIX, strict=True)}


def assumed_prompt(request: Request) -> int:
    """Tokens of the prompt, on the long side."""
    texts = [request.prompt or "", *(str(message.get("content", "")) for message in request.messages)]
    return sum(len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN + _TOKENS_A_MESSAGE for text in texts)


def assumed_draft(drafter: str, estimates: Estimates, tokens: int, *, finished: bool = False) -> Draft:
    """A draft of so many tokens. ``finished``: it ends its turn after them."""
    shares = _shares(drafter, estimates.counts) or _shares(drafter, estimates.background) or _MEASURED
    total = math.fsum(shares.values())
    owed = dict.fromkeys(shares, 0.0)
    out: list[DraftToken] = []
    for _ in range(tokens):
        for name, share in shares.items():
            owed[name] += share / total
        most = max(owed, key=owed.__getitem__)
        owed[most] -= 1.0
        out.append(DraftToken("", _CLASSES[most]))
    return Draft(tuple(out), drafter, "stop" if finished else None)


def _shares(drafter: str, counts: Counts) -> dict[str, float]:
    """Observations by class, of this drafter; nothing where none has been looked at."""
    return {
        bucket: count.trials
        for (name, bucket), count in counts.items()
        if name == drafter and bucket not in (END, START, STATIC) and bucket in _CLASSES and count.trials > 0
    }
