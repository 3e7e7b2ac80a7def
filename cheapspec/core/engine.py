"""One request, from the first draft to the last token. The only place where these rules live.

Rules
-----
1. The target's tokenizing and the first draft run side by side. Without a draft, or without a context,
   the caller's own request goes to the target untouched (``GoDirect``).
2. A round is one draft and one scoring call. The draft is cut before anything that looks like a
   special token and at the caller's token limit, then the planner says how much of it is scored.
3. Only what the target's numbers prove is accepted. A score without a usable number, without a real
   distribution, or that does not fit what was sent is *unverified*: nothing of it is accepted.
4. After the accepted tokens comes one token of the target's own: the correction (its scored
   alternative) or, when all hold, the bonus token it generated. A token that ends the turn ends the
   reply; one that cannot be text by itself is left to the hand-off.
5. The end of a draft is a claim like any other: it holds only if the target ends its turn there.
6. The hand-off (:mod:`cheapspec.core.handoff`): the target goes on from the verified prefix.
7. Text reaches the caller once it is verified and cannot be part of a stop string, never before, and
   is never taken back. While nothing has reached the caller, any trouble means: go direct. After
   that, an unusable score means: hand off.
8. Whatever was paid is in the tally, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from cheapspec.core.acceptance import VerificationResult, verify_greedy
from cheapspec.core.calls import CallerGone, OpTask
from cheapspec.core.drafting import Draft, Drafting, slice_tokens
from cheapspec.core.effects import Effect, Event, GoDirect, Note, Side
from cheapspec.core.handoff import hand_off
from cheapspec.core.lookup import realign
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Decision, plan
from cheapspec.core.ports import Context, Drafter, NextToken, NoDraft, Score, Target, Unusable
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.core.turn import Steps, Turn

__all__ = ["Job", "Policy", "Run", "run"]

Run = Generator[Effect, Event | None, None]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about one request.

    ``draft_tokens``: fixed tokens a round (planner off), ``None``: the planner decides.
    ``max_draft_tokens``: the longest draft asked for. ``tie_nats``: how far below the top a token may
    be and still count as a tie. ``draft_seconds``: deadline of one draft. ``simulate_scoring``: a
    forced target is priced as if it scored (demo and bench).
    """

    draft_tokens: int | None = None
    max_draft_tokens: int = 512
    tie_nats: float = 0.0
    draft_seconds: float = 20.0
    simulate_scoring: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one run needs; ``at`` is the driver's clock at its start, in seconds."""

    request: Request
    target: Target
    drafters: Sequence[Drafter]
    tally: Tally
    policy: Policy = field(default_factory=Policy)
    prices: Prices | None = None
    context_prices: ContextPrices = field(default_factory=ContextPrices)
    at: float = 0.0


def run(job: Job) -> Run:
    """The engine. Yields effects, is sent events (:mod:`cheapspec.core.effects`)."""
    try:
        yield from _Engine(job).main()
    except CallerGone:
        yield Note("abandoned", {})


class _Engine:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.request = job.request
        self.target = job.target
        self.policy = job.policy
        self.tally = job.tally
        self.turn = Turn(job.request, job.tally, job.at)
        self.calls = self.turn.calls
        self.drafters = list(job.drafters)

    def main(self) -> Steps[None]:
        opening = yield from self.calls.op(self.target.open(self.request), Side.TARGET)
        drafting = yield from self._begin_draft()
        if drafting is not None:
            yield from self._await(drafting, self.calls.now + self.policy.draft_seconds, opening)
        while not opening.done:
            yield from self.calls.step()
        context = opening.value
        if isinstance(context, Unusable):
            yield from self._note_unusable(context)
            yield GoDirect(context.reason, context.detail)
            return
        self.turn.context = context
        draft = yield from self._draft(drafting)
        self.tally.seconds_draft = self.calls.now - self.job.at
        if isinstance(draft, NoDraft):
            yield GoDirect(draft.reason, draft.detail)
            return
        yield from self._rounds(draft)

    def _rounds(self, draft: Draft) -> Steps[None]:
        while True:
            draft = draft.without_specials().head(self._limit())
            decision = self._decide(draft)
            if decision.action == "direct":
                yield GoDirect(decision.reason or "not_worth_it", decision.why)
                return
            if decision.action != "score":
                break
            rest = yield from self._round(draft, draft.head(decision.draft_tokens))
            if rest is None:
                return
            if isinstance(rest, Unusable) or not self._worth_drafting():
                break
            following = rest if rest.tokens else (yield from self._draft((yield from self._begin_draft())))
            if isinstance(following, NoDraft):
                break
            draft = following
        yield from hand_off(self.turn, self.target)

    # --- drafting --------------------------------------------------------------------------

    def _limit(self) -> int:
        limit = self.policy.draft_tokens or self.policy.max_draft_tokens
        remaining = self.turn.remaining()
        return limit if remaining is None else min(limit, remaining)

    def _begin_draft(self) -> Steps[Drafting | None]:
        """Ask the drafters in order until one has, or may have, something to say."""
        for drafter in self.drafters:
            drafting = Drafting(self.calls, drafter)
            yield from drafting.begin(self.request, self.turn.context.text, self._limit())
            if not isinstance(drafting.result, NoDraft):
                return drafting
        return None

    def _draft(self, drafting: Drafting | None) -> Steps[Draft | NoDraft]:
        """Wait for the draft. A drafter that fails is not asked again in this request; the ones after it
        get their chance, unless the time is up.
        """
        failure = NoDraft("no_draft", "no drafter had anything to propose")
        while drafting is not None:
            started = self.calls.now
            yield from self._await(drafting, started + self.policy.draft_seconds)
            self.tally.seconds_draft += self.calls.now - started
            if isinstance(drafting.result, Draft):
                return drafting.result
            assert drafting.result is not None
            failure = drafting.result
            facts = {"reason": failure.reason, "detail": failure.detail, "broken": failure.broken}
            yield Note("no_draft", {"drafter": drafting.drafter.name, **facts})
            if failure.reason == "draft_deadline":
                break
            self.drafters.remove(drafting.drafter)
            drafting = yield from self._begin_draft()
        return failure

    def _await(
        self, drafting: Drafting, deadline: float, opening: OpTask[Context | Unusable] | None = None
    ) -> Steps[None]:
        """Let all open calls move on until the draft, and the target's context, are there."""
        while drafting.result is None or not (opening is None or opening.done):
            wait = None if drafting.result is not None else deadline - self.calls.now
            in_time = yield from self.calls.step(wait)
            yield from drafting.pump()
            if not in_time or self.calls.now >= deadline:
                yield from drafting.stop()

    # --- planning --------------------------------------------------------------------------

    def _decide(self, draft: Draft) -> Decision:
        context = self.turn.context
        return plan(
            self.tally.rounds,
            self.job.prices,
            (context.prompt_tokens or 0) + context.tokens,
            self.job.context_prices,
            draft.tokens,
            finished=draft.end == "stop",
            remaining=self.turn.remaining(),
            can_score=self.target.can_score,
            can_force=self.target.can_force,
            simulate_scoring=self.policy.simulate_scoring,
            fixed=self.policy.draft_tokens,
        )

    def _worth_drafting(self) -> bool:
        """Would even a draft that is sure to hold pay for another round?"""
        return self._decide(Draft.certain(self._limit())).action == "score"

    # --- one round -------------------------------------------------------------------------

    def _round(self, whole: Draft, draft: Draft) -> Steps[Draft | Unusable | None]:
        """Score ``draft``, the head of ``whole``; accept, show. ``None``: the reply is over. ``Unusable``: hand
        off. A ``Draft``: what is left of ``whole`` to be scored next, maybe nothing.
        """
        started = self.calls.now
        scoring = self.target.score(self.request, self.turn.context, draft.text)
        task = yield from self.calls.run_op(scoring, Side.TARGET)
        self.tally.seconds_verify += self.calls.now - started
        self.tally.drafter = draft.drafter
        score = task.value
        # drafted tokens are counted as the target counts them, so that they compare with accepted ones
        self.tally.drafted_tokens += len(draft.tokens if isinstance(score, Unusable) else score.tokens)
        if isinstance(score, Unusable):
            return (yield from self._unverified(score, len(draft.tokens)))
        self.tally.spend(score.usage)
        yield Note("usage", {"call_id": task.call_id, "usage": score.usage})
        if not score.trusted:
            doubt = Unusable("cannot_score", "the log-probabilities in its reply are no distribution", lasting=True)
            return (yield from self._unverified(doubt, len(draft.tokens)))
        self.tally.identify(score.identity)
        if self.turn.context.prompt_tokens is None:
            self.turn.context = replace(self.turn.context, prompt_tokens=score.prompt_tokens)
        return (yield from self._accept(whole, draft, score))

    def _accept(self, whole: Draft, draft: Draft, score: Score) -> Steps[Draft | Unusable | None]:
        turn, before = self.turn, self.turn.context
        remaining = turn.remaining()
        result = verify_greedy(score.tokens, tie_nats=self.policy.tie_nats, limit=remaining)
        follow = self._follow(score, result, remaining)
        ends = follow is not None and follow.ends_turn
        text, accepted = draft.text, result.accepted
        advancing = self.target.advance(self.request, before, text, score, accepted, None if ends else follow)
        task = yield from self.calls.run_op(advancing, Side.TARGET)
        context = task.value
        if isinstance(context, Unusable):
            return (yield from self._unverified(context, len(draft.tokens)))
        if not context.text.startswith(before.text):
            changed = Unusable("cannot_score", "verified text changed when it was put together")
            return (yield from self._unverified(changed, len(draft.tokens)))
        self.tally.rounds += 1
        gained = context.tokens - before.tokens
        accepted = min(accepted, gained)
        corrected = gained - accepted
        self.tally.ties += result.ties
        self.tally.unverified_tokens += result.unverified
        self.tally.accepted_tokens += accepted
        self.tally.corrected_tokens += corrected
        turn.context = context
        new = context.text[len(before.text) :]
        offset = next((end for end in reversed(score.ends[:accepted]) if end is not None), 0)
        yield from turn.show(new[:offset], new[offset:])
        if turn.outlet.hit or ends or turn.remaining() == 0:
            self.tally.end_token = int(ends and not turn.outlet.hit)
            yield from turn.finish("stop" if ends else "length")
            return None
        if not gained:
            return Unusable("rejected", "nothing was accepted and no correction could be shown")
        return self._rest(whole, offset, new[offset:])

    def _follow(self, score: Score, result: VerificationResult, remaining: int | None) -> NextToken | None:
        """The target's own token after the accepted ones, where it is known and there is room for it."""
        if remaining is not None and result.accepted >= remaining:
            return None
        if result.accepted == len(score.tokens):
            return score.next
        return None if result.correction is None else self.target.follow(result.correction)

    def _rest(self, draft: Draft, offset: int, correction: str) -> Draft:
        """The draft after what was accepted and the target's own token. Where the draft goes on with that
        token, it stays. Else given text is re-aligned in any case; a model is rather asked anew, unless the
        correction stands further on in its draft and most of that is left.
        """
        text = draft.text
        if text.startswith(correction, offset):
            return replace(draft, tokens=slice_tokens(draft.tokens, offset + len(correction), len(text)))
        rest = realign(correction, text[offset:])
        start = len(text) - len(rest)
        anchored = bool(correction.strip()) and correction.strip() in text[offset:start]
        if not rest or not (draft.static or (anchored and 2 * len(rest) >= len(text))):
            return draft.head(0)
        return replace(draft, tokens=slice_tokens(draft.tokens, start, len(text)))

    # --- no evidence -----------------------------------------------------------------------

    def _note_unusable(self, why: Unusable) -> Steps[None]:
        facts = {"reason": why.reason, "detail": why.detail, "lasting": why.lasting, "status": why.status}
        yield Note("unusable", facts)

    def _unverified(self, why: Unusable, tokens: int) -> Steps[Unusable | None]:
        self.tally.unverified_tokens += tokens
        yield from self._note_unusable(why)
        if not self.turn.restartable():
            return why
        yield GoDirect(why.reason, why.detail)
        return None
