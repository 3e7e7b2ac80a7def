"""``cheapspec plan``: what would become of a request, with every alternative's cost, before anything is spent.

Rules
-----
* What is asked is a request's body (JSON with ``messages`` or ``prompt``), a list of messages, or any other text,
  which is then the user's message. Options win over what a body says.
* Of a text nobody knows the temperature that its caller would set: it is planned at 0.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.client import OpenAI
from cheapspec.core.alternatives import Plan, PlanAlternative
from cheapspec.core.money import format_usd
from cheapspec.core.untyped import is_list, is_mapping
from cheapspec.errors import SettingsError
from cheapspec.settings import Speculation

__all__ = ["Asked", "run"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options; see its help."""

    file: Path | None = None
    message: str | None = None
    model: str | None = None
    base_url: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reply_tokens: int | None = None
    draft: bool = False


def run(asked: Asked, *, as_json: bool) -> int:
    """Returns the exit status.

    :raises SettingsError: nothing is asked, or nothing that could be planned.
    """
    create = _create(asked, _told(asked))
    key = os.environ.get("OPENAI_API_KEY") or "not-sent"
    with OpenAI(base_url=asked.base_url, api_key=key, speculation=Speculation()) as client:
        # An option of ours that a body happens to name is not taken for it.
        fields = {name: value for name, value in create.items() if name not in ("draft", "reply_tokens", "cheapspec")}
        if is_mapping(options := create.get("cheapspec")):
            fields["extra_body"] = {"cheapspec": options}
        try:
            plan = client.explain(draft=asked.draft, reply_tokens=asked.reply_tokens, **fields)
        except TypeError as error:  # a field that this openai has no argument for
            raise SettingsError(f"openai would not take this request: {error}") from None
    if as_json:
        print(json.dumps(plan.to_dict(), indent=2, allow_nan=False))
    else:
        _show(Console(highlight=False), plan, str(fields["model"]), str(client.base_url))
    return 0


def _told(asked: Asked) -> object:
    """The request, the messages or the text that was given."""
    if asked.message is not None:
        if asked.file is not None:
            raise SettingsError("choose one of FILE and -m.")
        return asked.message
    if asked.file is None or str(asked.file) == "-":
        if asked.file is None and sys.stdin.isatty():
            raise SettingsError("nothing is asked: give FILE, standard input, or -m TEXT.")
        text = sys.stdin.read()
    else:
        try:
            text = asked.file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise SettingsError(f"{asked.file} cannot be read ({error}).") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            told: object = json.loads(text)
        except ValueError:
            return text
        return told
    return text


def _create(asked: Asked, told: object) -> dict[str, Any]:
    """The arguments of ``create``."""
    body: dict[str, Any]
    if is_mapping(told) and ("messages" in told or "prompt" in told):
        body = dict(told)
    elif is_list(told) and told and all(is_mapping(one) for one in told):
        body = {"messages": told, "temperature": 0}
    elif isinstance(told, str) and told.strip():
        body = {"messages": [{"role": "user", "content": told.strip()}], "temperature": 0}
    else:
        raise SettingsError("this is neither a request (with messages or a prompt), nor a list of messages, nor text.")
    given: Mapping[str, Any] = {"model": asked.model, "max_tokens": asked.max_tokens, "temperature": asked.temperature}
    body |= {name: value for name, value in given.items() if value is not None}
    if not body.get("model"):
        raise SettingsError("--model is missing: the target's name, as in a request.")
    return body


def _show(console: Console, plan: Plan, model: str, base_url: str) -> None:
    console.print(Text.assemble(("cheapspec plan", "bold"), (f"   {model} at {base_url}", "dim")), soft_wrap=True)
    console.print()
    reason = f": {plan.reason}" if plan.reason else ""
    detail = f" ({plan.detail})" if plan.detail else ""
    console.print(Text.assemble(("would ", ""), (_way(plan.chosen), "bold green"), (f"{reason}{detail}", "yellow")))
    console.print()
    console.print(_table(plan))
    console.print()
    for one in plan.alternatives:
        console.print(Text.assemble((f"{_name(one)}  ", "bold"), (one.why, "dim")), soft_wrap=True)
    context = plan.context_prices
    console.print(
        Text(
            f"A context token costs {context.q0:g} of the input price in a direct call, {context.qs:g} in a scoring "
            f"call, {context.qh:g} in a hand-off. At most: with one scored round. Nothing was sent to the target.",
            "dim",
        ),
        soft_wrap=True,
    )


def _table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("way")
    for name in ("draft tokens", "expected", "at most", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("allowed")
    for one in plan.alternatives:
        chosen = one.name == plan.chosen
        seconds = "" if one.expected_seconds is None else f"{one.expected_seconds:.2f}"
        tokens = f"{one.draft_tokens}" if one.action == "score" else ""
        cells = (_name(one), tokens, _usd(one.expected_usd), _usd(one.worst_usd), seconds)
        table.add_row("→" if chosen else "", *cells, "yes" if one.allowed else "no", style="bold" if chosen else "")
    return table


def _way(chosen: str) -> str:
    action, _, drafter = chosen.partition(" ")
    return "go direct" if action == "direct" else f"let the target score a draft of {drafter}"


def _name(one: PlanAlternative) -> str:
    return one.action if one.drafter is None else f"{one.drafter}, {one.rule}"


def _usd(usd: Any) -> str:
    told = format_usd(usd)
    return "unknown" if told is None else f"${told}"
