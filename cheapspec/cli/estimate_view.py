"""What an estimate found out, for eyes and for scripts.

Rules
-----
* Every figure stands beside what it assumes, and which part of it rests on estimated tokens.
* A loss is shown as one, with its sign. Nothing of any text is shown or kept: ids, counts and dollars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.core.money import Prices
from cheapspec.estimating.cases import Case
from cheapspec.estimating.logs import Logs
from cheapspec.estimating.savings import Saving, Sums

__all__ = ["Answer", "show", "to_dict"]


@dataclass(frozen=True, slots=True)
class Answer:
    """``found``: requests with a reply in the files; ``cases``: those that were looked at; ``left_out``: how many of
    the chosen ones are not among them, by reason. ``never_scores``: a host that is known not to score.
    """

    files: str
    drafters: tuple[str, ...]
    logs: Logs
    found: int
    cases: Sequence[Case]
    left_out: Mapping[str, int]
    prices: Mapping[str, Prices]
    savings: Sequence[Saving]
    never_scores: str | None
    interrupted: bool

    @property
    def reasons(self) -> Counter[str]:
        """Why requests would have gone direct."""
        return Counter(case.reason for case in self.cases if case.reason)

    @property
    def estimated_share(self) -> float:
        """Of the cases, those whose tokens were estimated."""
        return _share(sum(case.estimated for case in self.cases), len(self.cases))

    @property
    def rebuilt_share(self) -> float:
        """Of the cases that were drafted along, those whose token boundaries were reconstructed."""
        return _share(sum(case.rebuilt for case in self.cases), sum(not case.reason for case in self.cases))

    def agreement(self, workload: str | None = None) -> dict[str, float]:
        """By draft model: the share of the reply's tokens that it would have said too."""
        counts: dict[str, tuple[int, int]] = {}
        for case in self.cases:
            for row in case.trace.drafts:
                if workload in (None, case.trace.workload):
                    hits, known = counts.get(row.drafter, (0, 0))
                    seen = [agreed for agreed in row.agreed if agreed is not None]
                    counts[row.drafter] = hits + sum(seen), known + len(seen)
        return {name: _share(hits, known) for name, (hits, known) in counts.items()}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def show(console: Console, answer: Answer) -> None:
    """Print it."""
    console.print(Text.assemble(("cheapspec estimate", "bold"), (f"   {answer.files}", "dim")), soft_wrap=True)
    for line in _facts(answer):
        console.print(Text(line), soft_wrap=True)
    console.print()
    for saving in answer.savings:
        console.print(_table(saving, answer))
        console.print()
    for line in _notes(answer):
        console.print(Text(line, "dim"), soft_wrap=True)
    if answer.interrupted:
        console.print(f"[yellow]Interrupted: {len(answer.cases):,} requests were measured.[/]")


def _facts(answer: Answer) -> list[str]:
    cases, direct = len(answer.cases), sum(answer.reasons.values())
    lines = [
        f"{answer.found:,} requests with replies, {cases:,} looked at: {cases - direct:,} drafted along by "
        f"{' and '.join(answer.drafters)}, {direct:,} that go direct{_listed(answer.reasons)}"
    ]
    if answer.left_out:
        lines.append(f"Left out:{_listed(answer.left_out, '')}")
    if answer.logs.odd:
        lines.append(f"Odd lines:{_listed(answer.logs.odd, '')}")
    for drafter, share in answer.agreement().items():
        lines.append(f"{drafter} says what the target said at {share:.1%} of the tokens")
    return lines


def _listed(counts: Mapping[str, int], brackets: str = "()") -> str:
    told = ", ".join(f"{count:,} {name}" for name, count in Counter(counts).most_common())
    if not told:
        return ""
    return f" ({told})" if brackets else f" {told}"


def _table(saving: Saving, answer: Answer) -> Table:
    lossy = ", lossy" if saving.lossy else ""
    table = Table(
        title=f"{saving.rule}{lossy}: {saving.assuming}",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("workload", no_wrap=True)
    for name in _columns(saving):
        table.add_column(name, justify="right", no_wrap=True)
    for name, sums in saving.workloads.items():
        table.add_row(name, *_cells(saving, sums))
    if len(saving.workloads) > 1:
        table.add_section()
        table.add_row("all", *_cells(saving, saving.all), style="bold")
    return table


def _columns(saving: Saving) -> list[str]:
    if saving.lossy:
        return ["compared", "accepted", "differing", "baseline", "would pay", "saved"]
    best = ["at best"] if saving.all.clairvoyant is not None else []
    return ["requests", "speculated", "baseline", "would pay", "saved", *best]


def _cells(saving: Saving, sums: Sums) -> list[Text]:
    saved, ratio = sums.baseline - sums.paid, sums.paid_over_baseline
    share = "" if ratio is None else f"{1 - ratio:+.1%}".replace("-", "−")
    colour = "green" if saved > 0 else "red" if saved < 0 else ""
    best = 1 - (sums.clairvoyant or 0.0) / sums.baseline if sums.baseline else 0.0
    cells = {
        "requests": Text(f"{sums.requests:,}"),
        "compared": Text(f"{sums.served:,}"),
        "accepted": Text(f"{sums.accepted:,}"),
        "differing": Text(f"{sums.differing:,}", "red" if sums.differing else ""),
        "speculated": Text(f"{sums.accepted:,}"),
        "baseline": Text(f"${sums.baseline:.6f}"),
        "would pay": Text(f"${sums.paid:.6f}"),
        "saved": Text(share, colour),
        "at best": Text(f"{best:+.1%}".replace("-", "−")),
    }
    return [cells[name] for name in _columns(saving)]


def _notes(answer: Answer) -> list[str]:
    notes = ["Nothing was sent to any target. exact: same text, replayed with the planner, learning from nothing on."]
    if answer.never_scores is not None:
        notes.append(
            f"{answer.never_scores} does not score given text, so exact goes direct there; its rows say what an "
            "endpoint that does would save at these prices."
        )
    else:
        notes.append("exact needs an endpoint that scores given text: cheapspec doctor finds out, and at which price.")
    if answer.rebuilt_share:
        notes.append(f"Token boundaries were reconstructed in {answer.rebuilt_share:.0%} of the replies drafted along.")
    if answer.estimated_share:
        notes.append(f"Token counts were estimated in {answer.estimated_share:.0%} of the requests (no usage there).")
    if answer.reasons["temperature_unset"]:
        notes.append("temperature_unset: --assume-temperature 0 (or what your endpoint does) counts those in.")
    if any(saving.lossy for saving in answer.savings):
        notes.append("Lossy rules keep the draft's wording; differing: accepted, and not the recorded answer.")
    return notes


def to_dict(answer: Answer) -> dict[str, Any]:
    """Plain JSON: money in dollars as strings, unknown ``null``."""
    workloads = dict.fromkeys(case.trace.workload for case in answer.cases)
    return {
        "files": answer.files,
        "drafters": list(answer.drafters),
        "lines": answer.logs.lines,
        "odd_lines": dict(answer.logs.odd),
        "requests": {
            "found": answer.found,
            "looked_at": len(answer.cases),
            "drafted": sum(not case.reason for case in answer.cases),
            "direct": sum(answer.reasons.values()),
            "by_reason": dict(answer.reasons),
            "left_out": dict(answer.left_out),
        },
        "agreement": {
            "all": _rounded(answer.agreement()),
            "workloads": {name: _rounded(answer.agreement(name)) for name in workloads},
        },
        "estimated_share": round(answer.estimated_share, 4),
        "rebuilt_share": round(answer.rebuilt_share, 4),
        "prices": {
            model: {
                "input": f"{prices.input:f}",
                "cached_input": None if prices.cached_input is None else f"{prices.cached_input:f}",
                "output": f"{prices.output:f}",
            }
            for model, prices in answer.prices.items()
        },
        "never_scores": answer.never_scores,
        "rules": [saving.to_dict() for saving in answer.savings],
        "interrupted": answer.interrupted,
    }


def _rounded(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: round(share, 4) for name, share in shares.items()}
