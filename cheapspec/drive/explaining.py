"""What would become of a request: every way with its cost, before anything is spent.

Rules
-----
* Nothing is sent to the target, billed or not, and nothing is written down. Draft hosts are asked only if that is
  asked for; then each writes one draft, within the time and beside no more others than in a request.
* The decision is the one that would be made now (:func:`~cheapspec.drive.admission.decide`). A request that goes
  direct says why; what scoring would have cost is listed all the same, as not allowed.
* What is not known yet is assumed, and said so: the length of the reply (:data:`REPLY_TOKENS`, up to the caller's
  limit), the drafts of models that were not asked (:mod:`cheapspec.core.assumed`), an endpoint that has not been
  probed (to score, at the price of a prompt computed anew). The prompt is counted as the planner does it, on the long
  side.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import httpx2

from cheapspec.core.alternatives import Plan, PlanAlternative, Situation, alternatives
from cheapspec.core.assumed import assumed_draft, assumed_prompt
from cheapspec.core.drafting import Draft, given_draft
from cheapspec.core.estimate import Estimates
from cheapspec.core.fetching import LONGEST
from cheapspec.core.lookup import Prediction
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.priors import RequestRates
from cheapspec.core.request import Request
from cheapspec.drive.admission import Admitted, Refused, decide, draft_seconds, scoring_rule, scoring_target
from cheapspec.drive.contexts import context_prices
from cheapspec.drive.drafts import draft_in_time
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.permits import BoundPermit, account_keys
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.spending import request_worst
from cheapspec.drive.state import TargetFacts
from cheapspec.drive.urls import api_base
from cheapspec.drive.verdicts import ladder_for
from cheapspec.errors import SettingsError
from cheapspec.rules.drafting import draft_limit
from cheapspec.rules.ladder import Ladder
from cheapspec.rules.plans import verdict_ways

__all__ = ["REPLY_TOKENS", "explain"]

REPLY_TOKENS = 200
"""What a reply is assumed to have, where nothing says more."""

_ASSUMED = "of a draft that is assumed, as such drafts have been"


def explain(runtime: Runtime, request: httpx2.Request, *, draft: bool = False, reply_tokens: int | None = None) -> Plan:
    """The plan of a request that is not sent. ``draft``: ask the draft hosts for a draft each. ``reply_tokens``: how
    long the reply is expected to be; ``None``: as long as the longest draft, or as assumed.

    :raises SettingsError: the request's own settings are unusable.
    """
    decided = decide(runtime, request)
    if isinstance(decided, Refused):
        raise SettingsError(decided.message)
    if isinstance(decided, Admitted) and isinstance(decided.job, Ladder):
        return _judged(runtime, decided.passed, decided.job, draft, reply_tokens)
    if isinstance(decided, Admitted):
        return _planned(runtime, decided.passed, decided.job.request, decided.facts, draft, reply_tokens)
    if decided.parsed is None:
        return _unread(runtime, decided)
    facts = runtime.facts_of(decided, time.monotonic())
    if decided.settings.rules and not decided.settings.scores:
        seconds, drafters = draft_seconds(decided.request, decided.settings), _drafters(runtime, decided.parsed)
        ladder, _ = ladder_for(runtime, decided, decided.parsed, facts, drafters, time.monotonic(), seconds)
        made = _judged(runtime, decided, ladder, draft, reply_tokens)
    else:
        made = _planned(runtime, decided, decided.parsed, facts, draft, reply_tokens)
    why = f"goes direct, {decided.reason}{f': {decided.detail}' if decided.detail else ''}"
    ways = [made.alternatives[0], *(_vetoed(one, why) for one in made.alternatives[1:])]
    return replace(made, chosen="direct", alternatives=tuple(ways), reason=decided.reason, detail=decided.detail)


def _vetoed(one: PlanAlternative, why: str) -> PlanAlternative:
    """A way that would be one otherwise; what speaks against it already stays said."""
    return replace(one, allowed=False, why=f"{why}; else: {one.why}" if one.allowed else f"{why}; and {one.why}")


def _unread(runtime: Runtime, passed: Passed) -> Plan:
    """What is passed through without having been read: its worst case at most is known."""
    prices, _ = runtime.prices.lookup(passed.model, api_base(passed.request.url))
    why = "passed through to the target as it is"
    alone = PlanAlternative("direct", None, None, 0, None, request_worst(runtime, passed), None, True, why)
    return Plan("direct", (alone,), prices, ContextPrices(), passed.reason, passed.detail)


def _planned(
    runtime: Runtime, passed: Passed, parsed: Request, facts: TargetFacts, draft: bool, reply_tokens: int | None
) -> Plan:
    now, settings, target = time.monotonic(), passed.settings, target_of(passed)
    listed, _ = runtime.prices.lookup(parsed.model, api_base(passed.request.url))
    prices = None if listed is None else listed.of_text
    share = runtime.cached_share(passed.request, parsed, now)
    estimates = runtime.learning.estimates(target, workload_of(settings, parsed))
    decoding = runtime.learning.draft_seconds()
    scores = scoring_target(settings, facts)
    unprobed = scores is None and facts.reason == "not_probed"
    limits = (settings.max_draft_tokens, parsed.max_tokens, reply_tokens)
    longest = min(limit for limit in limits if limit is not None)
    drafters = _drafters(runtime, parsed)
    ask = (draft_seconds(passed.request, settings), settings.draft_concurrency) if draft else None
    drafts, missing = _drafts(drafters, parsed, estimates, longest, reply_tokens, ask=ask)
    plain = settings.draft_tokens is None
    speed = runtime.learning.measured(target)
    situation = Situation(
        prompt_tokens=assumed_prompt(parsed),
        prices=prices,
        context=context_prices(prices, facts, share),
        reply_tokens=REPLY_TOKENS if reply_tokens is None and not drafts else reply_tokens,
        limit=parsed.max_tokens,
        cached_share=share,
        can_score=unprobed or (scores is not None and scores.can_score),
        can_force=scores is not None and scores.can_force,
        simulate_scoring=settings.simulate_scoring,
        rule=scoring_rule(settings),
        headroom=runtime.permits.of(account_keys(settings, parsed)).headroom() if plain else None,
        speed=runtime.learning.speed(target) if settings.objective == "latency" else speed,
        draft_decode=max((decoding.get(one.drafter, 0.0) for one in drafts if not one.static), default=0.0),
        max_added_seconds=settings.max_added_latency,
        objective=settings.objective,
        fixed=settings.draft_tokens,
        direct_worst=request_worst(runtime, passed),
        tier=passed.tier,
        draws=LONGEST if parsed.samples else 0,
    )
    made = alternatives(situation, drafts, RequestRates(estimates, parsed.samples, settings.lenient_nats))
    asked = {drafter.name for drafter in drafters} if draft else {one.drafter for one in drafts if one.static}
    said = [one if one.drafter is None or one.drafter in asked else _assumed(one) for one in made.alternatives]
    return replace(made, alternatives=(*said, *(_none(situation.rule, name, why) for name, why in missing.items())))


def _drafters(runtime: Runtime, request: Request) -> list[Drafter]:
    return [*([Prediction()] if request.prediction is not None else []), *runtime.drafters]


def _judged(runtime: Runtime, passed: Passed, ladder: Ladder, draft: bool, reply_tokens: int | None) -> Plan:
    """The ways of a ladder of rules. One draft is asked for, if any is: that of the first model."""
    parsed, settings = ladder.request, passed.settings
    lengths = ladder.lengths.reply
    tokens = reply_tokens or (round(lengths) if lengths else REPLY_TOKENS)
    drafter, limit = next(iter(ladder.drafters), None), draft_limit(parsed, ladder.policy)
    if draft and drafter is not None:
        found: Draft | NoDraft | None = given_draft(drafter, parsed, "", limit)
        if found is None:
            found = draft_in_time(
                drafter, parsed, limit, seconds=ladder.policy.draft_seconds, limit=settings.draft_concurrency
            )
        tokens = len(found.tokens) if isinstance(found, Draft) else tokens
    tokens = min(tokens, limit)
    situation = Situation(
        prompt_tokens=assumed_prompt(parsed),
        prices=ladder.prices,
        context=ContextPrices(ladder.read),
        reply_tokens=tokens,
        limit=parsed.max_tokens,
        cached_share=ladder.tally.cached_share,
        direct_worst=request_worst(runtime, passed),
        tier=passed.tier,
    )
    made = alternatives(situation, [])
    permit = ladder.permit
    headroom = permit.headroom() if isinstance(permit, BoundPermit) and ladder.weighs else None
    ways = verdict_ways(ladder, made.alternatives[0], drafter, tokens, headroom=headroom)
    chosen = next((way.name for way in ways if way.allowed), "direct")
    return replace(made, chosen=chosen, alternatives=(made.alternatives[0], *ways))


def _drafts(
    drafters: Sequence[Drafter],
    request: Request,
    estimates: Estimates,
    longest: int,
    reply_tokens: int | None,
    *,
    ask: tuple[float, int] | None,
) -> tuple[list[Draft], dict[str, NoDraft]]:
    """What each drafter proposes, or is assumed to; and those that have nothing, with the reason. ``ask``: how long a
    model may take, and how many drafts its host may write at a time; ``None``: it is not asked.
    """
    drafts: list[Draft] = []
    missing: dict[str, NoDraft] = {}
    for drafter in drafters:
        found: Draft | NoDraft | None = given_draft(drafter, request, "", longest)
        if found is None and ask is not None:
            found = draft_in_time(drafter, request, longest, seconds=ask[0], limit=ask[1])
        if found is None:
            count = min(longest, REPLY_TOKENS if reply_tokens is None else reply_tokens)
            drafts.append(assumed_draft(drafter.name, estimates, count, finished=True))
            continue
        usable = found if isinstance(found, NoDraft) else found.sendable("")
        if isinstance(usable, Draft) and usable.tokens:
            drafts.append(usable)
        else:
            missing[drafter.name] = usable if isinstance(usable, NoDraft) else NoDraft("no_draft")
    return drafts, missing


def _assumed(one: PlanAlternative) -> PlanAlternative:
    return replace(one, why=f"{one.why}, {_ASSUMED}")


def _none(rule: str, drafter: str, found: NoDraft) -> PlanAlternative:
    why = f"{drafter} has nothing to propose at the beginning of the reply"
    return PlanAlternative("score", rule, drafter, 0, None, None, None, False, found.detail or why)
