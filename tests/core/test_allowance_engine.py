"""The engine under an allowance: whatever drafts, prices, faults and callers do, no request loses more than it held."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from engine_kit import PROMPT, Proposing, TextTarget, alone, asked, ran
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cheapspec.core.allowance import Allowance, Hold
from cheapspec.core.effects import HttpReply, Start, Usage
from cheapspec.core.engine import Policy
from cheapspec.core.money import Prices, charge
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Drafter
from cheapspec.testing.scripted import ScriptedDrafter, ScriptedTarget
from cheapspec.testing.toy import ToyModel

SHARE = Decimal("0.02")
ROSY = ContextPrices(q0=1.0, qs=0.0, qh=0.0)
"""What the planner believes here: context is free."""


@dataclass
class Bound:
    """An allowance, bound to one request."""

    allowance: Allowance
    hold: Hold
    asked: int = 0

    def admit(self, worst: Decimal) -> bool:
        self.asked += 1
        return self.allowance.admit(self.hold, worst)


def odd_score(start: Start, earlier: int) -> Any:
    """The second score of a request has no usable number."""
    if start.request.purpose != "score" or earlier != 1:
        return None

    def spoiled(reply: HttpReply) -> HttpReply:
        told = {**reply.json(), "tokens": []}
        return replace(reply, body=repr(told).replace("'", '"').encode())

    return spoiled


def failing(start: Start, earlier: int) -> Any:
    """The second score is refused."""
    return HttpReply(500, b"{}") if start.request.purpose == "score" and earlier == 1 else None


FAULTS = {"none": None, "odd": odd_score, "failing": failing}


@dataclass
class World:
    """One allowance, and everything that is asked under it."""

    prices: Prices
    allowance: Allowance
    seed: Decimal
    paid: Decimal = Decimal(0)
    baseline: Decimal = Decimal(0)
    rounds: list[int] = field(default_factory=list)

    def ask(self, kind: str, fault: str, alpha: float, limit: int, *, stream: bool, leave_after: int | None) -> None:
        model = ToyModel(5, replies={PROMPT: "The capital of France is Paris and it is big, é and ü too. " * 2})
        request = asked(stream=stream, max_tokens=limit)
        target = TextTarget(model) if kind == "text" else ScriptedTarget(model)
        drafter: Drafter = ScriptedDrafter(model.twin(alpha))
        if kind == "given":
            drafter = Proposing([model.replies[PROMPT][:30] + "nothing of this holds", "Pariser"], size=9)
        permit = Bound(self.allowance, self.allowance.hold())
        outcome = ran(
            request,
            model,
            [drafter],
            target=target,
            fault=FAULTS[fault],
            leave_after=leave_after,
            policy=Policy(max_draft_tokens=6),
            prices=self.prices,
            context_prices=ROSY,
            permit=permit,
        )
        spent = outcome.tally.spent(self.prices)
        whole = alone(model, request)
        direct = charge(Usage(len(model.encode(model.render(request.messages))), whole.tokens), self.prices).usd
        assert spent is not None and direct is not None
        paid, baseline = spent, direct
        if outcome.played.direct is not None:
            paid += direct
        elif outcome.played.finish is None:
            sure = outcome.tally.sure(self.prices)
            assert sure is not None
            baseline = min(paid, sure)
        assert paid - baseline <= permit.hold.worst
        self.paid, self.baseline = self.paid + paid, self.baseline + baseline
        self.allowance.settle(permit.hold, paid, baseline)
        self.rounds.append(outcome.tally.rounds)
        assert self.paid <= (1 + SHARE) * self.baseline + self.seed


prices = st.builds(
    lambda r, c, w, fee: Prices(Decimal(1), Decimal(r), Decimal(c), Decimal(w), Decimal(fee) / 1_000_000),
    st.sampled_from(["1", "4", "7.5", "40"]),
    st.sampled_from(["0.02", "0.25", "1"]),
    st.sampled_from(["1", "1.25", "2"]),
    st.sampled_from([0, 20, 500]),
)
requests = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["ids", "text", "given"]),
        "fault": st.sampled_from(sorted(FAULTS)),
        "alpha": st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        "limit": st.integers(1, 40),
        "stream": st.booleans(),
        "leave_after": st.none() | st.integers(1, 4),
    }
)


LEFT_AT_THE_HAND_OFF: dict[str, Any] = {
    "kind": "ids",
    "fault": "failing",
    "alpha": 0.7,
    "limit": 8,
    "stream": False,
    "leave_after": 1,
}
"""What the round before had verified was once forgotten when the caller left just then."""


@settings(max_examples=60, deadline=None)
@given(prices, st.integers(0, 3000), st.lists(requests, max_size=8))
@example(Prices(Decimal(1), Decimal(4), Decimal("0.02"), Decimal(1)), 30, [LEFT_AT_THE_HAND_OFF])
def test_no_request_loses_more_than_it_held(listed: Prices, seed: int, asked: list[dict[str, Any]]) -> None:
    """Drafts that hold, hold for a while or never, good and spoiled scores, callers who leave, any prices, streamed or
    not: each loses what it held at most, so that all together keep the promise."""
    stake = Decimal(seed) / 1_000_000
    world = World(listed, Allowance(SHARE, stake), stake)
    for one in asked:
        world.ask(**one)


def test_drafts_that_never_hold_are_tried_and_then_no_more() -> None:
    """The planner is rosy and always wrong: the seed lets it try, and after that what direct requests earn, rarely."""
    stake = Decimal(1000) / 1_000_000
    world = World(Prices(Decimal(1), Decimal(8), Decimal(1)), Allowance(SHARE, stake), stake)
    for _ in range(60):
        world.ask("ids", "none", 0.0, 20, stream=True, leave_after=None)
    tried = [rounds > 0 for rounds in world.rounds]
    assert all(tried[:10]) and sum(tried[-20:]) <= 8
    assert world.paid > (1 + SHARE / 2) * world.baseline
