"""Budgets on the way of a request: reserve its worst case before anything is sent, degrade, refuse, settle.

Rules
-----
* Under no budget nothing here costs anything.
* A run reserves what the caller's own request can cost at most, and on top what it may lose by scoring: as much as the
  allowance lets it hold, :data:`STEPS` steps at most, fewer and shorter ones where a budget has no room for that. If
  only the caller's own fits, the request goes direct, reason ``budget``; if that does not fit either, it is refused
  with OpenAI's own shape of an error: 429, code ``budget_exceeded``, not to be repeated.
* A prompt is bounded by :mod:`cheapspec.core.counting`, a reply by the caller's limit, else by the model's context
  window where the price list has it, and by a stated bound.
* The engine asks before each step; what was reserved is all that its steps may risk. (With a fixed ``draft_tokens``
  it does not ask: tests and bench.)
* Verdicts reserve what their calls can cost, all of them, or the first where a budget has no room for more.
* Whoever reserved settles when the books of the request are closed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

import httpx2

from cheapspec.core.allowance import at_risk, worst_case
from cheapspec.core.books import Grant, Reservations
from cheapspec.core.counting import input_bound
from cheapspec.core.exposure import OUTPUT_BOUND, exposure
from cheapspec.core.fetching import LONGEST
from cheapspec.core.money import format_usd
from cheapspec.core.ports import OutputLimits
from cheapspec.core.reply import strict_json
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.admission import Admitted
from cheapspec.drive.io import Steps, Written
from cheapspec.drive.permits import BoundPermit
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.urls import paid_route
from cheapspec.rules.ladder import Ladder
from cheapspec.rules.standing import worst_calls

__all__ = ["OverBudget", "over_budget", "request_worst", "reserve"]

STEPS = 4
"""So many scoring steps of a run are reserved for at most."""

_SHAPES = ((STEPS, None), (2, None), (1, None), (1, 128), (1, 32))
"""What a run may be given room for: scoring steps, and draft tokens in each (``None``: as many as it may draft)."""


@dataclass(frozen=True, slots=True)
class OverBudget:
    """The request is refused; nothing is sent."""

    passed: Passed
    grant: Grant


def reserve(runtime: Runtime, decided: Passed | Admitted) -> Steps[Passed | Admitted | OverBudget]:
    """What may become of the request under its budgets. What was reserved is settled with its books."""
    passed = decided.passed if isinstance(decided, Admitted) else decided
    ledger = runtime.ledger
    if not passed.settings.caps or not paid_route(passed.request, passed.kind) or not isinstance(ledger, Reservations):
        return decided
    alone = request_worst(runtime, passed)
    extra = _plans(decided) if isinstance(decided, Admitted) and alone is not None else []
    amounts = [*(None if alone is None else alone + usd for usd in extra), alone]
    made = ledger.reserve(passed.request_id, passed.settings.caps, amounts)
    if isinstance(made, Grant):
        grant = made
    else:
        yield Written(made)
        grant = made.value or Grant(None, passed.settings.caps[0].name, why="unavailable")
    if grant.choice is None:
        return OverBudget(passed.because("budget", grant.why, decision="refused"), grant)
    if not isinstance(decided, Admitted):
        return decided
    if alone is None or (extra and grant.choice == len(extra)):
        return passed.because("budget", "what is left is not enough to speculate")
    if isinstance(decided.job.permit, BoundPermit):
        decided.job.permit.limit(extra[grant.choice] if extra else Decimal(0))
    return decided


def _calls(ladder: Ladder) -> list[Decimal]:
    """Dollars to reserve for verdicts on top of the caller's own request: for all that may be asked, or for the first
    of them, and no more than the allowance would let them hold now.
    """
    most = ladder.permit.headroom() if isinstance(ladder.permit, BoundPermit) and ladder.weighs else None
    plans: list[Decimal] = []
    told = worst_calls(ladder)
    for usd in (sum(told, Decimal(0)), told[0] if told else Decimal(0)):
        usd = usd if most is None else min(usd, most)
        if usd > 0 and (not plans or usd < plans[-1]):
            plans.append(usd)
    return plans


def _plans(admitted: Admitted) -> list[Decimal]:
    """Dollars to reserve for a run on top of the caller's own request, the dearest first: what it may lose by so many
    steps (:func:`~cheapspec.core.allowance.at_risk`), and no more than the allowance would let it hold now.
    """
    job, passed = admitted.job, admitted.passed
    if isinstance(job, Ladder):
        return _calls(job)
    prices = job.prices
    if prices is None:
        return []
    context = input_bound(job.request.body, len(passed.request.read()))
    forced = job.target.can_force and not job.target.can_score
    draws = LONGEST if job.request.samples else 0
    limits = (job.policy.draft_tokens or job.policy.max_draft_tokens, job.request.max_tokens)
    drafted = min(limit for limit in limits if limit is not None)
    fixed = job.policy.draft_tokens is not None  # then the engine does not ask
    most = job.permit.headroom() if isinstance(job.permit, BoundPermit) and not fixed else None
    plans: list[Decimal] = []
    for steps, longest in _SHAPES[:1] if fixed else _SHAPES:
        tokens = min(drafted, longest or drafted)
        shown = [context + done * tokens for done in range(steps)]
        told = [worst_case(prices, known, tokens, forced=forced, draws=draws) for known in shown[:-1]]
        spent = sum(told, Decimal(0))
        usd = at_risk(prices, shown[-1], tokens, spent=spent, prompt_tokens=context, forced=forced, draws=draws)
        if usd is None:
            continue
        usd = usd if most is None else min(usd, most)
        if usd > 0 and (not plans or usd < plans[-1]):
            plans.append(usd)
    return plans


def request_worst(runtime: Runtime, passed: Passed) -> Decimal | None:
    """Dollars that the caller's own request can cost at most; ``None`` unknown. Counted tightly under budgets."""
    kind = paid_route(passed.request, passed.kind)
    base_url = passed.base_url
    prices, _ = runtime.prices.lookup(passed.model, base_url)
    if prices is None or not kind:
        return None
    try:
        content = passed.request.read() if passed.kind else passed.request.content
    except httpx2.RequestNotRead:
        return None
    if passed.parsed is not None:
        body = passed.parsed.body
    else:
        try:
            body = as_mapping(json.loads(content))
        except (ValueError, RecursionError):
            return None
    if not passed.settings.caps:
        return exposure(body, len(content), kind, prices)
    size = input_bound(body, len(content))
    return exposure(body, size, kind, prices) or exposure(body, size, kind, prices, _longest(runtime, passed, base_url))


def _longest(runtime: Runtime, passed: Passed, base_url: str) -> int:
    """Tokens of a reply for which the caller set no limit."""
    listed = runtime.prices.output_limit(passed.model, base_url) if isinstance(runtime.prices, OutputLimits) else None
    return OUTPUT_BOUND if listed is None else min(listed, OUTPUT_BOUND)


def over_budget(refused: OverBudget) -> httpx2.Response:
    """A 429 of our own, in OpenAI's shape, that no SDK repeats."""
    grant, passed = refused.grant, refused.passed
    left = format_usd(grant.left_usd)
    said = {
        "exceeded": f"the budget {grant.cap!r} has ${left} left, which is less than this request may cost "
        "(max_tokens limits that)",
        "unknown": f"what this request may cost is unknown, and the budget {grant.cap!r} does not allow that: "
        "set a price and max_tokens, or Budget(unknown='allow')",
        "unavailable": f"the ledger cannot be asked whether the budget {grant.cap!r} has room",
    }
    message = f"cheapspec: {said.get(grant.why, 'over budget')}; nothing was sent."
    error = {"message": message, "type": "insufficient_quota", "param": None, "code": "budget_exceeded"}
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-cheapspec-request-id": passed.request_id,
        "x-cheapspec-decision": "refused",
        "x-cheapspec-reason": "budget",
    }
    return httpx2.Response(429, headers=headers, content=strict_json({"error": error}), request=passed.request)
