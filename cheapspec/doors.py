"""What the Python doors share: settings become a runtime, a reply gives back its facts."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import httpx2

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.backends.ollama_names import normalise_host
from cheapspec.core.info import Info
from cheapspec.core.lookup import PromptLookup
from cheapspec.core.ports import Drafter, Ledger
from cheapspec.drive.runtime import Runtime, Settings, infos
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.prices import PriceBook
from cheapspec.settings import DraftSpec, Speculation, disabled

__all__ = ["Shared", "info"]

DEFAULT_MAX_DRAFT_TOKENS = 512
_OPTIONS = frozenset({"draft_tokens", "enabled", "max_added_latency", "max_draft_tokens", "tie_nats", "workload"})
_embedded_lock = threading.Lock()
_embedded: list[Any] = []


class Shared:
    """Settings and runtime of a client and its copies."""

    def __init__(self, speculation: Speculation | None) -> None:
        self.speculation = Speculation() if speculation is None else speculation
        given = self.speculation
        self.settings = Settings(
            enabled=given.enabled,
            backend=given.target_backend,
            draft_tokens=given.draft_tokens,
            max_draft_tokens=given.max_draft_tokens or DEFAULT_MAX_DRAFT_TOKENS,
            tie_nats=given.tie_nats,
            draft_timeout=given.draft_timeout,
            draft_concurrency=given.draft_concurrency,
            max_added_latency=given.max_added_latency,
            assume_temperature=given.assume_temperature,
            simulate_scoring=given.simulate_scoring,
            workload=given.workload,
        )
        drafters = [_drafter(spec, given) for spec in given.drafts]
        self.ledger = _ledger(given.ledger)
        self.runtime = Runtime(self.settings, drafters, PriceBook(given.prices), self.ledger)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shared:
        """A copied client keeps its books in the same ledger."""
        return self

    def for_request(self, request: httpx2.Request) -> Settings:
        """The settings of one request: environment switch and headers over those of the client."""
        settings = self.settings
        told = request.headers.get("x-cheapspec-disable", "")
        if disabled() or told.strip().lower() in {"1", "true", "yes", "on"}:
            settings = replace(settings, enabled=False)
        session = request.headers.get("x-cheapspec-session")
        return settings if session is None else replace(settings, session=session)


def _drafter(spec: DraftSpec, given: Speculation) -> Drafter:
    from cheapspec.backends.llamacpp import LlamaCppDrafter
    from cheapspec.backends.openai_drafter import OpenAIDrafter

    match spec.kind:
        case "ollama":
            url = given.draft_url or normalise_host(None, os.environ)
            return OllamaDrafter(spec.name, url, keep_alive=given.keep_alive)
        case "llamacpp":
            return LlamaCppDrafter(spec.url or "")
        case "openai":
            return OpenAIDrafter(spec.name, spec.url or "")
        case "lookup":
            return PromptLookup()
        case _:
            return LlamaCppDrafter(_embedded_url(), name="embedded")


def _embedded_url() -> str:
    """The embedded draft server of this process, started when first needed. Raises ``CheapspecError``."""
    from cheapspec.embedded import EmbeddedServer, weights

    with _embedded_lock:
        if not _embedded:
            server = EmbeddedServer(weights("smollm2-135m-q4_1"))
            _embedded.append(server)
        return str(_embedded[0].url)


def _ledger(given: Any) -> Ledger:
    if given == "off":
        return NullLedger()
    return MemoryLedger() if given is None else cast(Ledger, given)


def info(reply: object) -> Info | None:
    """What became of a request: of a reply, a stream (after it has ended), or a raw response.

    ``None`` for something that did not come through cheapspec, and for a request that is no longer
    remembered (the last few thousand are).
    """
    told = getattr(reply, "cheapspec", None)
    if isinstance(told, Mapping) and "decision" in told:
        return Info.from_dict(cast(Mapping[str, Any], told))
    for name in _names(reply):
        found = infos.get(name)
        if found is not None:
            return found
    return None


def _names(reply: object) -> list[str]:
    """Under which names a reply's facts may be kept: its response's header, its own id."""
    names: list[str] = []
    for holder in (reply, getattr(reply, "response", None), getattr(reply, "_response", None)):
        headers = getattr(holder, "headers", None)
        if headers is not None and hasattr(headers, "get"):
            found = headers.get("x-cheapspec-request-id")
            if isinstance(found, str):
                names.append(found)
    own = getattr(reply, "id", None)
    return [*names, own] if isinstance(own, str) else names
