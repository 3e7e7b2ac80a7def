"""Replay: past requests priced again under another rule, without any call.

Rules
-----
* What is replayed is a :class:`~cheapspec.core.traces.RequestTrace` (that module says what exactly to record). The
  reply is what it was; only who wrote which part of it, and what that cost, changes.
* A round scores a draft after the verified prefix. What holds is verified, and one more token of the target's own
  after it; past the last token the reply is whole and nothing is handed off.
* Before each round the policy decides anew (:mod:`cheapspec.core.policies`), seeing what production would see.
* A step that the allowance does not bear is tried with half the tokens, as the engine does
  (:data:`cheapspec.core.choosing.TRIES`). One that it bears in no length is not taken: before the first round the
  request goes direct, later the target goes on.
* ``paid`` and ``baseline`` are in dollars (:class:`~cheapspec.core.tariff.Tariff`); of them and of seconds everything
  here is a float: a replay is an estimate, a bill is ``Decimal``.
* Positions that nobody looked at in production are filled in (:mod:`cheapspec.core.imputation`); a result says which
  share of the positions that its rounds looked at was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from cheapspec.core.allowance import Allowance, Hold, at_risk
from cheapspec.core.choosing import TRIES
from cheapspec.core.imputation import Completed, complete
from cheapspec.core.lanes import Lane, Proposal, lanes
from cheapspec.core.money import Prices
from cheapspec.core.oracle import clairvoyant
from cheapspec.core.outcome import Outcome, Replayed
from cheapspec.core.policies import Choice, Policy, View
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace

__all__ = ["Guard", "Pace", "Setting", "outcomes", "replay"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds instead of dollars: ``target`` is a tariff of seconds (its ``request`` the round trip), ``draft_token``
    the draft model's seconds a token.
    """

    target: Tariff
    draft_token: float = 0.0


class Guard:
    """The allowance of a replay: all requests together, and each workload."""

    def __init__(self, allowance: Allowance, prices: Prices) -> None:
        self._allowance = allowance
        self._prices = prices
        self._held: Hold | None = None

    def begin(self, workload: str) -> None:
        """A request of this workload begins."""
        self._held = self._allowance.hold([workload])

    def admits(self, context_tokens: int, draft_tokens: int, *, spent: float, sure: float) -> bool:
        """Whether what this step may lose can be borne; if so, the request holds it. ``spent``, ``sure``: dollars, as
        :func:`~cheapspec.core.allowance.at_risk` takes them.
        """
        assert self._held is not None
        worst = at_risk(self._prices, context_tokens, draft_tokens, spent=Decimal(spent), sure=Decimal(sure))
        return worst is not None and self._allowance.admit(self._held, worst)

    def settle(self, paid: float, baseline: float) -> None:
        """The request is over."""
        assert self._held is not None
        self._allowance.settle(self._held, Decimal(paid), Decimal(baseline))


@dataclass(frozen=True, slots=True)
class Setting:
    """What the calls cost and what may be drafted. ``drafters``: only these, ``None`` all of the trace.
    ``max_draft_tokens``: the longest draft that production asks for.
    """

    tariff: Tariff
    drafters: tuple[str, ...] | None = None
    max_draft_tokens: int = 512
    pace: Pace | None = None
    oracle: bool = False


def replay(traces: Sequence[RequestTrace], policy: Policy, setting: Setting, guard: Guard | None = None) -> Outcome:
    """All requests in their order, under one policy, which learns on the way."""
    return Outcome(tuple(outcomes(complete(traces), policy, setting, guard)))


def outcomes(
    traces: Iterable[Completed], policy: Policy, setting: Setting, guard: Guard | None = None
) -> Iterator[Replayed]:
    """The same one by one, for those who want to show progress."""
    for completed in traces:
        yield _Course(completed, policy, setting, guard).run()


class _Course:
    """One request under way. ``began``: where each model's last draft began."""

    def __init__(self, completed: Completed, policy: Policy, setting: Setting, guard: Guard | None) -> None:
        self.trace = completed.trace
        self.estimated = completed.estimated
        self.policy = policy
        self.setting = setting
        self.guard = guard
        self.lanes: dict[str, Lane] = {lane.drafter: lane for lane in lanes(self.trace, setting.drafters)}
        self.position = 0
        self.began: dict[str, int] = {}
        self.told = Replayed(self.trace.id, self.trace.workload, setting.tariff.direct(self.trace))

    def run(self) -> Replayed:
        trace, told, setting = self.trace, self.told, self.setting
        if self.guard is not None:
            self.guard.begin(trace.workload)
        while self.position < trace.reply_tokens or not trace.reply_tokens:
            view = self._view()
            choice = self._admitted(self.policy.decide(view), view)
            if choice is None:
                self._hand_off()
                break
            self._score(view, choice)
        if self.guard is not None:
            self.guard.settle(told.paid, told.baseline)
        if setting.oracle:
            schedule = clairvoyant(
                trace, setting.tariff, tuple(self.lanes.values()), max_draft_tokens=setting.max_draft_tokens
            )
            told.clairvoyant = schedule.paid
        if setting.pace is not None:
            told.seconds_direct = setting.pace.target.direct(trace)
        return told

    def _view(self) -> View:
        """What is there without asking a model; then with it, if the policy asks."""
        trace, setting = self.trace, self.setting
        remaining = None if trace.max_tokens is None else max(0, trace.max_tokens - self.position)
        limit = setting.max_draft_tokens if remaining is None else min(setting.max_draft_tokens, remaining)
        lanes_ = list(self.lanes.values()) if self.position < trace.reply_tokens else []
        there = [lane for lane in lanes_ if lane.static or self._at_hand(lane)]
        seconds = None if setting.pace is None else setting.pace.target.context(trace)
        view = View(
            trace.workload,
            self.told.rounds,
            self.position,
            trace.prompt_tokens,
            remaining,
            limit,
            setting.tariff.context(trace),
            self._proposals(there, limit),
            seconds,
        )
        models = [lane for lane in lanes_ if not lane.static]
        if not models or any(not lane.static for lane in there) or limit < 1:
            return view
        if not self.policy.asks(view, [lane.drafter for lane in models]):
            return view
        proposals = self._proposals(lanes_, limit)
        drafted = sum(len(proposal.tokens) for proposal in proposals if not proposal.static)
        self.began = {lane.drafter: self.position for lane in models}
        self.told.drafted_tokens += drafted
        if setting.pace is not None:
            self.told.seconds += drafted * setting.pace.draft_token
        return replace(view, proposals=proposals)

    def _at_hand(self, lane: Lane) -> bool:
        """Whether the draft that this model wrote earlier has held up to here, and goes on."""
        began = self.began.get(lane.drafter)
        if began is None:
            return False
        written = min(lane.length[began], self.setting.max_draft_tokens)
        return lane.right[began] >= self.position - began < written

    def _proposals(self, some: Sequence[Lane], limit: int) -> tuple[Proposal, ...]:
        told = (lane.propose(self.position, limit) for lane in some)
        return tuple(proposal for proposal in told if proposal is not None)

    def _admitted(self, choice: Choice | None, view: View) -> Choice | None:
        """The step as far as the allowance bears it."""
        if self.guard is None or choice is None:
            return choice
        context, sure = view.prompt_tokens + view.position, self.setting.tariff.begun(self.trace, self.position)
        for _ in range(TRIES):
            if self.guard.admits(context, choice.draft_tokens, spent=self.told.paid, sure=sure):
                return choice
            shorter = choice.proposal.head(choice.draft_tokens // 2)
            choice = None if shorter is None else self.policy.decide(replace(view, proposals=(shorter,)))
            if choice is None:
                break
        self.told.refused = True
        return None

    def _score(self, view: View, choice: Choice) -> None:
        told, position, lane = self.told, self.position, self.lanes[choice.proposal.drafter]
        told.paid += self.setting.tariff.score(self.trace, position, choice.draft_tokens)
        if self.setting.pace is not None:
            told.seconds += self.setting.pace.target.score(self.trace, position, choice.draft_tokens)
        accepted = min(choice.draft_tokens, lane.right[position])
        missed = accepted < choice.draft_tokens
        told.rounds += 1
        told.target_calls += 1
        told.scored_tokens += choice.draft_tokens
        told.accepted_tokens += accepted
        told.looked_at += accepted + missed
        unknown = self.estimated.get(lane.drafter, frozenset())
        told.estimated += sum(at in unknown for at in range(position, position + accepted + missed))
        whole = not missed and choice.draft_tokens == len(choice.proposal.tokens)
        self.position = position + accepted + 1
        turn_ends = self.trace.finish != "length" and self.position == self.trace.reply_tokens
        self.policy.learn(view, choice, accepted, turn_ends if whole and choice.proposal.finished else None)

    def _hand_off(self) -> None:
        told, left = self.told, self.trace.reply_tokens - self.position
        told.paid += self.setting.tariff.hand_off(self.trace, self.position)
        told.target_calls += 1
        told.handoff_tokens += left
        if self.setting.pace is not None:
            told.seconds += self.setting.pace.target.hand_off(self.trace, self.position)
