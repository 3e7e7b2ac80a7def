"""One round: a draft is scored, what the target's numbers prove is accepted, and its own next token follows.

Rules
-----
* A score without a real distribution, without a usable number at its first token, or that does not fit
  what was sent is *unverified*: nothing of it is accepted. While nothing has reached the caller the
  request then goes direct, after that the target goes on by itself; so it does, too, from a verified reply
  that is not in doubt, or where beginning anew would lose more than the allowance was asked for.
* A target whose first token opens a block of thoughts is no target for drafts of the answer, now or later.
* After the accepted tokens comes one token of the target's own: the correction (its scored alternative)
  or, when all hold, the bonus token it generated. A correction that cannot be text by itself (a special
  token, part of a character) is left to the hand-off: a new draft would only meet it again.
* A scoring call that is still under way at ``latest`` is given up: it is booked at what it may have cost, and
  the request goes direct, or hands off once something was shown.
* The bonus token counts only when the scored tokens reach to the draft's very end.
* The turn ends only at the end of a character.
* A round verifies at least one token or is the last.
* A draw is paid for only where it is needed: not behind a stop string.
* Where the target samples (temperature above 0) nothing that was drawn is thrown away: then the request no longer
  goes direct, and a token that cannot be named is fetched (:mod:`cheapspec.core.fetching`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from cheapspec.core.calls import Steps
from cheapspec.core.drafting import Draft, slice_tokens
from cheapspec.core.effects import GoDirect, Note, Side
from cheapspec.core.estimate import SAMPLED
from cheapspec.core.fetching import fetch
from cheapspec.core.judging import Judged, Rule, judge
from cheapspec.core.lookup import realign
from cheapspec.core.ports import SamplingTarget, Score, Target, Unusable
from cheapspec.core.received import read_usage
from cheapspec.core.text import opens_thoughts
from cheapspec.core.tracing import trace_note
from cheapspec.core.turn import Turn
from cheapspec.core.untyped import as_mapping

__all__ = ["note_unusable", "verify_round"]

_SOME = math.log(0.01)
_UNKNOWN_LAW = Unusable("sampling", "what the target lists does not tell how it would choose here", continues=True)


def verify_round(
    turn: Turn, target: Target, draft: Draft, count: int, rule: Rule, latest: float | None = None
) -> Steps[Draft | Unusable | None]:
    """Score the draft's first ``count`` tokens, accept, show.

    ``None``: the run is over. ``Unusable``: hand off. A ``Draft``: what is left of this one, maybe nothing.
    """
    tally, started, scored = turn.tally, turn.calls.now, draft.head(count)
    turn.owe(len(scored.tokens), 1)
    scoring = target.score(turn.request, turn.context, scored.text)
    task = yield from turn.calls.run_op(scoring, Side.TARGET, latest=latest)
    tally.seconds_verify += turn.calls.now - started
    tally.drafter = draft.drafter
    if not task.done:
        yield from turn.book()
        tally.drafted_tokens += len(scored.tokens)
        late = Unusable("latency", "scoring took longer than may be added", continues=True)
        return (yield from _unverified(turn, late, len(scored.tokens)))
    score = task.value
    if isinstance(score, Unusable):
        billed = None if task.billed_reply is None else as_mapping(task.billed_reply.json()).get("usage")
        yield from turn.book(read_usage(billed))
        tally.drafted_tokens += len(scored.tokens)
        return (yield from _unverified(turn, score, len(scored.tokens)))
    yield from turn.book(score.usage)
    told = len(score.tokens) or len(scored.tokens)  # as the target counts, so that it compares with accepted tokens
    tally.drafted_tokens += told
    doubt = _doubt(score) or _may_think_first(turn, score, rule)
    if doubt is not None:
        return (yield from _unverified(turn, doubt, told))
    judged = judge(target, score, len(scored.text), rule, turn.context.tokens, turn.remaining())
    doubt = _no_evidence(judged) or (None if rule.law is not None else _thinks_first(turn, judged))
    if doubt is not None:
        return (yield from _unverified(turn, doubt, told))
    tally.identify(score.identity)
    if turn.context.prompt_tokens is None:
        turn.context = replace(turn.context, prompt_tokens=score.prompt_tokens)
    return (yield from _accept(turn, target, draft, scored, score, judged, rule, latest))


def _doubt(score: Score) -> Unusable | None:
    """Why a score is no evidence at all, if it is none."""
    if not score.trusted:
        return Unusable("cannot_score", "the log-probabilities in its reply are no distribution", lasting=True)
    if not score.tokens or len(score.tokens) != len(score.ends):
        return Unusable("cannot_score", "the scored tokens do not fit the draft")
    return None


def _no_evidence(judged: Judged) -> Unusable | None:
    """Nothing can be said of the first token, or how the target samples there is not known."""
    if judged.accepted:
        return None
    if judged.unverified:
        return Unusable("cannot_score", "the draft's first token has no usable number")
    return _UNKNOWN_LAW if judged.stopped else None


def _thinks_first(turn: Turn, judged: Judged) -> Unusable | None:
    """A target whose reply begins with a thought would pay for a score on every request and never accept a token."""
    if turn.context.tokens or judged.accepted or judged.correction is None:
        return None
    if not opens_thoughts(judged.correction.text):
        return None
    return Unusable("reasoning", "the target's reply begins with a thought", lasting=True)


def _may_think_first(turn: Turn, score: Score, rule: Rule) -> Unusable | None:
    """The same where the target samples: settled before anything is drawn, since a thought that was drawn could not
    be thrown away.
    """
    if rule.law is None or turn.context.tokens:
        return None
    if not any(one.logprob > _SOME and opens_thoughts(one.text) for one in score.tokens[0].top):
        return None
    return Unusable("reasoning", "the target's reply may begin with a thought", lasting=True)


def _accept(
    turn: Turn,
    target: Target,
    draft: Draft,
    scored: Draft,
    score: Score,
    judged: Judged,
    rule: Rule,
    latest: float | None,
) -> Steps[Draft | Unusable | None]:
    """``scored``: what of the draft was scored."""
    tally, before, text = turn.tally, turn.context, scored.text
    whole = judged.accepted == len(score.tokens)
    follow = judged.follow
    ends = follow is not None and follow.ends_turn
    shown = None if ends else follow
    advancing = target.advance(turn.request, before, text, score, judged.accepted, shown)
    task = yield from turn.calls.run_op(advancing, Side.TARGET)
    context = task.value
    if isinstance(context, Unusable):
        return (yield from _unverified(turn, context, len(score.tokens)))
    gained = context.tokens - before.tokens
    accepted = min(judged.accepted, gained)
    offset = next((end for end in reversed(score.ends[: max(accepted, 0)]) if end is not None), 0)
    if gained < 0 or not context.text.startswith(before.text + text[:offset]):
        changed = Unusable("cannot_score", "verified text changed when it was put together")
        return (yield from _unverified(turn, changed, len(score.tokens)))
    lossy = tally.lenient_tokens > 0  # an earlier round's: what follows is not the target's own reply
    tally.rounds += 1
    tally.ties += judged.ties
    tally.lenient_tokens += judged.lenient
    tally.unverified_tokens += judged.unverified
    tally.accepted_tokens += accepted
    tally.corrected_tokens += gained - accepted
    inside = accepted < judged.accepted  # of a character, whose tokens were left out
    over = ends and not inside
    claimed = whole and scored.end == "stop" and (follow is not None or judged.sampler is not None)
    missed = not whole and not judged.unverified and not judged.stopped
    yield from turn.learn(scored, offset, missed=missed, ended=over if claimed else None)
    seen = missed and not inside
    if not lossy:
        own = min(accepted, judged.own)
        tag = SAMPLED if turn.request.samples else ""
        yield trace_note(
            tally, before.tokens, scored, score.ends, own, missed=seen or own < accepted, ended=over, tag=tag
        )
    correction = context.text[len(before.text) + offset :]
    yield from turn.verify(context, offset, score.ends[:accepted])
    sampler, draws = judged.sampler, rule.draws
    if sampler is not None and draws is not None and isinstance(target, SamplingTarget) and not turn.stopped():
        ended = yield from fetch(turn, target, sampler, draws, latest)
        if isinstance(ended, Unusable):
            return (yield from _unverified(turn, ended, 0))
        if ended:
            return None
        gained, correction = turn.context.tokens - before.tokens, turn.context.text[len(before.text) + offset :]
    if turn.stopped() or over or turn.remaining() == 0:
        yield from turn.finish("stop" if over else "length", int(over))
        return None
    if judged.stopped:
        return _UNKNOWN_LAW
    unshown = ends if whole else gained == accepted
    if not gained or unshown:
        return Unusable("rejected", "the target's own next token cannot be shown as text")
    return _rest(draft, offset, correction, whole)


def _rest(draft: Draft, offset: int, correction: str, whole: bool) -> Draft:
    """The draft after what was verified of it.

    Where the target said what the draft says there, it simply goes on. Given text goes on after a
    correction in any case; a model is rather asked anew, unless the correction stands further on in its
    draft and most of that is left.
    """
    text = draft.text
    remaining = text[offset:]
    if whole and remaining.startswith(correction):
        rest = remaining[len(correction) :]
    else:
        rest = realign(correction, remaining)
        skipped = remaining[: len(remaining) - len(rest)]
        anchored = bool(correction.strip()) and correction.strip() in skipped
        if not draft.static and not (anchored and 2 * len(rest) >= len(text)):
            rest = ""
    return replace(draft, tokens=slice_tokens(draft.tokens, len(text) - len(rest), len(text)))


def note_unusable(why: Unusable) -> Note:
    """What the ledger and the log should know of it."""
    return Note("unusable", {"reason": why.reason, "detail": why.detail, "lasting": why.lasting, "status": why.status})


def _unverified(turn: Turn, why: Unusable, tokens: int) -> Steps[Unusable | None]:
    turn.tally.unverified_tokens += tokens
    yield note_unusable(why)
    drawn = turn.request.samples and turn.context.tokens
    if not turn.restartable() or drawn or turn.committed or (why.continues and turn.context.text):
        return why
    yield GoDirect(why.reason, why.detail)
    return None
