"""Who decides in a replay: the planner, or a simple rule to compare it with.

Rules
-----
* A policy is shown a :class:`View`: what production would know before a round. It never sees agreement ahead.
* Given text, and what is left of a model's draft that has held so far, is there at once. Where nothing of a model is,
  the policy says whether to wait for one (:meth:`Policy.asks`), by the engine's own rules.
* It answers with a :class:`Choice`: the proposal to score and how much of it, or ``None`` to hand off (before the
  first round: to go direct). It is then told what held of it, and nothing else: that is all it may learn from.
* A policy keeps what it has learnt from request to request, and starts without anything: cold start is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cheapspec.core.choosing import dreamt, preference, worth_waiting
from cheapspec.core.estimate import Counts, Estimates, merge
from cheapspec.core.lanes import Proposal
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Decision, Rates, plan
from cheapspec.core.priors import Outlook, RequestRates

__all__ = ["Choice", "Direct", "FixedLength", "Planned", "Policy", "View", "WholeDraft", "policy"]


@dataclass(frozen=True, slots=True)
class View:
    """The moment before a round. ``position``: verified reply tokens; ``remaining``: of the caller's limit, ``None``
    without one. ``limit``: the longest draft there may be. ``seconds``: the shares of the context that calls read
    anew, where time is counted.
    """

    workload: str
    round: int
    position: int
    prompt_tokens: int
    remaining: int | None
    limit: int
    context: ContextPrices
    proposals: Sequence[Proposal]
    seconds: ContextPrices | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Score the first ``draft_tokens`` of ``proposal``."""

    proposal: Proposal
    draft_tokens: int


class Policy(Protocol):
    """Decides the rounds of one request after the other."""

    @property
    def name(self) -> str: ...
    def asks(self, view: View, models: Sequence[str]) -> bool:
        """Whether one of these draft models is asked for a draft now; ``view`` shows what is there without."""
        ...

    def decide(self, view: View) -> Choice | None: ...
    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        """``accepted``: how many of the scored tokens held. ``ended``: all did, the draft ends its turn after them,
        and so does the target, or does not; ``None``: that was not to be seen.
        """
        ...


class Direct:
    """The target alone, always."""

    name = "direct"

    def asks(self, view: View, models: Sequence[str]) -> bool:
        return False

    def decide(self, view: View) -> Choice | None:
        return None

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        raise AssertionError("nothing was scored")


class FixedLength:
    """Rounds of at most ``draft_tokens``, as long as there is a draft: the loop without a planner."""

    def __init__(self, draft_tokens: int) -> None:
        self.name = f"fixed:{draft_tokens}"
        self._most = draft_tokens

    def asks(self, view: View, models: Sequence[str]) -> bool:
        return not view.proposals

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

    def asks(self, view: View, models: Sequence[str]) -> bool:
        return not view.proposals and (self._again or not view.round)

    def decide(self, view: View) -> Choice | None:
        first = next(iter(view.proposals), None)
        if first is None or (view.round and not self._again):
            return None
        return Choice(first, len(first.tokens))

    def learn(self, view: View, choice: Choice, accepted: int, ended: bool | None) -> None:
        """Learns nothing."""


class Planned:
    """The planner of the engine, with the prices that it is given (which need not be those that are paid), and its
    estimates, learned as it learns them: per workload, and of all of a target's workloads together, where a new one
    starts. ``rates``: plan in these (seconds) instead of dollars.
    """

    name = "planner"

    def __init__(self, prices: Prices, rates: Rates | None = None, *, learns: bool = True) -> None:
        self._prices = prices
        self._rates = rates
        self._learns = learns
        self._counts: dict[str, Counts] = {}
        self._background: Counts = {}
        self._request = RequestRates()

    def asks(self, view: View, models: Sequence[str]) -> bool:
        """As the engine: a draft of the tokens that the model is surest of, as long as what is there and claims to be
        whole, must pay, and clearly beat what is there.
        """
        self._begin(view)
        whole = max((len(one.tokens) for one in view.proposals if one.finished), default=view.limit)
        dreams: list[tuple[Decision, float]] = []
        for name in models:
            sure, outlook = dreamt(self._request, name, min(whole, view.limit))
            dream = self._planned(view, Proposal(name, sure, finished=True), outlook)
            dreams.append((dream, self._rates.drafting * dream.draft_tokens if self._rates is not None else 0.0))
        return worth_waiting(dreams, (self._planned(view, proposal) for proposal in view.proposals))

    def decide(self, view: View) -> Choice | None:
        self._begin(view)
        planned = ((proposal, self._planned(view, proposal)) for proposal in view.proposals)
        best = max(planned, key=lambda pair: preference(pair[1]), default=None)
        if best is None or best[1].action != "score":
            return None
        return Choice(best[0], best[1].draft_tokens)

    def _begin(self, view: View) -> None:
        if not view.round:
            self._request = RequestRates(Estimates(self._counts.get(view.workload, {}), self._background))

    def _planned(self, view: View, proposal: Proposal, outlook: Outlook | None = None) -> Decision:
        rates = self._rates
        if rates is not None and proposal.static:
            rates = replace(rates, drafting=0.0)
        return plan(
            view.round,
            self._prices,
            view.prompt_tokens + view.position,
            view.context if rates is None or view.seconds is None else view.seconds,
            proposal.tokens,
            finished=proposal.finished,
            remaining=view.remaining,
            outlook=outlook or self._request.outlook(proposal.tokens, proposal.drafter, static=proposal.static),
            rates=rates,
        )

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
            self._background = merge(self._background, delta)


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
