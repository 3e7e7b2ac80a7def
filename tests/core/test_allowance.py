"""The allowance: whatever happens, speculation loses no more than was stated."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from cheapspec.core.allowance import Allowance, Hold, at_risk
from cheapspec.core.money import Prices

SHARE, SEED = Decimal("0.02"), Decimal("0.05")
dollars = st.decimals(min_value=0, max_value=1, places=6)


def test_the_seed_is_all_that_may_be_lost_before_anything_is_known() -> None:
    """A new client admits worst cases up to the seed and not a nano-dollar more."""
    allowance = Allowance(SHARE, SEED)
    first, second = allowance.hold(), allowance.hold()
    assert allowance.admit(first, Decimal("0.03"))
    assert not allowance.admit(second, Decimal("0.020000001"))
    assert allowance.admit(second, Decimal("0.02"))
    assert allowance.headroom() == 0


def test_a_worst_case_that_came_true_is_gone() -> None:
    """What was really lost is not admitted again; direct traffic earns two per cent of itself back."""
    allowance = Allowance(SHARE, SEED)
    hold = allowance.hold()
    assert allowance.admit(hold, SEED)
    allowance.settle(hold, paid=Decimal("1.07"), baseline=Decimal(1))
    assert allowance.headroom() == 0
    direct = allowance.hold()
    allowance.settle(direct, paid=Decimal(2), baseline=Decimal(2))
    assert allowance.headroom() == Decimal("0.04")


def test_savings_build_headroom_only_up_to_the_cap() -> None:
    """Old luck cannot pay for a long run of losses."""
    allowance = Allowance(SHARE, SEED, cap=Decimal("0.10"))
    allowance.settle(allowance.hold(), paid=Decimal(1), baseline=Decimal(100))
    assert allowance.headroom() == Decimal("0.15")


def test_unknown_money_counts_as_what_was_held() -> None:
    """A request that cannot be priced is settled at what it might have lost."""
    allowance = Allowance(SHARE, SEED)
    hold = allowance.hold()
    assert allowance.admit(hold, Decimal("0.04"))
    allowance.settle(hold, paid=None, baseline=Decimal(1))
    assert allowance.headroom() == Decimal("0.01")


def test_a_new_hold_takes_the_place_of_the_old_one() -> None:
    """Rounds that are over enter by what they paid, so that the next step need not be borne on top of them; a refusal
    leaves what was held."""
    allowance = Allowance(SHARE, SEED)
    hold = allowance.hold()
    assert allowance.admit(hold, Decimal("0.03"))
    assert allowance.admit(hold, Decimal("0.05")) and hold.worst == SEED
    assert not allowance.admit(hold, Decimal("0.06")) and hold.worst == SEED
    assert allowance.left(hold) == SEED and allowance.headroom() == 0
    assert allowance.admit(hold, Decimal("0.01")) and allowance.headroom() == Decimal("0.04")


def test_a_request_that_can_lose_nothing_is_always_admitted() -> None:
    """Even where everything was lost: what is held need not be borne anew."""
    allowance = Allowance(SHARE, Decimal(0))
    allowance.settle(allowance.hold(), paid=Decimal(2), baseline=Decimal(1))
    assert allowance.headroom() < 0
    assert allowance.admit(allowance.hold(), Decimal(0))


def test_every_account_of_a_request_must_bear_its_step() -> None:
    """A workload that has lost its seed goes direct while another one still speculates."""
    allowance = Allowance(SHARE, SEED)
    unlucky = allowance.hold(["workload:a"])
    assert allowance.admit(unlucky, Decimal("0.05"))
    allowance.settle(unlucky, paid=Decimal("0.05"), baseline=Decimal(0))
    allowance.settle(allowance.hold(), paid=Decimal(0), baseline=Decimal(1))
    assert not allowance.admit(allowance.hold(["workload:a"]), Decimal("0.000001"))
    assert allowance.admit(allowance.hold(["workload:b"]), Decimal("0.05"))


def test_accounts_are_bounded() -> None:
    """Only the latest workloads have accounts of their own; the account for everything goes on counting."""
    allowance = Allowance(SHARE, SEED, limit=2)
    lost = allowance.hold(["a"])
    assert allowance.admit(lost, Decimal("0.05"))
    allowance.settle(lost, paid=Decimal("0.05"), baseline=Decimal(0))
    for key in "bcd":
        allowance.hold([key])
    assert not allowance.admit(allowance.hold(["a"]), Decimal("0.01"))


class Requests(RuleBasedStateMachine):
    """Requests of three workloads under way at once, in any order: each asks for any step, loses what it holds at most,
    and is settled, is left, or dies (its price is never known)."""

    under_way = Bundle("under_way")

    def __init__(self) -> None:
        super().__init__()
        self.allowance = Allowance(SHARE, SEED, limit=3)
        self.paid: Counter[str] = Counter()
        self.earned: Counter[str] = Counter()
        self.holds: list[tuple[Hold, tuple[str, ...]]] = []

    @rule(target=under_way, workload=st.sampled_from("abc"))
    def begin(self, workload: str) -> int:
        self.holds.append((self.allowance.hold([workload]), ("all", workload)))
        return len(self.holds) - 1

    @rule(number=under_way, worst=dollars)
    def step(self, number: int, worst: Decimal) -> None:
        hold, _ = self.holds[number]
        before = hold.worst
        admitted = self.allowance.admit(hold, worst)
        assert hold.worst == (worst if admitted else before)
        assert admitted or worst > before
        assert not admitted or worst <= max(before, 11 * SEED), "capped: old luck pays for so much at most"

    @rule(number=consumes(under_way), share=st.integers(0, 100), baseline=dollars)
    def settle(self, number: int, share: int, baseline: Decimal) -> None:
        self._over(number, baseline + self.holds[number][0].worst * share / 100, baseline)

    @rule(number=consumes(under_way), saved=st.integers(0, 100), baseline=dollars)
    def save(self, number: int, saved: int, baseline: Decimal) -> None:
        self._over(number, baseline * (100 - saved) / 100, baseline)

    @rule(number=consumes(under_way), share=st.integers(0, 100))
    def die(self, number: int, share: int) -> None:
        hold, keys = self.holds[number]
        for key in keys:
            self.paid[key] += hold.worst * share / 100
        self.allowance.settle(hold, None, None)

    def _over(self, number: int, paid: Decimal, baseline: Decimal) -> None:
        hold, keys = self.holds[number]
        self.allowance.settle(hold, paid, baseline)
        for key in keys:
            self.paid[key] += paid
            self.earned[key] += (1 + SHARE) * baseline

    @invariant()
    def nothing_breaks_the_promise(self) -> None:
        for key in ("all", "a", "b", "c"):
            held = sum((hold.worst for hold, keys in self.holds if key in keys), Decimal(0))
            assert self.paid[key] + held <= self.earned[key] + SEED


test_no_order_of_steps_losses_gains_and_deaths_breaks_the_promise = Requests.TestCase


def test_what_may_be_lost_is_what_was_paid_and_two_readings_less_the_certain_baseline() -> None:
    """By hand: 1,000 tokens of context, 100 drafted, input at 1, writing the cache at 1.25, output at 5, a fee of 3."""
    prices = Prices(Decimal(1), Decimal(5), Decimal("0.1"), Decimal("1.25"), Decimal(3) / 1_000_000)
    micro = Decimal("0.000001")
    score, again = Decimal("1376.25") + 3 + 5, 1250 + 3
    assert at_risk(prices, 1000, 100) == (score + again) * micro
    assert at_risk(prices, 1000, 100, sure=1000 * micro, spent=7 * micro) == (score + again - 993) * micro
    assert at_risk(prices, 1000, 100, sure=9000 * micro) == 0, "what is verified already pays for it"
    assert at_risk(prices, 1000, 100, forced=True) == (score + 500 + again) * micro
    drawn = Decimal("1380") + 3  # three tokens more to read, four times
    assert at_risk(prices, 1000, 100, draws=3) == (4 * drawn + 20 + again) * micro
    dear = Prices(Decimal(1), Decimal(5), Decimal(2))
    assert at_risk(dear, 9, 0) == (20 + 5 + 18) * micro, "a cache may be dearer"
    cheap = Prices(Decimal(2), Decimal("0.5"))
    assert at_risk(cheap, 10, 5) == (32 + Decimal("0.5") + 20 + 6 * Decimal("1.5")) * micro, "reading may be dearer"


def test_prices_that_change_between_the_calls_have_no_bound() -> None:
    """Above so many input tokens all tokens cost more, the hand-off's output too, whatever that will be."""
    prices = Prices(Decimal(1), Decimal(5), steps=((1100, Prices(Decimal(2), Decimal(9))),))
    assert at_risk(prices, 1000, 100) is None
    assert at_risk(prices, 1000, 50) is not None
    assert at_risk(prices, 1150, 50) == (Decimal(1201) * 2 + 9 + 1150 * 2) / 1_000_000
    assert at_risk(prices, 1150, 50, prompt_tokens=1000) is None
