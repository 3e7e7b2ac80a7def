"""What each rule would have saved, at stated prices, and where it would have lost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cheapspec.core.allowance import Allowance
from cheapspec.core.money import Prices
from cheapspec.core.traces import DraftRow, RequestTrace
from cheapspec.estimating.answers import Compared
from cheapspec.estimating.cases import Case
from cheapspec.estimating.savings import Saving, Sums, exact, verdicts
from cheapspec.rules.breakeven import Host, costs, shape

PRICES = {"big": Prices(Decimal(1), Decimal(5), Decimal("0.05"))}


def case(name: str, workload: str, bits: str, reason: str = "", compared: Compared | None = None) -> Case:
    agreed = tuple(bit == "1" for bit in bits)
    row = DraftRow("small", tuple(-0.005 if bit else -1.5 for bit in agreed), agreed)
    trace = RequestTrace(name, workload, 60, len(bits), "length", target="big", drafts=() if reason else (row,))
    return Case("big", trace, reason, compared)


def allowance() -> Allowance:
    return Allowance(Decimal("0.02"), Decimal("0.05"))


def test_exact_saves_where_drafts_agree_and_only_there() -> None:
    """By workload; what goes direct costs the same on both sides; unknown models are left out."""
    cases = [case("a", "good", "1" * 80), case("b", "bad", "0" * 80), case("c", "tools", "1" * 80, "tools")]
    other = Case("other", cases[0].trace)
    told = exact([*cases, other], PRICES, qs=None, allowance=allowance(), oracle=True)
    good, bad, tools = (told.workloads[name] for name in ("good", "bad", "tools"))
    assert (good.requests, good.served, good.accepted, tools.served, tools.accepted) == (1, 1, 1, 0, 0)
    assert good.paid_over_baseline is not None and good.paid_over_baseline < 0.6
    assert bad.paid_over_baseline is not None and 1 <= bad.paid_over_baseline < 1.4
    assert tools.paid == tools.baseline == pytest.approx((60 + 80 * 5) / 1e6)
    assert told.all.requests == 3 and told.all.paid == pytest.approx(good.paid + bad.paid + tools.paid)
    assert good.clairvoyant is not None and good.clairvoyant <= good.paid
    assert "cached price" in told.assuming and not told.lossy


def test_what_goes_direct_is_not_speculated_on() -> None:
    """Also where others of its workload are, and nothing is known of what a draft of it would have been."""
    cases = [*(case(f"{n}", "w", "1" * 80) for n in range(3)), case("direct", "w", "1" * 80, "tools")]
    told = exact(cases, PRICES, qs=None, allowance=allowance(), oracle=True).workloads["w"]
    assert (told.requests, told.served, told.accepted) == (4, 3, 3)
    without = exact(cases[:3], PRICES, qs=None, allowance=allowance()).all
    assert told.paid == pytest.approx(without.paid + (60 + 80 * 5) / 1e6)
    assert told.clairvoyant is not None


def test_exact_is_worth_less_where_scoring_reads_the_prompt_anew() -> None:
    """qs = 1: each round pays for the whole context."""
    cases = [case(f"{n}", "w", ("1" * 19 + "0") * 4) for n in range(4)]
    cheap = exact(cases, PRICES, qs=None, allowance=allowance()).all
    dear = exact(cases, PRICES, qs=1.0, allowance=allowance())
    assert cheap.paid < dear.all.paid and "1 of the input price" in dear.assuming
    assert cheap.clairvoyant is None


def test_the_allowance_holds() -> None:
    """Drafts that look good and are not lose no more than the stated share and the seed."""
    row = DraftRow("small", (-0.001,) * 80, (False,) * 80)
    cases = [Case("big", RequestTrace(f"{n}", "w", 60, 80, "length", target="big", drafts=(row,))) for n in range(40)]
    told = exact(cases, PRICES, qs=1.0, allowance=Allowance(Decimal("0.02"), Decimal("0.0005"))).all
    assert told.paid <= 1.02 * told.baseline + 0.0005


def test_answer_costs_what_its_break_even_says() -> None:
    """Accepted ones cost the verdict, rejected ones the direct call besides; without an answer it is direct."""
    equal, other, none = (
        case(name, "sums", "1" * 80, compared=Compared("number", valid, same))
        for name, valid, same in (("e", True, True), ("o", True, False), ("n", False, False))
    )
    (told,) = verdicts([equal, other, none, case("x", "prose", "1" * 10)], PRICES)
    host = Host.of(PRICES["big"])
    assert host is not None
    priced = costs(host, shape("answer"), 60, 80)
    sums = told.workloads["sums"]
    assert (told.rule, told.lossy, sums.requests, sums.served, sums.accepted, sums.differing) == (
        "answer",
        True,
        3,
        3,
        1,
        0,
    )
    assert sums.paid == pytest.approx((priced.accepted + priced.rejected + priced.direct) / 1e6)
    assert sums.baseline == pytest.approx(3 * priced.direct / 1e6)
    prose = told.workloads["prose"]
    assert (prose.served, prose.paid) == (0, prose.baseline)


def test_validator_says_what_it_does_not_see() -> None:
    """Valid JSON is kept for nothing, also where it is not the reply's; that is counted."""
    cases = [
        case(f"{n}", "w", "1" * 80, compared=Compared("json", valid, same))
        for n, (valid, same) in enumerate([(True, True), (True, False), (False, False)])
    ]
    (told,) = verdicts([*cases, Case("unknown", cases[0].trace)], PRICES)
    assert told.rule == "validator" and told.lossy
    assert (told.all.served, told.all.accepted, told.all.differing) == (3, 2, 1)
    assert told.all.paid_over_baseline == pytest.approx(1 / 3)


def test_nothing_to_compare_is_no_rule() -> None:
    """And no sums divide by nothing."""
    assert verdicts([case("a", "w", "1")], PRICES) == []
    assert Saving("exact", "", False, {}).all == Sums() and Sums().paid_over_baseline is None
    free = {"big": Prices(Decimal(0), Decimal(0))}
    (told,) = verdicts([case("a", "w", "1", compared=Compared("number", True, True))], free)
    assert told.all.paid == told.all.baseline == 0
    assert told.to_dict()["all"]["paid_over_baseline"] is None
    both = verdicts([case("a", "w", "1", compared=Compared(kind, True, True)) for kind in ("number", "json")], PRICES)
    assert [one.rule for one in both] == ["answer", "validator"]
