"""``cheapspec chat``: an interactive session through the drop-in client."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from rich.console import Console

from cheapspec.cli.embedded_pair import PRICES_NAME, embedded_pair
from cheapspec.cli.terminal import dollars, legend, share, show_stream
from cheapspec.client import OpenAI, OpenAIError
from cheapspec.core.info import Info
from cheapspec.doors import info as facts
from cheapspec.errors import CheapspecError, SettingsError

__all__ = ["run"]


def run(model: str | None, base_url: str | None, max_tokens: int) -> int:
    """Talk until end of input; returns the exit status."""
    console = Console(highlight=False)
    with ExitStack() as stack:
        if base_url is None and model is None:
            pair = stack.enter_context(embedded_pair(console))
            client, name = pair.client(), pair.target.model
            console.print(f"[dim]embedded pair; simulated bill at the list prices of {PRICES_NAME}[/]")
        elif model is None:
            raise SettingsError("--base-url needs --model: the target's name there.")
        else:
            try:
                client, name = stack.enter_context(OpenAI(base_url=base_url)), model
            except OpenAIError as error:
                raise CheapspecError(f"{error} (a server without keys takes any: OPENAI_API_KEY=none)") from None
        console.print(legend(console), "[dim]· an empty line or Ctrl-D ends[/]")
        _talk(console, client, name, max_tokens)
    return 0


def _talk(console: Console, client: OpenAI, model: str, max_tokens: int) -> None:
    messages: list[Any] = []
    while True:
        try:
            said = console.input("\n[bold]> [/]").strip()
        except (EOFError, KeyboardInterrupt):
            said = ""
        if not said:
            return
        messages.append({"role": "user", "content": said})
        try:
            stream = client.chat.completions.create(
                model=model, messages=messages, temperature=0, max_tokens=max_tokens, stream=True
            )
            text = show_stream(console, stream)
        except OpenAIError as error:
            console.print(f"[red]{type(error).__name__}: {error}[/]")
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": text})
        found = facts(stream)
        if found is not None:
            console.print(f"[dim]{_line(found)}[/]")


def _line(info: Info) -> str:
    if info.decision != "speculate":
        return f"{info.decision}: {info.reason}"
    return (
        f"{info.rounds} rounds, {info.accepted_tokens} of {info.drafted_tokens} draft tokens accepted, "
        f"{info.target_calls} calls, paid {dollars(info.paid_usd)}, "
        f"saved {dollars(info.saved_usd)}{share(info.saved_usd, info.baseline_usd)}"
    )
