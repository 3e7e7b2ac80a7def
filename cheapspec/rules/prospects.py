"""What asking a rule about a whole draft is expected to cost in one request, and whether that pays.

Rules
-----
* The formula is :mod:`cheapspec.rules.breakeven`'s; here it is given a request: its prices, its length, the part of
  its prompt that the host has cached, the hidden thinking that the target's replies had, the mean output of such
  verdicts.
* How often a rule accepts is learned by rule and drafter, from every verdict that was asked for; the stated prior
  (:data:`PRIOR`) counts for :data:`PRIOR_TRIALS` of them, and what the target's other workloads showed moves it.
* A judge that is not the target shares no prompt cache with it: its call is paid on top, at its own prices.
* The prompt is counted on the long side where it is paid, and on the short side where it must be long enough to be
  cached.
* Without a price of input nothing can be weighed; then the allowance alone bounds what is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cheapspec.core.assumed import assumed_prompt
from cheapspec.core.counting import estimate, input_estimate, size_of
from cheapspec.core.effects import Side
from cheapspec.core.estimate import VERDICT, Count, Delta, Estimates
from cheapspec.core.money import Prices
from cheapspec.core.request import Request
from cheapspec.rules import prompts
from cheapspec.rules.agree import Agree
from cheapspec.rules.answer import Answer
from cheapspec.rules.breakeven import Costs, Host, Shape, costs
from cheapspec.rules.judge import Judge
from cheapspec.rules.ok_or_answer import OkOrAnswer
from cheapspec.rules.patch import Patch
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Endpoint

__all__ = [
    "PRIOR", "PRIOR_TRIALS", "REPLY_TOKENS", "Bench", "CallRule", "FreeRule", "Lengths", "Prospect", "VerdictRule",
    "acceptance", "learned", "prospect", "purpose_of",
]  # fmt: skip

CallRule = Answer | Judge | OkOrAnswer | Patch
FreeRule = Agree | Validator
VerdictRule = CallRule | FreeRule

PRIOR: Final = 0.6
"""How often a draft is accepted before anything was seen. An assumption: between the .65 of drafts that were right and
the .51 to .64 that the rules accepted in the replay of docs/chat-only-apis.md."""
PRIOR_TRIALS: Final = 10.0
REPLY_TOKENS: Final = 200
"""Tokens of a reply, before any was seen; an assumption."""

_SAID: Final = {"answer": 6.0, "judge": 1.0, "ok_or_answer": 2.0, "patch": 2.0}
"""Output tokens of a verdict that accepts, before any was seen."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who is asked. ``endpoint``: what it takes; ``side`` and ``host``: where it is; ``own``: it is the target itself,
    whose prompt cache the direct call shares and whose prices are the request's. ``seconds``: the longest that a call
    may take, ``None``: the caller's own time-out decides.
    """

    endpoint: Endpoint = field(default_factory=Endpoint)
    prices: Prices | None = None
    side: Side = Side.TARGET
    host: str = ""
    own: bool = True
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """What calls at this target were like, in output tokens. ``reply``: mean visible tokens of a direct reply, ``None``
    unknown; ``hidden``: mean tokens of its thinking; ``said``: mean output of verdicts, by purpose.
    """

    reply: float | None = None
    hidden: float = 0.0
    said: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Prospect:
    """One rule in one request. ``costs``: in tokens of input, ``None``: it costs nothing, or nobody knows its price;
    ``unit``: dollars of such a token; ``rate``: how often it accepts.
    """

    rule: str
    rate: float
    costs: Costs | None = None
    unit: float = 0.0

    @property
    def pays(self) -> bool:
        """Whether asking is expected to cost less than the direct call alone."""
        return self.costs is None or self.costs.expected(self.rate) < 1

    @property
    def why(self) -> str:
        """One sentence with the numbers."""
        if self.costs is None:
            return f"{self.rule}: costs nothing to ask, accepts {self.rate:.0%} as expected"
        accepted, rejected, direct = (
            f"${tokens * self.unit:.7f}" for tokens in (self.costs.accepted, self.costs.rejected, self.costs.direct)
        )
        even = self.costs.break_even
        needed = "never pays" if even is None else f"pays from {even:.0%} accepted"
        told = f"{accepted} accepted, {rejected} rejected, {direct} direct"
        return f"{self.rule}: {told}; {needed}, {self.rate:.0%} expected"


def purpose_of(rule: CallRule) -> str:
    """The purpose of a rule's call in the books."""
    if isinstance(rule, Answer):
        return "answer"
    if isinstance(rule, Judge):
        return "judge"
    return "ok_or_answer" if isinstance(rule, OkOrAnswer) else "patch"


def prospect(
    rule: VerdictRule,
    bench: Bench,
    request: Request,
    prices: Prices | None,
    rate: float,
    *,
    draft_tokens: int | None = None,
    lengths: Lengths | None = None,
    read: float = 1.0,
    again: float | None = None,
    asked_before: bool = False,
) -> Prospect:
    """``prices``: the target's, of this request's tier and length. ``draft_tokens``: of the draft at hand, ``None``:
    as long as the reply is expected to be. ``read``: what the direct call pays for a token of the prompt, as a multiple
    of the input price; ``again``: the same right after another call, ``None``: not probed. ``asked_before``: a verdict
    was asked for already, so the prompt is as cached as it gets.
    """
    if isinstance(rule, Agree | Validator):
        return Prospect(rule.name, rate)
    host = None if prices is None else Host.of(prices)
    if host is None or prices is None:
        return Prospect(rule.name, rate)
    lengths = lengths or Lengths()
    purpose, prompt = purpose_of(rule), assumed_prompt(request)
    reply = draft_tokens if draft_tokens is not None else round(lengths.reply or REPLY_TOKENS)
    reply = max(1, reply if request.max_tokens is None else min(reply, request.max_tokens))
    if again is not None:
        host = Host(host.output, again, 0, host.request)
    elif host.block is not None and input_estimate(request.body) < host.block:
        host = Host(host.output, host.cached, None, host.request)
    said = lengths.said.get(purpose, _SAID[purpose] + bench.endpoint.thinking)
    shown, replies = not isinstance(rule, Answer), isinstance(rule, OkOrAnswer | Patch)
    shape = Shape(_words(rule, bench.endpoint), round(said), shown, replies)
    if asked_before:
        read = min(read, host.again(prompt) / max(prompt, 1))
    got = costs(host, shape, prompt, reply, reply, hidden=round(lengths.hidden), read=read)
    if not bench.own:
        return Prospect(
            rule.name, rate, _elsewhere(got, bench, shape, prompt, reply, prices), float(prices.input) / 1e6
        )
    return Prospect(rule.name, rate, got, float(prices.input) / 1e6)


def _elsewhere(got: Costs, bench: Bench, shape: Shape, prompt: int, reply: int, prices: Prices) -> Costs | None:
    """Another model's call comes on top of the direct one."""
    if bench.prices is None:
        return None
    unit = float(prices.input)
    call = (prompt + shape.asked + reply) * float(bench.prices.input) + shape.said * float(bench.prices.output)
    asked = (call + float(bench.prices.request) * 1e6) / unit
    return Costs(got.direct, asked, asked + got.direct)


def _words(rule: CallRule, endpoint: Endpoint) -> int:
    """Tokens of a rule's own words."""
    if isinstance(rule, Answer):
        text = rule.prompt.text + rule.extractor.form
    elif isinstance(rule, Judge):
        text = (rule.prompt if endpoint.alternatives else rule.digit_prompt).text
        text += "" if rule.model is None else prompts.INSTRUCTIONS.text
    elif isinstance(rule, OkOrAnswer):
        text = rule.prompt.text
    else:
        text = (rule.prompt or (prompts.PATCH_JSON if rule.form == "json" else prompts.PATCH_CODE)).text
    return estimate(size_of(text))


def acceptance(estimates: Estimates, rule: str, drafter: str) -> float:
    """How often a rule accepts this drafter's drafts (0 to 1)."""
    rate = PRIOR
    for counts in (estimates.background, estimates.counts):
        seen = counts.get(_key(rule, drafter), Count())
        rate = (seen.hits + rate * PRIOR_TRIALS) / (seen.trials + PRIOR_TRIALS)
    return rate


def learned(rule: str, drafter: str, expected: float, *, accepted: bool) -> Delta:
    """What one verdict adds to the estimates."""
    return {_key(rule, drafter): Count(1.0, float(accepted), expected)}


def _key(rule: str, drafter: str) -> tuple[str, str]:
    return f"verdict:{rule} on {drafter}", VERDICT
