"""A reply on the terminal, accepted draft and target's own words told apart, and the card under it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.core.info import Info
from cheapspec.core.untyped import as_mapping

__all__ = ["ACCEPTED", "TARGET", "card", "dollars", "legend", "share", "show_stream"]

ACCEPTED = "green"
TARGET = "bold yellow"


def legend(console: Console) -> Text:
    """What the colours, or the brackets of a terminal without colours, mean."""
    if console.color_system is None:
        return Text("[accepted draft is plain, words of the target stand in ⟦ ⟧]", "dim")
    return Text.assemble(("accepted draft", ACCEPTED), " · ", ("written by the target", TARGET))


def show_stream(console: Console, stream: Iterable[Any]) -> str:
    """Print a stream of chat chunks as it comes; returns its text."""
    parts: list[str] = []
    brackets = console.color_system is None
    inside = False
    for chunk in stream:
        source = as_mapping(getattr(chunk, "cheapspec", None)).get("source")
        for choice in chunk.choices:
            text = choice.delta.content or ""
            if not text:
                continue
            parts.append(text)
            by_target = source != "draft"
            if brackets and by_target != inside:
                text = ("⟦" if by_target else "⟧") + text
                inside = by_target
            console.print(Text(text, TARGET if by_target else ACCEPTED), end="", soft_wrap=True)
    console.print("⟧" if inside else "")
    return "".join(parts)


def dollars(amount: Decimal | None) -> str:
    """An amount of a single reply, readable: millionths of a dollar have four digits."""
    return "unknown" if amount is None else f"${amount:.7f}".rstrip("0").ljust(6, "0")


def share(part: Decimal | None, whole: Decimal | None) -> str:
    """A saving in per cent; negative when it cost more."""
    return "" if part is None or not whole else f" ({part / whole * 100:+.0f} %)"


def card(rows: list[tuple[str, str]], title: str) -> Table:
    """Two columns under a title."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table


def counts(info: Info) -> list[tuple[str, str]]:
    """Rounds, tokens and calls of a reply."""
    rate = "" if info.acceptance_rate is None else f" ({info.acceptance_rate:.0%} of the draft)"
    written = f"{info.corrected_tokens} corrections and bonus tokens, {info.handoff_tokens} after the hand-off"
    return [
        ("rounds", str(info.rounds)),
        ("draft tokens", str(info.drafted_tokens)),
        ("accepted tokens", f"{info.accepted_tokens}{rate}"),
        ("target's own tokens", written),
        ("target calls", str(info.target_calls)),
    ]
