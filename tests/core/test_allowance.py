"""The allowance: whatever happens, speculation loses no more than was stated."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.allowance import Allowance

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


def test_unknown_money_counts_as_the_worst_case() -> None:
    """A request that cannot be priced is settled at what it might have cost."""
    allowance = Allowance(SHARE, SEED)
    hold = allowance.hold()
    assert allowance.admit(hold, Decimal("0.04"))
    allowance.settle(hold, paid=None, baseline=Decimal(1))
    assert allowance.headroom() == Decimal("0.01")


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


steps = st.lists(
    st.tuples(
        st.sampled_from("ab"),  # workload
        dollars,  # worst case asked for
        st.integers(0, 100),  # share of the worst case that comes true, in per cent
        dollars,  # baseline
        st.booleans(),  # settled at once, or left open until the end
    ),
    max_size=40,
)


@given(steps)
def test_no_sequence_of_losses_and_gains_breaks_the_promise(
    sequence: list[tuple[str, Decimal, int, Decimal, bool]],
) -> None:
    """At any moment, for everything and for each workload, paid ≤ (1 + share) × settled baseline + seed, open worst
    cases included, however steps are admitted, left open, lost or won."""
    allowance = Allowance(SHARE, SEED)
    paid = {"all": Decimal(0), "a": Decimal(0), "b": Decimal(0)}
    baselines = dict(paid)
    waiting = []
    for workload, worst, share, baseline, at_once in sequence:
        hold = allowance.hold([workload])
        admitted = allowance.admit(hold, worst)
        extra = worst * share / 100 if admitted else Decimal(0)
        waiting.append((hold, workload, baseline + extra, baseline))
        if at_once:
            hold, workload, cost, baseline = waiting.pop()
            allowance.settle(hold, cost, baseline)
            for key in ("all", workload):
                paid[key] += cost
                baselines[key] += baseline
        for key in paid:
            still = sum((h.worst for h, w, _, _ in waiting if key in ("all", w)), Decimal(0))
            assert paid[key] + still <= (1 + SHARE) * baselines[key] + SEED
