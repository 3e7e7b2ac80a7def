"""Charts as inline SVG: no script, no font, no file besides the page.

Rules
-----
* A chart is a picture with a title and a description for those who cannot see it, and stands beside a table with
  the same figures. Colours come from the page's style (``var(--…)``), so that they follow its light and dark; no
  meaning hangs on a colour alone: kinds have patterns, losses have words.
* Geometry is in floats: a pixel need not be exact. Figures in words are made from the decimals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from cheapspec.report.entries import DECISIONS
from cheapspec.report.figures import Group, Latency, Sums
from cheapspec.report.words import count, money, percent, seconds

__all__ = ["decision_bar", "latency_chart", "money_over_time", "saved_by_name"]

WIDTH = 720
_MOST_DAYS = 62
_MOST_NAMES = 12
_NAME_WIDTH = 190


def decision_bar(sums: Sums) -> str:
    """One bar, divided by what became of the requests; a kind that occurs is at least visible."""
    kinds = [(name, getattr(sums, name)) for name in DECISIONS.values() if getattr(sums, name)]
    widths = [max(3.0, WIDTH * number / sums.requests) for _, number in kinds]
    scale = WIDTH / sum(widths) if widths else 1.0
    parts, left = [_PATTERNS], 0.0
    for (name, number), width in zip(kinds, widths, strict=True):
        said = f"{name}: {count(number)} ({percent(number / sums.requests)})"
        parts.append(_rect(left, 0, width * scale, 28, f"kind-{name}", said))
        if name in ("bypassed", "refused", "unsettled"):
            parts.append(
                f'<rect x="{left:.1f}" y="0" width="{width * scale:.1f}" height="28" fill="url(#hatch-{name})"/>'
            )
        left += width * scale
    told = ", ".join(f"{count(number)} {name}" for name, number in kinds)
    return _svg("decisions", 28, "What became of the requests", told, parts)


def money_over_time(days: Sequence[Group]) -> str:
    """Two bars a day (a month, where there are many days): the target alone, and what was paid."""
    groups = days if len(days) <= _MOST_DAYS else _by_month(days)
    height, bottom, left = 220, 190, 64
    tallest = max((float(max(one.sums.priced_paid, one.sums.priced_baseline)) for one in groups), default=0.0)
    step, top = _steps(tallest)
    parts: list[str] = []
    for number in range(round(top / step) + 1):
        y = bottom - (bottom - 14) * number * step / top
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, _dollars(number * step, step), "end"))
    room = (WIDTH - left - 30) / max(len(groups), 1)
    bar = min(26.0, room * 0.36)
    every = math.ceil(len(groups) * 62 / (WIDTH - left)) if groups else 1
    for number, group in enumerate(groups):
        middle = left + room * (number + 0.5)
        sums = group.sums
        loss = sums.priced_paid > sums.priced_baseline
        for x, amount, style in (
            (middle - bar - 1, sums.priced_baseline, "alone"),
            (middle + 1, sums.priced_paid, "loss" if loss else "paid"),
        ):
            tall = (bottom - 14) * float(amount) / top
            said = f"{group.name}: {'target alone' if style == 'alone' else 'paid'} {money(amount)}"
            parts.append(_rect(x, bottom - tall, bar, tall, style, said))
        if loss:
            parts.append(
                _text(middle, bottom - (bottom - 14) * float(sums.priced_paid) / top - 4, "loss", "middle", "bad")
            )
        if number % every == 0:
            parts.append(_text(middle, bottom + 18, group.name or "", "middle"))
    told = "; ".join(
        f"{one.name}: target alone {money(one.sums.baseline_usd)}, paid {money(one.sums.paid_usd)}" for one in groups
    )
    return _svg("money", height, "Dollars over time: target alone, and paid", told, parts)


def saved_by_name(key: str, title: str, groups: Sequence[tuple[str, Sums]]) -> str:
    """A bar a name: savings to the right, losses to the left of the line."""
    shown = [(name, sums, float(sums.saved_usd or 0)) for name, sums in groups[:_MOST_NAMES]]
    least, most = min([0.0, *(saved for *_, saved in shown)]), max([0.0, *(saved for *_, saved in shown)])
    label = 96.0
    width = WIDTH - _NAME_WIDTH - label * (2 if least < 0 else 1)
    scale = width / (most - least) if most > least else 0.0
    zero = _NAME_WIDTH + (label if least < 0 else 0.0) - least * scale
    parts = [f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{26 * len(shown)}"/>']
    for number, (name, sums, saved) in enumerate(shown):
        y = 26 * number + 4
        said = money(sums.saved_usd, sums.baseline_usd)
        parts.append(_text(0, y + 13, name if len(name) <= 27 else f"{name[:26]}…"))
        if sums.saved_usd is not None:
            size = abs(saved) * scale
            style = "loss" if saved < 0 else "saved"
            parts.append(_rect(zero - size if saved < 0 else zero, y, size, 18, style, f"{name}: {said}"))
        x, anchor = (zero + saved * scale - 6, "end") if saved < 0 else (zero + saved * scale + 6, "start")
        parts.append(_text(x, y + 13, said, anchor))
    told = "; ".join(f"{name}: {money(sums.saved_usd)}" for name, sums, _ in shown)
    return _svg(key, max(26 * len(shown), 1), title, told, parts)


def latency_chart(latency: Mapping[str, Latency]) -> str:
    """A line a kind of request, from its median (dot) to its 95th percentile (bar)."""
    rows = [(name, one) for name, one in latency.items() if name != "all"]
    step, top = _steps(max((one.p95 for _, one in rows), default=0.0))
    left, height = 110, 30 * len(rows) + 26
    scale = (WIDTH - left - 40) / top
    parts: list[str] = []
    for number in range(round(top / step) + 1):
        x = left + number * step * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 24}"/>')
        parts.append(_text(x, height - 8, f"{number * step:g} s", "middle"))
    for number, (name, one) in enumerate(rows):
        y = 30 * number + 16
        start, end = left + one.p50 * scale, left + one.p95 * scale
        said = f"{name}: median {seconds(one.p50)}, 95th percentile {seconds(one.p95)}"
        parts.append(_text(0, y + 4, name))
        parts.append(f'<g class="span"><title>{escape(said)}</title>')
        parts.append(f'<line x1="{start:.1f}" x2="{end:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<line x1="{end:.1f}" x2="{end:.1f}" y1="{y - 7}" y2="{y + 7}"/>')
        parts.append(f'<circle cx="{start:.1f}" cy="{y}" r="5"/></g>')
    told = "; ".join(f"{name}: {seconds(one.p50)} to {seconds(one.p95)}" for name, one in rows)
    return _svg("latency", height, "Seconds to the whole reply: median to 95th percentile", told, parts)


_PATTERNS = "<defs>{}</defs>".format(
    "".join(
        f'<pattern id="hatch-{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate({angle})"><line class="hatch" x1="0" x2="0" y1="0" y2="6"/></pattern>'
        for name, angle in (("bypassed", 45), ("refused", -45), ("unsettled", 0))
    )
)


def _svg(key: str, height: float, title: str, told: str, parts: Sequence[str]) -> str:
    words = f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(told)}</desc>'
    return (
        f'<div class="scroll"><svg role="img" aria-labelledby="{key}-title {key}-desc" '
        f'viewBox="0 0 {WIDTH} {height:g}">{words}{"".join(parts)}</svg></div>'
    )


def _rect(x: float, y: float, width: float, height: float, style: str, said: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{style}" {place}><title>{escape(said)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _steps(largest: float) -> tuple[float, float]:
    """A round distance between grid lines, and the round end of the axis: three to five lines."""
    if largest <= 0:
        return 1.0, 1.0
    rough = largest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return step, step * math.ceil(largest / step - 1e-9)


def _dollars(value: float, step: float) -> str:
    return f"${value:,.{0 if step >= 1 else max(2, -math.floor(math.log10(step) + 1e-9))}f}"


def _by_month(days: Sequence[Group]) -> list[Group]:
    months: dict[str, Sums] = {}
    for day in days:
        month = (day.name or "")[:7]
        months[month] = months.get(month, Sums()) + day.sums
    return [Group(month, sums) for month, sums in months.items()]
