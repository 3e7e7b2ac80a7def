"""What one client (and its copies, threads and tasks) shares between requests."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from cheapspec.backends.probe import Facts, probe, target_for
from cheapspec.core.effects import Note, Op
from cheapspec.core.money import PrefixMemory
from cheapspec.core.ports import Drafter, Ledger, PriceSource
from cheapspec.core.request import Request
from cheapspec.drive.permits import Permits
from cheapspec.drive.settings import Settings, SettingsReader
from cheapspec.drive.state import Breaker, TargetFacts, targets
from cheapspec.drive.urls import api_base, cannot_score, credentials, tier_name

__all__ = ["Passed", "Runtime"]

log = logging.getLogger("cheapspec")

COOLDOWN_SECONDS = 30.0
REFUSED_SECONDS = 600.0
PROBED_SECONDS = 3600.0
OLLAMA_PORT = 11434
"""Ollama's default (its documentation, 2026-11); no other server is known to have it."""

_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Passed:
    """A request to be passed through. ``request`` is the caller's own, unless it carried keys of ours.

    ``kind``: ``chat`` or ``completion``, empty for every other route. ``parsed``: what was read of it, ``None``
    for a bypass.
    """

    request_id: str
    settings: Settings
    decision: str
    reason: str
    request: httpx2.Request
    detail: str = ""
    kind: str = ""
    model: str = ""
    parsed: Request | None = None

    def because(self, reason: str, detail: str = "", decision: str = "direct") -> Passed:
        """The same request with the reason found."""
        return replace(self, reason=reason, detail=detail, decision=decision)

    @property
    def tier(self) -> str | None:
        """The service tier that was asked for."""
        if self.parsed is None:
            try:
                return tier_name(self.request.content)
            except httpx2.RequestNotRead:
                return None
        tier = self.parsed.body.get("service_tier")
        return tier if isinstance(tier, str) else None


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
        self.permits = permits
        self.breaker = Breaker()
        self._memory = PrefixMemory()
        self._lock = threading.RLock()
        _runtimes.add(self)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()
        self.permits.renew_locks()
        self.breaker.renew_locks()

    # --- what is known of the endpoint -----------------------------------------------------------

    def facts_of(self, passed: Passed, now: float) -> TargetFacts:
        """What is known of the request's endpoint. A named backend is taken at its word; ``auto`` waits for a
        probe, but for hosts that are known. What a probe found holds for an hour, a refusal for ten minutes.
        """
        settings, url = passed.settings, passed.request.url
        facts = targets.get((api_base(url), passed.model, settings.backend, settings.simulate_scoring))
        with facts.lock:
            if facts.expires < now:
                facts.target, facts.reason, facts.detail, facts.expires = None, "not_probed", "", float("inf")
            if facts.target is not None or facts.reason != "not_probed":
                return facts
            if settings.backend != "auto":
                facts.target = target_for(settings.backend, simulate_scoring=settings.simulate_scoring)
                if not (facts.target.can_score or facts.target.can_force):
                    facts.target, facts.reason = None, "cannot_score"
            elif cannot_score(url.host):
                facts.reason, facts.detail = "cannot_score", f"{url.host} does not score given text"
        return facts

    @staticmethod
    def endpoint(passed: Passed) -> TargetFacts:
        """What has been noted of the request's endpoint so far; asks nobody."""
        settings = passed.settings
        return targets.get((api_base(passed.request.url), passed.model, settings.backend, settings.simulate_scoring))

    def is_ollama(self, passed: Passed) -> bool:
        """Whether the target is an Ollama, as far as is known: by its port, or by what a probe found."""
        return passed.request.url.port == OLLAMA_PORT or self.endpoint(passed).backend == "ollama"

    def due_probe(self, passed: Passed) -> Op[Facts] | None:
        """The probe of this endpoint, if it is due and nobody makes it; :meth:`probed` takes its result."""
        if passed.reason != "not_probed":
            return None
        facts = self.facts_of(passed, time.monotonic())
        with facts.lock:
            if facts.probing or facts.target is not None:
                return None
            facts.probing = True
        return probe(passed.model)

    def probed(self, passed: Passed, found: Facts | None) -> None:
        """A probe ended; ``None``, or one that learnt nothing: it is tried again with a later request."""
        now = time.monotonic()
        facts = self.facts_of(passed, now)
        with facts.lock:
            facts.probing = False
            if found is None or found.reason == "not_probed":
                return
            facts.backend = found.backend
            if found.can_score or found.can_force:
                simulate = passed.settings.simulate_scoring
                facts.target = target_for(found.backend, found, simulate_scoring=simulate)
                facts.reuses_cache = None if found.qs is None else found.qs < 1.0
                facts.expires = now + PROBED_SECONDS
            else:
                facts.target, facts.reason = None, found.reason or "cannot_score"
                facts.detail, facts.expires = "; ".join(found.evidence), now + REFUSED_SECONDS
        log.debug("probe of %s: %s", api_base(passed.request.url), found)

    def slow_down(self, facts: TargetFacts, seconds: float | None) -> None:
        """The target answered 429, and asked for so many seconds."""
        with facts.lock:
            facts.cooldown_until = time.monotonic() + max(COOLDOWN_SECONDS, seconds or 0.0)

    def note(self, facts: TargetFacts, note: Note) -> None:
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
                with facts.lock:
                    facts.target, facts.reason = None, str(note.data["reason"])
                    facts.detail, facts.expires = str(note.data["detail"]), now + REFUSED_SECONDS

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
