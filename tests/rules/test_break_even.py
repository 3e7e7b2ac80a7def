"""What a verdict costs, and how many drafts it must accept to pay."""

from __future__ import annotations

from decimal import Decimal

import pytest
from rules_kit import request

from cheapspec.core.money import Prices
from cheapspec.rules import Answer, Judge, OkOrAnswer
from cheapspec.rules.breakeven import Costs, Host, Shape, costs, shape
from cheapspec.rules.prompts import DIGIT

HOST = Host(5, 0.1)
JUDGE, ANSWER, OK = Shape(40, 1), Shape(24, 6, shown=False), Shape(58, 2, replies=True)
# Prompt, reply, hidden thinking; accepted, rejected and break-even of a judge, a short answer, and OK or an answer: the
# project's published table, to two decimals.
TABLE = [
    ((500, 300, 0), (0.42, 1.42, 0.42), (0.28, 1.28, 0.28), (0.43, 1.18, 0.24)),
    ((1500, 300, 0), (0.61, 1.17, 0.30), (0.52, 1.07, 0.12), (0.62, 1.12, 0.24)),
    ((4000, 200, 0), (0.85, 1.13, 0.46), (0.81, 1.09, 0.32), (0.85, 1.05, 0.26)),
    ((500, 300, 1000), (0.12, 1.12, 0.12), (0.08, 1.08, 0.08), (0.12, 1.05, 0.06)),
]


@pytest.mark.parametrize(("tokens", "judge", "answer", "ok"), TABLE)
def test_the_published_table_follows_from_the_formula(
    tokens: tuple[int, int, int],
    judge: tuple[float, float, float],
    answer: tuple[float, float, float],
    ok: tuple[float, float, float],
) -> None:
    """Every figure of the table to its two decimals."""
    prompt, reply, hidden = tokens
    for call, figures in ((JUDGE, judge), (ANSWER, answer), (OK, ok)):
        got = costs(HOST, call, prompt, reply, hidden=hidden)
        assert got.break_even is not None
        found = (got.accepted / got.direct, got.rejected / got.direct, got.break_even)
        assert found == pytest.approx(figures, abs=0.005 + 1e-9)


@pytest.mark.parametrize("call", [JUDGE, ANSWER, OK])
def test_break_even_is_where_the_expected_cost_is_the_direct_one(call: Shape) -> None:
    """Below it the rule loses, above it it saves."""
    got = costs(HOST, call, 800, 200, 150)
    assert got.break_even is not None
    assert got.expected(got.break_even) == pytest.approx(1)
    assert got.expected(got.break_even - 0.1) > 1 > got.expected(got.break_even + 0.1)


def test_below_the_hosts_block_nothing_is_cached() -> None:
    """One token more, and a rejection no longer pays the prompt twice."""
    short, long = costs(HOST, ANSWER, 1023, 200), costs(HOST, ANSWER, 1024, 200)
    assert short.rejected - short.accepted == pytest.approx(1023 + 1000)
    assert long.rejected - long.accepted == pytest.approx(102.4 + 1000)
    assert short.break_even is not None
    assert long.break_even is not None
    assert short.break_even > 2 * long.break_even
    assert costs(Host(5, 0.1, block=None), ANSWER, 4000, 200).rejected == pytest.approx(4000 + 54 + 4000 + 1000)


def test_a_context_that_direct_reads_from_the_cache_is_not_paid_dearer_the_second_time() -> None:
    """A chat's later turn: the verdict's call and the direct one both read at the cached price."""
    got = costs(HOST, ANSWER, 900, 200, read=0.1)
    assert (got.direct, got.rejected) == (pytest.approx(1090), pytest.approx(90 + 54 + 1090))


def test_hidden_thinking_of_the_target_makes_a_verdict_cheap_and_its_own_makes_it_dear() -> None:
    """Both are output."""
    plain = costs(HOST, shape("judge"), 500, 300)
    assert plain.break_even is not None
    cheap = costs(HOST, shape("judge"), 500, 300, hidden=1000).break_even
    assert cheap is not None
    assert cheap < plain.break_even
    dear = costs(HOST, shape("judge", thinking=100), 500, 300).break_even
    assert dear is not None
    assert dear > plain.break_even
    assert costs(HOST, shape("judge", thinking=1000), 500, 300).break_even is None


def test_there_may_be_no_break_even_or_nothing_to_lose() -> None:
    """A reply as short as its verdict is not worth asking about; a rule whose rejection costs nothing always is."""
    assert costs(HOST, JUDGE, 500, 5).break_even is None
    assert Costs(100, 50, 100).break_even == 0
    assert Costs(100, 50, 90).break_even == 0


def test_a_price_list_gives_the_ratios() -> None:
    """Output, cached input and fees as multiples of the input price; free input has none."""
    got = Host.of(Prices(Decimal("0.4"), Decimal(3), Decimal("0.04"), request=Decimal("0.0001")))
    assert got == Host(7.5, 0.1, 1024, 250.0)
    assert Host.of(Prices(Decimal("0.4"), Decimal(3)), None) == Host(7.5, 1.0, None)
    assert Host.of(Prices(Decimal(0), Decimal(3))) is None
    assert costs(got, ANSWER, 100, 100).rejected == pytest.approx(2 * (250 + 100 + 750) + 24 + 45 - 750)


def test_the_usual_shapes_are_those_of_our_prompts() -> None:
    """The tokens counted for a rule's own words are those of its prompt at four characters a token, give or take 10."""
    words = len("What is 6 × 7?")
    asked = {
        "judge": Judge().messages(request(), "", "s"),
        "answer": Answer().messages(request()),
        "ok_or_answer": OkOrAnswer().messages(request(), "", "s"),
    }
    for name, messages in asked.items():
        assert (len(messages[0]["content"]) - words) / 4 == pytest.approx(shape(name).asked, abs=10)
    assert len(DIGIT.text) / 4 == pytest.approx(shape("judge").asked, abs=15)
    with pytest.raises(KeyError):
        shape("agree")
