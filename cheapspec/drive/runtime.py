"""What one client (and its copies) shares between requests, and the decision before each of them.

``admit`` looks at a request and says: pass it through (with the named reason), or run the engine on it.
It makes no call and takes microseconds on pass-through; everything that costs a call is learned in the
background (:meth:`Runtime.due_probe`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from cheapspec.core.effects import Note, Op, Usage
from cheapspec.core.engine import Job, Policy
from cheapspec.core.info import Info
from cheapspec.core.lookup import Prediction
from cheapspec.core.money import PrefixMemory, Prices, cost, format_usd
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Drafter, Ledger, PriceSource, RequestRow
from cheapspec.core.request import Bypass, Request, admit, sampling
from cheapspec.core.tally import Tally
from cheapspec.drive.state import Breaker, InfoTable, TargetFacts, Targets

__all__ = ["Admitted", "Passed", "Runtime", "Settings", "infos", "targets"]

log = logging.getLogger("cheapspec")

try:
    from cheapspec.backends.probe import Facts, probe, target_for
except ImportError:
    pass

infos = InfoTable()
targets = Targets()

COOLDOWN_SECONDS = 30.0
REFUSED_SECONDS = 600.0
DRAFT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the driver needs to know of the settings; the doors translate theirs into this."""

    enabled: bool = True
    backend: str = "auto"
    draft_tokens: int | None = None
    max_draft_tokens: int = 512
    tie_nats: float = 0.0
    draft_timeout: float | None = None
    draft_concurrency: int = 2
    max_added_latency: float | None = None
    assume_temperature: float | None = None
    simulate_scoring: bool = False
    workload: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """The request is passed through. ``request`` is the caller's own, unless it carried keys of ours."""

    request_id: str
    decision: str
    reason: str
    detail: str
    request: httpx2.Request


@dataclass(frozen=True, slots=True)
class Admitted:
    """The engine may run. ``request``: the caller's own, for going direct."""

    request_id: str
    request: httpx2.Request
    parsed: Request
    facts: TargetFacts
    job: Job
    priced_by: str
    memory_key: tuple[str, ...]
    settings: Settings


class Runtime:
    """Shared by a client, its copies and its threads."""

    def __init__(
        self, settings: Settings, drafters: Sequence[Drafter], prices: PriceSource, ledger: Ledger, *, name: str = ""
    ) -> None:
        self.settings = settings
        self.drafters = tuple(drafters)
        self.prices = prices
        self.ledger = ledger
        self.breaker = Breaker()
        self._memory = PrefixMemory()
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Runtime:
        """A copied client keeps its books in the same ledger."""
        return self

    # --- admission -----------------------------------------------------------------------------

    def admit(self, request: httpx2.Request, settings: Settings) -> Passed | Admitted:
        """Pass through, or run. Raises nothing; a body that cannot be read is the server's to refuse."""
        request_id = f"cs-{uuid.uuid4().hex}"

        def passed(reason: str, detail: str = "", decision: str = "direct", own: httpx2.Request = request) -> Passed:
            return Passed(request_id, decision, reason, detail, own)

        if not settings.enabled:
            return passed("disabled", decision="bypass")
        try:
            body = request.content
        except httpx2.RequestNotRead:
            return passed("other_route", "a streamed request body", "bypass")
        parsed = admit(request.method, request.url.path, request.headers, body)
        if isinstance(parsed, Bypass):
            if parsed.reason == "responses_api":
                self.warn("responses_api", "client.responses is passed through: cheapspec does not speculate on it")
            return passed(parsed.reason, parsed.detail, "bypass", self._without_our_keys(request, body))
        own = self._without_our_keys(request, body)
        if int(request.headers.get("x-stainless-retry-count") or 0) > 0:
            return passed("retry", own=own)
        drawn = sampling(parsed, settings.assume_temperature)
        if isinstance(drawn, Bypass):
            return passed(drawn.reason, drawn.detail, own=own)
        drafters = self._usable_drafters(parsed)
        if not drafters:
            self._warn_no_draft()
            return passed("no_draft", "no draft model is set, or its host is down", own=own)
        base_url = str(self.api_base(request.url))
        prices, priced_by = self.prices.lookup(parsed.model, base_url)
        if prices is None and settings.draft_tokens is None:
            self.warn(
                f"price:{parsed.model}",
                f"the price of {parsed.model!r} at {base_url} is unknown, so its requests go direct; "
                "set Speculation(prices=…), [prices] in cheapspec.toml or CHEAPSPEC_PRICES",
            )
            return passed("price_unknown", parsed.model, own=own)
        facts = targets.get((base_url, parsed.model, settings.backend))
        now = time.monotonic()
        self._refresh(facts, settings, now)
        if facts.target is None:
            return passed(facts.reason, facts.detail, own=own)
        if facts.cooldown_until > now:
            return passed("cooldown", "the target asked to slow down", own=own)
        if settings.max_added_latency == 0:
            return passed("latency", "max_added_latency is 0", own=own)
        return self._job(request_id, own, parsed, facts, drafters, prices, priced_by, settings, now)

    def _job(
        self,
        request_id: str,
        own: httpx2.Request,
        parsed: Request,
        facts: TargetFacts,
        drafters: Sequence[Drafter],
        prices: Prices | None,
        priced_by: str,
        settings: Settings,
        now: float,
    ) -> Admitted:
        assert facts.target is not None
        key = (str(self.api_base(own.url)), parsed.model, _digest(own.headers.get("authorization", "")))
        with self._lock:
            share = self._memory.shared(key, _conversation(parsed), now)
        cached = _cached_ratio(prices)
        reuses = facts.reuses_cache if facts.reuses_cache is not None else facts.target.name == "llamacpp"
        context = ContextPrices(q0=share * cached + 1 - share, qs=cached if reuses else 1.0, qh=cached)
        policy = Policy(
            draft_tokens=settings.draft_tokens,
            max_draft_tokens=settings.max_draft_tokens,
            tie_nats=settings.tie_nats,
            draft_seconds=_draft_seconds(own, settings),
            simulate_scoring=settings.simulate_scoring,
        )
        tally = Tally(cached_share=share)
        job = Job(parsed, facts.target, drafters, tally, policy, prices, context, now)
        session = settings.session
        row = RequestRow(request_id, time.time(), parsed.model, parsed.kind, parsed.stream, session, settings.workload)
        self.ledger.open_request(row)
        return Admitted(request_id, own, parsed, facts, job, priced_by, key, settings)

    def _usable_drafters(self, request: Request) -> list[Drafter]:
        now = time.monotonic()
        configured = [drafter for drafter in self.drafters if not self.breaker.open(drafter.name, now)]
        return [Prediction(), *configured] if request.prediction is not None else configured

    def _refresh(self, facts: TargetFacts, settings: Settings, now: float) -> None:
        """A named backend is taken at its word; ``auto`` waits for a probe; a refusal ends some day."""
        with facts.lock:
            if facts.expires < now:
                facts.target, facts.reason, facts.detail, facts.expires = None, "not_probed", "", float("inf")
            if facts.target is None and facts.reason == "not_probed" and settings.backend != "auto":
                facts.target = target_for(settings.backend, simulate_scoring=settings.simulate_scoring)
                if not (facts.target.can_score or facts.target.can_force):
                    facts.target, facts.reason = None, "cannot_score"

    # --- URLs ------------------------------------------------------------------------------------

    @staticmethod
    def api_base(url: httpx2.URL) -> httpx2.URL:
        """The folder in which ``chat/completions`` (or ``completions``) lives, without query."""
        path = url.path
        for tail in ("/chat/completions", "/completions"):
            if path.endswith(tail):
                path = path[: -len(tail)]
                break
        return url.copy_with(path=path or "/", query=None)

    def target_url(self, template: httpx2.URL, path: str) -> httpx2.URL:
        """Where a call of ours goes: beside the caller's own route, or on the server's root; the caller's
        query (``extra_query``) stays on it.
        """
        base = self.api_base(template).path.rstrip("/")
        folder = base.removesuffix("/v1") if path.startswith("/") else f"{base}/"
        return template.copy_with(path=folder + path)

    @staticmethod
    def _without_our_keys(request: httpx2.Request, body: bytes) -> httpx2.Request:
        """The caller's request; a copy without ``cheapspec`` body key and ``x-cheapspec-*`` headers if it has them."""
        ours = [name for name in request.headers if name.lower().startswith("x-cheapspec-")]
        keyed = b'"cheapspec"' in body
        if not ours and not keyed:
            return request
        content = body
        if keyed:
            try:
                parsed = json.loads(body)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict) and parsed.pop("cheapspec", None) is not None:
                content = json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode()
        headers = request.headers.copy()
        for name in [*ours, "content-length"]:
            headers.pop(name, None)
        return httpx2.Request(
            request.method, request.url, headers=headers, content=content, extensions=dict(request.extensions)
        )

    # --- probing ---------------------------------------------------------------------------------

    def due_probe(self, admitted: Passed, settings: Settings) -> Op[Facts] | None:
        """The probe of this endpoint, if it is due and nobody makes it; :meth:`probed` takes its result."""
        if admitted.reason != "not_probed":
            return None
        facts = self._probe_facts(admitted, settings)
        with facts.lock:
            if facts.probing or facts.target is not None:
                return None
            facts.probing = True
        return probe(_model(admitted.request))

    def probed(self, admitted: Passed, settings: Settings, found: Facts | None) -> None:
        """A probe ended; ``None``: it broke (it is tried again with the next request)."""
        facts = self._probe_facts(admitted, settings)
        with facts.lock:
            facts.probing = False
            if found is None or found.reason == "not_probed":
                return
            if found.can_score or found.can_force:
                facts.target = target_for(found.backend, found, simulate_scoring=settings.simulate_scoring)
                facts.reuses_cache = None if found.qs is None else found.qs < 1.0
            else:
                facts.target = None
                facts.reason = "cannot_score"
                facts.detail = "; ".join(found.evidence)
                facts.expires = time.monotonic() + REFUSED_SECONDS
        log.debug("probe of %s: %s", self.api_base(admitted.request.url), found)

    def _probe_facts(self, admitted: Passed, settings: Settings) -> TargetFacts:
        base_url = str(self.api_base(admitted.request.url))
        return targets.get((base_url, _model(admitted.request), settings.backend))

    # --- what runs report -------------------------------------------------------------------------

    def note(self, admitted: Admitted, note: Note) -> None:
        """Facts that the engine found out on the way."""
        now = time.monotonic()
        facts = admitted.facts
        if note.kind == "no_draft" and note.data["broken"]:
            self.breaker.failed(str(note.data["drafter"]), now)
        elif note.kind == "unusable":
            log.warning("unverified: %s (%s)", note.data["reason"], note.data["detail"])
            with facts.lock:
                if note.data["status"] == 429:
                    facts.cooldown_until = now + COOLDOWN_SECONDS
                if note.data["lasting"]:
                    facts.target, facts.reason = None, str(note.data["reason"])
                    facts.detail, facts.expires = str(note.data["detail"]), now + REFUSED_SECONDS

    def finished(self, admitted: Admitted, tally: Tally) -> Info:
        """A speculated reply is over: price it, remember it, say it."""
        if tally.drafter is not None:
            self.breaker.worked(tally.drafter)
        info = tally.info(
            admitted.request_id,
            admitted.job.prices,
            admitted.priced_by,
            session=admitted.settings.session,
            simulated=admitted.settings.simulate_scoring and admitted.job.target.can_force,
        )
        self._remember(admitted.memory_key, admitted.parsed)
        self.book(info)
        return info

    def went_direct(
        self, request_id: str, decision: str, reason: str, detail: str, admitted: Admitted | None = None
    ) -> Info:
        """A request was passed through; what it had spent before is in its paid sum."""
        tally = admitted.job.tally if admitted is not None else Tally()
        info = replace(
            tally.info(request_id, admitted.job.prices if admitted else None, "unknown"),
            decision=decision,
            reason=reason,
            baseline_usd=None,
            paid_usd=None,
        )
        if admitted is not None:
            self._remember(admitted.memory_key, admitted.parsed)
        self.book(info, detail)
        return info

    def book(self, info: Info, detail: str = "") -> None:
        """Into table, ledger and log."""
        infos.put(info)
        self.ledger.close_request(info.request_id, info.to_dict())
        if log.isEnabledFor(logging.INFO):
            extra = f" ({detail})" if detail else ""
            log.info("%s %s%s %s", info.decision, info.reason or info.rule, extra, info.request_id)

    def _remember(self, key: tuple[str, ...], request: Request) -> None:
        with self._lock:
            self._memory.remember(key, _conversation(request), time.monotonic())

    @staticmethod
    def cost(admitted: Admitted, usage: Usage | None) -> str | None:
        """Dollars of one call as the ledger keeps them."""
        return None if usage is None else format_usd(cost(usage, admitted.job.prices))

    def warn(self, key: str, message: str) -> None:
        """Say a thing once."""
        with self._lock:
            if key in self._warned:
                return
            self._warned.add(key)
        log.warning(message)

    def _warn_no_draft(self) -> None:
        if not self.drafters:
            self.warn(
                "no_draft",
                "no draft model is set, so every request goes direct; "
                "set Speculation(draft=…), CHEAPSPEC_DRAFT or [speculation] draft in cheapspec.toml",
            )


def _conversation(request: Request) -> str:
    if request.prompt is not None:
        return request.prompt
    return json.dumps([dict(message) for message in request.messages], ensure_ascii=False)


def _cached_ratio(prices: Prices | None) -> float:
    if prices is None or prices.cached_input is None or not prices.input:
        return 1.0
    return float(prices.cached_input / prices.input)


def _draft_seconds(request: httpx2.Request, settings: Settings) -> float:
    """min(request time-out / 10, 20 s), unless the settings say otherwise."""
    timeout = request.extensions.get("timeout") or {}
    read = timeout.get("read") if isinstance(timeout, dict) else None
    limit = settings.draft_timeout or min(DRAFT_SECONDS, read / 10 if read else DRAFT_SECONDS)
    return min(limit, settings.max_added_latency) if settings.max_added_latency is not None else limit


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _model(request: httpx2.Request) -> str:
    try:
        return str(json.loads(request.content).get("model", ""))
    except (ValueError, AttributeError):
        return ""
