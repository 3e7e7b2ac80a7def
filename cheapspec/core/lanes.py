"""What each drafter would propose at any position of a past reply, and how much of it would hold.

Rules
-----
* A *lane* is one drafter along the final reply. A draft that begins at position p says what the row says from p on,
  up to its first wrong token, that one included; after it the draft's own branch where one is recorded, else the
  row's next entries (a stand-in: the planner sees log-probabilities of the right kind there, none of which can be
  accepted any more).
* A draft ends where the draft model ends its turn, at the longest draft that production asks for, and at the end of
  what is known. Its end is a claim (``finished``), not a token.
* The end of the target's turn cannot be drafted as a token: ``right`` never counts it.
* Whoever plans is shown :class:`Proposal` objects. They hold no agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow

__all__ = ["Lane", "Proposal", "lanes"]

_UNKNOWN = DraftToken("")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A draft as production would see it. ``finished``: the draft model ended its turn after ``tokens``; ``static``:
    given text, no model.
    """

    drafter: str
    tokens: tuple[DraftToken, ...]
    finished: bool = False
    static: bool = False

    def head(self, count: int) -> Proposal | None:
        """The first ``count`` tokens, fewer than there are; they claim nothing about the end. ``None``: no token."""
        return replace(self, tokens=self.tokens[:count], finished=False) if count > 0 else None


@dataclass(frozen=True, slots=True)
class Lane:
    """One drafter along a reply of n tokens. ``right[p]``: how many tokens drafted from p on hold; ``length[p]``: how
    many are drafted (without what a planner's limit cuts off); ``ends[p]``: whether that draft ends its turn.
    """

    drafter: str
    static: bool
    right: tuple[int, ...]
    length: tuple[int, ...]
    ends: tuple[bool, ...]
    tokens: tuple[DraftToken, ...]
    branches: dict[int, tuple[DraftToken, ...]]

    def propose(self, position: int, limit: int) -> Proposal | None:
        """The draft that begins at ``position``, at most ``limit`` tokens of it; ``None`` if there is none."""
        length = self.length[position]
        kept = min(length, limit)
        if kept < 1:
            return None
        finished = self.ends[position] and kept == length
        if self.static:
            return Proposal(self.drafter, (_UNKNOWN,) * kept, finished, True)
        wrong = position + self.right[position]
        branch = self.branches.get(wrong)
        if branch is None or wrong - position + 1 >= kept:
            return Proposal(self.drafter, self.tokens[position : position + kept], finished)
        own = self.tokens[position : wrong + 1]
        return Proposal(self.drafter, (*own, *branch)[:kept], finished)


def lanes(trace: RequestTrace, drafters: Sequence[str] | None = None) -> tuple[Lane, ...]:
    """The lanes of a request in the order in which drafters are asked (given text first); ``drafters``: only these.

    Agreement that is not known counts as disagreement: fill it in first (:mod:`cheapspec.core.imputation`).
    """
    static = [_static(trace, row) for row in trace.statics]
    models = [_model(trace, row) for row in trace.drafts]
    return tuple(lane for lane in (*static, *models) if drafters is None or lane.drafter in drafters)


def _last(trace: RequestTrace) -> int:
    """Positions that can be drafted as tokens: all but the end of the turn."""
    return max(0, trace.reply_tokens - (trace.finish != "length"))


def _static(trace: RequestTrace, row: StaticRow) -> Lane:
    last, count = _last(trace), trace.reply_tokens
    right = tuple(min(value or 0, max(0, last - at)) for at, value in enumerate(row.right))
    length = tuple(value or 0 for value in row.proposed)
    return Lane(row.drafter, True, right, length, (row.whole,) * count, (), {})


def _model(trace: RequestTrace, row: DraftRow) -> Lane:
    last, count = _last(trace), trace.reply_tokens
    right, length, ends = [0] * count, [0] * count, [False] * count
    for at in range(count - 1, -1, -1):
        following = at + 1 < count
        if at in row.ends:
            ends[at] = True
        elif row.agreed[at] is True and at < last:
            right[at] = 1 + (right[at + 1] if following else 0)
            length[at] = 1 + (length[at + 1] if following else 0)
            ends[at] = following and ends[at + 1]
        elif at in row.branches:
            length[at], ends[at] = 1 + len(row.branches[at].logprobs), row.branches[at].ended
        else:
            length[at] = 1 + (length[at + 1] if following else 0)
            ends[at] = following and ends[at + 1]
    tokens = tuple(DraftToken("", logprob) for logprob in row.logprobs)
    branches = {
        at: tuple(DraftToken("", logprob) for logprob in branch.logprobs) for at, branch in row.branches.items()
    }
    return Lane(row.drafter, False, tuple(right), tuple(length), tuple(ends), tokens, branches)
