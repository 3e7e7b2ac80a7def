"""The report on a terminal: readable at 80 columns, without colours, and honest."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from reportkit import NOON, ask
from rich.console import Console

from cheapspec.core.ports import RequestRow
from cheapspec.ledger import MemoryLedger
from cheapspec.report import report_of
from cheapspec.report.page import page
from cheapspec.report.text import show
from cheapspec.report.words import count, money, percent, seconds, signed

GOOD: dict[str, Any] = {"rule": "exact", "rounds": 1, "drafted_tokens": 50, "accepted_tokens": 40, "total": 1.5}


def printed(ledger: MemoryLedger, width: int = 80, *, colour: bool = False, session: str | None = None) -> str:
    out = StringIO()
    system = "truecolor" if colour else None
    console = Console(file=out, width=width, color_system=system, force_terminal=colour, highlight=False)
    show(console, report_of(ledger, session=session))
    return out.getvalue()


def busy() -> MemoryLedger:
    """Something of everything, with long names and many of them."""
    ledger = MemoryLedger()
    for number in range(40):
        model = f"publisher/a-model-with-a-very-long-name-{number % 15}-instruct"
        ask(ledger, f"s{number}", "speculate", ("score", "1234.5"), at=NOON + number * 86_400, model=model,
            session=f"session number {number % 14}", baseline_usd="2000", **GOOD)  # fmt: skip
        ask(ledger, f"b{number}", "bypass", reason="tools")
        ask(ledger, f"d{number}", "direct", ("direct", None), reason=f"reason_{number % 14}", total=2.0)
    ask(ledger, "r", "refused", reason="budget")
    ledger.open_request(RequestRow("open", NOON, "m", "chat", stream=False))
    return ledger


def test_the_bypassed_share_comes_first() -> None:
    """Before any saving the reader learns how much traffic cheapspec did not touch, and why."""
    ledger = MemoryLedger()
    for name in "abc":
        ask(ledger, name, "bypass", ("direct", "0.1"), reason="tools" if name < "c" else "stored")
    ask(ledger, "d", "speculate", ("score", "0.1"), baseline_usd="0.2", **GOOD)
    lines = printed(ledger).splitlines()
    assert lines[0].startswith("cheapspec report   2026-11-29 12:00")
    assert " ".join(" ".join(lines[2:4]).split()).startswith(
        "Bypassed 3 of 4 requests (75 %) passed through untouched: tools 2, stored 1"
    )
    assert [line for line in lines if "Saved" in line] == [line for line in lines[4:] if "Saved" in line]


def test_names_give_a_terminal_no_orders() -> None:
    """Escapes, line ends and changes of direction in what callers and servers chose are shown, not sent."""
    odd = "m\x1b[2J\n\u202e\x9b"
    ledger = MemoryLedger()
    for name in "ab":
        ask(ledger, name, "direct", ("direct", "0.1"), model=odd + name, session=odd + name, reason=odd, total=1.0)
    ask(ledger, "c", "bypass", reason=odd)
    text = printed(ledger, width=200) + printed(ledger, width=200, session=odd + "a")
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert text.count("m\\x1b[2J\\n\\u202e\\x9ba") == 4  # title, session twice, model
    assert not [line for line in text.splitlines() if line.startswith(("a", "b"))]


def test_a_loss_is_red_and_said_in_words() -> None:
    """Minus sign and words without colours, red with them; a saving is green."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.3"), baseline_usd="0.2", **GOOD)
    assert "Saved                −$0.100000  −50 %  more was paid than the target alone" in printed(ledger)
    assert "\x1b[1;31m−$0.100000" in printed(ledger, colour=True)
    ask(ledger, "b", "speculate", ("score", "0.1"), baseline_usd="0.5", **GOOD)
    assert "more was paid" not in printed(ledger)
    assert "\x1b[1;32m$0.300000" in printed(ledger, colour=True)


def test_b04_unknown_prices_are_said() -> None:
    """Nothing priced: the sums are unknown, not 0; something priced: how many are not in the sums."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.25"), ("continue", None), baseline_usd="0.2", **GOOD)
    alone = printed(ledger)
    assert alone.count("unknown") >= 3
    assert "$0.000000" not in alone
    assert "1 request could not be priced and is in none of these sums; at least $0.250000" in " ".join(alone.split())


def test_both_baselines_of_calls_are_named() -> None:
    """Calls lost against one call a request are shown with their sign, beside those saved against one a token."""
    ledger = MemoryLedger()
    ask(ledger, "a", "speculate", ("score", "0.1"), ("continue", "0.1"), baseline_usd="0.2", **GOOD)
    text = printed(ledger)
    assert "−1  against a client that makes one call a request" in text
    assert "+38  against a client that makes one call a token" in text


@pytest.mark.parametrize("width", [80, 100, 60])
def test_it_fits_and_every_figure_is_whole(width: int) -> None:
    """No line is wider than the terminal; names are cut with an ellipsis, numbers are not."""
    text = printed(busy(), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    if width >= 80:
        assert "$2,000.00" in text
        assert "$…" not in text
    for said in (
        "40 of 122 requests",
        "80 requests",
        "1 request is not settled",
        "… and 3 more",
        "… and 4 more",
        "… and 28 more",
    ):
        assert said in " ".join(text.split())


def test_kinds_of_requests_differ_without_colours() -> None:
    """The bar has a shade for each kind, and a legend; the smallest kind still shows."""
    text = printed(busy())
    bar = text.splitlines()[4] if "█" in text.splitlines()[4] else text.splitlines()[5]
    assert {"█", "▓", "░", "x", "·"} == set(bar.strip())
    assert "\x1b" not in text


def test_what_a_reader_must_know_is_said_below() -> None:
    """Simulated bills, unverified drafts, lossy rules and what the ledger forgot are never silent."""
    ledger = MemoryLedger(capacity=2)
    ask(ledger, "lost", "direct", ("direct", "0.1"))
    ask(ledger, "a", "speculate", ("score", "0.1"), baseline_usd="0.2", simulated=True, **{**GOOD, "rule": "judge"})
    ask(ledger, "b", "direct", ("direct", "0.1"), reason="rejected", drafted_tokens=50, unverified_tokens=50)
    text = " ".join(printed(ledger, session=None).split())
    for said in (
        "! the bill of 1 request is simulated (demo or bench): nobody was charged",
        "! 50 draft tokens (50 %) could not be verified",
        "! 1 request accepted under rules that may differ from the target; none was audited",
        "! 1 request is no longer kept whole, and so in no figure",
    ):
        assert said in text
    ask(ledger, "c", "speculate", ("judge", "0.1"), ("audit", "0.1"), baseline_usd="0.2", **{**GOOD, "rule": "judge"})
    assert "; 1 were compared with it" not in printed(ledger)
    assert "1 was compared with it" in " ".join(printed(ledger).split())


def test_a_report_prints_itself() -> None:
    """``print(client.report())`` is what the command shows; the page is there too."""
    report = report_of(busy())
    assert str(report).splitlines() == [line.rstrip() for line in printed(busy()).splitlines()]
    assert max(map(len, report.text(60).splitlines())) <= 60
    assert report.html() == page(report)


def test_an_empty_ledger_is_a_report_too() -> None:
    """Nothing was asked: no figure is invented."""
    text = printed(MemoryLedger())
    assert "no requests" in text
    assert "–" not in text.split("Saved")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (money(None), "unknown"),
        (money(Decimal("-0.0000001")), "$0.000000"),
        (money(Decimal("-1234.567")), "−$1,234.57"),
        (money(Decimal("0.5"), Decimal(3)), "$0.5000"),
        (percent(None), "–"),
        (percent(0.0), "0 %"),
        (percent(-0.0001), "0 %"),
        (percent(0.0123), "1.2 %"),
        (percent(-2.0), "−200 %"),
        (percent(0.999), "100 %"),
        (signed(0), "0"),
        (signed(-1200), "−1,200"),
        (signed(7), "+7"),
        (count(1200), "1,200"),
        (seconds(0.123), "0.12 s"),
        (seconds(12.34), "12.3 s"),
        (seconds(1234.5), "1,234 s"),
    ],
)
def test_figures_as_words(said: str, expected: str) -> None:
    """Signs are real minus signs, nothing is −0, unknown is a word."""
    assert said == expected
