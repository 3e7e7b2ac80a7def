"""The decision before each request: pass it through (with the named reason), refuse it, or run the engine.

It makes no call and takes microseconds on pass-through; everything that costs a call is learned in the
background (:mod:`cheapspec.drive.probing`). Nothing here raises on what a request says.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx2

from cheapspec.backends.text_match import WholeReplyTarget, text_matching
from cheapspec.core.assumed import assumed_prompt
from cheapspec.core.engine import Job, Policy
from cheapspec.core.lookup import Prediction
from cheapspec.core.money import Prices
from cheapspec.core.planner import call_prices
from cheapspec.core.ports import Drafter, SamplingTarget, Target
from cheapspec.core.request import Bypass, Request, admit, sampling
from cheapspec.core.sampling import SeededDraws
from cheapspec.core.tally import Tally
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.contexts import context_prices
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.local import hosts
from cheapspec.drive.permits import account_keys
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.settings import Settings
from cheapspec.drive.state import TargetFacts
from cheapspec.drive.urls import model_name, our_headers, retried, with_max_tokens, without_our_keys
from cheapspec.drive.verdicts import SERVED, ladder_for
from cheapspec.drive.work import Work
from cheapspec.errors import SettingsError
from cheapspec.rules.ladder import barred
from cheapspec.rules.validator import Validator

__all__ = [
    "Admitted",
    "Refused",
    "decide",
    "draft_seconds",
    "scoring_rule",
    "scoring_target",
]

DRAFT_SECONDS = 20.0
"""The longest that a caller waits for a draft (a tenth of the request's own time-out, if that is less)."""


_NO_DRAFT = "no draft model is set, or its host is down or still loading"
_COOLDOWN = "the target asked to slow down"
_NO_TIME = "max_added_latency is 0"
_BARS_SCORING = frozenset(
    {
        "cannot_score",
        "price_unknown",
        "reasoning",
        "response_format",
        "sampling",
        "temperature_unset",
        "top_p_unset",
        "unsupported_field",
    }
)
"""What keeps a request from being scored, and does not concern a rule about its whole draft."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request cannot be answered as asked; nothing is sent. ``message`` says what is wrong with it."""

    request_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The engine may run. ``passed``: what to do when it, or the engine, goes direct after all."""

    passed: Passed
    facts: TargetFacts
    job: Work
    priced_by: str


def decide(runtime: Runtime, request: httpx2.Request) -> Passed | Admitted | Refused:
    """What becomes of a request."""
    request_id = f"cs-{uuid.uuid4().hex}"
    headers = our_headers(request)
    try:
        body: bytes | None = request.content
    except httpx2.RequestNotRead:
        body = None
    own = without_our_keys(request, headed=bool(headers), body=body)
    try:
        settings = runtime.read_settings(headers, {})
        perhaps = "disable" in headers and b'"cheapspec"' in (body or b"")  # its body may say otherwise, and wins
        if not settings.enabled and not perhaps:
            return _unread(request_id, settings, own, "disabled", body=body)
        if body is None:
            return Passed(request_id, settings, "bypass", "other_route", own, "a streamed request body")
        parsed = admit(request.method, request.url.path, {}, body, whole=True)
        if isinstance(parsed, Request) and parsed.options:
            settings = runtime.read_settings(headers, parsed.options)
    except SettingsError as error:
        return Refused(request_id, str(error))
    if isinstance(parsed, Request) and parsed.barred is not None and not settings.rules:
        parsed = parsed.barred
    if isinstance(parsed, Bypass):
        if not settings.enabled:
            return _unread(request_id, settings, own, "disabled", body=body)
        if parsed.reason == "responses_api":
            runtime.warn("responses_api", "client.responses is passed through: cheapspec does not speculate on it")
        return _unread(request_id, settings, own, parsed.reason, parsed.detail, body)
    passed = Passed(
        request_id,
        settings,
        "direct",
        "",
        own,
        kind=parsed.kind,
        model=parsed.model,
        parsed=parsed,
    )
    return _considered(runtime, _limited(runtime, passed, parsed), parsed)


def _limited(runtime: Runtime, passed: Passed, parsed: Request) -> Passed:
    """Ollama ignores ``max_completion_tokens`` (asked for 4 tokens, 0.24.0 wrote 66 and 0.33.0-rc2 52): it is told
    ``max_tokens`` too. The one field that is ever added to a direct request.
    """
    if not passed.settings.enabled or "max_tokens" in parsed.body or parsed.body.get("max_completion_tokens") is None:
        return passed
    if not runtime.is_ollama(passed):
        return passed
    return replace(passed, request=with_max_tokens(passed.request, parsed.body["max_completion_tokens"]))


def _unread(
    request_id: str, settings: Settings, own: httpx2.Request, reason: str, detail: str = "", body: bytes | None = None
) -> Passed:
    """A bypass. Only what is cheap is told of it: whether its reply is a completion, and the model's name."""
    path = own.url.path.rstrip("/")
    kind = "chat" if path.endswith("/chat/completions") else "completion" if path.endswith("/completions") else ""
    told = kind or own.headers.get("content-type", "").startswith("application/json")
    model = model_name(body) if told and body else ""
    return Passed(request_id, settings, "bypass", reason, own, detail, kind=kind, model=model)


def _considered(runtime: Runtime, passed: Passed, parsed: Request) -> Passed | Admitted:
    settings, own = passed.settings, passed.request
    if not settings.enabled:
        return passed.because("disabled", decision="bypass")
    if retried(own):
        return passed.because("retry")
    if not settings.rules:
        return _scored(runtime, passed, parsed)
    found = _scored(runtime, passed, parsed) if settings.scores else passed.because("cannot_score")
    if isinstance(found, Passed) and found.reason in _BARS_SCORING:
        return _judged(runtime, passed, parsed)
    return found


def _judged(runtime: Runtime, passed: Passed, parsed: Request) -> Passed | Admitted:
    """The caller's rules about a whole draft."""
    settings, now = passed.settings, time.monotonic()
    if parsed.formatted and Validator.of(parsed) is None:
        return passed.because("response_format", "its schema cannot be checked here")
    drafters = _usable(runtime, parsed, now)
    if not drafters:
        runtime.warn_no_draft()
        return passed.because("no_draft", _NO_DRAFT)
    if settings.max_added_latency == 0:
        return passed.because("latency", _NO_TIME)
    facts, seconds = runtime.facts_of(passed, now), draft_seconds(passed.request, settings)
    ladder, priced_by = ladder_for(runtime, passed, parsed, facts, drafters, now, seconds)
    if facts.cooldown_until > now and all(barred(ladder, rule) is not None for rule in ladder.rules):
        return passed.because("cooldown", _COOLDOWN)
    return Admitted(passed, facts, ladder, priced_by)


def _scored(runtime: Runtime, passed: Passed, parsed: Request) -> Passed | Admitted:
    """The exact rule, or the lenient one."""
    settings = passed.settings
    if parsed.barred is not None:
        return passed.because(parsed.barred.reason, parsed.barred.detail)
    drawn = sampling(parsed, settings.assume_temperature, plain_defaults=True)
    if isinstance(drawn, Bypass):
        return passed.because(drawn.reason, drawn.detail)
    if settings.text_match is not None and not drawn.greedy:
        return passed.because("sampling", "what is drawn twice need not agree: text match is for temperature 0")
    now = time.monotonic()
    drafters = _usable(runtime, parsed, now)
    if not drafters:
        runtime.warn_no_draft()
        return passed.because("no_draft", _NO_DRAFT)
    base_url = passed.base_url
    listed, priced_by = runtime.prices.lookup(parsed.model, base_url)
    prices = None if listed is None else listed.of_text
    if prices is None and settings.draft_tokens is None:
        runtime.warn(
            f"price:{parsed.model}",
            f"the price of {parsed.model!r} at {base_url} is unknown, so its requests go direct; "
            "set Speculation(prices=…), [prices] in cheapspec.toml or CHEAPSPEC_PRICES",
        )
        return passed.because("price_unknown", parsed.model)
    facts = runtime.facts_of(passed, now)
    target = scoring_target(settings, facts)
    if target is None:
        serves = f"; it serves {SERVED}" if facts.reason == "cannot_score" and parsed.kind == "chat" else ""
        return passed.because(facts.reason, f"{facts.detail}{serves}")
    if parsed.kind not in target.kinds:
        return passed.because("cannot_score", f"{target.name} scores no {parsed.kind}")
    plain = bool(facts.plain_sampling) if facts.confirmed else facts.plain_sampling
    drawn = sampling(parsed, settings.assume_temperature, plain, facts.hidden_defaults)
    if isinstance(drawn, Bypass):
        return passed.because(drawn.reason, drawn.detail)
    if not drawn.greedy and not (isinstance(target, SamplingTarget) and target.law(drawn) is not None):
        return passed.because("sampling", f"{target.name} cannot be followed above temperature 0")
    parsed = replace(parsed, sampling=drawn)
    if facts.cooldown_until > now:
        return passed.because("cooldown", _COOLDOWN)
    if settings.max_added_latency == 0:
        return passed.because("latency", _NO_TIME)
    return Admitted(passed, facts, _job(runtime, passed, parsed, facts, target, drafters, prices, now), priced_by)


def scoring_target(settings: Settings, facts: TargetFacts) -> Target | None:
    """What drafts are scored by, or with text match compared with; ``None``: nothing, or nothing yet."""
    if settings.text_match is None:
        return facts.target
    if facts.target is None and facts.reason != "cannot_score":
        return None
    return text_matching(facts.target, settings.text_match.min_probability)


def scoring_rule(settings: Settings) -> str:
    """The name of the rule for drafts that are scored or compared."""
    if settings.text_match is not None:
        return settings.text_match.name
    return "exact" if settings.lenient_nats is None else "lenient"


def _usable(runtime: Runtime, request: Request, now: float) -> list[Drafter]:
    configured = [
        drafter
        for drafter in runtime.drafters
        if not runtime.breaker.open(drafter.name, now) and not (drafter.base_url and hosts.loading(drafter.base_url))
    ]
    return [Prediction(), *configured] if request.prediction is not None else configured


def _job(
    runtime: Runtime,
    passed: Passed,
    parsed: Request,
    facts: TargetFacts,
    scores: Target,
    drafters: Sequence[Drafter],
    prices: Prices | None,
    now: float,
) -> Job:
    settings = passed.settings
    share = runtime.cached_share(passed.request, parsed, now)
    target, whole = target_of(passed), isinstance(scores, WholeReplyTarget)
    policy = Policy(
        draft_tokens=settings.max_draft_tokens if whole else settings.draft_tokens,
        max_draft_tokens=settings.max_draft_tokens,
        tie_nats=settings.tie_nats,
        lenient_nats=settings.lenient_nats,
        draft_seconds=draft_seconds(passed.request, settings),
        simulate_scoring=settings.simulate_scoring,
        latest=None if settings.max_added_latency is None else now + settings.max_added_latency,
    )
    permit = runtime.permits.of(account_keys(settings, parsed), passed.request_id)
    return Job(
        parsed,
        scores,
        drafters,
        Tally(scoring_rule(settings), cached_share=share, tier=passed.tier, local_price=settings.local_price),
        policy,
        prices,
        context_prices(call_prices(prices, passed.tier, assumed_prompt(parsed)), facts, share),
        now,
        permit=permit,
        draws=_draws(parsed),
        estimates=runtime.learning.estimates(target, workload_of(settings, parsed)),
        speed=runtime.learning.speed(target) if settings.objective == "latency" else None,
        draft_seconds=runtime.learning.draft_seconds() if settings.objective == "latency" else {},
    )


def _draws(request: Request) -> SeededDraws:
    """Chance from the caller's seed, or from the system."""
    return SeededDraws(secrets.randbits(64)) if request.seed is None else SeededDraws(request.seed, given=True)


def draft_seconds(request: httpx2.Request, settings: Settings) -> float:
    """min(request time-out / 10, 20 s), unless the settings say otherwise; never more than may be added."""
    read = as_mapping(request.extensions.get("timeout")).get("read")
    limit = settings.draft_timeout or min(DRAFT_SECONDS, read / 10 if read else DRAFT_SECONDS)
    return limit if settings.max_added_latency is None else min(limit, settings.max_added_latency)
