"""Replay: past requests priced again under another rule, without any call.

Rules
-----
* What is replayed is a :class:`~cheapspec.core.traces.RequestTrace` (that module says what exactly to record). The
  reply is what it was; only who wrote which part of it, and what that cost, changes.
* A round scores a draft after the verified prefix. What holds is verified, and one more token of the target's own
  after it; past the last token the reply is whole and nothing is handed off.
* Before each round the policy decides anew (:mod:`cheapspec.core.policies`), seeing what production would see.
* A step that the allowance does not bear is not taken: before the first round the request goes direct, later the
  target goes on.
* ``paid`` and ``baseline`` are in dollars (:class:`~cheapspec.core.tariff.Tariff`); of them and of seconds everything
  here is a float: a replay is an estimate, a bill is ``Decimal``.
* Positions that nobody looked at in production are filled in (:mod:`cheapspec.core.imputation`); a result says which
  share of the positions that its rounds looked at was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from cheapspec.core.allowance import Allowance, Hold, worst_case
from cheapspec.core.imputation import Completed, complete
from cheapspec.core.lanes import Lane, lanes
from cheapspec.core.money import Prices
from cheapspec.core.oracle import capture, clairvoyant
from cheapspec.core.policies import Choice, Policy, View
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace

__all__ = ["Guard", "Outcome", "Pace", "Replayed", "Setting", "outcomes", "replay"]


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

    def admits(self, context_tokens: int, draft_tokens: int, *, first: bool) -> bool:
        """Whether the worst case of this step can be borne; if so, it is reserved."""
        assert self._held is not None
        return self._allowance.admit(self._held, worst_case(self._prices, context_tokens, draft_tokens, first=first))

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


@dataclass(slots=True)
class Replayed:
    """One request. ``looked_at``: positions that its rounds looked at, ``estimated`` those of them that were filled
    in. ``clairvoyant``: dollars, ``None`` when not asked for. ``seconds``: only with a :class:`Pace`.
    """

    id: str
    workload: str
    baseline: float
    paid: float = 0.0
    rounds: int = 0
    target_calls: int = 0
    scored_tokens: int = 0
    accepted_tokens: int = 0
    handoff_tokens: int = 0
    drafted_tokens: int = 0
    looked_at: int = 0
    estimated: int = 0
    refused: bool = False
    clairvoyant: float | None = None
    seconds: float = 0.0
    seconds_direct: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sums over requests."""

    requests: Sequence[Replayed] = field(default_factory=tuple[Replayed, ...])

    @property
    def paid(self) -> float:
        """Dollars of all calls."""
        return sum(request.paid for request in self.requests)

    @property
    def baseline(self) -> float:
        """Dollars of the target alone."""
        return sum(request.baseline for request in self.requests)

    @property
    def paid_over_baseline(self) -> float | None:
        """Below 1 is a saving; ``None`` without requests."""
        return self.paid / self.baseline if self.baseline else None

    @property
    def clairvoyant(self) -> float | None:
        """Dollars of the clairvoyant, ``None`` when it was not asked for."""
        known = [request.clairvoyant for request in self.requests if request.clairvoyant is not None]
        return sum(known) if len(known) == len(self.requests) else None

    @property
    def capture(self) -> float | None:
        """Saving over the clairvoyant's (:func:`cheapspec.core.oracle.capture`)."""
        best = self.clairvoyant
        return None if best is None else capture(self.paid, self.baseline, best)

    @property
    def estimated_share(self) -> float:
        """Of the positions looked at, the share that no trace knew."""
        looked_at = sum(request.looked_at for request in self.requests)
        return sum(request.estimated for request in self.requests) / looked_at if looked_at else 0.0

    def by_workload(self) -> dict[str, Outcome]:
        """The same for each workload, in the order in which they first occur."""
        groups: dict[str, list[Replayed]] = {}
        for request in self.requests:
            groups.setdefault(request.workload, []).append(request)
        return {name: Outcome(tuple(group)) for name, group in groups.items()}


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
    """One request under way. ``drafted_to``: up to which position the draft at hand reaches."""

    def __init__(self, completed: Completed, policy: Policy, setting: Setting, guard: Guard | None) -> None:
        self.trace = completed.trace
        self.estimated = completed.estimated
        self.policy = policy
        self.setting = setting
        self.guard = guard
        self.lanes: dict[str, Lane] = {lane.drafter: lane for lane in lanes(self.trace, setting.drafters)}
        self.position = 0
        self.fresh = True
        self.told = Replayed(self.trace.id, self.trace.workload, setting.tariff.direct(self.trace))

    def run(self) -> Replayed:
        trace, told, setting = self.trace, self.told, self.setting
        if self.guard is not None:
            self.guard.begin(trace.workload)
        while self.position < trace.reply_tokens or not trace.reply_tokens:
            view = self._view()
            choice = self.policy.decide(view)
            if choice is None or not self._admitted(choice, view):
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
        trace, position = self.trace, self.position
        remaining = None if trace.max_tokens is None else max(0, trace.max_tokens - position)
        limit = min(self.setting.max_draft_tokens, self.setting.max_draft_tokens if remaining is None else remaining)
        here = position < trace.reply_tokens
        told = [lane.propose(position, limit) for lane in self.lanes.values()] if here else []
        proposals = tuple(proposal for proposal in told if proposal is not None)
        if self.fresh:
            self.fresh = False
            drafted = sum(len(proposal.tokens) for proposal in proposals if not proposal.static)
            self.told.drafted_tokens += drafted
            if self.setting.pace is not None:
                self.told.seconds += drafted * self.setting.pace.draft_token
        context = self.setting.tariff.context(trace)
        return View(trace.workload, self.told.rounds, position, trace.prompt_tokens, remaining, context, proposals)

    def _admitted(self, choice: Choice, view: View) -> bool:
        if self.guard is None:
            return True
        context = view.prompt_tokens + view.position
        self.told.refused = not self.guard.admits(context, choice.draft_tokens, first=not view.round)
        return not self.told.refused

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
        self.fresh = missed or lane.right[position] == accepted
        turn_ends = self.trace.finish != "length" and self.position == self.trace.reply_tokens
        self.policy.learn(view, choice, accepted, turn_ends if whole and choice.proposal.finished else None)

    def _hand_off(self) -> None:
        told, left = self.told, self.trace.reply_tokens - self.position
        told.paid += self.setting.tariff.hand_off(self.trace, self.position)
        told.target_calls += 1
        told.handoff_tokens += left
        if self.setting.pace is not None:
            told.seconds += self.setting.pace.target.hand_off(self.trace, self.position)
