"""What the Python doors share: settings become a runtime, a reply gives back its facts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

from cheapspec.backends.llamacpp import LlamaCppDrafter
from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.backends.ollama_names import normalise_host
from cheapspec.backends.openai_drafter import OpenAIDrafter
from cheapspec.core.books import Cap, Reservations
from cheapspec.core.info import Info
from cheapspec.core.lookup import PromptLookup
from cheapspec.core.ports import Drafter, Ledger
from cheapspec.core.rules import WINDOW, Lenient, TextMatch
from cheapspec.core.shadows import ShadowBook
from cheapspec.drive.permits import Permits
from cheapspec.drive.runtime import Runtime
from cheapspec.drive.settings import Settings
from cheapspec.drive.state import infos
from cheapspec.errors import CapabilityError, SettingsError
from cheapspec.ledger import sessions
from cheapspec.ledger.budgets import Budget, distinct
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.ledger.sessions import current_session, session_caps
from cheapspec.prices import PriceBook
from cheapspec.report import Report, report_of
from cheapspec.settings import DraftSpec, Speculation, disabled
from cheapspec.settings.accepts import scoring_rule, verdict_rules

__all__ = ["Session", "Shared", "info"]

DEFAULT_MAX_DRAFT_TOKENS = 512
_PER_REQUEST = (
    "accept",
    "ask_usage",
    "assume_temperature",
    "draft_concurrency",
    "draft_timeout",
    "draft_tokens",
    "enabled",
    "max_added_latency",
    "max_draft_tokens",
    "target_backend",
    "tie_nats",
    "workload",
)
_FALSE = ("", "0", "false", "no", "off")

_embedded_lock = threading.Lock()
_embedded: list[Any] = []


class Session(sessions.Session):
    """One block of requests on one ledger; made by ``client.session(…)``, used once (:mod:`cheapspec.ledger.sessions`).

    ``name``: what the user calls it; ``id``: its row in the ledger.
    """

    def report(self) -> Report:
        """What the requests made in this block, and in the sessions opened inside it, add up to so far.

        :raises LedgerError: the ledger is off, or cannot be read.
        """
        return replace(report_of(self.ledger, session=self.id), session=self.name)


class Shared:
    """Settings and runtime of a client and its copies.

    :raises SettingsError: a setting is unusable.
    """

    def __init__(self, speculation: Speculation | None) -> None:
        if speculation is not None and not isinstance(cast(object, speculation), Speculation):
            raise SettingsError(f"speculation = {speculation!r}: write Speculation(draft=…).")
        self.speculation = Speculation() if speculation is None else speculation
        given = self.speculation
        self._settings = _settings(given)
        self.ledger = _ledger(given)
        self._budgets = tuple(_budget(table) for table in given.budgets)
        if self._budgets:
            self._keeps_budgets()
        if (given.shadow or given.audit) and not isinstance(self.ledger, ShadowBook):
            kind = type(self.ledger).__name__
            raise SettingsError(f"shadow and audit need a ledger that keeps what they find, which a {kind} does not.")
        drafters = [_drafter(spec, given) for spec in given.drafts]
        permits = Permits(Decimal(str(given.allowance)), given.seed_usd, self.ledger)
        self.runtime = Runtime(self.read_settings, drafters, PriceBook(given.prices), self.ledger, permits)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shared:
        """A copied client keeps its books in the same ledger."""
        return self

    def report(self) -> Report:
        """What all requests in the ledger add up to."""
        return report_of(self.ledger, seed=self.speculation.seed_usd)

    def read_settings(self, headers: Mapping[str, str], options: Mapping[str, Any]) -> Settings:
        """The settings of one request: its body's key ``cheapspec`` over its headers over those of the client.

        :raises SettingsError: something in them is unusable, or cannot be set for one request.
        """
        settings = self._settings
        if headers or options:
            settings = self._read(headers, dict(options))
        settings = self._in_session(settings)
        return replace(settings, enabled=False, caps=()) if disabled() else settings

    def session(self, name: str, budget: Budget | None = None) -> Session:
        """A session on this ledger, to be entered.

        :raises SettingsError: the name is unusable, or the ledger keeps no budgets.
        """
        if budget is not None:
            self._keeps_budgets()
        return Session(self.ledger, name, budget)

    def _keeps_budgets(self) -> None:
        if not isinstance(self.ledger, Reservations):
            kind = type(self.ledger).__name__
            raise SettingsError(f"a budget needs a ledger that keeps budgets, which a {kind} does not.")

    def _in_session(self, settings: Settings) -> Settings:
        """With the session that the caller is in, and all budgets that the request counts in."""
        session = current_session(self.ledger)
        if session is None and not self._budgets:
            return settings
        now = time.time()
        caps = [*settings.caps, *session_caps(session, now)]
        caps += (budget.cap(f"budget:{name}", now) for name, budget in self._budgets)
        if session is None:
            return replace(settings, caps=distinct(caps))
        return replace(settings, caps=distinct(caps), session=settings.session or session.name, session_id=session.id)

    def _read(self, headers: Mapping[str, str], options: dict[str, Any]) -> Settings:
        session = options.pop("session", headers.get("session"))
        if session is not None and not isinstance(session, str):
            raise SettingsError(f"session = {session!r} (extra_body cheapspec): write a name.")
        if session and not session.isprintable():
            raise SettingsError(f"session = {session!r} (request): write a name of printable characters.")
        usd = options.pop("budget_usd", headers.get("budget-usd"))
        caps: tuple[Cap, ...] = ()
        if usd is not None:
            if not session:
                raise SettingsError("budget_usd (request): a budget belongs to a session; name one too.")
            self._keeps_budgets()
            caps = (Budget(usd).cap(f"session:{session}", time.time()),)
        if "accept" in headers:
            options.setdefault("accept", headers["accept"])
        if headers.get("disable", "").strip().lower() not in _FALSE:
            options.setdefault("enabled", False)
        for name in options:
            if name in Speculation.model_fields and name not in _PER_REQUEST:
                raise SettingsError(
                    f"{name} (extra_body cheapspec) cannot be set for one request; use client.copy(speculation=…)."
                )
        try:
            made = self.speculation.override(options, "extra_body cheapspec") if options else self.speculation
        except CapabilityError as error:  # of a request it is one thing more that cannot be read
            raise SettingsError(str(error)) from None
        return replace(_settings(made, session), caps=caps)


def _settings(given: Speculation, session: str | None = None) -> Settings:
    scoring = scoring_rule(given.accept)
    match, fixed = scoring if isinstance(scoring, TextMatch) else None, given.draft_tokens
    if match is not None and fixed is None:  # nothing is planned: who asks for proof of agreement knows what it costs
        fixed = min(WINDOW, given.max_draft_tokens or WINDOW)
    return Settings(
        enabled=given.enabled,
        backend=given.target_backend,
        draft_tokens=fixed,
        max_draft_tokens=given.max_draft_tokens or max(DEFAULT_MAX_DRAFT_TOKENS, fixed or 0),
        tie_nats=given.tie_nats,
        lenient_nats=scoring.nats if isinstance(scoring, Lenient | TextMatch) else None,
        text_match=match,
        scores=scoring is not None,
        rules=verdict_rules(given.accept),
        draft_timeout=given.draft_timeout,
        draft_concurrency=given.draft_concurrency,
        max_added_latency=given.max_added_latency,
        objective=given.objective,
        assume_temperature=given.assume_temperature,
        simulate_scoring=given.simulate_scoring,
        workload=given.workload,
        session=session,
        ask_usage=given.ask_usage and given.ledger != "off",
        local_price=given.local_price,
        shadow=given.shadow,
        audit=given.audit,
        comparison=given.comparison,
    )


def _drafter(spec: DraftSpec, given: Speculation) -> Drafter:
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
    from cheapspec.embedded import EmbeddedServer, weights  # needs the extra [embedded]

    with _embedded_lock:
        if not _embedded:
            threads = max(1, (os.cpu_count() or 2) // 2)  # others use the machine too, and a thread that waits spins
            _embedded.append(EmbeddedServer(weights("smollm2-135m-q4_1"), threads=threads))
        return str(_embedded[0].url)


def _ledger(given: Speculation) -> Ledger:
    if given.ledger == "off":
        return NullLedger()
    if given.ledger == "memory":
        return BudgetedMemoryLedger()
    if given.ledger is None or isinstance(given.ledger, str):
        from cheapspec.ledger.opening import default_ledger, open_ledger  # SQLAlchemy takes a while to import

        if given.ledger is None:
            return default_ledger(store_text=given.store_text)
        return open_ledger(given.ledger, store_text=given.store_text)
    return cast(Ledger, given.ledger)


def _budget(table: Mapping[str, Any]) -> tuple[str, Budget]:
    given = dict(table)
    name = str(given.pop("name"))
    try:
        return name, Budget(**given)
    except SettingsError as error:
        raise SettingsError(f"[[budgets]] {name!r}: {error}") from None


def info(reply: object) -> Info | None:
    """What became of a request: of a reply, a stream (after it has ended), or a raw response.

    Of a direct reply it says what that cost if the price is known; of a direct stream when it is over, until then
    tokens and money are unknown (0 and ``None``).

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
