"""The pair of models that the demo runs on this machine: a draft and a target, both llama.cpp.

The target is SmolLM2-135M-Instruct in 16-bit floats. The draft ``twin`` is its 4-bit quantisation (which
agrees with it on nearly every token: kinder than two different models); ``drop1`` and ``drop3`` are the
target without one or three of its thirty layers.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cheapspec.client import OpenAI
from cheapspec.embedded import EmbeddedServer, fetch
from cheapspec.errors import SettingsError
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.settings import Speculation

__all__ = ["DRAFTS", "PRICES", "PRICES_NAME", "TARGET", "Pair", "embedded_pair"]

TARGET = "smollm2-135m-f16"
DRAFTS = {"twin": "smollm2-135m-q4_1", "drop1": "smollm2-135m-f16-drop1", "drop3": "smollm2-135m-f16-drop3"}
PRICES = {"input": "0.30", "cached_input": "0.006", "output": "1.20"}
PRICES_NAME = "Fireworks deepseek-v4p1-flash (November 2026; $0.30 input, $0.006 cached, $1.20 output per million)"


@dataclass(frozen=True)
class Pair:
    """Both servers, running, and a client that speculates between them."""

    target: EmbeddedServer
    draft: EmbeddedServer
    draft_name: str

    def client(self, draft_tokens: int | None = None) -> OpenAI:
        """A drop-in client; forcing is priced as scoring (``simulate_scoring``)."""
        speculation = Speculation(
            draft=f"llamacpp:{self.draft.url}",
            target_backend="llamacpp",
            prices=PRICES,
            draft_tokens=draft_tokens,
            simulate_scoring=True,
            draft_timeout=120,
            ledger=MemoryLedger(),  # simulated dollars stay out of the user's books
        )
        return OpenAI(base_url=f"{self.target.url}/v1", api_key="not-needed", speculation=speculation)


@contextmanager
def embedded_pair(console: Console, draft: str = "twin") -> Generator[Pair]:
    """Fetch the weights if need be (checked, cached), start both servers, stop them at the end."""
    if draft not in DRAFTS:
        raise SettingsError(f"--draft {draft}: choose one of {', '.join(DRAFTS)}.")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("weights", total=1.0)

        def show(what: str, share: float) -> None:
            progress.update(task, description=what, completed=share)

        paths = [fetch(name, show) for name in (DRAFTS[draft], TARGET)]
        progress.update(task, description="starting two llama.cpp servers", completed=1.0)
        threads = max(1, (os.cpu_count() or 2) // 2)  # each its share: two servers that fight for cores both crawl
        drafter, target = (EmbeddedServer(path, threads=threads) for path in paths)
    with drafter, target:
        yield Pair(target, drafter, DRAFTS[draft])
