"""The tables of docs/planner.md: pure text from what was replayed. Ratios are paid over baseline: below 1, a saving."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.settings import HOSTS, LISTS, model_of
from cheapspec.core.outcome import Outcome
from cheapspec.core.traces import RequestTrace

if TYPE_CHECKING:
    from benchmarks.replay import Cell, Verdict

__all__ = ["BEGIN", "END", "insert", "render"]

BEGIN = "<!-- written by python -m benchmarks.replay -->"
END = "<!-- until here -->"
ALLOWED = 1.02
"""What may be paid over the baseline without the seed."""


def insert(page: Path, text: str) -> None:
    """Put the tables between the page's two marks."""
    before = page.read_text("utf-8")
    head, mark, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not mark or not end:
        sys.exit(f"{page} has no place for the tables: {BEGIN} … {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")


def render(recorded: Sequence[RequestTrace], cells: Sequence[Cell], found: Sequence[Verdict]) -> str:
    """All tables."""
    kinds = list(dict.fromkeys(trace.workload for trace in recorded))
    positions = sum(trace.reply_tokens for trace in recorded)
    parts = [
        f"{len(recorded)} requests, {positions:,} reply tokens; kinds: {', '.join(kinds)}.",
        _lists(),
        _targets(found),
        *(_settings(cells, name) for name in dict.fromkeys(cell.case.name for cell in cells)),
    ]
    return "\n\n".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _lists() -> str:
    rows = []
    for r, c in LISTS:
        named = model_of(r, c)
        provider, model = named or ("", "")
        scores, caches = HOSTS.get(provider, ("not known to", "unknown"))
        rows.append([_list((r, c)), f"{model} ({provider})" if named else "nobody", scores, caches])
    heads = ["price list (r, c)", "a model with such list prices", "its host scores", "and reads its cache meanwhile"]
    return "### Price lists\n\n" + _table(heads, rows)


def _targets(found: Sequence[Verdict]) -> str:
    rows = []
    for verdict in found:
        target = verdict.target
        worst, other = (f" ({kind})" if kind else "" for kind in (verdict.kind, verdict.allowed_kind))
        seed = f", of it seed {verdict.seed:.3f}" if verdict.seed else ""
        rows.append(
            [
                verdict.cell.case.name,
                _given(verdict.cell),
                target.wanted,
                f"{_ratio(verdict.planned)}{worst}, {_met(target.met(verdict.planned))}",
                f"{_ratio(verdict.allowed)}{other}{seed}, {_met(verdict.allowed_met)}",
            ]
        )
    heads = ["setting", "(r, c)", "target", "planner", "planner within the allowance"]
    return "### Targets\n\n" + _table(heads, rows)


def _settings(cells: Sequence[Cell], name: str) -> str:
    own = [cell for cell in cells if cell.case.name == name]
    kinds = list(own[0].planned.by_workload())
    heads = ["(r, c)", "rule", "all", "capture", *kinds, "calls"]
    rows: list[list[str]] = []
    for cell in own:
        best = cell.planned
        rows.append([_given(cell), "planner", *_figures(cell.planned, kinds, best)])
        refused = f", {cell.refused} requests refused a step" if cell.refused else ""
        rows.append(["", f"planner within the allowance{refused}", *_figures(cell.allowed, kinds, best)])
        seeds = _seeds(cell.allowed, kinds)
        if seeds is not None:
            rows.append(["", "of it seed spent", *seeds])
        rows.append(["", "eight tokens a round", *_figures(cell.loop, kinds, best)])
        ideal = [_ratio(_best(part)) for part in (best.by_workload()[kind] for kind in kinds)]
        rows.append(["", "clairvoyant", _ratio(_best(best)), "1.00", *ideal, ""])
    return f"### {name[0].upper()}{name[1:]}\n\n" + _table(heads, rows)


def _seeds(outcome: Outcome, kinds: Sequence[str]) -> list[str] | None:
    """What all and each kind paid beyond the allowance's share, over their baselines and in dollars; ``None``: nobody
    did.
    """
    parts = outcome.by_workload()
    told = [_seed(part) for part in (outcome, *(parts[kind] for kind in kinds))]
    return [told[0], "", *told[1:], ""] if any(told) else None


def _seed(outcome: Outcome) -> str:
    spent = outcome.paid - ALLOWED * outcome.baseline
    return f"{spent / outcome.baseline:.3f} (${spent:.6f})" if spent > 0 else ""


def _figures(outcome: Outcome, kinds: Sequence[str], best: Outcome) -> list[str]:
    parts = outcome.by_workload()
    capture, ideal = outcome.capture, best.clairvoyant
    if capture is None and ideal is not None and best.baseline - ideal > 1e-12 * best.baseline:
        capture = (outcome.baseline - outcome.paid) / (best.baseline - ideal)
    calls = sum(request.target_calls for request in outcome.requests) / len(outcome.requests)
    told = "none possible" if capture is None else f"{capture:.2f}".replace("-", "−")
    return [
        _ratio(outcome.paid_over_baseline),
        told,
        *(_ratio(parts[kind].paid_over_baseline) for kind in kinds),
        f"{calls:.1f}",
    ]


def _best(outcome: Outcome) -> float | None:
    return None if outcome.clairvoyant is None else outcome.clairvoyant / outcome.baseline


def _given(cell: Cell) -> str:
    return _list((cell.case.r or cell.list_[0], cell.case.c or cell.list_[1]))


def _list(list_: tuple[str, str]) -> str:
    return f"({list_[0]}, {list_[1]})"


def _ratio(value: float | None) -> str:
    return "none possible" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _met(met: bool) -> str:
    return "met" if met else "**not met**"
