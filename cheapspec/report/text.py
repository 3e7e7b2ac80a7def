"""A report on the terminal: 80 columns, readable without colours.

Rules
-----
* The share of pass-throughs comes first: a saving on a tenth of the traffic is a tenth of a saving.
* A loss is red, has a minus sign and says so in words. Kinds of requests differ by the shade of their bar,
  not by its colour alone.
* Names come from callers and servers: what a terminal would obey in them (escapes, line ends, changes of direction) is
  shown as Python writes it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cheapspec.report.entries import DECISIONS
from cheapspec.report.figures import Group as Named
from cheapspec.report.figures import Report, Sums
from cheapspec.report.words import (
    account_name,
    count,
    forecast,
    how_known,
    model_name,
    money,
    notes,
    passed_by,
    percent,
    period,
    seconds,
    session_name,
    signed,
    verdict,
)

__all__ = ["plain", "show"]

_SHADES = {
    "speculated": ("█", "green"),
    "direct": ("▓", "cyan"),
    "bypassed": ("░", "yellow"),
    "refused": ("x", "red"),
    "unsettled": ("·", "dim"),
}
_WIDTH = 76
_MOST_ROWS = 12


def show(console: Console, report: Report) -> None:
    """Print it."""
    title = Text.assemble(("cheapspec report", "bold"), ("   " + period(report), "dim"))
    if report.session is not None:
        title.append(f"   session {_shown(report.session)}", "dim")
    console.print(title, soft_wrap=True)
    for part in _parts(report, console.width):
        console.print(Padding(part, (1, 0, 0, 0)))


def plain(report: Report, width: int = 80) -> str:
    """The same as text, without colours and without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, highlight=False, force_terminal=False, force_jupyter=False
    )
    show(console, report)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    grid = _grid()
    grid.add_row(
        Text("Bypassed", "bold not dim"), Text(_shown(passed_by(report)), "yellow" if report.sums.bypassed else "")
    )
    yield grid
    yield _bar(report.sums, width)
    yield _money(report)
    if report.allowance:
        yield _allowance(report)
    if report.tokens.drafted or report.sums.speculated:
        yield _drafts(report)
    if report.latency:
        yield _latency(report)
    if report.reasons:
        yield _reasons(report)
    for title, groups, name in (
        ("Session", report.sessions, session_name),
        ("Model", report.models, model_name),
        ("Day (UTC)", report.days, model_name),
    ):
        if len(groups) > 1 or (title == "Session" and groups and groups[0].name is not None):
            yield _groups(title, groups, name, width)
    if report.calibration:
        yield _calibration(report)
    if said := notes(report):
        yield _notes(said)


def _bar(sums: Sums, width: int) -> RenderableType:
    """One character a share of the requests; every kind that occurs has at least one."""
    kinds = {name: getattr(sums, name) for name in DECISIONS.values() if getattr(sums, name)}
    size = min(_WIDTH, width)
    widths = {name: max(1, round(size * number / sums.requests)) for name, number in kinds.items()}
    if widths:
        widest = max(widths, key=lambda name: widths[name])
        widths[widest] += size - sum(widths.values())
    bar = Text()
    lines = [Text()]
    for name, cells in widths.items():
        shade, style = _SHADES[name]
        bar.append(shade * cells, style)
        item = Text.assemble(
            (f"{shade} ", style), f"{name} {count(kinds[name])} ({percent(kinds[name] / sums.requests)})"
        )
        if lines[-1] and len(lines[-1]) + 3 + len(item) > width:
            lines.append(Text())
        lines[-1].append("   " if lines[-1] else "").append_text(item)
    return Group(bar, *lines)


def _money(report: Report) -> RenderableType:
    sums = report.sums
    paid, baseline = sums.paid_usd, sums.baseline_usd
    local = "" if report.local_usd is None else f"{money(report.local_usd, baseline)} of it for drafting here"
    grid = _grid()
    grid.add_row("Target alone", Text(money(baseline, paid)), how_known(sums))
    grid.add_row("Paid", Text(money(paid, baseline)), local)
    grid.add_row(Text("Saved", "bold not dim"), Text(money(sums.saved_usd, baseline), _style(sums)), _told(sums))
    if report.forecast.requests:
        grid.add_row("Planner's forecast", Text(money(report.forecast.expected_usd, baseline)), forecast(report))
    return grid


def _allowance(report: Report) -> RenderableType:
    table = _table("Allowance left for", "saved so far", "at risk now", "seed", "left")
    for one in report.allowance[:_MOST_ROWS]:
        name = Text(_shown(account_name(one.account)), overflow="ellipsis", no_wrap=True)
        sums = (money(usd, one.seed_usd) for usd in (one.balance_usd, one.open_usd, one.seed_usd))
        table.add_row(name, *map(Text, sums), Text(money(one.usd, one.seed_usd), "" if one.usd > 0 else "bold red"))
    _more(table, len(report.allowance))
    return table


def _told(sums: Sums) -> Text:
    style = _style(sums)
    text = Text("" if sums.saved_share is None else percent(sums.saved_share), style)
    if told := verdict(sums):
        text.append(("  " if text else "") + told, "red" if "red" in style else "dim")
    return text


def _style(sums: Sums) -> str:
    saved = sums.saved_usd
    return "dim" if saved is None else "bold red" if saved < 0 else "bold green" if saved else "bold"


def _drafts(report: Report) -> RenderableType:
    tokens = report.tokens
    rate, gained = report.acceptance_rate, report.tokens_per_round
    drafted = f"{count(tokens.drafted)} drafted, {count(tokens.accepted)} accepted"
    rounds = f"{count(report.rounds)}" + ("" if gained is None else f", {gained:.1f} tokens gained a round")
    own = f"{count(tokens.corrected)} corrections and bonus tokens, {count(tokens.handoff)} after hand-offs"
    cached = f" ({count(tokens.cached_input)} cached)"
    return _card(
        [
            ("Draft tokens", Text(drafted + ("" if rate is None else f" ({percent(rate)})"))),
            ("Target's own tokens", Text(own)),
            ("Rounds", Text(rounds)),
            ("Billed tokens", Text(f"{count(tokens.input)} input{cached}, {count(tokens.output)} output")),
            ("Target calls", Text(count(report.target_calls))),
            ("Calls saved", _saved_calls(report.calls_saved_per_request_client, "one call a request")),
            ("", _saved_calls(report.calls_saved_per_token_client, "one call a token")),
        ]
    )


def _saved_calls(number: int, client: str) -> Text:
    style = "red" if number < 0 else "green" if number else ""
    return Text.assemble((f"{signed(number):>9}", style), f"  against a client that makes {client}")


def _latency(report: Report) -> RenderableType:
    table = _table("Whole reply after", "requests", "median", "95th percentile")
    for name, one in report.latency.items():
        if name != "all":
            table.add_row(Text(_shown(name)), count(one.requests), seconds(one.p50), seconds(one.p95))
    return table


def _reasons(report: Report) -> RenderableType:
    table = _table("Why not speculated", "", "requests", "share")
    table.columns[1].justify = "left"
    for one in report.reasons[:_MOST_ROWS]:
        share = percent(one.requests / report.sums.requests)
        table.add_row(Text(_shown(one.reason)), Text(DECISIONS[one.decision], "dim"), count(one.requests), share)
    _more(table, len(report.reasons))
    return table


def _groups(title: str, groups: Sequence[Named], name: Callable[[str | None], str], width: int) -> RenderableType:
    unpriced = width >= 76 and any(group.sums.unpriced for group in groups)
    table = _table(title, "requests", "target alone", "paid", "saved", "", *(["unpriced"] if unpriced else []))
    largest = max((abs(group.sums.priced_baseline) for group in groups), default=None)
    shown = groups[-_MOST_ROWS:] if title.startswith("Day") else groups[:_MOST_ROWS]
    for group in shown:
        sums = group.sums
        row = [
            Text(_shown(name(group.name)), overflow="ellipsis", no_wrap=True),
            Text(count(sums.requests)),
            Text(money(sums.baseline_usd, largest)),
            Text(money(sums.paid_usd, largest)),
            Text(money(sums.saved_usd, largest), _style(sums)),
            Text(percent(sums.saved_share), _style(sums)),
        ]
        table.add_row(*row, *([Text(count(sums.unpriced), "yellow" if sums.unpriced else "dim")] if unpriced else []))
    _more(table, len(groups))
    return table


def _calibration(report: Report) -> RenderableType:
    table = _table("Acceptance predicted", "workload", "tokens", "error")
    table.columns[1].justify = "left"
    for one in report.calibration[:_MOST_ROWS]:
        name = Text(_shown(f"{one.drafter} → {one.target}"), overflow="ellipsis", no_wrap=True)
        table.add_row(name, Text(_shown(one.workload), "dim"), count(round(one.trials)), percent(one.error))
    _more(table, len(report.calibration))
    return table


def _notes(said: Sequence[str]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    for note in said:
        grid.add_row(Text("!", "bold yellow"), Text(note))
    return grid


def _shown(name: str) -> str:
    """Without what is not printable."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def _more(table: Table, number: int) -> None:
    if number > _MOST_ROWS:
        table.add_row(Text(f"… and {number - _MOST_ROWS} more", "dim"))


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="ellipsis", min_width=14)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    return table


def _card(rows: Sequence[tuple[str, Text]]) -> Table:
    grid = _grid()
    for name, value in rows:
        grid.add_row(name, value)
    return grid


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=19, no_wrap=True)
    return grid
