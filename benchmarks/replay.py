"""``python -m benchmarks.replay``: replay the recorded traces in all settings, write the tables of docs/planner.md.

For every price list and setting (:mod:`benchmarks.settings`) the planner decides anew, by itself and within the
allowance (2 %, seed 1 % of the set's baseline), beside the loop of eight tokens and the clairvoyant. What a kind of
requests, or all of them, paid beyond the 2 % is *seed spent*; it is shown apart, and targets are judged without it.
Nothing depends on the machine: the same traces and the same code give the same tables. Exit status 0 when every target
is met, 1 when one is not (the tables are written in both cases). ``--out -`` prints them.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from benchmarks.replay_page import insert, render
from benchmarks.settings import CODE_JSON, SETTINGS, Case, Target
from cheapspec.core.allowance import Allowance
from cheapspec.core.imputation import complete
from cheapspec.core.outcome import Outcome
from cheapspec.core.policies import FixedLength, Planned
from cheapspec.core.replay import Guard, Setting, outcomes
from cheapspec.core.traces import RequestTrace, load_trace

__all__ = ["Cell", "Verdict", "load", "main", "measure", "reached", "seed_spent", "verdicts"]

TRACES = Path(__file__).parent / "data" / "traces-qwen.jsonl.gz"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "planner.md"
SHARE, SEED = 0.02, 0.01


@dataclass(frozen=True, slots=True)
class Cell:
    """One price list in one setting. ``planned``: the planner alone; ``allowed``: within the allowance; ``loop``:
    eight tokens a round.
    """

    case: Case
    list_: tuple[str, str]
    planned: Outcome
    allowed: Outcome
    loop: Outcome

    @property
    def refused(self) -> int:
        """Requests in which the allowance did not bear a step."""
        return sum(request.refused for request in self.allowed.requests)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was reached: by the planner, and within the allowance. ``kind``: which one was the worst of the
    planner's, ``allowed_kind`` within the allowance. ``seed``: what of ``allowed`` is seed spent.
    """

    cell: Cell
    target: Target
    planned: float | None
    allowed: float | None
    kind: str = ""
    allowed_kind: str = ""
    seed: float = 0.0

    @property
    def allowed_met(self) -> bool:
        """Within the allowance, the seed apart."""
        return self.target.met(None if self.allowed is None else self.allowed - self.seed)

    @property
    def met(self) -> bool:
        """By the planner alone, and within the allowance."""
        return self.target.met(self.planned) and self.allowed_met


def load(path: Path) -> list[RequestTrace]:
    """The traces of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [load_trace(str(line)) for line in lines if line.strip()]


def measure(recorded: Sequence[RequestTrace], cases: Sequence[Case] = SETTINGS) -> Iterator[Cell]:
    """Every setting at every price list."""
    models = _models(recorded)
    for case in cases:
        traces = case.traces(recorded)
        if not traces:
            continue
        completed = complete(traces)
        given = {row.drafter for trace in traces for row in trace.statics}
        drafters = tuple(models[1:]) if case.foreign else (*sorted(given), *models[:1])
        seen: dict[str, Cell] = {}
        for list_ in case.lists:
            prices = case.prices(list_)
            if str(prices) in seen:
                continue
            tariff = case.tariff(prices)
            setting = Setting(tariff, drafters, oracle=True)
            baseline = Decimal(sum(tariff.direct(trace) for trace in traces))
            guard = Guard(Allowance(Decimal(str(SHARE)), baseline * Decimal(str(SEED))), prices)
            loop = Setting(tariff, drafters if case.foreign else tuple(models[:1]))
            cell = seen[str(prices)] = Cell(
                case,
                list_,
                Outcome(tuple(outcomes(completed, Planned(prices), setting))),
                Outcome(tuple(outcomes(completed, Planned(prices), setting, guard))),
                Outcome(tuple(outcomes(completed, FixedLength(8), loop))),
            )
            yield cell


def _models(recorded: Sequence[RequestTrace]) -> list[str]:
    """Draft models, the one that drafts most requests first."""
    count: dict[str, int] = {}
    for trace in recorded:
        for row in trace.drafts:
            count[row.drafter] = count.get(row.drafter, 0) + 1
    return sorted(count, key=lambda name: -count[name])


def verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    """Every target in every cell that it is for."""
    out: list[Verdict] = []
    for cell in cells:
        for target in cell.case.targets:
            if cell.list_ in target.lists:
                planned, kind = reached(target.what, cell.planned)
                allowed, worst = reached(target.what, cell.allowed)
                seed = 0.0 if allowed is None or target.what == "capture" else seed_spent(allowed)
                out.append(Verdict(cell, target, planned, allowed, kind, worst, seed))
    return out


def seed_spent(ratio: float) -> float:
    """What of paid/baseline is beyond the allowance's share: only the seed can have covered that."""
    return max(0.0, ratio - 1 - SHARE)


def reached(what: str, outcome: Outcome) -> tuple[float | None, str]:
    """The figure that a target is about; of kinds the worst, with its name."""
    if what == "capture":
        return outcome.capture, ""
    if what == "all":
        return outcome.paid_over_baseline, ""
    kinds = outcome.by_workload()
    if what == "each kind":
        ratio, name = max((part.paid_over_baseline or 0.0, name) for name, part in kinds.items())
        return ratio, name
    some = [request for name in CODE_JSON if name in kinds for request in kinds[name].requests]
    return Outcome(tuple(some)).paid_over_baseline, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay everything; takes some minutes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description="Replay traces in all settings.")
    parser.add_argument("--traces", type=Path, default=TRACES, help="a file of traces (.jsonl.gz)")
    parser.add_argument("--out", default=str(PAGE), help="the page whose tables to write; - prints them")
    asked = parser.parse_args(arguments)
    recorded = load(asked.traces)
    cells: list[Cell] = []
    for cell in measure(recorded):
        cells.append(cell)
        print(f"{cell.case.name} {cell.list_}: {cell.planned.paid_over_baseline:.3f}", file=sys.stderr, flush=True)
    found = verdicts(cells)
    text = render(recorded, cells, found)
    if asked.out == "-":
        print(text)
    else:
        insert(Path(asked.out), text)
    return 0 if all(verdict.met for verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main())
