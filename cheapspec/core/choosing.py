"""Which draft is scored, how much of it, and whether it is worth asking a model for one.

Rules
-----
* Several drafters compete in each round: each of their drafts is planned, the one with the highest expected gain is
  scored. Drafts of given text are there at once; a model is asked only where it could win.
* What a model could win is a dream: a draft as long as may be (as the one at hand that claims to be whole), of the
  tokens it is surest of, whose end holds too.
  If even that does not pay, or does not clearly beat the best draft at hand, nobody waits for it. Where the
  objective is latency the time of drafting counts.
* A step needs more than a plan: time that is left (``Policy.latest``), and the allowance's leave (``Risk``). What the
  allowance does not bear is tried with half the tokens, as long as that is worth it and at most :data:`TRIES` times.
* With fixed ``draft_tokens`` nothing is planned: the first drafter with anything to propose is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.allowance import at_risk
from cheapspec.core.assumed import assumed_prompt
from cheapspec.core.calls import Steps
from cheapspec.core.counting import input_bound, token_bound, written_size
from cheapspec.core.drafting import Draft
from cheapspec.core.effects import GoDirect, Risk, Risked
from cheapspec.core.fetching import LONGEST, expected_draws
from cheapspec.core.job import Job
from cheapspec.core.planner import Decision, call_prices, plan
from cheapspec.core.priors import Outlook, RequestRates
from cheapspec.core.speed import seconds_context, seconds_rates
from cheapspec.core.turn import Turn

__all__ = ["CLEARLY", "TRIES", "Chooser", "dreamt", "preference", "worth_waiting"]

CLEARLY = 1.25
"""What a dream must be worth to be asked for: so many times the best draft at hand."""

TRIES = 4
"""How often the allowance is asked for one step: for the planned tokens, a half, a quarter and an eighth of them."""


def preference(decision: Decision) -> tuple[bool, float]:
    """What competing drafts are compared by: the greatest is scored, if it is to be scored at all."""
    return decision.action == "score", decision.expected_gain or 0.0


def dreamt(rates: RequestRates, drafter: str, tokens: int) -> tuple[tuple[DraftToken, ...], Outlook]:
    """The best draft that this model could write, and what would be believed of it."""
    sure = (DraftToken("", 0.0),) * tokens
    return sure, replace(rates.outlook(sure, drafter), end=1.0)


def worth_waiting(dreams: Iterable[tuple[Decision, float]], there: Iterable[Decision]) -> bool:
    """Whether one of the dreams pays, less what waiting for it costs, and clearly more than what is there."""
    best = max((gain for scored, gain in map(preference, there) if scored), default=0.0)
    return any(
        scored and gain - waiting > CLEARLY * best
        for (scored, gain), waiting in ((preference(dream), waiting) for dream, waiting in dreams)
    )


class Chooser:
    """Plans the rounds of one request."""

    def __init__(self, job: Job, turn: Turn) -> None:
        self._job = job
        self._turn = turn

    def limit(self) -> int:
        """How long a draft may be."""
        policy, remaining = self._job.policy, self._turn.remaining()
        limit = policy.draft_tokens or policy.max_draft_tokens
        return limit if remaining is None else min(limit, remaining)

    def best(self, drafts: Sequence[Draft]) -> tuple[Draft, Decision]:
        """The draft to score and what to do with it; of equally good ones the first. ``drafts`` is not empty."""
        cut = [draft.sendable(self._turn.context.text).head(self.limit()) for draft in drafts]
        planned = [(draft, self._decide(draft)) for draft in cut]
        return max(planned, key=lambda pair: preference(pair[1]))

    def why_not(self, models: Sequence[str], at_hand: Sequence[Draft] = ()) -> Decision | None:
        """Why none of these models is asked for a draft, ``None``: one of them could pay, and clearly more than the
        drafts that are there.
        """
        if self._job.policy.draft_tokens is not None:
            return None
        if self.late():
            return Decision("direct", 0, None, "the time that speculating may add is over", "latency")
        longest = max((len(draft.tokens) for draft in at_hand if draft.end == "stop"), default=self.limit())
        dreams = [self._dream(name, min(longest, self.limit())) for name in models]
        seconds: Mapping[str, float] = self._job.draft_seconds if self._job.speed else {}
        waits = [seconds.get(name, 0.0) * dream.draft_tokens for name, dream in zip(models, dreams, strict=True)]
        if worth_waiting(zip(dreams, waits, strict=True), map(self._decide, at_hand)):
            return None
        if dreams[0].action != "score":
            return dreams[0]
        reason = "latency" if self._job.speed else "not_worth_it"
        return Decision("direct", 0, None, f"no draft is worth waiting for: {dreams[0].why}", reason)

    def _dream(self, drafter: str, count: int) -> Decision:
        sure, outlook = dreamt(self._turn.rates, drafter, count)
        return self._plan(sure, drafter, outlook, finished=True, static=False)

    def admitted(self, draft: Draft, decision: Decision) -> Steps[Decision | GoDirect]:
        """The step as far as it may be taken, or why it is not: the time is over, or the allowance cannot bear its
        worst case.
        """
        if self.late():
            return GoDirect("latency", "the time that speculating may add is over")
        if self._job.permit is None or self._job.prices is None or self._job.policy.draft_tokens is not None:
            return decision  # with a fixed K, or without a price, nobody asks it
        tries = 0
        while tries < TRIES and decision.action == "score":
            worst = self._at_risk(draft, decision.draft_tokens)
            if worst is None:
                return GoDirect("allowance", "what this step may cost has no bound")
            answer = yield Risk(worst)
            if isinstance(answer, Risked) and answer.granted:
                self._turn.committed = self._turn.context.tokens > 0
                return decision
            decision = self._decide(draft.head(decision.draft_tokens // 2))
            tries += 1
        return GoDirect("allowance", "speculation has used up what it may lose")

    def late(self) -> bool:
        """Speculating ends now, or has."""
        latest = self._job.policy.latest
        return latest is not None and self._turn.calls.now >= latest

    def _decide(self, draft: Draft) -> Decision:
        outlook = self._turn.rates.outlook(draft.tokens, draft.drafter, static=draft.static)
        return self._plan(draft.tokens, draft.drafter, outlook, finished=draft.end == "stop", static=draft.static)

    def _plan(
        self, tokens: Sequence[DraftToken], drafter: str, outlook: Outlook, *, finished: bool, static: bool
    ) -> Decision:
        job, target = self._job, self._job.target
        context, rates = job.context_prices, None
        if job.speed is not None:
            forced = not target.can_score and not job.policy.simulate_scoring
            rates = seconds_rates(job.speed, 0.0 if static else job.draft_seconds.get(drafter, 0.0), forced=forced)
            context = seconds_context(job.tally.cached_share, scoring_reuses=context.qs < 1.0)
        known = self.context_tokens()
        return plan(
            job.tally.rounds,
            call_prices(job.prices, job.tally.tier, known),
            known,
            context,
            tokens,
            finished=finished,
            remaining=self._turn.remaining(),
            can_score=target.can_score,
            can_force=target.can_force,
            simulate_scoring=job.policy.simulate_scoring,
            fixed=job.policy.draft_tokens,
            outlook=outlook,
            rates=rates,
            drawn=expected_draws(job.request.sampling),
        )

    def _at_risk(self, draft: Draft, draft_tokens: int) -> Decimal | None:
        """What the request may have lost in the end, if this is scored; ``None``: there is no bound. Where it is not
        known how many tokens a text is, a bound is taken; a token that has a probability of its own is one.
        """
        job, turn, tally = self._job, self._turn, self._job.tally
        assert job.prices is not None
        turn.tell()
        known = turn.context.prompt_tokens
        prompt = self._prompt_bound if known is None else known
        count = sum(
            1 if token.logprob is not None else max(1, token_bound(token.text)) for token in draft.tokens[:draft_tokens]
        )
        spent = tally.spent(job.prices)
        worst = Decimal(0)
        tiers = [job.prices.of_tier(tally.tier), job.prices]  # another tier may serve it than was asked for
        for prices in tiers:
            sure = tally.sure(prices, prompt)
            if prices is None or spent is None or sure is None:
                return None
            told = at_risk(
                prices,
                prompt + turn.context.tokens,
                count,
                spent=spent,
                sure=sure,
                prompt_tokens=prompt if known is None else known,
                forced=not job.target.can_score and not job.policy.simulate_scoring,
                draws=LONGEST if job.request.samples else 0,
            )
            if told is None:
                return None
            worst = max(worst, told)
        return worst

    @cached_property
    def _prompt_bound(self) -> int:
        """The most tokens that the prompt can be. The body is written once a request, not once a round."""
        body = self._job.request.body
        return input_bound(body, written_size(body))

    def context_tokens(self) -> int:
        """Prompt and verified reply. A text route tells the prompt's length only with its first score: until
        then it is estimated on the long side, since a context that is taken for short flatters the plan.
        """
        context = self._turn.context
        known = context.prompt_tokens
        return (assumed_prompt(self._job.request) if known is None else known) + context.tokens
