"""What is known of the endpoints that requests go to: by a probe, from the ledger, by name.

Rules
-----
* A backend that was named serves at once, and a probe in the background, beside the first request, has to confirm
  it; what replies show counts more than a name. Requests with fixed ``draft_tokens`` (tests, measurements) make no
  such calls beside them. llama-cpp-python waits for its probe even when named: without it nobody knows which
  position its numbers belong to.
* ``auto`` waits for a probe, but for hosts that are known not to score.
* What a probe found holds for an hour in memory and for a day in the ledger, a refusal for ten minutes; then it is
  looked up, or probed, again. What an engine's run contradicts is revoked in both.
* A probe that learnt nothing is made again with the next request, after two such a minute later at the earliest.
* What a server said is kept without the request's own secrets.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from cheapspec.backends.facts import Facts
from cheapspec.backends.probe import probe
from cheapspec.backends.targets import backend_of, target_for
from cheapspec.core.books import Capability, CapabilityBook
from cheapspec.core.effects import Op
from cheapspec.core.ports import Ledger
from cheapspec.drive.passed import Passed
from cheapspec.drive.state import TargetFacts, targets
from cheapspec.drive.urls import api_base, cannot_score, masked

__all__ = ["KEPT_SECONDS", "PROBED_SECONDS", "REFUSED_SECONDS", "Endpoints"]

log = logging.getLogger("cheapspec")

PROBED_SECONDS = 3600.0
REFUSED_SECONDS = 600.0
KEPT_SECONDS = 86400.0
RETRY_SECONDS = 60.0
_AT_ONCE = 2  # probes in a row that may learn nothing before the next one waits


class Endpoints:
    """What is known of endpoints, shared by all clients of a process; ``ledger``: where it is kept longer."""

    def __init__(self, ledger: Ledger) -> None:
        self._book = ledger if isinstance(ledger, CapabilityBook) else None
        if self._book is not None:
            self._book.read_capabilities()

    def facts_of(self, passed: Passed, now: float) -> TargetFacts:
        """What is known of a request's endpoint at ``now`` (``time.monotonic`` seconds)."""
        settings, url = passed.settings, passed.request.url
        facts = targets.get((passed.base_url, passed.model, settings.backend, settings.simulate_scoring))
        kept, whole = self._kept(passed, facts, now)
        with facts.lock:
            if facts.expires < now:
                facts.target, facts.reason, facts.detail, facts.expires = None, "not_probed", "", float("inf")
                facts.confirmed = facts.recalled = False
            if not facts.recalled and (kept is not None or whole):
                facts.recalled = True
                if kept is not None:
                    self._recall(passed, facts, kept, now)
            if facts.target is not None or facts.reason != "not_probed":
                return facts
            if settings.backend not in ("auto", "llamacpp-python"):
                facts.target = target_for(settings.backend, simulate_scoring=settings.simulate_scoring)
                if not (facts.target.can_score or facts.target.can_force):
                    facts.target, facts.reason = None, "cannot_score"
            elif settings.backend == "auto" and cannot_score(url.host):
                facts.reason, facts.detail = "cannot_score", f"{url.host} does not score given text"
        return facts

    def due_probe(self, passed: Passed) -> Op[Facts] | None:
        """The probe of this endpoint, if it is due and nobody makes it; :meth:`probed` takes its result."""
        if passed.reason != "not_probed" and (passed.reason or passed.parsed is None):
            return None
        now, settings = time.monotonic(), passed.settings
        facts = self.facts_of(passed, now)
        with facts.lock:
            waits = facts.target is None and facts.reason == "not_probed"
            # Above temperature 0 a request waits for what only a probe can tell, whatever its settings.
            asked_for = settings.draft_tokens is None or passed.reason == "not_probed"
            named = facts.target is not None and not facts.confirmed and asked_for
            if not facts.recalled:  # a probe may have been paid for already
                return None
            if facts.probing or not (waits or named) or facts.next_probe > now:
                return None
            facts.probing = True
        asked = settings.backend
        return probe(passed.model, backend_of(passed.request.url.host) or asked if asked == "auto" else asked)

    def probed(self, passed: Passed, found: Facts | None) -> str:
        """A probe ended; ``None``, or one that learnt nothing: it is tried again with a later request. Returns what
        the user should be told.
        """
        now, settings = time.monotonic(), passed.settings
        facts = self.facts_of(passed, now)
        if found is None or found.reason == "not_probed":
            with facts.lock:
                facts.probing = False
                facts.in_vain += 1
                facts.next_probe = now + RETRY_SECONDS if facts.in_vain >= _AT_ONCE else 0.0
            return ""
        found = replace(found, evidence=tuple(masked(one, passed.request) for one in found.evidence))
        serves = found.can_score or found.can_force
        with facts.lock:
            facts.probing, facts.in_vain = False, 0
            self._apply(passed, facts, found, now)
        if self._book is not None:
            at = time.time()
            kept = KEPT_SECONDS if serves else REFUSED_SECONDS
            base = api_base(passed.request.url)
            self._book.put_capability(Capability(base, passed.model, settings.backend, found.to_dict(), at, at + kept))
        log.debug("probe of %s: %s", api_base(passed.request.url), found)
        if serves or settings.backend in ("auto", "generic", "openai"):
            return ""
        last = found.evidence[-1] if found.evidence else found.reason
        return f"target_backend={settings.backend!r} does not hold for {passed.model}: {last}; its requests go direct"

    def contradicted(self, passed: Passed, facts: TargetFacts, reason: str, detail: str) -> None:
        """A reply showed that the endpoint does not do what was known of it."""
        with facts.lock:
            facts.target, facts.reason = None, reason
            facts.detail, facts.expires = detail, time.monotonic() + REFUSED_SECONDS
            facts.confirmed, facts.recalled = False, True
        if self._book is not None:
            base, now = api_base(passed.request.url), time.time()
            known = self._book.capability(base, passed.model, passed.settings.backend, now)
            if known is not None:
                self._book.put_capability(replace(known, expires_at=now))

    def _kept(self, passed: Passed, facts: TargetFacts, now: float) -> tuple[Capability | None, bool]:
        """What an earlier probe found, if it still counts, and whether that is all that the ledger will tell."""
        if self._book is None:
            return None, True
        if facts.recalled and facts.expires >= now:
            return None, False  # not asked
        whole = self._book.read_capabilities()
        at, settings = time.time(), passed.settings
        kept = self._book.capability(api_base(passed.request.url), passed.model, settings.backend, at)
        return kept, whole or self._book.read_capabilities()  # it may have been waited for

    def _recall(self, passed: Passed, facts: TargetFacts, kept: Capability, now: float) -> None:
        at = time.time()
        try:
            found = Facts.from_dict(kept.facts)
        except (TypeError, ValueError):  # another version's
            return
        self._apply(passed, facts, found, now)
        facts.expires = min(facts.expires, now + kept.expires_at - at)

    @staticmethod
    def _apply(passed: Passed, facts: TargetFacts, found: Facts, now: float) -> None:
        facts.backend, facts.confirmed = found.backend, True
        facts.qs, facts.qh = found.qs, found.qh
        facts.plain_sampling, facts.hidden_defaults = found.plain_sampling, found.hidden_defaults
        if found.can_score or found.can_force:
            simulate = passed.settings.simulate_scoring
            facts.target, facts.reason = target_for(found.backend, found, simulate_scoring=simulate), ""
            facts.expires = now + PROBED_SECONDS
        else:
            facts.target, facts.reason = None, found.reason or "cannot_score"
            facts.detail, facts.expires = "; ".join(found.evidence), now + REFUSED_SECONDS
