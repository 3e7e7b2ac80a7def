"""The rules of a ladder as ways that a request could go, beside going direct, before anything is spent.

Rules
-----
* A way costs what its call costs and, where the draft is not accepted, the direct call after it; expected at the rate
  at which the rule has accepted such drafts. A rule without a call costs the direct call where it does not accept.
* At most: the direct call at its worst and the verdict at its worst.
* Allowed is what may accept, is expected to pay, and what the allowance bears. The first such rule is the plan; the
  others come after it where it does not accept.
"""

from __future__ import annotations

from decimal import Decimal

from cheapspec.core.alternatives import PlanAlternative
from cheapspec.core.money import Prices, money_context
from cheapspec.core.ports import Drafter
from cheapspec.rules.agree import Agree
from cheapspec.rules.asking import body_of, worst_usd
from cheapspec.rules.prospects import Prospect, VerdictRule
from cheapspec.rules.standing import Ladder, barred, weighed
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft

__all__ = ["verdict_ways"]


def verdict_ways(
    ladder: Ladder,
    direct: PlanAlternative,
    drafter: Drafter | None,
    tokens: int | None,
    *,
    headroom: Decimal | None = None,
) -> list[PlanAlternative]:
    """One way a rule, in order. ``direct``: the target alone; ``drafter``: whose draft goes out; ``tokens``: of it,
    ``None``: as long as a reply is expected to be; ``headroom``: dollars that a verdict may risk, ``None`` no limit.
    """
    name = "" if drafter is None else drafter.name
    return [_way(ladder, rule, direct, name, tokens, headroom) for rule in ladder.rules]


def _way(
    ladder: Ladder,
    rule: VerdictRule,
    direct: PlanAlternative,
    drafter: str,
    tokens: int | None,
    headroom: Decimal | None,
) -> PlanAlternative:
    told, bar, worst = weighed(ladder, rule, drafter, tokens), barred(ladder, rule), direct.worst_usd
    free = isinstance(rule, Agree | Validator)
    allowed, why = bar is None, told.why
    if bar is not None:
        why = f"{rule.name}: {bar.reason}: {bar.why}"
    elif not free and ladder.weighs and not told.pays:
        allowed, why = False, f"not worth it: {told.why}"
    if not free:
        call = _worst(ladder, rule, tokens)
        worst = None if worst is None or call is None else worst + call
        if allowed and headroom is not None and (call is None or call > headroom):
            most = "unbounded" if call is None else f"${call:.6f}"
            why = f"what it may lose at most ({most}) is more than the allowance bears (${headroom:.6f})"
            allowed = False
    expected = None if bar is not None else _expected(told, direct, free=free)
    allowed = allowed and bool(drafter)
    return PlanAlternative("verdict", rule.name, drafter or None, tokens or 0, expected, worst, None, allowed, why)


def _expected(told: Prospect, direct: PlanAlternative, *, free: bool) -> Decimal | None:
    if not free and told.costs is None:
        return None
    with money_context():
        if told.costs is None:
            return None if direct.expected_usd is None else direct.expected_usd * (1 - Decimal(str(told.rate)))
        return Decimal(str(told.costs.expected(told.rate) * told.costs.direct * told.unit))


def _worst(ladder: Ladder, rule: VerdictRule, tokens: int | None) -> Decimal | None:
    bench = ladder.bench_of(rule)
    if bench is None or isinstance(rule, Agree | Validator) or ladder.request.kind != "chat":
        return None
    count = tokens or ladder.policy.max_draft_tokens
    prices: Prices | None = ladder.prices if bench.own else bench.prices
    return worst_usd(body_of(rule, ladder.request, Draft("x" * count), count, ladder.salt, bench), prices)
