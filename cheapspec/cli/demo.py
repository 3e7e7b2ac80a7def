"""``cheapspec demo``: the main job on two small models that run here, and the honest card."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, cast

from rich.console import Console
from rich.panel import Panel

from cheapspec.cli.embedded_pair import PRICES_NAME, Pair, embedded_pair
from cheapspec.cli.terminal import card, counts, dollars, legend, share, show_stream
from cheapspec.core.info import Info
from cheapspec.doors import info as facts

__all__ = ["PROMPT", "run"]

PROMPT = "Write a Python function that counts the vowels in a string."


def run(
    prompt: str | None, draft: str, draft_tokens: int | None, max_tokens: int, *, as_json: bool, times: bool
) -> int:
    """Returns the exit status: 1 when the text is not the target's own."""
    console = Console(stderr=as_json, highlight=False)
    question = prompt or PROMPT
    with embedded_pair(console, draft) as pair:
        result = _compare(console, pair, question, draft_tokens, max_tokens, times)
    if as_json:
        json.dump(result, sys.stdout, indent=1)
        sys.stdout.write("\n")
    return 0 if result["equal"] else 1


def _compare(
    console: Console, pair: Pair, question: str, draft_tokens: int | None, max_tokens: int, times: bool
) -> dict[str, Any]:
    client = pair.client(draft_tokens)
    asked: dict[str, Any] = {
        "model": pair.target.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    console.print(legend(console))
    console.print(f"\n[bold]> {question}[/]\n")
    started = time.perf_counter()
    stream = client.chat.completions.create(**asked, stream=True)
    text = show_stream(console, stream)
    seconds = time.perf_counter() - started
    info = facts(stream)
    assert info is not None
    with console.status("the same question to the target alone …"):
        started = time.perf_counter()
        plain = client.with_options(default_headers={"x-cheapspec-disable": "1"})
        alone = cast(Any, plain.chat.completions.create(**asked))
        seconds_alone = time.perf_counter() - started
    expected = str(alone.choices[0].message.content or "")
    console.print()
    took = f"{seconds:.1f}; target alone {seconds_alone:.1f} (both models share this machine)" if times else None
    console.print(Panel(_card(info, pair, text == expected, took), expand=False, padding=(1, 2)))
    return {
        "prompt": question,
        "text": text,
        "equal": text == expected,
        "draft": pair.draft_name,
        "target": pair.target.model,
        "seconds": round(seconds, 3),
        "seconds_target_alone": round(seconds_alone, 3),
        "prices": PRICES_NAME,
        "info": info.to_dict(),
    }


def _card(info: Info, pair: Pair, equal: bool, took: str | None) -> Any:
    rows = counts(info) if info.decision == "speculate" else [("decision", f"{info.decision}: {info.reason}")]
    saved = f"[bold]{dollars(info.saved_usd)}[/]{share(info.saved_usd, info.baseline_usd)}"
    rows += [
        ("", ""),
        ("paid (simulated)", dollars(info.paid_usd)),
        ("target alone", f"{dollars(info.baseline_usd)} (estimated for a cold prompt cache)"),
        ("saved", saved),
        ("text", "[green]equals the target alone[/]" if equal else "[bold red]differs from the target alone[/]"),
        *([("seconds", took)] if took else []),
        ("", ""),
        ("simulated bill", "the draft as input, generated tokens as output, cached tokens as llama.cpp reports them,"),
        ("", f"at the list prices of {PRICES_NAME}"),
        ("draft", f"{pair.draft_name}, the target's own {_kinship(pair)}: kinder than two different models"),
        ("target", f"{pair.target.model}, forced along the draft, as llama.cpp does not score given text"),
    ]
    return card(rows, "cheapspec demo")


def _kinship(pair: Pair) -> str:
    return "quantised twin" if "q4" in pair.draft_name else "weights with layers left out"
