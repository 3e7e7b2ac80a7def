"""Who decides in a replay: the planner, or a simple rule to compare it with.

Rules
-----
* A policy is shown a :class:`View`: what production would know before a round. It never sees agreement ahead.
* It answers with a :class:`Choice`: the proposal to score and how much of it, or ``None`` to hand off (before the
  first round: to go direct). It is then told what held of it, and nothing else: that is all it may learn from.
* A policy keeps what it has learnt from request to request, and starts without anything: cold start is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cheapspec.core.estimate import Counts, Estimates, merge
from cheapspec.core.lanes import Proposal
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Rates, plan
from cheapspec.core.priors import RequestRates

__all__ = ["Choice", "Direct", "FixedLength", "Planned", "Policy", "View", "WholeDraft", "policy"]


@dataclass(frozen=True, slots=True)
class View:
    """The moment before a round. ``position``: verified reply tokens; ``remaining``: of the caller's limit, ``None``
    without one.
    """

    workload: str
    round: int
    position: int
    prompt_tokens: int
    remaining: int | None
    context: ContextPrices
    proposals: Sequence[Proposal]


@dataclass(frozen=True, slots=True)
class Choice:
    """Score the first ``draft_tokens`` of ``proposal``."""

    proposal: Proposal
    draft_tokens: int


class Policy(Protocol):
    """Decides the rounds of one request after the other."""

    @property
    def name(self) -> str: ...
    def decide(self, view: View) -> Choice | None: ...
    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        """``accepted``: how many of the scored tokens held. ``ended``: all did, the draft ends its turn after them,
        and so does the target, or does not; ``None``: that was not to be seen.
        """
        ...


class Direct:
    """The target alone, always."""

    name = "direct"

    def decide(self, view: View) -> Choice | None:
        return None

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        raise AssertionError("nothing was scored")


class FixedLength:
    """Rounds of at most ``draft_tokens``, as long as there is a draft: the loop without a planner."""

    def __init__(self, draft_tokens: int) -> None:
        self.name = f"fixed:{draft_tokens}"
        self._most = draft_tokens

    def decide(self, view: View) -> Choice | None:
        first = next(iter(view.proposals), None)
        return None if first is None else Choice(first, min(self._most, len(first.tokens)))

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        """Learns nothing."""


class WholeDraft:
    """The whole draft in one round, then hand off; ``again``: repeated until the reply is whole."""

    def __init__(self, *, again: bool = False) -> None:
        self.name = "whole-again" if again else "whole"
        self._again = again

    def decide(self, view: View) -> Choice | None:
        first = next(iter(view.proposals), None)
        if first is None or (view.round and not self._again):
            return None
        return Choice(first, len(first.tokens))

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        """Learns nothing."""


class Planned:
    """The planner of the engine, with the prices that it is given (which need not be those that are paid), and its
    estimates: learned per workload, from the stated prior on. ``rates``: plan in these (seconds) instead of dollars.
    """

    name = "planner"

    def __init__(self, prices: Prices, rates: Rates | None = None, *, learns: bool = True) -> None:
        self._prices = prices
        self._rates = rates
        self._learns = learns
        self._counts: dict[str, Counts] = {}
        self._request = RequestRates()

    def decide(self, view: View) -> Choice | None:
        if not view.round:
            self._request = RequestRates(Estimates(self._counts.get(view.workload, {})))
        best, most = None, -math.inf
        for proposal in view.proposals:
            decision = plan(
                view.round,
                self._prices,
                view.prompt_tokens + view.position,
                view.context,
                proposal.tokens,
                finished=proposal.finished,
                remaining=view.remaining,
                outlook=self._request.outlook(proposal.tokens, proposal.drafter, static=proposal.static),
                rates=self._rates,
            )
            if decision.action == "score" and decision.expected_gain is not None and decision.expected_gain > most:
                best, most = Choice(proposal, decision.draft_tokens), decision.expected_gain
        return best

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        proposal, count = choice.proposal, choice.draft_tokens
        delta = self._request.learn(
            proposal.drafter,
            [token.logprob for token in proposal.tokens[:count]],
            accepted,
            missed=accepted < count,
            static=proposal.static,
            ended=ended,
        )
        if self._learns:
            self._counts[view.workload] = merge(self._counts.get(view.workload, {}), delta)


def policy(spec: str, prices: Prices, rates: Rates | None = None) -> Policy:
    """``planner``, ``fixed:K``, ``whole``, ``whole-again`` or ``direct``. ``rates``: what the planner plans in, if not
    in dollars.

    :raises ValueError: it is none of these; the message names them.
    """
    if spec == "planner":
        return Planned(prices, rates)
    if spec == "direct":
        return Direct()
    if spec in ("whole", "whole-again"):
        return WholeDraft(again=spec == "whole-again")
    rule, _, count = spec.partition(":")
    if rule == "fixed" and count.isdecimal() and int(count):
        return FixedLength(int(count))
    raise ValueError(f"{spec!r} is no policy: choose planner, fixed:8 (or another number), whole, whole-again, direct")
