"""The one settings model: what to draft with, what to accept, what to spend.

``Speculation()`` reads the environment and ``cheapspec.toml`` once, at construction, then never changes
(:mod:`cheapspec.settings.sources` has the order). Whatever this version cannot do is refused by name;
nothing is silently ignored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cheapspec.backends.ollama_names import normalise_host
from cheapspec.backends.targets import NAMES
from cheapspec.core.money import LocalPrice, Prices
from cheapspec.core.ports import Ledger
from cheapspec.core.rules import MOST_NATS, TextMatch, text_match_refusal
from cheapspec.errors import CapabilityError, SettingsError
from cheapspec.rules.comparison import comparison
from cheapspec.settings.accepts import Accept, Named, parse_accept
from cheapspec.settings.drafts import DraftSpec, parse_drafts
from cheapspec.settings.pricelist import parse_local_price, parse_prices
from cheapspec.settings.sources import Setting, disabled, gather, unknown_key

__all__ = ["Speculation"]

log = logging.getLogger("cheapspec")

_BUDGET_KEYS = ("name", "usd", "period", "timezone", "unknown")
BACKENDS = ("auto", *NAMES)

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Speculation(BaseModel):
    """How a client speculates. Frozen; equal when all settings are equal.

    :param draft: what drafts (:mod:`cheapspec.settings.drafts`); ``None``: nothing but the caller's prediction.
    :param draft_url: the Ollama server's URL (else ``OLLAMA_HOST``, else this machine).
    :param target_backend: API family of the target; ``"auto"`` finds out.
    :param accept: the acceptance rule, or several, tried in order: ``"exact"``; ``"lenient"`` or
        :class:`cheapspec.Lenient` (lossy); for endpoints that cannot score, ``"agree"``, ``"answer"``, ``"judge"``,
        ``"ok_or_answer"``, ``"patch"`` or their objects (lossy: docs/chat-only-apis.md), and ``Validator(…)``. A
        scoring rule comes first in a list: the others are for where it cannot serve.
        ``"text_match"`` or :class:`cheapspec.TextMatch`: proof of agreement, which costs more than the target alone.
    :param objective: what to save: dollars (``"cost"``) or seconds, as measured online (``"latency"``; the allowance
        bounds its dollars all the same).
    :param allowance: share by which all requests together may cost more than their baseline.
    :param seed_usd: dollars that may be spent on top to find out whether speculation pays.
    :param tie_nats: how far below the target's top token a token may be and still count as a tie.
    :param max_added_latency: seconds that speculating may add to a request; more vetoes it.
    :param assume_temperature: what an omitted temperature means at this endpoint (also: top_p 1, no top_k,
        no penalties); ``None``: such requests go direct.
    :param prices: the user's own price list (:mod:`cheapspec.settings.pricelist`); kept as a dict by model.
    :param local_price: what drafting on your own machine costs: ``{"per_million_tokens": .02}`` (dollars, of what the
        draft model writes) or ``{"per_hour": .5}`` (dollars, of the time it takes); counted in what was paid, not in
        budgets, which are for the target's bill. ``None``: nothing.
    :param ask_usage: add ``stream_options.include_usage`` to streams that go direct or are bypassed, and take the
        extra chunk out again, so that ledger and budgets know what they cost; ``False`` leaves them as they are, and
        their cost to an estimate. With ``ledger="off"`` nobody asks.
    :param ledger: the URL of a database (``sqlite:///PATH``, ``postgresql://…``), ``"memory"`` (kept until the
        client is gone), ``"off"``, an object with the ledger's methods, or ``None`` for the default, the file
        ``~/.cheapspec/ledger.db`` (memory, with one warning, where it cannot be written).
    :param store_text: keep prompts and replies in the ledger's database.
    :param budgets: caps on everything that uses the ledger: a list of tables with ``name`` and ``usd``, and perhaps
        ``period``, ``timezone`` and ``unknown`` (:class:`cheapspec.Budget`).
    :param max_draft_tokens: longest draft asked for. ``draft_tokens``: a fixed number of draft tokens a
        round, planner and allowance off (tests and bench).
    :param draft_timeout: seconds for one draft; ``None``: min(request timeout / 10, 20).
    :param draft_concurrency: drafts at a time on one draft host.
    :param keep_alive: how long Ollama keeps the draft model loaded (``"10m"``, seconds, ``-1`` for ever).
    :param workload: the caller's tag for requests that are alike; ``None``: derived from the system prompt.
    :param shadow: so many requests of each workload go direct first while drafts are written and the verdict rules of
        ``accept`` are tried beside them, for ``cheapspec tune``; counted in the ledger, by target and draft. Verdicts
        are paid, within allowance and budgets.
    :param audit: the share (0 to 1) of replies accepted on a verdict rule's word that the target is asked for as well,
        in the background. It costs about that share of what those replies would have cost directly.
    :param comparison: what tells whether a draft would have done in the place of the target's reply: ``"text"``,
        ``"json"`` or an extractor such as ``"last_number"``; ``None``: what the rules themselves compare by.
    :param enabled: ``False`` passes everything through.
    :param simulate_scoring: demo and bench only: a target that is forced rather than scored is priced as if
        it scored.
    :raises CapabilityError: ``accept="text_match"`` with ``objective="cost"`` and no fixed ``draft_tokens``: for
        dollars it never pays.
    :raises SettingsError: something is unknown, unusable or not available yet; the message names the key,
        where it came from and the remedy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    draft: str | None = None
    draft_url: str | None = None
    target_backend: str = "auto"
    accept: Any = "exact"
    objective: str = "cost"
    allowance: NotNegative = 0.02
    seed_usd: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)] = Decimal("0.05")
    tie_nats: Annotated[float, Field(ge=0, le=MOST_NATS)] = 0.0
    max_added_latency: NotNegative | None = None
    assume_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    prices: dict[str, Prices] | None = None
    local_price: LocalPrice | None = None
    ask_usage: bool = True
    ledger: Any = None
    store_text: bool = False
    budgets: tuple[dict[str, Any], ...] = ()
    max_draft_tokens: Count | None = None
    draft_tokens: Count | None = None
    draft_timeout: Positive | None = None
    draft_concurrency: Count = 2
    keep_alive: str | int | float | None = None
    workload: str | None = None
    shadow: Annotated[int, Field(ge=0)] = 0
    audit: Annotated[float, Field(ge=0, le=1)] = 0.0
    comparison: Any = None
    enabled: bool = True
    simulate_scoring: bool = False

    if TYPE_CHECKING:  # what callers may write, which is more than what is kept

        def __init__(
            self,
            *,
            draft: str | None = None,
            draft_url: str | None = None,
            target_backend: str = "auto",
            accept: Named | Sequence[Named] = "exact",
            objective: Literal["cost", "latency"] = "cost",
            allowance: float = 0.02,
            seed_usd: Decimal | str | float = "0.05",
            tie_nats: float = 0.0,
            max_added_latency: float | None = None,
            assume_temperature: float | None = None,
            prices: Mapping[str, Any] | None = None,
            local_price: Mapping[str, Any] | LocalPrice | None = None,
            ask_usage: bool = True,
            ledger: str | Ledger | None = None,
            store_text: bool = False,
            budgets: Sequence[Mapping[str, Any]] = (),
            max_draft_tokens: int | None = None,
            draft_tokens: int | None = None,
            draft_timeout: float | None = None,
            draft_concurrency: int = 2,
            keep_alive: str | float | None = None,
            workload: str | None = None,
            shadow: int = 0,
            audit: float = 0.0,
            comparison: object | None = None,
            enabled: bool = True,
            simulate_scoring: bool = False,
        ) -> None: ...

    @property
    def drafts(self) -> tuple[DraftSpec, ...]:
        """The drafters named by ``draft``, best first."""
        return parse_drafts(self.draft)

    def override(self, values: Mapping[str, Any], origin: str) -> Self:
        """These settings with some replaced, for one request. ``origin`` says where the values came from.

        Neither environment nor file is read again. :raises SettingsError: as the constructor does.
        """
        kept = {name: Setting(getattr(self, name), "settings") for name in type(self).model_fields}
        for key in values:
            if key not in kept:
                raise unknown_key(key, kept, origin)
        given = {key: Setting(value, origin) for key, value in values.items()}
        return self.model_validate({}, context={"settings": kept | given})

    @model_validator(mode="wrap")
    @classmethod
    def _from_all_sources(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(data, cls):
            return data
        context = cast(dict[str, dict[str, Setting]], info.context or {})
        try:
            return cls._made(cast(dict[str, Any], data), context.get("settings"), handler)
        except (SettingsError, CapabilityError) as error:
            if not disabled():
                raise
            # The switch that turns everything off must work when the settings are what is broken.
            log.warning("CHEAPSPEC_DISABLED is set, so unusable settings are passed over: %s", error)
            return handler({"enabled": False})

    @classmethod
    def _made(
        cls, data: dict[str, Any], settings: dict[str, Setting] | None, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        settings = settings or gather(data, cls.model_fields)
        try:
            made = handler({name: setting.value for name, setting in settings.items()})
        except ValidationError as error:
            raise _readable(error, settings) from None
        if isinstance(made.accept, TextMatch) and made.objective == "cost" and made.draft_tokens is None:
            listed = made.prices or {}
            raise CapabilityError(text_match_refusal(next(iter(listed.values())) if len(listed) == 1 else None))
        fixed, longest = made.draft_tokens, made.max_draft_tokens
        if fixed is not None and longest is not None and fixed > longest:
            raise SettingsError(f"draft_tokens = {fixed} is more than max_draft_tokens = {longest}: raise the latter.")
        return made

    @field_validator("draft")
    @classmethod
    def _draft(cls, value: str | None) -> str | None:
        if parse_drafts(value):
            return value
        return None

    @field_validator("draft_url")
    @classmethod
    def _draft_url(cls, value: str | None) -> str | None:
        if value is None or not value.strip():
            return None
        if any(character.isspace() for character in value.strip().strip("\"'").strip()):
            raise ValueError(f"{value!r} is not a host: it contains a space")
        try:
            return normalise_host(value, {})
        except SettingsError as error:
            raise ValueError(str(error).removeprefix("draft_url: ").rstrip(".")) from None

    @field_validator("target_backend")
    @classmethod
    def _backend(cls, value: str) -> str:
        return _one_of(value, BACKENDS)

    @field_validator("accept", mode="before")
    @classmethod
    def _accept(cls, value: Any) -> Accept:
        return parse_accept(value)

    @field_validator("objective")
    @classmethod
    def _objective(cls, value: str) -> str:
        return _one_of(value, ("cost", "latency"))

    @field_validator("prices", mode="before")
    @classmethod
    def _prices(cls, value: Any) -> dict[str, Prices] | None:
        return None if value is None else parse_prices(value)

    @field_validator("local_price", mode="before")
    @classmethod
    def _local_price(cls, value: Any) -> LocalPrice | None:
        return None if value is None else parse_local_price(value)

    @field_validator("ledger")
    @classmethod
    def _ledger(cls, value: Any) -> Any:
        methods = ("open_request", "open_call", "close_call", "close_request")
        if value is None or value in ("off", "memory") or all(callable(getattr(value, name, None)) for name in methods):
            return value
        if isinstance(value, str) and re.match(r"(sqlite|postgres(ql)?)(\+\w+)?://", value):
            return value
        what = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise ValueError(f"{what} is no ledger; write sqlite:///PATH, postgresql://HOST/DATABASE, memory or off")

    @field_validator("budgets")
    @classmethod
    def _budgets(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for budget in value:
            for key in budget:
                if key not in _BUDGET_KEYS:
                    near = get_close_matches(key, _BUDGET_KEYS, 1)
                    known = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_BUDGET_KEYS)}"
                    raise ValueError(f"unknown key {key!r}; {known}")
            name = budget.get("name")
            if not isinstance(name, str) or not name.strip():
                raise ValueError("a budget has no name; write name = '…'")
            if "usd" not in budget:
                raise ValueError(f"the budget {name!r} has no usd; write usd = 5")
        names = [budget["name"] for budget in value]
        if len(set(names)) != len(names):
            raise ValueError("two budgets have the same name")
        return value

    @field_validator("keep_alive")
    @classmethod
    def _keep_alive(cls, value: str | int | float | None) -> str | int | float | None:
        if isinstance(value, str) and not re.fullmatch(r"-?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+|-?\d+", value.strip()):
            raise ValueError("write a duration such as '10m' or '1h30m', seconds, or -1 for ever")
        return value

    @field_validator("comparison")
    @classmethod
    def _comparison(cls, value: Any) -> Any:
        if value is not None:
            comparison(value)  # says what is wrong
        return value


_LOGIN = re.compile(r"(?<=://)[^/@\s]*@|[^\s/@'\"]+:[^\s/@'\"]*@")


def _one_of(value: str, known: tuple[str, ...]) -> str:
    if value in known:
        return value
    near = get_close_matches(value, known, 1)
    raise ValueError(f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")


def _readable(error: ValidationError, settings: Mapping[str, Setting]) -> SettingsError:
    """Pydantic's findings as one sentence each: key, value, source, problem."""
    lines: list[str] = []
    for found in error.errors(include_url=False, include_context=False):
        problem = found["msg"].removeprefix("Value error, ")
        key = str(found["loc"][0])
        setting = settings[key]  # defaults are not validated, so what is wrong was given
        line = f"{key} = {_shown(setting.value)} ({setting.origin}): {problem}"
        lines.append(line if line.endswith("?") else f"{line}.")
    return SettingsError(_LOGIN.sub("***@", "\n".join(lines)))  # no URL's password in a message


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
