"""``cheapspec bench``: a prompt set through the target alone and through cheapspec, in one table."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cheapspec.bench import pairs
from cheapspec.bench.figures import Total, by_kind, prompt_dict
from cheapspec.bench.foresight import Foresight
from cheapspec.bench.measure import Bench, Measured
from cheapspec.bench.prompts import chosen, load, shipped
from cheapspec.client import OpenAIError
from cheapspec.errors import CheapspecError, SettingsError

__all__ = ["Asked", "run"]

_LIBRARIES = ("cheapspec", "openai", "xllamacpp")
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Asked:
    """Which pair, as the options say; without a target an embedded one."""

    target: str | None = None
    base_url: str | None = None
    draft: str | None = None
    embedded: str | None = None
    price_list: str | None = None
    draft_tokens: int | None = None

    @contextmanager
    def arms(self, bar: Progress) -> Generator[pairs.Arms]:
        """:raises SettingsError: options contradict each other, or name nothing."""
        if self.target is not None:
            with self._remote(self.target) as arms:
                yield arms
            return
        if self.base_url is not None or self.draft is not None:
            raise SettingsError("--base-url and --draft need --target: the target's name there.")
        task = bar.add_task("starting the engines", total=1.0)

        def show(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        name, prices = self.embedded or "smollm2", self.prices or pairs.PriceList()
        with pairs.embedded(name, prices, draft_tokens=self.draft_tokens, progress=show) as arms:
            bar.remove_task(task)
            yield arms

    @contextmanager
    def _remote(self, target: str) -> Generator[pairs.Arms]:
        if self.embedded is not None:
            raise SettingsError("--target and --embedded exclude each other.")
        if self.price_list is not None:
            raise SettingsError("--price-list simulates prices of an embedded pair; a --target has its own.")
        try:
            with pairs.remote(target, self.base_url, draft=self.draft, draft_tokens=self.draft_tokens) as arms:
                yield arms
        except OpenAIError as error:
            raise CheapspecError(f"{error} (a server without keys takes any: OPENAI_API_KEY=none)") from None

    @property
    def prices(self) -> pairs.PriceList | None:
        """The simulated ones, ``None`` for a target that has its own."""
        if self.target is not None:
            return None
        return pairs.PriceList() if self.price_list is None else pairs.PriceList.read(self.price_list)


def run(
    asked: Asked,
    *,
    prompts: Path | None,
    kinds: str | None,
    first: int | None,
    max_tokens: int,
    prediction: bool,
    capture: bool,
    as_json: bool,
) -> int:
    """Returns the exit status: 1 when a reply failed or differs from the target alone, 130 when interrupted."""
    console = Console(stderr=as_json, highlight=False)
    wanted = [kind.strip() for kind in (kinds or "").split(",") if kind.strip()]
    chosen_prompts = chosen(shipped() if prompts is None else load(prompts), wanted, first)
    measured: list[Measured] = []
    interrupted = False
    with _bar(console) as bar, asked.arms(bar) as arms:
        engine = arms.describe()
        task = bar.add_task("measuring", total=sum(len(prompt.turns) for prompt in chosen_prompts))
        bench = Bench(arms, max_tokens=max_tokens, prediction=prediction)
        try:
            for prompt in chosen_prompts:
                for one in bench.measure(prompt):
                    bar.update(task, description=one.id, advance=1)
                    measured.append(one)
            if capture:
                foresight = Foresight(arms)
                task = bar.add_task("looking back", total=len(measured))
                for one in measured:
                    foresight.foresee(one)
                    bar.update(task, description=one.id, advance=1)
        except KeyboardInterrupt:
            interrupted = True
        unknown = arms.prices is None
    result = _result(engine, measured, asked.prices, interrupted)
    if as_json:
        json.dump(result, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        _show(console, result, measured, unknown)
    if interrupted:
        return _INTERRUPTED
    return 0 if all(one.equal for one in measured) else 1


@contextmanager
def _bar(console: Console) -> Generator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as progress:
        yield progress


def _result(
    engine: dict[str, Any], measured: list[Measured], prices: pairs.PriceList | None, interrupted: bool
) -> dict[str, Any]:
    priced = None if prices is None else {"r": float(prices.r), "c": float(prices.c), "qs": float(prices.c)}
    return {
        "engine": engine,
        "prompts": [prompt_dict(one) for one in measured],
        "totals": {kind: total.to_dict() for kind, total in by_kind(measured).items()},
        "price_list": priced,
        "interrupted": interrupted,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _show(console: Console, result: dict[str, Any], measured: list[Measured], unknown: bool) -> None:
    engine = result["engine"]
    table = Table(title=f"{engine['target']} alone, and with drafts of {engine['draft']}", title_justify="left")
    table.add_column("kind")
    for name in ("replies", "equal", "paid / alone", "capture", "target calls", "seconds", "alone"):
        table.add_column(name, justify="right")
    for kind, total in by_kind(measured).items():
        table.add_row(*_row(kind, total), style="bold" if kind == "all" else "")
    console.print(table)
    if result["interrupted"]:
        console.print(f"[yellow]Interrupted after {len(measured)} replies: the table holds what was measured.[/]")
    for one in measured:
        if one.failed is not None:
            console.print(f"[red]{one.id}: {one.failed}[/]")
        elif not one.equal:
            console.print(f"{one.id}: the texts differ from byte {one.differs_at} on")
    if unknown:
        console.print("The target's price is unknown: nothing can be said about money. Set prices in cheapspec.toml.")
    for line in _notes(result):
        console.print(f"[dim]{line}[/]")


def _row(kind: str, total: Total) -> list[str]:
    good = total.replies - total.failed
    ratio, captured = total.paid_over_baseline, total.capture
    return [
        kind,
        str(total.replies),
        f"{total.equal} of {good}",
        "unknown" if ratio is None else f"{ratio:.2f}",
        "" if captured is None else f"{captured:.2f}",
        str(total.target_calls),
        f"{total.seconds:.0f}",
        f"{total.seconds_direct:.0f}",
    ]


def _notes(result: dict[str, Any]) -> list[str]:
    prices = result["price_list"]
    if prices is None:
        return ["Both arms share the endpoint's prompt cache; which goes first changes with every prompt."]
    return [
        f"Simulated bill: output costs {prices['r']:g} times input, cached input {prices['c']:g} times. The target is",
        "forced along the draft, as llama.cpp does not score given text, and billed as if it had scored: the draft as",
        "input, one generated token as output. Each arm has a prompt cache of its own. All models share this machine.",
    ]
