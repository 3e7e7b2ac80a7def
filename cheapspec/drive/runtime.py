"""What one client (and its copies, threads and tasks) shares between requests."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from cheapspec.backends.chat_hosts import endpoint_for
from cheapspec.backends.facts import Facts
from cheapspec.core.books import TextBook
from cheapspec.core.effects import Note, Op
from cheapspec.core.money import PrefixMemory
from cheapspec.core.ports import Drafter, Ledger, PriceSource
from cheapspec.core.request import Request
from cheapspec.drive.certified import Certificates, scope_of
from cheapspec.drive.endpoints import Endpoints
from cheapspec.drive.learning import Learning
from cheapspec.drive.passed import Passed
from cheapspec.drive.permits import Permits
from cheapspec.drive.settings import SettingsReader
from cheapspec.drive.state import Breaker, TargetFacts, targets
from cheapspec.drive.urls import api_base, credentials
from cheapspec.rules.agree import Agree
from cheapspec.rules.asking import version_of
from cheapspec.rules.certificates import Scope
from cheapspec.rules.judge import Judge
from cheapspec.rules.prospects import Bench, VerdictRule
from cheapspec.rules.verdict import Endpoint

__all__ = ["Passed", "Runtime"]

log = logging.getLogger("cheapspec")

COOLDOWN_SECONDS = 30.0
OLLAMA_PORT = 11434
"""Ollama's default (its documentation, 2026-11); no other server is known to have it."""

_warned: set[str] = set()


class Runtime:
    """Shared by a client, its copies and its threads. ``read_settings``: the door's reader of what one request
    says about itself.
    """

    def __init__(
        self,
        read_settings: SettingsReader,
        drafters: Sequence[Drafter],
        prices: PriceSource,
        ledger: Ledger,
        permits: Permits,
    ) -> None:
        self.read_settings = read_settings
        self.drafters = tuple(drafters)
        self.prices = prices
        self.ledger = ledger
        self.text_book = ledger if isinstance(ledger, TextBook) and ledger.keeps_text else None
        self.permits = permits
        self.breaker = Breaker()
        self._endpoints = Endpoints(ledger)
        self.learning = Learning(ledger)
        self.certificates = Certificates(ledger)
        self._memory = PrefixMemory()
        self._lock = threading.RLock()
        _runtimes.add(self)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()
        self.permits.renew_locks()
        self.breaker.renew_locks()
        self.learning.renew_locks()
        self.certificates.renew_locks()

    # --- what is known of the endpoint -----------------------------------------------------------

    def facts_of(self, passed: Passed, now: float) -> TargetFacts:
        """What is known of the request's endpoint (:mod:`cheapspec.drive.endpoints`)."""
        return self._endpoints.facts_of(passed, now)

    @staticmethod
    def endpoint(passed: Passed) -> TargetFacts:
        """What has been noted of the request's endpoint so far; asks nobody."""
        settings = passed.settings
        return targets.get((passed.base_url, passed.model, settings.backend, settings.simulate_scoring))

    def is_ollama(self, passed: Passed) -> bool:
        """Whether the target is an Ollama, as far as is known: by its port, or by what a probe found."""
        return passed.request.url.port == OLLAMA_PORT or self.endpoint(passed).backend == "ollama"

    def due_probe(self, passed: Passed) -> Op[Facts] | None:
        """The probe of this endpoint, if it is due and nobody makes it; :meth:`probed` takes its result."""
        return self._endpoints.due_probe(passed)

    def probed(self, passed: Passed, found: Facts | None) -> None:
        """A probe ended; ``None``, or one that learnt nothing: it is tried again with a later request."""
        told = self._endpoints.probed(passed, found)
        if told:
            self.warn(f"probe:{told}", told)

    @staticmethod
    def chat_endpoint(base_url: str, model: str, body: Mapping[str, Any]) -> Endpoint:
        """What a chat endpoint takes: by its URL, and by what its replies have shown since."""
        facts = targets.get((base_url.rstrip("/"), model, "chat", False))
        return facts.chat or endpoint_for(base_url, model, body)

    @staticmethod
    def learned_endpoint(base_url: str, model: str, endpoint: Endpoint) -> None:
        """A reply showed what an endpoint takes after all."""
        targets.get((base_url.rstrip("/"), model, "chat", False)).chat = endpoint

    def cutoffs(self, passed: Passed, rules: Sequence[VerdictRule], drafters: Sequence[Drafter]) -> Mapping[str, float]:
        """Thresholds of certificates that are valid for this request now, by rule name."""
        scopes: dict[str, Scope] = {}
        for rule in rules:
            if isinstance(rule, Judge | Agree):
                base = (rule.base_url if isinstance(rule, Judge) else None) or api_base(passed.request.url)
                model = (rule.model if isinstance(rule, Judge) else None) or passed.model
                own = isinstance(rule, Agree) or rule.model is None
                body: Mapping[str, Any] = passed.parsed.body if own and passed.parsed is not None else {}
                bench = Bench(self.chat_endpoint(base, model, body))
                scopes[rule.name] = scope_of(passed, rule, version_of(rule, bench), rules, drafters)
        return self.certificates.cutoffs(scopes)

    def slow_down(self, facts: TargetFacts, seconds: float | None) -> None:
        """The target answered 429, and asked for so many seconds."""
        with facts.lock:
            facts.cooldown_until = time.monotonic() + max(COOLDOWN_SECONDS, seconds or 0.0)

    def note(self, passed: Passed, facts: TargetFacts, note: Note) -> None:
        """Facts that the engine found out on the way."""
        now = time.monotonic()
        if note.kind == "no_draft":
            log.debug("no draft: %s (%s)", note.data["reason"], note.data["detail"])
            if note.data["broken"]:
                drafter = str(note.data["drafter"])
                self.breaker.failed(drafter, now)
                self.warn(
                    f"draft:{drafter}",
                    f"{drafter} does not draft ({note.data['detail']}); requests go direct until it does",
                )
        elif note.kind == "unusable":
            log.warning("unverified: %s (%s)", note.data["reason"], note.data["detail"])
            if note.data["lasting"]:
                self._endpoints.contradicted(passed, facts, str(note.data["reason"]), str(note.data["detail"]))

    # --- what is in the target's prompt cache ------------------------------------------------------

    def cached_share(self, own: httpx2.Request, parsed: Request, now: float) -> float:
        """The part (0 to 1) of the prompt that a direct call would find cached, as far as earlier calls tell."""
        with self._lock:
            return self._memory.shared(_cache_key(own, parsed), _conversation(parsed), now)

    def remember(self, own: httpx2.Request, parsed: Request) -> None:
        """The target has now seen this prompt."""
        with self._lock:
            self._memory.remember(_cache_key(own, parsed), _conversation(parsed), time.monotonic())

    # --- warnings ----------------------------------------------------------------------------------

    @staticmethod
    def warn(key: str, message: str) -> None:
        """Say a thing once a process."""
        if key not in _warned:
            _warned.add(key)
            log.warning(message)

    def warn_no_draft(self) -> None:
        """Say once that nothing drafts, if nothing was set to."""
        if not self.drafters:
            self.warn(
                "no_draft",
                "no draft model is set, so every request goes direct; "
                "set Speculation(draft=…), CHEAPSPEC_DRAFT or [speculation] draft in cheapspec.toml",
            )


def _cache_key(own: httpx2.Request, parsed: Request) -> tuple[str, ...]:
    return (api_base(own.url), parsed.model, credentials(own))


def _conversation(request: Request) -> str:
    if request.prompt is not None:
        return request.prompt
    told: list[dict[str, Any]] = [dict(message) for message in request.messages]
    return json.dumps(told, ensure_ascii=False)


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _renew_locks() -> None:
    for runtime in list(_runtimes):
        runtime.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
