"""The clairvoyant: the cheapest course of a request for somebody who knows every run length beforehand.

Rules
-----
* At each position the choices are those of the engine: score the next K draft tokens of any one drafter, or hand
  the rest over (before the first round: go direct). Nothing else saves money, so no planner can pay less.
* A scored draft of K tokens gains those that hold, up to K, and one more: the correction where one does not, the
  generated token where all do.
* With R tokens right, K > R gains no more than K = R and costs more, except for R = 0, where K = 1 buys the
  correction (a draft of no tokens cannot be scored).
* Exact: dynamic programming from the end of the reply to its beginning over every K (O(n · R)); tests compare it
  with the enumeration of all schedules.

*Capture* is what a policy saves over what the clairvoyant saves: (1 - paid/baseline) / (1 - clairvoyant/baseline).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cheapspec.core.lanes import Lane
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace

__all__ = ["Schedule", "capture", "clairvoyant"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """``paid``: in the tariff's unit. ``scored``: draft tokens of each round in order. ``handed_off``: the position
    from which the target writes the rest (0: direct), ``None`` when the rounds reach the end of the reply.
    """

    paid: float
    scored: tuple[int, ...]
    handed_off: int | None


def clairvoyant(
    trace: RequestTrace, tariff: Tariff, drafters: Sequence[Lane], *, max_draft_tokens: int = 512
) -> Schedule:
    """The cheapest schedule; of equally cheap ones a hand-off before a round, and fewer draft tokens before more."""
    count = trace.reply_tokens
    best, choice = [0.0] * (count + 1), [0] * (count + 1)
    for position in range(count - 1, -1, -1):
        cheapest, chosen = tariff.hand_off(trace, position), 0
        fixed = tariff.score(trace, position, 0)
        for draft_tokens, following in _steps(position, count, drafters, max_draft_tokens):
            paid = fixed + tariff.rates.draft * draft_tokens + best[following]
            if paid < cheapest:
                cheapest, chosen = paid, draft_tokens
        best[position], choice[position] = cheapest, chosen
    return _schedule(count, best, choice, drafters, tariff.direct(trace))


def capture(paid: float, baseline: float, clairvoyant: float) -> float | None:
    """The share of the possible saving that was reached; negative for a loss, ``None`` when nothing could be saved."""
    possible = baseline - clairvoyant
    return (baseline - paid) / possible if possible > 1e-12 * baseline else None


def _steps(position: int, count: int, drafters: Sequence[Lane], most: int) -> list[tuple[int, int]]:
    """(draft tokens, position after the round) of every round that may be worth something."""
    right = max((min(lane.right[position], lane.length[position]) for lane in drafters), default=0)
    if right:
        return [(k, min(count, position + k + 1)) for k in range(1, min(right, most) + 1)]
    drafted = any(lane.length[position] for lane in drafters)
    return [(1, position + 1)] if drafted else []


def _schedule(
    count: int, best: Sequence[float], choice: Sequence[int], drafters: Sequence[Lane], direct: float
) -> Schedule:
    position, scored = 0, list[int]()
    while position < count:
        draft_tokens = choice[position]
        if not draft_tokens:
            return Schedule(best[0], tuple(scored), position)
        scored.append(draft_tokens)
        steps = dict(_steps(position, count, drafters, draft_tokens))
        position = steps[draft_tokens]
    return Schedule(best[0] if count else direct, tuple(scored), None if count else 0)
