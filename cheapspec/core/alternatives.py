"""Everything that could be done with a request, with what it is expected to cost and at most, before it is spent.

Rules
-----
* The alternatives are going direct and, for each draft, having it scored as the planner would. What is expected of
  the latter is what direct costs less the plan's gain, later rounds included.
* The worst case of direct is the caller's to tell (:mod:`cheapspec.core.exposure`). That of scoring is for one round
  and the hand-off after it: direct's, plus what the request would hold of the allowance for the round
  (:func:`cheapspec.core.allowance.at_risk`), in the dearer of two service tiers. A further round may add what the
  allowance bears then.
* Seconds are those of the look-ahead where the objective is latency; else of one round and the hand-off after it.
* Allowed is what the endpoint can do, the headroom bears and the latency ceiling admits. Chosen is the
  cheapest allowed alternative: in dollars, or in seconds where the objective is latency.
* With fixed draft tokens nothing is planned: the first draft is scored, and what is expected of that is one round
  and then the hand-off.
* What is unknown is ``None``: a price, the length of a reply without a limit, speeds nobody measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from cheapspec.core.allowance import at_risk
from cheapspec.core.drafting import Draft
from cheapspec.core.money import Prices, format_usd
from cheapspec.core.planner import ContextPrices, Decision, Rates, gain, plan
from cheapspec.core.priors import Outlook, RequestRates, survival
from cheapspec.core.speed import Speed, seconds_context, seconds_rates

__all__ = ["Plan", "PlanAlternative", "Situation", "alternatives"]

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class PlanAlternative:
    """One way. ``action``: ``direct``, ``score``, or ``verdict`` (a rule about a whole draft); ``draft_tokens``: scored
    in the first round, or of the whole draft. Dollars are what the
    target would be paid, ``worst_usd`` at most: with one scored round, where one is. ``expected_seconds``: until the
    reply is whole. ``why``: one sentence with the numbers.
    """

    action: str
    rule: str | None
    drafter: str | None
    draft_tokens: int
    expected_usd: Decimal | None
    worst_usd: Decimal | None
    expected_seconds: float | None
    allowed: bool
    why: str

    @property
    def name(self) -> str:
        """How :attr:`Plan.chosen` names it: ``direct``, ``score`` and the drafter, or ``verdict`` and the rule."""
        if self.action == "verdict":
            return f"{self.action} {self.rule}"
        return self.action if self.drafter is None else f"{self.action} {self.drafter}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; dollars as strings."""
        return {
            "action": self.action,
            "rule": self.rule,
            "drafter": self.drafter,
            "draft_tokens": self.draft_tokens,
            "expected_usd": format_usd(self.expected_usd),
            "worst_usd": format_usd(self.worst_usd),
            "expected_seconds": self.expected_seconds,
            "allowed": self.allowed,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All alternatives, direct first; ``chosen`` names one. ``context_prices``: multiples of the input price.
    ``reason``: why the request goes direct, where that is settled before anything is planned (one of the reasons that
    replies and ledger use), with its ``detail``; empty otherwise.
    """

    chosen: str
    alternatives: tuple[PlanAlternative, ...]
    prices: Prices | None
    context_prices: ContextPrices
    reason: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Some lines to read: what is chosen, then every alternative with its dollars and seconds."""
        reason = "" if not self.reason else f" ({self.reason}{f': {self.detail}' if self.detail else ''})"
        lines = [f"{self.chosen}{reason}"]
        for one in self.alternatives:
            mark = "*" if one.name == self.chosen else "-" if one.allowed else "x"
            tokens = f", {one.draft_tokens} draft tokens" if one.action == "score" else ""
            expected, worst = (_dollars(usd) for usd in (one.expected_usd, one.worst_usd))
            seconds = "" if one.expected_seconds is None else f", about {one.expected_seconds:.2f} s"
            rounds = " with one round" if one.action == "score" and one.worst_usd is not None else ""
            told = f"{mark} {one.name}{tokens}: expected {expected}, at most {worst}{rounds}{seconds}"
            lines += [told, f"    {one.why}"]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; prices in dollars per million tokens, as strings."""
        told: dict[str, str | None] = {}
        if self.prices is not None:
            for name in ("input", "cached_input", "cache_write", "output", "request"):
                price = getattr(self.prices, name)
                told[name] = None if price is None else f"{price:f}"
        context = self.context_prices
        return {
            "chosen": self.chosen,
            "alternatives": [one.to_dict() for one in self.alternatives],
            "prices": told,
            "context_prices": {"q0": context.q0, "qs": context.qs, "qh": context.qh},
            "reason": self.reason or None,
            "detail": self.detail or None,
        }


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known before a request is spent on.

    ``prompt_tokens``: of the prompt. ``reply_tokens``: expected of the reply; ``None``: as long as the longest
    draft. ``limit``: the caller's. ``direct_worst``: dollars of the request alone at most, ``None`` unknown.
    ``tier``: the service tier asked for. ``draws``: single tokens that a sampling target may be asked for after a
    round. ``cached_share``: of the prompt, in the direct call (0 to 1). ``headroom``:
    dollars that the next round may risk, ``None`` no limit. ``speed``, ``draft_decode``: seconds
    (:mod:`cheapspec.core.speed`), ``None`` not measured. ``max_added_seconds``: the latency ceiling. ``fixed``: a
    given number of draft tokens a round, planner and allowance off.
    """

    prompt_tokens: int
    prices: Prices | None = None
    context: ContextPrices = field(default_factory=ContextPrices)
    reply_tokens: int | None = None
    limit: int | None = None
    cached_share: float = 0.0
    can_score: bool = True
    can_force: bool = False
    simulate_scoring: bool = False
    rule: str = "exact"
    headroom: Decimal | None = None
    speed: Speed | None = None
    draft_decode: float = 0.0
    max_added_seconds: float | None = None
    objective: str = "cost"
    fixed: int | None = None
    direct_worst: Decimal | None = None
    tier: str | None = None
    draws: int = 0


def alternatives(situation: Situation, drafts: Sequence[Draft], rates: RequestRates | None = None) -> Plan:
    """Describe every way, in the first round. ``drafts``: what each drafter proposes; ``rates``: what is believed of
    them (the stated prior by default). Nothing is raised, nothing asked.
    """
    beliefs = RequestRates() if rates is None else rates
    reply = situation.reply_tokens
    if reply is None:
        reply = max((len(draft.tokens) for draft in drafts), default=0) or None
    if reply is not None and situation.limit is not None:
        reply = min(reply, situation.limit)
    direct = _direct(situation, reply)
    scored = [_scored(situation, draft, beliefs, direct) for draft in drafts if draft.tokens]
    return Plan(_chosen(situation, direct, scored), (direct, *scored), situation.prices, situation.context)


def _direct(situation: Situation, reply: int | None) -> PlanAlternative:
    prices, speed, length = situation.prices, situation.speed, f"a reply of about {reply} tokens"
    expected = seconds = None
    if prices is not None and reply is not None:
        stepped = prices.at(situation.prompt_tokens)
        read = situation.prompt_tokens * stepped.input / _MILLION
        expected = read * Decimal(situation.context.q0) + reply * stepped.output / _MILLION + stepped.request
    if speed is not None and reply is not None:
        fresh = (1 - situation.cached_share) * situation.prompt_tokens
        seconds = speed.round_trip + speed.prefill * fresh + speed.decode * reply
    why = f"the target alone: {situation.prompt_tokens} prompt tokens at {situation.context.q0:g} of the input price, "
    why += "a reply of unknown length" if reply is None else length
    return PlanAlternative("direct", None, None, 0, expected, situation.direct_worst, seconds, True, why)


def _scored(situation: Situation, draft: Draft, beliefs: RequestRates, direct: PlanAlternative) -> PlanAlternative:
    outlook = beliefs.outlook(draft.tokens, draft.drafter, static=draft.static)
    prices, speed = situation.prices, situation.speed
    forced = not situation.can_score and not situation.simulate_scoring
    in_seconds = None if speed is None else seconds_rates(speed, 0 if draft.static else situation.draft_decode)
    if in_seconds is not None and forced and speed is not None:
        in_seconds = replace(in_seconds, draft=speed.decode)
    by_seconds = situation.objective == "latency" and in_seconds is not None
    timed = seconds_context(situation.cached_share, scoring_reuses=situation.context.qs < 1)

    def planned(rates: Rates | None, context: ContextPrices) -> Decision:
        return plan(
            0,
            prices,
            situation.prompt_tokens,
            context,
            draft.tokens,
            finished=draft.end == "stop",
            remaining=situation.limit,
            can_score=situation.can_score,
            can_force=situation.can_force,
            simulate_scoring=situation.simulate_scoring,
            outlook=outlook,
            rates=rates,
        )

    if situation.fixed is not None:
        return _fixed(situation, situation.fixed, draft, outlook, direct)
    decision = planned(in_seconds, timed) if by_seconds else planned(None, situation.context)
    allowed, why, count = decision.expected_gain is not None, decision.why, decision.best_tokens
    priced = planned(None, situation.context) if by_seconds else decision
    expected = None
    if direct.expected_usd is not None and priced.expected_gain is not None:
        expected = direct.expected_usd - Decimal(priced.expected_gain)
    worst = None
    if prices is not None:
        held = _held(situation, prices, count, forced=forced)
        worst = None if direct.worst_usd is None or held is None else direct.worst_usd + held
        if situation.headroom is not None and (held is None or held > situation.headroom):
            most = "unbounded" if held is None else f"${held:.6f}"
            why = f"what it may lose at most ({most}) is more than the allowance bears (${situation.headroom:.6f})"
            allowed = False
    seconds = None
    if in_seconds is not None and direct.expected_seconds is not None:
        won = decision.expected_gain if by_seconds else None
        if won is None:
            won = gain(
                survival(outlook.head(count)),
                rates=in_seconds,
                context_tokens=situation.prompt_tokens,
                context=timed,
                first=True,
                finish=_finish(situation, draft, outlook, count),
            )
        seconds = direct.expected_seconds - won + in_seconds.drafting * len(draft.tokens)
        ceiling = situation.max_added_seconds
        if ceiling is not None and seconds > direct.expected_seconds + ceiling:
            added = seconds - direct.expected_seconds
            allowed, why = False, f"it would take {added:.2f} s more than direct; {ceiling:g} s are allowed"
    return PlanAlternative("score", situation.rule, draft.drafter, count, expected, worst, seconds, allowed, why)


def _fixed(
    situation: Situation, fixed: int, draft: Draft, outlook: Outlook, direct: PlanAlternative
) -> PlanAlternative:
    """One round of so many tokens, then the hand-off."""
    count = min(fixed, len(draft.tokens))
    if situation.limit is not None:
        count = min(count, situation.limit)
    decision = plan(
        0,
        situation.prices,
        situation.prompt_tokens,
        situation.context,
        draft.tokens,
        remaining=situation.limit,
        can_score=situation.can_score,
        can_force=situation.can_force,
        fixed=fixed,
    )
    expected = worst = None
    forced = not situation.can_score and not situation.simulate_scoring
    if situation.prices is not None:
        rates, survived = Rates.of(situation.prices, forced=forced), survival(outlook.head(count))
        tokens = situation.prompt_tokens
        finish = _finish(situation, draft, outlook, count)
        won = gain(survived, rates=rates, context_tokens=tokens, context=situation.context, first=True, finish=finish)
        expected = None if direct.expected_usd is None else direct.expected_usd - Decimal(won)
        held = _held(situation, situation.prices, count, forced=forced)
        worst = None if direct.worst_usd is None or held is None else direct.worst_usd + held
    allowed = decision.action == "score"
    return PlanAlternative("score", situation.rule, draft.drafter, count, expected, worst, None, allowed, decision.why)


def _finish(situation: Situation, draft: Draft, outlook: Outlook, count: int) -> float:
    """Probability that the reply ends with a first round of so many tokens, all of them accepted."""
    ends = 1.0 if count == situation.limit else outlook.end if draft.end == "stop" and count == len(draft.tokens) else 0
    return ends * survival(outlook.head(count))[-1] if ends else 0.0


def _held(situation: Situation, prices: Prices, count: int, *, forced: bool) -> Decimal | None:
    """What the request would hold of the allowance for its first round; ``None``: it has no bound."""
    worst = Decimal(0)
    for tier in (prices.of_tier(situation.tier), prices):  # another tier may serve it than was asked for
        if tier is None:
            return None
        stepped = tier.at(situation.prompt_tokens)
        sure = situation.prompt_tokens * stepped.input / _MILLION * Decimal(situation.context.q0) + stepped.request
        told = at_risk(tier, situation.prompt_tokens, count, sure=sure, forced=forced, draws=situation.draws)
        if told is None:
            return None
        worst = max(worst, told)
    return worst


def _dollars(usd: Decimal | None) -> str:
    told = format_usd(usd)
    return "unknown" if told is None else f"${told}"


def _chosen(situation: Situation, direct: PlanAlternative, scored: Sequence[PlanAlternative]) -> str:
    if situation.fixed is not None:
        return next((one.name for one in scored if one.allowed), direct.name)

    def price(one: PlanAlternative) -> float:
        told = one.expected_seconds if situation.objective == "latency" else one.expected_usd
        return float("inf") if told is None else float(told)

    best = min((one for one in scored if one.allowed), key=price, default=direct)
    return best.name if price(best) < price(direct) else direct.name
