"""Budgets on the way of a request: reserve its worst case before anything is sent, degrade, refuse, settle.

Rules
-----
* Under no budget nothing here costs anything.
* A run reserves what the caller's own request can cost at most, and on top what its scoring may (:data:`STEPS`
  steps). If only the former fits, the request goes direct, reason ``budget``; if that does not fit either, it is
  refused with OpenAI's own shape of an error: 429, code ``budget_exceeded``, not to be repeated.
* The engine asks before each step; what was reserved is all that its steps may risk. (With a fixed ``draft_tokens``
  it does not ask: tests and bench.)
* Whoever reserved settles when the books of the request are closed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

import httpx2

from cheapspec.core.allowance import worst_case
from cheapspec.core.books import Grant, Reservations
from cheapspec.core.exposure import exposure
from cheapspec.core.money import format_usd
from cheapspec.core.reply import strict_json
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.admission import Admitted
from cheapspec.drive.io import Steps, Written
from cheapspec.drive.permits import BoundPermit
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.urls import api_base, paid_route

__all__ = ["OverBudget", "over_budget", "request_worst", "reserve"]

STEPS = 4
"""So many scoring steps of a run are reserved for."""


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
    steps = _steps_worst(decided) if isinstance(decided, Admitted) else None
    amounts = [alone] if steps is None else [None if alone is None else alone + steps, alone]
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
    if alone is None or grant.choice == 1:
        return passed.because("budget", "what is left is not enough to speculate")
    if isinstance(decided.job.permit, BoundPermit):
        decided.job.permit.limit(steps or Decimal(0))
    return decided


def _steps_worst(admitted: Admitted) -> Decimal | None:
    """What the steps of a run may cost on top of the caller's own request."""
    job = admitted.job
    if job.prices is None:
        return None
    drafted = job.policy.draft_tokens or job.policy.max_draft_tokens
    context = len(admitted.passed.request.read())  # a token is a byte at least
    forced = job.target.can_force and not job.target.can_score
    first = worst_case(job.prices, context, drafted, first=True, forced=forced)
    return first + (STEPS - 1) * worst_case(job.prices, context + drafted, drafted, first=False, forced=forced)


def request_worst(runtime: Runtime, passed: Passed) -> Decimal | None:
    """Dollars that the caller's own request can cost at most; ``None`` unknown."""
    prices, _ = runtime.prices.lookup(passed.model, api_base(passed.request.url))
    if prices is None or not paid_route(passed.request, passed.kind):
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
    return exposure(body, len(content), paid_route(passed.request, passed.kind), prices)


def over_budget(refused: OverBudget) -> httpx2.Response:
    """A 429 of our own, in OpenAI's shape, that no SDK repeats."""
    grant, passed = refused.grant, refused.passed
    left = format_usd(grant.left_usd)
    said = {
        "exceeded": f"the budget {grant.cap!r} has ${left} left, which is less than this request may cost",
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
