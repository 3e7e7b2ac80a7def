"""The two arms of a bench: the target alone, and the same target through cheapspec.

* ``embedded``: models that run in this process. Each arm has a target server of its own, so neither finds in its
  prompt cache what the other arm has put there; a chat finds its own earlier turns, as it would anywhere. The
  target is forced where a paid one would score, and that is priced as scoring (``simulate_scoring``): the draft
  as input, one generated token as output.
* ``remote``: any OpenAI-compatible endpoint, whose one prompt cache both arms share. Which arm goes first changes
  with every prompt, so that neither profits more than the other.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cheapspec.client import OpenAI
from cheapspec.core.lookup import Prediction
from cheapspec.core.money import Prices
from cheapspec.core.ports import Drafter
from cheapspec.doors import Shared
from cheapspec.embedded import EmbeddedServer, fetch
from cheapspec.embedded.weights import Progress
from cheapspec.errors import SettingsError
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.prices import PriceBook
from cheapspec.settings import Speculation

__all__ = ["EMBEDDED", "Arms", "PriceList", "embedded", "remote"]

EMBEDDED = {
    "smollm2": ("smollm2-135m-q4_1", "smollm2-135m-f16"),
    "qwen": ("qwen2.5-coder-0.5b-q4_k_m", "qwen2.5-coder-1.5b-q4_k_m"),
}
"""Draft and target of the pairs that run here: SmolLM2-135M with its own quantisation (93 MB to fetch), and
Qwen2.5-Coder 0.5B and 1.5B (1.7 GB)."""

_WINDOW = 4096  # tokens; the longest prompt of the shipped set has about 1,100


@dataclass(frozen=True, slots=True)
class PriceList:
    """Simulated prices: ``r`` output over input, ``c`` cached over fresh input; input costs a dollar a million."""

    r: Decimal = Decimal(4)
    c: Decimal = Decimal("0.02")

    @classmethod
    def read(cls, text: str) -> PriceList:
        """``"5,0.05"``. :raises SettingsError: it is not two numbers that can be such prices."""
        try:
            r, c = (Decimal(part.strip()) for part in text.split(","))
        except (ValueError, ArithmeticError):
            raise SettingsError(f"--price-list {text}: write two numbers, such as 5,0.05.") from None
        if not (r.is_finite() and c.is_finite() and r > 0 and 0 <= c <= 1):
            raise SettingsError(f"--price-list {text}: r must be above 0, and c between 0 and 1.")
        return cls(r, c)

    def table(self) -> dict[str, str]:
        """As the settings take it."""
        return {"input": "1", "cached_input": str(self.c), "output": str(self.r)}


@dataclass(frozen=True)
class Arms:
    """Both arms and what to say about them. ``drafters``: those of the speculating arm; ``prices``: of the target,
    ``None`` unknown; ``shared_cache``: one prompt cache serves both.
    """

    direct: OpenAI
    speculating: OpenAI
    model: str
    draft: str
    drafters: tuple[Drafter, ...]
    prices: Prices | None
    simulated: bool
    shared_cache: bool

    def describe(self) -> dict[str, Any]:
        """The key ``engine`` of ``bench --json``."""
        return {
            "target": self.model,
            "base_url": None if self.simulated else str(self.speculating.base_url),
            "draft": self.draft,
            "simulated": self.simulated,
            "shared_cache": self.shared_cache,
        }


@contextmanager
def embedded(
    name: str, prices: PriceList, *, draft_tokens: int | None = None, progress: Progress | None = None
) -> Generator[Arms]:
    """Fetch the weights if need be, start one draft and two target servers, stop them at the end.

    :raises SettingsError: no pair has this name. :raises CheapspecError: the weights or the engine are missing.
    """
    if name not in EMBEDDED:
        raise SettingsError(f"--embedded {name}: choose {' or '.join(EMBEDDED)}.")
    draft, target = (fetch(weights, progress) for weights in EMBEDDED[name])
    threads = max(1, (os.cpu_count() or 2) // 2)  # draft and target take turns, and others use the machine too
    with ExitStack() as stack:
        servers = [EmbeddedServer(path, n_ctx=_WINDOW, threads=threads) for path in (draft, target, target)]
        drafter, alone, speculated = (stack.enter_context(server) for server in servers)
        speculation = Speculation(
            draft=f"llamacpp:{drafter.url},lookup",
            target_backend="llamacpp",
            prices=prices.table(),
            draft_tokens=draft_tokens,
            simulate_scoring=True,
            draft_timeout=600,
            ledger=MemoryLedger(),  # simulated dollars stay out of the user's books
        )
        options: dict[str, Any] = {"api_key": "not-needed", "timeout": 3600, "max_retries": 0}
        off = Speculation(enabled=False, ledger="off")
        direct = stack.enter_context(OpenAI(base_url=f"{alone.url}/v1", speculation=off, **options))
        client = stack.enter_context(OpenAI(base_url=f"{speculated.url}/v1", speculation=speculation, **options))
        found, _ = PriceBook(speculation.prices).lookup(target.stem, str(client.base_url))
        drafters = _drafters(speculation)
        yield Arms(direct, client, target.stem, EMBEDDED[name][0], drafters, found, simulated=True, shared_cache=False)


@contextmanager
def remote(
    model: str, base_url: str | None, *, draft: str | None = None, draft_tokens: int | None = None
) -> Generator[Arms]:
    """An endpoint of the caller's, with the caller's settings; both arms' money is real. The books are kept apart from
    the caller's: nothing learned before is used, and nothing is learned for the time after.

    :raises SettingsError: a setting is unusable, or nothing is there to draft with.
    """
    given: dict[str, Any] = {"draft": draft} if draft is not None else {}
    fixed: dict[str, Any] = {"draft_tokens": draft_tokens} if draft_tokens is not None else {}
    speculation = Speculation(**given, **fixed, ledger=MemoryLedger())
    if speculation.draft is None:
        raise SettingsError("bench needs a draft: give --draft, or set CHEAPSPEC_DRAFT.")
    with ExitStack() as stack:
        client = stack.enter_context(OpenAI(base_url=base_url, speculation=speculation))
        alone = stack.enter_context(OpenAI(base_url=base_url, speculation=Speculation(enabled=False, ledger="off")))
        found, _ = PriceBook(speculation.prices).lookup(model, str(client.base_url))
        drafters = _drafters(speculation)
        yield Arms(alone, client, model, speculation.draft, drafters, found, simulated=False, shared_cache=True)


def _drafters(speculation: Speculation) -> tuple[Drafter, ...]:
    """The drafters that such a client has; the caller's prediction always is one."""
    apart = Shared(speculation.override({"ledger": "off"}, "bench"))
    return (*apart.runtime.drafters, Prediction())
