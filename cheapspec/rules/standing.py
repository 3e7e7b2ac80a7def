"""What one run of the ladder is given, and what can be said of its rules before anything is asked.

Nothing in here changes while it runs but the tally, which is what it hands back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cheapspec.core.counting import input_estimate
from cheapspec.core.effects import HttpReply
from cheapspec.core.estimate import Estimates
from cheapspec.core.job import Policy
from cheapspec.core.money import Prices
from cheapspec.core.planner import call_prices
from cheapspec.core.ports import Drafter, Permit
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.rules.agree import Agree
from cheapspec.rules.asking import body_of, worst_usd
from cheapspec.rules.drafting import draft_limit
from cheapspec.rules.forms import form_of
from cheapspec.rules.judge import UNCALIBRATED, Judge
from cheapspec.rules.prospects import Bench, Lengths, Prospect, VerdictRule, acceptance, prospect
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Endpoint

__all__ = ["Ladder", "Skipped", "barred", "prospects", "weighed", "worst_calls"]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Everything one run needs; as :class:`cheapspec.core.job.Job` where names are the same.

    ``rules``: in order. ``bench``: the target as a chat endpoint; ``judges``: by rule name, judges that are not the
    target (``None``: not to be asked now). ``cutoffs``: by rule name, thresholds of certificates that are valid now.
    ``read``: what the direct call pays for a token of the prompt, as a multiple of the input price; ``again``: the same
    right after another call, ``None``: not probed. ``lengths``: of earlier calls. ``learn``: from a reply, what the
    endpoint takes after all. ``salt``: something that the drafter cannot know. ``weighs``: calls must be expected to
    pay.
    """

    request: Request
    rules: Sequence[VerdictRule]
    drafters: Sequence[Drafter]
    tally: Tally
    policy: Policy = field(default_factory=Policy)
    bench: Bench = field(default_factory=Bench)
    judges: Mapping[str, Bench | None] = field(default_factory=dict[str, "Bench | None"])
    prices: Prices | None = None
    read: float = 1.0
    again: float | None = None
    permit: Permit | None = None
    at: float = 0.0
    salt: str = ""
    cutoffs: Mapping[str, float] = field(default_factory=dict[str, float])
    estimates: Estimates = field(default_factory=Estimates)
    lengths: Lengths = field(default_factory=Lengths)
    learn: Callable[[Endpoint, HttpReply, Mapping[str, Any]], Endpoint] | None = None
    weighs: bool = True
    shadow: bool = False

    def bench_of(self, rule: VerdictRule) -> Bench | None:
        """Who is asked; ``None``: nobody, now."""
        return self.judges.get(rule.name, self.bench)

    def threshold(self, rule: Judge) -> float | None:
        """From which score on a judge accepts, ``None``: it is off."""
        found = rule.cutoff(self.cutoffs.get(rule.name))
        return UNCALIBRATED if found is None and self.shadow else found


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that is not asked. ``reason``: one of those that replies and ledger use; ``why``: one sentence."""

    reason: str
    why: str


def barred(ladder: Ladder, rule: VerdictRule) -> Skipped | None:
    """Why a rule cannot accept anything in this request, ``None``: it may."""
    if isinstance(rule, Validator):
        return (
            None if rule.sufficient or ladder.shadow else Skipped("no_verdict", "a check that passes is not sufficient")
        )
    if isinstance(rule, Agree):
        forms = {form_of(one.name) for one in ladder.drafters if one.propose(ladder.request, "", 0) is None}
        if len(forms) >= rule.voters:
            return None
        return Skipped("no_verdict", f"it needs {rule.voters} unlike draft models, and there are {len(forms)}")
    if ladder.request.kind != "chat":
        return Skipped("no_verdict", "only a chat can be asked about a draft")
    if isinstance(rule, Judge) and ladder.threshold(rule) is None:
        return Skipped("uncalibrated", "no certificate for this workload (Judge(uncalibrated=True) waives that)")
    bench = ladder.bench_of(rule)
    if bench is None:
        return Skipped("cooldown", "the judge asked to slow down")
    if ladder.weighs and (ladder.prices is None or (not bench.own and bench.prices is None)):
        return Skipped("price_unknown", "nobody knows what asking costs")
    return None


def prospects(ladder: Ladder, drafter: str, draft_tokens: int | None = None) -> list[Prospect]:
    """What each rule is expected to cost and to accept, in order; as :func:`cheapspec.rules.prospects.prospect`."""
    return [weighed(ladder, rule, drafter, draft_tokens) for rule in ladder.rules]


def weighed(
    ladder: Ladder, rule: VerdictRule, drafter: str, tokens: int | None, *, asked_before: bool = False
) -> Prospect:
    """One of :func:`prospects`. ``asked_before``: the target was asked for another verdict already."""
    rate = 1.0 if isinstance(rule, Validator) else acceptance(ladder.estimates, rule.name, drafter)
    prices = call_prices(ladder.prices, ladder.tally.tier, input_estimate(ladder.request.body))
    return prospect(
        rule,
        ladder.bench_of(rule) or ladder.bench,
        ladder.request,
        prices,
        rate,
        draft_tokens=tokens,
        lengths=ladder.lengths,
        read=ladder.read,
        again=ladder.again,
        asked_before=asked_before,
    )


def worst_calls(ladder: Ladder) -> list[Decimal]:
    """Dollars of each call that may be made, at most, with a draft as long as may be; those that have no bound are left
    out, since they are not made either (unless nothing is weighed).
    """
    tokens = draft_limit(ladder.request, ladder.policy)
    longest = Draft("x" * tokens)  # as many tokens as letters, by the bound on them
    found: list[Decimal] = []
    for rule in ladder.rules:
        bench = ladder.bench_of(rule)
        if isinstance(rule, Agree | Validator) or bench is None or barred(ladder, rule) is not None:
            continue
        body = body_of(rule, ladder.request, longest, tokens, ladder.salt, bench)
        usd = worst_usd(body, ladder.prices if bench.own else bench.prices)
        if usd is not None:
            found.append(usd)
    return found
