"""``python -m benchmarks.live``: one price list live on the Qwen pair, beside the replay of the same prompts.

Both arms run on real engines (:mod:`cheapspec.bench`), the target forced along the draft and billed as if it had
scored. The replay takes the recorded traces of the same prompts, in the same order, with the same prices; planner and
estimates start empty in both. The live target writes anew, so a reply may differ from the recorded one where two
tokens are all but equally likely (4-bit weights); such replies are counted by the hashes of the recorded texts.

Writes the table into docs/bench.md and the measured figures to benchmarks/data/live-qwen.json. ``--first 2`` (the
default) takes two prompts a kind; the whole set takes an hour or more on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.record import DATA, DRAFT
from cheapspec.bench import pairs
from cheapspec.bench.figures import by_kind, prompt_dict
from cheapspec.bench.measure import Bench, Measured
from cheapspec.bench.prompts import CHAT, chosen, shipped
from cheapspec.core.outcome import Outcome
from cheapspec.core.policies import Planned
from cheapspec.core.replay import Setting, replay
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace, load_trace
from cheapspec.prices import PriceBook
from cheapspec.settings import Speculation

__all__ = ["main"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bench.md"
BEGIN, END = "<!-- written by python -m benchmarks.live -->", "<!-- until here -->"
PRICES = pairs.PriceList(Decimal(5), Decimal("0.05"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, replay, write. Exit status 0, or 1 when a reply failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description="Live against replay.")
    parser.add_argument("--first", type=int, default=2, help="prompts a kind")
    parser.add_argument("--kinds", default="json,code,quote,summary,open,translation", help="commas between")
    parser.add_argument("--chats", action="store_true", help="conversations too")
    parser.add_argument("--out", default=str(PAGE), help="page to write the table into; - prints it")
    asked = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith("CHEAPSPEC_") and name != "CHEAPSPEC_CACHE"]:
        del os.environ[name]  # the developer's own settings
    recorded = _load(DATA / "traces-qwen.jsonl.gz")
    kinds = [*asked.kinds.split(","), *([CHAT] if asked.chats else [])]
    prompts = [prompt for prompt in chosen(shipped(), kinds, asked.first) if prompt.id in recorded]
    measured, said = _measure([prompt for prompt in prompts if prompt.kind != CHAT or asked.chats])
    replayed = _replay([recorded[one.id] for one in measured if one.id in recorded])
    same = _same(said)
    table = _table(measured, replayed, same)
    if asked.out == "-":
        print(table)
    else:
        _insert(Path(asked.out), table)
        figures: dict[str, Any] = {
            "prompts": [{**prompt_dict(one), "as_recorded": same.get(one.id)} for one in measured]
        }
        figures |= {"price_list": {"r": float(PRICES.r), "c": float(PRICES.c), "qs": float(PRICES.c)}}
        (DATA / "live-qwen.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return 1 if any(one.failed for one in measured) else 0


def _load(path: Path) -> dict[str, RequestTrace]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {trace.id: trace for trace in (load_trace(str(line)) for line in lines)}


def _measure(prompts: Sequence[Any]) -> tuple[list[Measured], dict[str, str]]:
    """What was measured, and the direct replies' texts."""
    measured: list[Measured] = []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar, pairs.embedded("qwen", PRICES) as arms:
        task = bar.add_task("live", total=sum(len(prompt.turns) for prompt in prompts))
        bench = Bench(arms, prediction=True)
        for prompt in prompts:
            for one in bench.measure(prompt):
                measured.append(one)
                bar.update(task, description=one.id, advance=1)
                print(json.dumps(prompt_dict(one)), file=sys.stderr, flush=True)
    return measured, {one.id: one.text for one in measured if one.failed is None}


def _same(said: dict[str, str]) -> dict[str, bool]:
    """Whether the live target wrote what it wrote when the traces were recorded."""
    lines = (DATA / "traces-qwen.sha256").read_text("utf-8").splitlines()
    hashes = {name: digest for digest, name in (line.split() for line in lines)}
    return {name: hashlib.sha256(text.encode()).hexdigest() == hashes.get(name) for name, text in said.items()}


def _replay(traces: Sequence[RequestTrace]) -> Outcome:
    prices, _ = PriceBook(Speculation(prices=PRICES.table()).prices).lookup("recorded", "")
    assert prices is not None
    drafters = (f"embedded:{DRAFT}", *dict.fromkeys(row.drafter for trace in traces for row in trace.statics))
    return replay(traces, Planned(prices), Setting(Tariff.of(prices), drafters, oracle=True))


def _table(measured: Sequence[Measured], replayed: Outcome, same: dict[str, bool]) -> str:
    kinds = replayed.by_workload()
    heads = ["kind", "replies", "as recorded", "equal", "paid / alone, live", "by replay", "rounds, live", "by replay"]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for kind, total in by_kind(measured).items():
        part = replayed if kind == "all" else kinds[kind]
        those = [one for one in measured if kind in (one.kind, "all")]
        rows.append(
            [
                kind,
                str(total.replies),
                str(sum(same.get(one.id, False) for one in those)),
                str(total.equal),
                _ratio(total.paid_over_baseline),
                _ratio(part.paid_over_baseline),
                str(sum(one.rounds for one in those)),
                str(sum(request.rounds for request in part.requests)),
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _ratio(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _insert(page: Path, text: str) -> None:
    head, mark, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not mark or not end:
        sys.exit(f"{page} has no place for the table: {BEGIN} … {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
