"""How ``cheapspec doctor`` looks on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.core.untyped import is_list

__all__ = ["show"]

_GOOD, _BAD, _OPEN = Text("✓", "bold green"), Text("✗", "bold red"), Text("·", "dim")
_CAN = {
    "can_score": "scores text that it is sent",
    "can_force": "can be made to write given text",
    "can_continue": "goes on from a beginning",
    "can_judge": "can be asked for its verdict on a draft",
    "reports_cached_tokens": "reports cached tokens",
}


def show(console: Console, told: Mapping[str, Any]) -> None:
    """Print the whole answer."""
    _part(console, "Settings", _settings(told["settings"]))
    _part(console, "Draft", _drafts(told["draft"]["drafters"]))
    target = told["target"]
    if target["model"] is None:
        _part(console, "Target", [(_OPEN, Text("name one to have it checked: --model M --base-url URL", "dim"))])
    else:
        _part(console, "Target", _target(target), f"{target['model']} at {target['base_url']}")
        _part(console, "Prices", _prices(told["prices"]))
        _part(console, "Rules", _rules(told["rules"]))
    console.print()
    if told["ok"]:
        console.print(Text.assemble(_GOOD, " ", ("Everything is in place.", "bold green")))
        return
    many = len(told["problems"])
    console.print(Text(f"{many} problem{'s' if many > 1 else ''}", "bold red"))
    for number, problem in enumerate(told["problems"], 1):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, style="bold red")
        grid.add_column(overflow="fold")
        grid.add_row(f"{number}.", Text(problem["what"]))
        grid.add_row("", Text.assemble(("→ ", "green"), problem["fix"]))
        console.print(grid)


def _part(console: Console, name: str, rows: list[tuple[Text, Text]], of: str = "") -> None:
    console.print()
    console.print(Text.assemble((name, "bold"), ("  " + of if of else "", "dim")), soft_wrap=True)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, text in rows:
        grid.add_row(Text("  ").append_text(mark), text)
    console.print(grid)


def _mark(value: bool | None) -> Text:
    return _OPEN if value is None else _GOOD if value else _BAD


def _settings(settings: Mapping[str, Any]) -> list[tuple[Text, Text]]:
    rows: list[tuple[Text, Text]] = []
    for name, value in settings.items():
        shown = ", ".join(map(str, value)) if is_list(value) else value
        text = "none" if shown in (None, "") else "yes" if shown is True else "no" if shown is False else str(shown)
        rows.append((_OPEN, Text.assemble((f"{name.replace('_', ' ')}: ", "dim"), text)))
    return rows


def _drafts(drafters: list[Mapping[str, Any]]) -> list[tuple[Text, Text]]:
    if not drafters:
        return [(_BAD, Text("nothing drafts"))]
    rows: list[tuple[Text, Text]] = []
    for one in drafters:
        good = None if one["reachable"] is None and one["has_model"] is None else one["has_model"] is not False
        if one["reachable"] is False:
            good, state = False, "does not answer"
        elif one["has_model"] is False:
            state = "does not have this model"
        elif one["has_model"] is None:
            state = "needs no model" if one["host"] is None else "answers; whether it has the model it does not say"
            good = True
        else:
            state = "answers and has the model" if one["host"] else "is on this machine"
        version = f" (version {one['version']})" if one["version"] else ""
        host = f" at {one['host']}" if one["host"] and one["host"] not in one["drafter"] else ""
        rows.append((_mark(good), Text.assemble((one["drafter"], "bold"), (host, "dim"), f" {state}{version}")))
        if one["has_model"] is False and one["models"]:
            rows.append((Text(" "), Text(f"it has {', '.join(one['models'][:12])}", "dim")))
    return rows


def _target(target: Mapping[str, Any]) -> list[tuple[Text, Text]]:
    if target["can_score"] is None:
        return [(_OPEN, Text("not asked yet"))]
    rows = [(_mark(target[name] if target[name] else False), Text(text)) for name, text in _CAN.items()]
    if target["can_score"]:  # then nobody has to force it
        rows = [row for row, name in zip(rows, _CAN, strict=True) if name != "can_force"]
    for name, what in (("qs", "scoring"), ("qh", "going on")):
        if target[name] is not None:
            text = f"{what} pays {target[name]:.0%} of a known context at the uncached price"
            rows.append((_OPEN, Text(text)))
    rows += [(Text(" "), Text(finding, "dim")) for finding in target["evidence"]]
    return rows


def _prices(prices: Mapping[str, Any]) -> list[tuple[Text, Text]]:
    if prices.get("input") is None:
        return [(_BAD, Text(str(prices.get("why", "unknown"))))]
    cached = "" if prices["cached_input"] is None else f", cached input ${float(prices['cached_input']):g}"
    amounts = f"input ${float(prices['input']):g}{cached}, output ${float(prices['output']):g} per million tokens"
    return [(_GOOD, Text(amounts)), (Text(" "), Text(str(prices["why"]), "dim"))]


def _rules(rules: list[Mapping[str, Any]]) -> list[tuple[Text, Text]]:
    """One row a rule; those that the same sentence keeps from serving share one."""
    refused: dict[str, list[str]] = {}
    rows: list[tuple[Text, Text]] = []
    for rule in rules:
        if not rule["possible"]:
            refused.setdefault(rule["why"], []).append(rule["rule"])
            continue
        share = rule["expected_saving_share"]
        told = f"  saves some {share:.0%} of a typical first turn" if share else ""
        rows.append((_GOOD, Text.assemble((rule["rule"], "bold"), (f"  {rule['why']}", "dim"), told)))
    return rows + [
        (_OPEN, Text.assemble((", ".join(names), "bold"), (f"  {why}", "dim"))) for why, names in refused.items()
    ]
