"""The page: one file that needs nothing else, says everything without colours, and trusts no name."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from pagekit import GOOD, HOSTILE, Document, ledger
from reportkit import NOON, ask

from cheapspec.ledger import MemoryLedger
from cheapspec.report import Report, report_of
from cheapspec.report.page import page
from cheapspec.report.style import DARK, LIGHT


@pytest.fixture(scope="module")
def document() -> Document:
    return Document(page(report_of(ledger())))


def test_it_is_one_file_without_scripts(document: Document) -> None:
    """Nothing is fetched and nothing runs: no script, link, image, font or address, and a policy that forbids them."""
    assert {element.tag for element in document.elements}.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not [name for element in document.elements for name in element.attributes if name.startswith("on")]
    assert "http" not in document.source.replace("http-equiv", "")
    assert not re.search(r"url\((?!#)|@import", document.source)
    policy = [element.attributes["content"] for element in document.all("meta") if "http-equiv" in element.attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_names_from_outside_are_only_text(document: Document) -> None:
    """A model or session named like markup shows as it is written, everywhere."""
    assert document.source.count("<script") == 0
    assert any(HOSTILE in element.text for element in document.all("th"))


def test_every_chart_has_words(document: Document) -> None:
    """Each picture has a title and a description with its figures, and every id is there once."""
    ids = [element.attributes["id"] for element in document.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    charts = document.all("svg")
    assert len(charts) == 5
    for chart in charts:
        assert chart.attributes["role"] == "img"
        labels = (chart.attributes["aria-labelledby"] or "").split()
        assert [label.rpartition("-")[2] for label in labels] == ["title", "desc"]
        assert set(labels) <= set(ids)
    told = " ".join(element.text for element in document.all("desc"))
    assert "2026-11-30: target alone $0.600000, paid $1.0000" in told
    assert "4 speculated, 4 direct, 4 bypassed, 1 refused" in told


def test_the_figures_are_in_tables_too(document: Document) -> None:
    """Sums, reasons, calls against both clients, latency: as text, with heads for each row and column."""
    text = " ".join(" ".join(element.text for element in document.all("body")).split())
    for said in ("31 % bypassed", "Why not speculated", "tools", "budget", "+156", "1.50 s", "unpriced"):
        assert said in text
    assert len(document.all("table")) == len([one for one in document.all("tbody")])
    assert all(head.attributes["scope"] in ("row", "col") for head in document.all("th"))


def test_a_loss_is_marked_and_named() -> None:
    """The saved sum has the colour of losses and says so in words; the day's bar is labelled."""
    lost = MemoryLedger()
    ask(lost, "a", "speculate", ("score", "0.9"), baseline_usd="0.5", **GOOD)
    found = Document(page(report_of(lost)))
    (saved,) = [element for element in found.all("strong") if element.attributes.get("class") == "bad"]
    assert saved.text == "−$0.400000"
    assert "more was paid than the target alone" in found.source
    assert [element.text for element in found.all("text") if element.attributes.get("class") == "bad"] == ["loss"]


def test_b04_unknown_money_is_a_word() -> None:
    """A report without any known price shows no dollars, and no chart of none."""
    unknown = MemoryLedger()
    ask(unknown, "a", "direct", ("direct", None), reason="no_draft")
    found = Document(page(report_of(unknown)))
    assert [element.text for element in found.all("strong")] == ["0 %", "unknown", "unknown", "unknown"]
    assert "$" not in "".join(element.text for element in found.all("body"))


@pytest.mark.parametrize("days", [0, 1, 62, 63, 400])
def test_any_number_of_days_fits(days: int) -> None:
    """Bars lie inside the picture; many days become months whose sums are the days'."""
    report = report_of(ledger(days)) if days else report_of(MemoryLedger())
    found = Document(page(report))
    for rect in found.all("rect"):
        x, width = float(rect.attributes["x"] or 0), float(rect.attributes["width"] or 0)
        assert -0.1 <= x <= x + width <= 720.1
        assert float(rect.attributes["height"] or -1) >= 0
    bars = [element for element in found.all("rect") if element.attributes.get("class") in ("alone", "paid", "loss")]
    months = {group.name[:7] for group in report.days if group.name}
    assert len(bars) == 2 * (len(report.days) if days <= 62 else len(months))


def test_an_empty_report_is_a_page() -> None:
    """Nothing to show is no error."""
    found = Document(page(Report(None, None, "a & b", report_of(MemoryLedger()).sums)))
    assert "session a & b" in "".join(element.text for element in found.all("header"))
    assert "nothing was asked" in found.source


def test_many_models_are_cut_in_the_chart_and_whole_in_the_table() -> None:
    """A chart stays readable; the table loses nobody."""
    many = MemoryLedger()
    for number in range(30):
        ask(many, f"{number}", "speculate", ("score", "0.1"), at=NOON, model=f"a-model-with-a-long-name-{number:03}",
            baseline_usd=str(Decimal(number) / 100), **GOOD)  # fmt: skip
    found = Document(page(report_of(many)))
    assert len([one for one in found.all("rect") if one.attributes.get("class") in ("saved", "loss")]) == 12
    assert all(f"a-model-with-a-long-name-{number:03}" in found.source for number in range(30))


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(colours: dict[str, str]) -> None:
    """Text has a contrast of 4.5 to 1 at least (WCAG 2.2, success criterion 1.4.3)."""
    for name in ("text", "quiet", "good", "bad"):
        for ground in ("ground", "card"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert LIGHT.keys() == DARK.keys()


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two ``#rrggbb`` colours (WCAG 2.2, "contrast ratio")."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
