"""The engine and the allowance: no step is taken that could lose more than is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal

from engine_kit import TextTarget, asked, job, pinned, ran

from cheapspec.core.allowance import Allowance, Hold, worst_case
from cheapspec.core.choosing import TRIES
from cheapspec.core.engine import Policy, run
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.core.tally import Tally
from cheapspec.testing.scripted import ScriptedDrafter, ScriptedTarget, answers, play

REPLY = "The capital of France is Paris and it is big."
PRICES = Prices(Decimal("0.3"), Decimal("3"), Decimal("0.006"))
CHEAP = ContextPrices(qs=0.02, qh=0.02)
PLANNED = Policy()


@dataclass
class Permits:
    """Admits the first so many steps; remembers what was asked."""

    admitted: int
    asked: list[Decimal] = field(default_factory=list)

    def admit(self, worst: Decimal) -> bool:
        self.asked.append(worst)
        return len(self.asked) <= self.admitted


@dataclass
class Bounded:
    """Admits what is not more than ``most``; remembers what it granted."""

    most: Decimal
    granted: list[Decimal] = field(default_factory=list)

    def admit(self, worst: Decimal) -> bool:
        self.granted += [worst] if worst <= self.most else []
        return worst <= self.most


def test_a_request_goes_direct_when_its_first_step_could_lose_too_much() -> None:
    """Before round one a refusal means: direct, reason ``allowance``, and nothing was paid."""
    permits = Permits(0)
    outcome = ran(asked(), pinned(REPLY), policy=PLANNED, prices=PRICES, context_prices=CHEAP, permit=permits)
    assert outcome.played.direct is not None
    assert outcome.played.direct.reason == "allowance"
    assert not outcome.books.billed
    assert 1 < len(permits.asked) <= TRIES
    assert permits.asked == sorted(permits.asked, reverse=True), "each time for less"


def test_a_step_is_as_long_as_the_allowance_bears() -> None:
    """What is refused is asked for with half the tokens, and scored if that is granted."""
    whole = Permits(100)
    free = ran(asked(), pinned(REPLY), policy=PLANNED, prices=PRICES, context_prices=CHEAP, permit=whole)
    tight = Bounded(whole.asked[0] - PRICES.input / 1_000_000)
    outcome = ran(asked(), pinned(REPLY), policy=PLANNED, prices=PRICES, context_prices=CHEAP, permit=tight)
    assert outcome.text == free.text == REPLY
    assert outcome.tally.rounds >= 1
    assert all(worst <= tight.most for worst in tight.granted) and tight.granted


def test_where_less_is_not_worth_it_nothing_is_asked_for() -> None:
    """A half that would not pay is no step: the request goes direct after one question."""
    permits = Permits(0)
    dear = ContextPrices(q0=0.02, qs=0.02, qh=0.02, cold=0.5)
    outcome = ran(asked(), pinned(REPLY), policy=PLANNED, prices=PRICES, context_prices=dear, permit=permits)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "allowance"
    assert 1 <= len(permits.asked) < TRIES


def test_a_later_step_that_is_refused_hands_off() -> None:
    """After round one a refusal means that the target writes the rest; the text is whole all the same."""
    permits = Permits(1)
    model = pinned(REPLY)
    outcome = ran(
        asked(),
        model,
        policy=Policy(max_draft_tokens=4),
        prices=PRICES,
        context_prices=CHEAP,
        permit=permits,
    )
    assert outcome.text == REPLY
    assert outcome.tally.rounds == 1
    assert outcome.tally.handoff_tokens > 0
    assert 2 <= len(permits.asked) <= 1 + TRIES


def test_a_fixed_length_asks_no_allowance() -> None:
    """With ``draft_tokens`` planner and allowance are off, as the setting says."""
    permits = Permits(0)
    outcome = ran(asked(), pinned(REPLY), policy=Policy(draft_tokens=8), prices=PRICES, permit=permits)
    assert outcome.text == REPLY
    assert not permits.asked


def test_what_a_step_asks_for_bounds_what_it_loses() -> None:
    """The worst case of a request covers what it really cost beyond the baseline, whatever the draft was."""
    for alpha in (0.0, 0.5, 1.0):
        model = pinned(REPLY)
        permits = Permits(100)
        outcome = ran(
            asked(),
            model,
            [ScriptedDrafter(model.twin(alpha))],
            policy=Policy(max_draft_tokens=4),
            prices=PRICES,
            context_prices=CHEAP,
            permit=permits,
        )
        if outcome.played.direct is not None:
            continue
        info = outcome.tally.info("r", PRICES, "user")
        assert info.paid_usd is not None and info.baseline_usd is not None
        assert info.paid_usd - info.baseline_usd <= permits.asked[-1]


def test_the_worst_case_is_dearer_for_a_forced_target_and_for_cache_writes() -> None:
    """Forcing bills the draft as output; a surcharge on cache writes enters every token that is read."""
    plain = worst_case(PRICES, 1000, 100)
    assert worst_case(PRICES, 1000, 100, forced=True) == plain + 100 * Decimal(3) / 1_000_000
    surcharged = Prices(PRICES.input, PRICES.output, PRICES.cached_input, cache_write=Decimal("0.375"))
    assert worst_case(surcharged, 1000, 100) > plain
    # by hand: 1,101 tokens in and one out
    assert plain == (1101 * Decimal("0.3") + Decimal(3)) / 1_000_000


def test_an_account_serves_as_the_permit() -> None:
    """A hold of the allowance, bound to it, is what the engine asks."""
    allowance = Allowance(Decimal("0.02"), Decimal("0.000001"))

    @dataclass
    class Bound:
        hold: Hold

        def admit(self, worst: Decimal) -> bool:
            return allowance.admit(self.hold, worst)

    outcome = ran(
        asked(), pinned(REPLY), policy=PLANNED, prices=PRICES, context_prices=CHEAP, permit=Bound(allowance.hold())
    )
    assert outcome.played.direct is not None
    assert outcome.played.direct.reason == "allowance"


def test_a_prompt_of_unknown_length_is_estimated_on_the_long_side() -> None:
    """A text route tells the prompt's tokens only with its first score; planning on none would flatter the draft."""
    permits = Permits(0)
    model = pinned(REPLY)
    ran(
        asked(),
        model,
        target=TextTarget(model),
        policy=PLANNED,
        prices=PRICES,
        context_prices=ContextPrices(),
        permit=permits,
    )
    tokens = len(model.encode(model.render(asked().messages)))
    assert permits.asked and permits.asked[0] >= worst_case(PRICES, tokens, 1)


def test_the_seconds_of_the_hand_off_are_told() -> None:
    """The facts of a reply say how long the target wrote by itself."""
    outcome = ran(
        asked(),
        pinned(REPLY),
        policy=Policy(max_draft_tokens=4),
        prices=PRICES,
        permit=Permits(1),
        context_prices=CHEAP,
    )
    assert outcome.tally.handoff_tokens > 0
    assert outcome.tally.info("r", PRICES, "user").seconds.handoff > 0


def test_a_step_without_a_bound_is_not_taken() -> None:
    """Prices that rise between the two calls, or a service tier that nobody has priced: direct, and nobody is asked."""
    stepped = Prices(Decimal("0.3"), Decimal(3), Decimal("0.006"), steps=((20, Prices(Decimal(1), Decimal(9))),))
    permits, model = Permits(100), pinned(REPLY)
    outcome = ran(asked(), model, policy=PLANNED, prices=stepped, context_prices=CHEAP, permit=permits)
    unpriced = job(
        asked(), ScriptedTarget(model), [ScriptedDrafter(model)], policy=PLANNED, prices=PRICES, context_prices=CHEAP
    )
    unpriced = replace(unpriced, permit=permits)
    unpriced.tally.tier = "flex"
    played = play(run(unpriced), answers(ScriptedDrafter(model), ScriptedTarget(model)), permit=permits)
    for direct in (outcome.played.direct, played.direct):
        assert direct is not None
        assert (direct.reason, direct.detail) == ("allowance", "what this step may cost has no bound")
    assert not permits.asked and not outcome.books.billed


def test_nothing_of_the_baseline_is_sure_while_the_prompt_is_not_known() -> None:
    """Then whoever leaves has lost all that was paid."""
    tally = Tally()
    assert tally.sure(PRICES) == 0
    assert tally.sure(PRICES, 1000) == Decimal("0.0003")
