"""What ``cheapspec doctor`` asks: the draft hosts (free), and the target (a probe that costs a little).

Draft hosts get no key. The target gets the key of ``OPENAI_API_KEY``, as the client would send it; no reply that
repeats it is shown with it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx2

from cheapspec.backends.facts import Facts
from cheapspec.backends.ollama_names import find_model, normalise_host
from cheapspec.backends.probe import PROBE_TOKENS, probe
from cheapspec.backends.targets import backend_of
from cheapspec.cli.doctor_verdicts import judge_probe
from cheapspec.core.books import CapabilityBook
from cheapspec.core.effects import Op, Usage
from cheapspec.core.endpoint import Endpoint
from cheapspec.core.money import Prices, cost
from cheapspec.core.request import Bypass, admit
from cheapspec.core.untyped import as_list, as_mapping
from cheapspec.doors import Shared
from cheapspec.drive.books import Books, Read
from cheapspec.drive.passed import Passed
from cheapspec.drive.probing import probing
from cheapspec.drive.sync import obey
from cheapspec.drive.urls import api_base, cannot_score, masked, shown_url
from cheapspec.errors import CheapspecError
from cheapspec.settings import DraftSpec, Speculation

__all__ = [
    "DraftState",
    "Problem",
    "Target",
    "chat_only",
    "drafts",
    "has_key",
    "known",
    "probe_price",
    "probe_target",
    "shown_draft",
    "shown_url",
    "target",
]

_PATIENCE = 5.0
_LOOPBACK = ("127.", "localhost", "::1", "[::1]")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps cheapspec from saving, and what to do."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class DraftState:
    """One drafter. ``reachable`` and ``has_model``: ``None`` where there is no host, or nobody can tell.
    ``models``: the names that the host has.
    """

    drafter: str
    host: str | None = None
    reachable: bool | None = None
    has_model: bool | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = field(default=())


def shown_draft(spec: DraftSpec) -> str:
    """A drafter as named in the settings, without a password."""
    return str(spec if spec.url is None else replace(spec, url=shown_url(spec.url)))


def drafts(given: Speculation) -> list[DraftState]:
    """Ask every draft host whether it is there and has its model."""
    return [_draft(spec, given) for spec in given.drafts]


def _draft(spec: DraftSpec, given: Speculation) -> DraftState:
    match spec.kind:
        case "ollama":
            return _ollama(spec.name, given.draft_url or normalise_host(None, os.environ))
        case "llamacpp":
            return _openai_host(
                shown_draft(spec),
                spec.url or "",
                None,
                f"start llama-server so that {shown_url(spec.url or '')} answers",
            )
        case "openai":
            return _openai_host(shown_draft(spec), spec.url or "", spec.name, "start that server, or correct the URL")
        case "embedded":
            return _embedded()
        case _:
            return DraftState("lookup")


def _ask(base: str, path: str) -> Any:
    """The JSON of a GET; an ``httpx2`` error, or ``None`` for a reply that is none."""
    local = httpx2.URL(base).host.startswith(_LOOPBACK)
    with httpx2.Client(timeout=_PATIENCE, trust_env=not local, verify=base.startswith("https")) as client:
        reply = client.get(base + path)
    try:
        return reply.json() if reply.status_code < 300 else None
    except ValueError:
        return None


def _silent(base: str, error: Exception) -> str:
    return f"the draft host {shown_url(base)} does not answer ({type(error).__name__})"


def _ollama(name: str, base: str) -> DraftState:
    state = DraftState(f"ollama:{name}", shown_url(base))
    try:
        version: object = as_mapping(_ask(base, "/api/version")).get("version")
        tags = as_list(as_mapping(_ask(base, "/api/tags")).get("models"))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        fix = "start Ollama (ollama serve), or say where it is: draft_url, CHEAPSPEC_DRAFT_URL or OLLAMA_HOST"
        return replace(state, reachable=False, problems=(Problem(_silent(base, error), fix),))
    names = tuple(str(as_mapping(one).get("name") or as_mapping(one).get("model") or "") for one in tags)
    state = replace(state, reachable=True, version=version if isinstance(version, str) else None, models=names)
    if find_model(name, names) is not None:
        return replace(state, has_model=True)
    has = f"it has {', '.join(names[:8])}" if names else "it has none"
    return replace(
        state,
        has_model=False,
        problems=(Problem(f"the draft host has no model {name!r}; {has}", f"ollama pull {name}"),),
    )


def _openai_host(shown: str, base: str, name: str | None, fix: str) -> DraftState:
    state = DraftState(shown, shown_url(base))
    root = base if urlsplit(base).path.strip("/") else f"{base}/v1"
    try:
        data = as_list(as_mapping(_ask(root, "/models")).get("data"))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return replace(state, reachable=False, problems=(Problem(_silent(base, error), fix),))
    names = tuple(str(as_mapping(one).get("id", "")) for one in data)
    state = replace(state, reachable=True, models=names)
    if name is None or not names:  # a llama.cpp server has the one model; some servers list none
        return replace(state, has_model=True if name is None else None)
    if name in names:
        return replace(state, has_model=True)
    what = f"the draft host has no model {name!r}; it has {', '.join(names[:8])}"
    return replace(state, has_model=False, problems=(Problem(what, f"write openai:{names[0]}@{shown_url(base)}"),))


def _embedded() -> DraftState:
    try:
        from cheapspec.embedded import weights  # needs the extra [embedded]

        weights("smollm2-135m-q4_1")
    except CheapspecError as error:
        fix = "run cheapspec demo once, which fetches the weights"
        return DraftState("embedded", has_model=False, problems=(Problem(str(error), fix),))
    return DraftState("embedded", has_model=True, models=("smollm2-135m-q4_1",))


# --- the target ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint that may be probed. ``passed``: a request as a client would have sent it."""

    model: str
    base_url: str
    backend: str
    passed: Passed


def target(shared: Shared, model: str, base_url: str) -> Target:
    """The endpoint as a client with this model and base URL would meet it."""
    key = os.environ.get("OPENAI_API_KEY", "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "."}], "temperature": 0}
    request = httpx2.Request("POST", f"{base_url.rstrip('/')}/chat/completions", headers=headers, json=body)
    parsed = admit("POST", request.url.path, {}, request.content)
    settings = shared.read_settings({}, {})
    passed = Passed(
        f"cs-{uuid.uuid4().hex}",
        settings,
        "probe",
        "not_probed",
        request,
        model=model,
        parsed=None if isinstance(parsed, Bypass) else parsed,
    )
    asked = settings.backend
    return Target(
        model, api_base(request.url), backend_of(request.url.host) or asked if asked == "auto" else asked, passed
    )


def chat_only(endpoint: Target) -> str | None:
    """Why an endpoint is taken for one that only answers, ``None``: whether it scores has to be asked."""
    if endpoint.backend in ("generic", "openai"):
        return f"target_backend is {endpoint.backend!r}: taken for a server that does not score"
    host = endpoint.passed.request.url.host
    if endpoint.backend == "auto" and cannot_score(host):
        return f"{host} is known to return no log-probabilities of text that it is sent"
    return None


def has_key() -> bool:
    """Whether there is a key to ask a paid endpoint with."""
    return bool(os.environ.get("OPENAI_API_KEY"))


def known(shared: Shared, endpoint: Target) -> tuple[Facts, float] | None:
    """What an earlier probe found, and when (UTC seconds), if the ledger has it and it still counts."""
    if not isinstance(shared.ledger, CapabilityBook):
        return None
    backend = endpoint.passed.settings.backend
    kept = shared.ledger.capability(endpoint.base_url, endpoint.model, backend, time.time())
    try:
        return None if kept is None else (Facts.from_dict(kept.facts), kept.probed_at)
    except (TypeError, ValueError):
        return None


def probe_price(prices: Prices | None) -> Decimal | None:
    """The most that a probe costs, in dollars; ``None`` unknown."""
    return cost(Usage(*PROBE_TOKENS), prices)


def probe_target(shared: Shared, endpoint: Target, chat_only: str | None = None) -> Facts:
    """Probe, book it, and keep what was found. ``chat_only``: why it is known not to score; it is asked for verdicts
    only, as one is that turns out not to.
    """
    found: list[Facts] = []
    books = Books(shared.runtime, endpoint.passed, stream=False)
    with httpx2.Client(timeout=60.0) as client:

        def send(request: httpx2.Request, *, stream: bool) -> httpx2.Response:
            return client.send(request)

        asked = _kept(_both(shared, endpoint, chat_only), found)
        obey(send, probing(shared.runtime, endpoint.passed, asked, books))
    books.went_direct(endpoint.passed, Read(None, Usage(), Decimal(0), "user"))
    flush = getattr(shared.ledger, "flush", None)
    if callable(flush):
        flush()
    if not found:
        return Facts(reason="not_probed", evidence=("the probe broke off",))
    return replace(found[0], evidence=tuple(_clean(found[0].evidence, endpoint.passed)))


def _both(shared: Shared, endpoint: Target, chat_only: str | None) -> Op[Facts]:
    facts = Facts(reason="cannot_score", evidence=(f"{chat_only}; that was not asked",))
    if chat_only is None:
        facts = yield from probe(endpoint.model, endpoint.backend)
    if facts.reason != "cannot_score":
        return facts

    def keep(found: Endpoint) -> None:
        shared.runtime.learned_endpoint(endpoint.base_url, endpoint.model, found)

    return (yield from judge_probe(endpoint.base_url, endpoint.model, facts, keep))


def _clean(findings: Sequence[str], passed: Passed) -> list[str]:
    return [masked(one, passed.request) for one in findings]


def _kept(op: Op[Facts], found: list[Facts]) -> Op[Facts]:
    result = yield from op
    found.append(result)
    return result
