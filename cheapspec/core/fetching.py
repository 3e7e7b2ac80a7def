"""A token outside the listed ones: the server is asked to draw it.

Rules
-----
* The listed tokens are banned, and one token is generated at temperature 1. It is kept or not as
  :class:`~cheapspec.core.sampling.Sampler` says; what is kept belongs to the reply, whatever it is.
* A token that holds a part of a character only is followed by single tokens, as the caller samples them, until the
  character is whole: from inside a character a continuation's text is not to be relied on.
* Each rejection is one more billed call. After so many that a token which was kept could not be completed within
  :data:`LONGEST` calls, or when the time is over, nothing more is chosen and the target goes on by itself. A token was
  rejected and none chosen then, so nothing that was drawn is lost.
* A draw that was chosen is not given up for the sake of time, and neither are the rest of a character: what takes a
  call more would become rarer than it is.
* A call that fails leaves what was verified before. That is the one way in which what was drawn can be
  lost: the server's failure, not ours.
"""

from __future__ import annotations

from dataclasses import replace

from cheapspec.core.calls import Steps
from cheapspec.core.effects import Side, Usage
from cheapspec.core.ports import Context, Drawn, NextToken, SamplingTarget, Score, Unusable
from cheapspec.core.received import read_usage
from cheapspec.core.request import Sampling
from cheapspec.core.sampling import Draws, Sampler
from cheapspec.core.turn import Turn
from cheapspec.core.untyped import as_mapping

__all__ = ["LONGEST", "TAIL", "expected_draws", "fetch"]

LONGEST = 6
"""Paid calls after a round at most: three draws of one token, the last with the rest of its character."""

TAIL = 0.05
"""Draws that a round without a nucleus is expected to pay for: a stated figure, on the long side. Where a draft fails
the target is less sure than elsewhere, so more than usual lies beyond the listed tokens."""

_CHARACTER = 4  # tokens at most: a token is at least one byte of UTF-8

_HALF = "\ufffd"
_NO_SCORE = Score((), (), None, Usage())


def expected_draws(sampling: Sampling | None) -> float:
    """How many draws a round is expected to pay for. With ``top_p`` below 1 the listed tokens cover the nucleus, or
    nothing is drawn.
    """
    return 0.0 if sampling is None or sampling.greedy or (sampling.top_p or 1.0) < 1 else TAIL


def fetch(
    turn: Turn, target: SamplingTarget, sampler: Sampler, draws: Draws, latest: float | None = None
) -> Steps[Unusable | bool]:
    """Draw the next token of the reply and add it to the verified text. True: the target ended its turn with it, and
    the reply is finished. ``latest``: when no other draw is chosen.
    """
    banned = sampler.spread.banned
    left = LONGEST - _CHARACTER
    while True:
        drawn = yield from _ask(turn, target, turn.context, banned, sampler.seed())
        if isinstance(drawn, Unusable):
            return drawn
        if drawn.token_id in banned:
            return Unusable("cannot_score", "the server wrote a token that it was told not to write", lasting=True)
        if sampler.spread.power and drawn.logprob is None:
            return Unusable("cannot_score", "the server does not tell how likely a token was", lasting=True)
        if sampler.keeps(drawn.logprob or 0.0):
            if drawn.ends_turn:
                return (yield from _end(turn))
            return (yield from _add(turn, target, drawn, draws))
        if not left or (latest is not None and turn.calls.now >= latest):
            return Unusable("sampling", "the token of the rest was rejected, and is left to the target", continues=True)
        left -= 1
        token = sampler.choose()
        follow = None if token is None else target.follow(token)
        if follow is not None:
            if follow.ends_turn:
                return (yield from _end(turn))
            return (yield from _add_listed(turn, target, follow))


def _ask(
    turn: Turn, target: SamplingTarget, context: Context, banned: tuple[int, ...], seed: int | None
) -> Steps[Drawn | Unusable]:
    """One billed call, and its place in the books."""
    started = turn.calls.now
    turn.owe(0, 1)
    task = yield from turn.calls.run_op(target.draw(turn.request, context, banned, seed), Side.TARGET)
    turn.tally.seconds_verify += turn.calls.now - started
    drawn = task.value
    if isinstance(drawn, Drawn):
        yield from turn.book(drawn.usage)
    else:
        billed = None if task.billed_reply is None else as_mapping(task.billed_reply.json()).get("usage")
        yield from turn.book(read_usage(billed))
    return drawn


def _add(turn: Turn, target: SamplingTarget, drawn: Drawn, draws: Draws) -> Steps[Unusable | bool]:
    """The token, and those that make its character whole."""
    base, ids = turn.context, [drawn.token_id]
    room, ended = turn.remaining(), False
    while True:
        task = yield from turn.calls.run_op(target.join(turn.request, base, ids), Side.TARGET)
        context = task.value
        if isinstance(context, Unusable):
            return context
        whole = not context.text.endswith(_HALF) or len(ids) >= _CHARACTER
        if whole or ended or len(ids) == room:
            break
        inside = replace(base, ids=(*(base.ids or ()), *ids), tokens=base.tokens + len(ids))
        more = yield from _ask(turn, target, inside, (), draws.seed(base.tokens + len(ids), 0))
        if isinstance(more, Unusable):
            return more
        ended = more.ends_turn
        if not ended:
            ids.append(more.token_id)
    if not whole:  # a limit or the end inside a character: what is no character is not shown
        context = replace(context, text=context.text.rstrip(_HALF))
    turn.tally.corrected_tokens += context.tokens - base.tokens
    yield from turn.verify(context, 0, ())
    return (yield from _end(turn)) if ended else False


def _add_listed(turn: Turn, target: SamplingTarget, follow: NextToken) -> Steps[Unusable | bool]:
    advancing = target.advance(turn.request, turn.context, "", _NO_SCORE, 0, follow)
    task = yield from turn.calls.run_op(advancing, Side.TARGET)
    context = task.value
    if isinstance(context, Unusable):
        return context
    turn.tally.corrected_tokens += context.tokens - turn.context.tokens
    yield from turn.verify(context, 0, ())
    return False


def _end(turn: Turn) -> Steps[bool]:
    yield from turn.finish("stop", 1)
    return True
