"""What the driver needs to know of the settings; a door translates its own into this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cheapspec.core.books import Cap
from cheapspec.core.money import LocalPrice
from cheapspec.core.rules import TextMatch
from cheapspec.rules.prospects import VerdictRule

__all__ = ["Settings", "SettingsReader"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one request. ``backend``: API family of the target, ``auto``: find out. Times in seconds.
    ``caps``: the budgets that the request counts in. ``lenient_nats``: the lenient rule's, ``None``: the exact rule.
    ``text_match``: drafts are compared with what the target writes, in windows of ``draft_tokens``.
    ``scores``: drafts may be scored; ``rules``: about whole drafts, for where they may not or cannot.
    ``objective``: ``cost``
    or ``latency``. ``ask_usage``: a stream is asked for its usage. ``local_price``:
    what drafting costs, ``None`` nothing. ``shadow``: requests of a workload that go direct while the rules are tried
    beside them; ``audit``: the share of replies accepted on a rule's word that the target is asked about besides;
    ``comparison``: what tells whether a draft would have done, ``None``: what the rules themselves compare by.
    """

    enabled: bool = True
    backend: str = "auto"
    draft_tokens: int | None = None
    max_draft_tokens: int = 512
    tie_nats: float = 0.0
    lenient_nats: float | None = None
    text_match: TextMatch | None = None
    scores: bool = True
    rules: tuple[VerdictRule, ...] = ()
    draft_timeout: float | None = None
    draft_concurrency: int = 2
    max_added_latency: float | None = None
    objective: str = "cost"
    assume_temperature: float | None = None
    simulate_scoring: bool = False
    workload: str | None = None
    session: str | None = None
    session_id: str | None = None
    caps: tuple[Cap, ...] = ()
    ask_usage: bool = True
    local_price: LocalPrice | None = None
    shadow: int = 0
    audit: float = 0.0
    comparison: object | None = None


class SettingsReader(Protocol):
    """Reads what one request says about itself."""

    def __call__(self, headers: Mapping[str, str], options: Mapping[str, Any]) -> Settings:
        """``headers``: the request's ``x-cheapspec-*``, names in lower case without that prefix; ``options``: its
        body's key ``cheapspec``, which wins.

        :raises SettingsError: something in them is unusable.
        """
        ...
