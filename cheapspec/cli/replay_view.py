"""What a replay found out, for eyes and for scripts.

Rules
-----
* What was paid stands over what the target alone would have cost: below 1 is a saving, above 1 a loss, and a loss is
  shown as one (red, with its sign).
* Which part of it rests on estimated positions is always said, and so are the requests that were left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.cli.replay_source import Source
from cheapspec.core.money import Prices, format_usd
from cheapspec.core.outcome import Outcome
from cheapspec.core.tariff import Tariff

__all__ = ["Answer", "show", "to_dict"]


@dataclass(frozen=True, slots=True)
class Answer:
    """``tariffs``: prices and tariff by target; ``results``: by policy; ``objective``: what the planner minimised."""

    source: Source
    tariffs: Mapping[str, tuple[Prices, Tariff]]
    results: Mapping[str, Outcome]
    objective: str
    oracle: bool


def show(console: Console, answer: Answer) -> None:
    """Print it."""
    console.print(Text.assemble(("cheapspec replay", "bold"), (f"   {answer.source.name}", "dim")), soft_wrap=True)
    for target, (prices, tariff) in answer.tariffs.items():
        console.print(Text(_terms(target, prices, tariff), "dim"), soft_wrap=True)
    console.print()
    for policy, outcome in answer.results.items():
        console.print(_table(policy, outcome, answer))
        console.print()
    for line in _notes(answer):
        console.print(Text(line, "dim"), soft_wrap=True)


def _terms(target: str, prices: Prices, tariff: Tariff) -> str:
    name = target or "the target"
    rated = f"output {prices.output / prices.input:.3g} times input, cached {tariff.cached:.3g}" if prices.input else ""
    q0 = "by request" if tariff.q0 is None else f"{tariff.q0:.3g}"
    return f"{name}: {rated}; context of a direct call {q0}, scoring {tariff.qs:.3g}, hand-off {tariff.qh:.3g}"


def _table(policy: str, outcome: Outcome, answer: Answer) -> Table:
    table = Table(
        title=policy, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("workload")
    for name in _columns(answer):
        table.add_column(name, justify="right", no_wrap=True)
    parts = outcome.by_workload()
    for name, part in parts.items():
        table.add_row(name, *_cells(part, answer))
    if len(parts) > 1:
        table.add_section()
        table.add_row("all", *_cells(outcome, answer), style="bold")
    return table


def _columns(answer: Answer) -> list[str]:
    """What fits on 80 columns."""
    names = ["requests", "baseline", "paid", "paid/baseline"]
    if answer.oracle:
        return [*names, "clairvoyant", "capture"]
    if answer.objective == "latency":
        return [*names, "seconds", "alone"]
    return ["requests", "rounds", "baseline", "paid", "saved", "paid/baseline"]


def _cells(part: Outcome, answer: Answer) -> list[Text]:
    ratio, best, capture = part.paid_over_baseline, part.clairvoyant, part.capture
    saved = part.baseline - part.paid
    colour = "green" if saved > 0 else "red" if saved < 0 else ""
    cells = {
        "requests": Text(f"{len(part.requests):,}"),
        "rounds": Text(f"{sum(request.rounds for request in part.requests):,}"),
        "baseline": Text(f"${part.baseline:.6f}"),
        "paid": Text(f"${part.paid:.6f}"),
        "saved": Text(f"{'−' if saved < 0 else ''}${abs(saved):.6f}", colour),
        "paid/baseline": Text("" if ratio is None else f"{ratio:.3f}", colour),
        "clairvoyant": Text("" if best is None or not part.baseline else f"{best / part.baseline:.3f}"),
        "capture": Text("none" if capture is None else f"{capture:.2f}"),
        "seconds": Text(f"{sum(request.seconds for request in part.requests):.1f}"),
        "alone": Text(f"{sum(request.seconds_direct for request in part.requests):.1f}"),
    }
    return [cells[name] for name in _columns(answer)]


def _notes(answer: Answer) -> list[str]:
    notes: list[str] = []
    for policy, outcome in answer.results.items():
        if share := outcome.estimated_share:
            notes.append(
                f"{policy}: {share:.0%} of the positions that its rounds looked at are estimated, from what was seen."
            )
        if refused := sum(request.refused for request in outcome.requests):
            notes.append(f"{policy}: the allowance stopped {refused:,} of {len(outcome.requests):,} requests.")
    if answer.source.left_out:
        told = ", ".join(f"{count:,} {why}" for why, count in answer.source.left_out.most_common())
        notes.append(f"Left out: {told}.")
    return notes


def to_dict(answer: Answer) -> dict[str, Any]:
    """Plain JSON: money in dollars as strings, unknown ``null``."""
    return {
        "source": answer.source.name,
        "requests": len(answer.source.traces),
        "left_out": dict(answer.source.left_out),
        "objective": answer.objective,
        "targets": {
            target or "unknown": {
                "prices": {
                    "input": f"{prices.input:f}",
                    "cached_input": None if prices.cached_input is None else f"{prices.cached_input:f}",
                    "output": f"{prices.output:f}",
                },
                "context_prices": {"q0": tariff.q0, "qs": tariff.qs, "qh": tariff.qh},
            }
            for target, (prices, tariff) in answer.tariffs.items()
        },
        "policies": {
            policy: {
                "all": _sums(outcome, answer),
                "workloads": {name: _sums(part, answer) for name, part in outcome.by_workload().items()},
            }
            for policy, outcome in answer.results.items()
        },
    }


def _sums(part: Outcome, answer: Answer) -> dict[str, Any]:
    requests = part.requests
    out: dict[str, Any] = {
        "requests": len(requests),
        "direct": sum(not request.rounds for request in requests),
        "rounds": sum(request.rounds for request in requests),
        "target_calls": sum(request.target_calls for request in requests),
        "scored_tokens": sum(request.scored_tokens for request in requests),
        "accepted_tokens": sum(request.accepted_tokens for request in requests),
        "handoff_tokens": sum(request.handoff_tokens for request in requests),
        "baseline_usd": _usd(part.baseline),
        "paid_usd": _usd(part.paid),
        "saved_usd": _usd(part.baseline - part.paid),
        "paid_over_baseline": _rounded(part.paid_over_baseline),
        "clairvoyant_usd": None if part.clairvoyant is None else _usd(part.clairvoyant),
        "capture": _rounded(part.capture),
        "estimated_share": _rounded(part.estimated_share),
        "stopped_by_allowance": sum(request.refused for request in requests),
    }
    if answer.objective == "latency":
        out["seconds"] = _rounded(sum(request.seconds for request in requests))
        out["seconds_direct"] = _rounded(sum(request.seconds_direct for request in requests))
    return out


def _usd(amount: float) -> str | None:
    return format_usd(Decimal(repr(amount)))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
