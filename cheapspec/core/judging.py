"""What a score says about a draft, under the rule of the request: how much holds, and what the target says then.

Rules
-----
* Temperature 0: :func:`~cheapspec.core.acceptance.verify_greedy`, or :func:`verify_lenient`. Above 0: one
  draw a position (:mod:`cheapspec.core.sampling`); the draft's token holds while it is what was drawn.
* Above 0 a position whose distribution is not known well enough *stops* the walk before anything is drawn
  there: the target goes on from there by itself, which is its own distribution.
* The lenient rule accepts what is near the likeliest token, whatever was drawn; it counts where it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from cheapspec.core.acceptance import Alternative, TargetLogprob, usable, verify_greedy, verify_lenient
from cheapspec.core.ports import NextToken, Score, Target
from cheapspec.core.sampling import Draws, Law, Sampler, spread

__all__ = ["Judged", "Rule", "judge"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How tokens of a draft are judged. ``tie_nats``: see ``verify_greedy``. ``lenient``: nats below the top that are
    accepted, ``None``: the exact rule. ``law`` and ``draws``: both or neither; with them the target samples.
    """

    tie_nats: float = 0.0
    lenient: float | None = None
    law: Law | None = None
    draws: Draws | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """``accepted``: leading tokens that hold, ``lenient`` of them by lenience only, ``ties`` of them not the sole
    argmax. ``correction``: what the target says after them, where it is one of the listed tokens. ``follow``: the
    same, or the bonus token after a draft that holds, as a token to go on with. ``sampler``: it is a
    token outside the listed ones, which the server has to be asked for. ``stopped``: nothing was drawn after the
    accepted tokens, since the distribution is not known. ``own``: accepted tokens before the first that holds by
    lenience only. ``unverified``: as in ``VerificationResult``.
    """

    accepted: int
    correction: Alternative | None = None
    follow: NextToken | None = None
    sampler: Sampler | None = None
    stopped: bool = False
    ties: int = 0
    lenient: int = 0
    unverified: int = 0
    own: int = 0


@dataclass(frozen=True, slots=True)
class _Named:
    """Whether a listed token can be gone on with; ``part``: the id of one that cannot."""

    target: Target
    part: int | None = None

    def __call__(self, token: Alternative) -> bool:
        return token.token_id != self.part and self.target.follow(token) is not None


def judge(target: Target, score: Score, length: int, rule: Rule, begin: int, limit: int | None) -> Judged:
    """``length``: characters of the scored text. ``begin``: tokens of the reply before it. ``limit``: how many the
    reply may still have, ``None``: no limit.
    """
    if rule.law is not None and rule.draws is not None:
        return _drawn(target, score, length, rule, rule.law, rule.draws, begin, limit)
    result = verify_greedy(score.tokens, tie_nats=rule.tie_nats, limit=limit)
    own = result.accepted
    if rule.lenient is not None:
        result = verify_lenient(score.tokens, rule.lenient, tie_nats=rule.tie_nats, limit=limit)
    follow: NextToken | None = None
    if limit is None or result.accepted < limit:
        if result.accepted == len(score.tokens):
            follow = score.next if score.ends[-1] == length else None
        elif result.correction is not None:
            follow = target.follow(result.correction)
    return Judged(
        result.accepted,
        result.correction,
        follow,
        ties=result.ties,
        lenient=result.lenient,
        unverified=result.unverified,
        own=own,
    )


def _drawn(
    target: Target, score: Score, length: int, rule: Rule, law: Law, draws: Draws, begin: int, limit: int | None
) -> Judged:
    lenient, first = 0, len(score.tokens)
    for index, (position, end) in enumerate(zip(score.tokens, score.ends, strict=True)):
        if index == limit:
            return Judged(index, lenient=lenient, own=min(first, index))
        if not usable(position.logprob) or position.token_id is None:
            return Judged(index, lenient=lenient, unverified=1, stopped=True, own=min(first, index))
        part = position.token_id if end is None else None  # a part of a character is not to be accepted
        found = spread(position, law, _Named(target, part))
        if found is None:
            return Judged(index, lenient=lenient, stopped=True, own=min(first, index))
        sampler = Sampler(found, draws, begin + index)
        token = sampler.choose()
        if token is not None and token.token_id == position.token_id:
            continue
        if rule.lenient is not None and end is not None and _near(position, rule.lenient):
            lenient, first = lenient + 1, min(first, index)
            continue
        follow = None if token is None else target.follow(token)
        asking = sampler if token is None else None
        return Judged(index, token, follow, asking, lenient=lenient, own=min(first, index))
    count = len(score.tokens)
    if count == limit or score.after is None or score.ends[-1] != length:
        return Judged(count, lenient=lenient, own=first)
    found = spread(score.after, law, _Named(target))
    if found is None:
        return Judged(count, lenient=lenient, stopped=True, own=first)
    sampler = Sampler(found, draws, begin + count)
    token = sampler.choose()
    follow = None if token is None else target.follow(token)
    return Judged(count, None, follow, sampler if token is None else None, lenient=lenient, own=first)


def _near(position: TargetLogprob, nats: float) -> bool:
    best = max((one.logprob for one in position.top if usable(one.logprob)), default=None)
    return position.logprob is not None and best is not None and position.logprob >= best - nats
