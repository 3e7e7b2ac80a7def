"""A ledger with something of everything for the page, and a reader of its HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from reportkit import NOON, ask

from cheapspec.ledger import MemoryLedger

HOSTILE = "<script>alert('x')</script>&\"'"
GOOD: dict[str, Any] = {"rule": "exact", "rounds": 2, "drafted_tokens": 50, "accepted_tokens": 40, "total": 1.5}


def ledger(days: int = 4) -> MemoryLedger:
    """Savings on all days but the second, which is a loss; a hostile model and session name."""
    made = MemoryLedger()
    for day in range(days):
        at, paid = NOON + day * 86_400, "0.9" if day == 1 else "0.2"
        ask(made, f"s{day}", "speculate", ("score", paid), at=at, baseline_usd="0.5", session="nightly", **GOOD)
        ask(made, f"d{day}", "direct", ("direct", "0.1"), at=at, reason="not_worth_it", total=2.0)
        ask(made, f"b{day}", "bypass", ("direct", None), at=at, reason="tools", model=HOSTILE, session=HOSTILE)
    ask(made, "r", "refused", reason="budget")
    return made


@dataclass
class Element:
    """One element: its tag, attributes, and the text inside it (with that of its children)."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """Elements in order. Raises on a tag that is closed by another's."""

    source: str
    elements: list[Element] = field(default_factory=list[Element])
    _open: list[Element] = field(default_factory=list[Element])

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert not self._open, f"never closed: {[element.tag for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag != "meta":  # the only element of the page that has no end
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        """Every element with this tag."""
        return [element for element in self.elements if element.tag == tag]
