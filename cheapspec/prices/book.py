"""What a model costs: the user's own table, else list prices of hosted models (genai-prices, offline).

Rules
-----
* The user's table wins, for every base URL. A model is looked up as it is named, then without case, then
  without router prefixes (``openrouter/openai/gpt-4o`` → ``gpt-4o``), then without a date at its end
  (``gpt-4o-2024-08-06``), at last under ``"*"``. A name is never matched by its beginning: ``gpt-4o-mini``
  is not ``gpt-4o``. A variant after a colon (OpenRouter's ``:free``) is another price, and stays.
* List prices count only for a base URL that belongs to a provider which genai-prices knows (its own URL
  patterns). An own server or a proxy may charge anything: a hosted model's price must not be put on a
  vLLM box because the names are alike. An *empty* base URL (a price asked for by name alone, as the
  command line does) is looked up by the provider in the name, else by the model's maker.
* A model that is listed with a price of input alone (embeddings) keeps that: ``Prices.input_only``.
* Nobody knows → ``(None, "unknown")``. Never 0.

:meth:`PriceBook.quote` says of each look-up which row applied and why; the path of a request takes the bare
:meth:`PriceBook.lookup`.

genai-prices (0.2.3) is read for its data only: its ``calc_price`` raises ``ValueError`` when more tokens
are cached than sent, and prices a tier that it does not know like the standard one. It is imported at the
first look-up that the user's table does not answer (a third of a second, once). Look-ups are remembered;
prices that change with date or time of day are taken anew each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cheapspec.core.money import Prices
from cheapspec.prices.data import current_snapshot

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

__all__ = ["PriceBook", "Quote", "spellings"]

# fmt: off
_PREFIXES = frozenset({
    "anthropic", "azure", "azure_ai", "bedrock", "cerebras", "cohere", "deepinfra", "deepseek", "fireworks",
    "fireworks_ai", "gemini", "google", "groq", "hosted_vllm", "litellm", "litellm_proxy", "mistral", "mistralai",
    "moonshotai", "openai", "openrouter", "perplexity", "text-completion-openai", "together", "together_ai",
    "vertex_ai", "x-ai", "xai", "zai",
})
# fmt: on
"""Words before a slash that say who serves or made a model (LiteLLM's and OpenRouter's, 2026-11)."""

_DATE = re.compile(r"[-@](20\d\d-[01]\d-[0-3]\d|20\d\d[01]\d[0-3]\d)$")
_REMEMBERED = 1024
_TIERS = ("flex", "priority", "fast")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Quote:
    """Prices and why these. ``prices`` is ``None`` when nobody knows them, ``source`` then ``unknown``.

    ``row``: the name under which the table has them (``"*"``: your row for every model); ``provider``: whose list
    prices they are; ``why``: a sentence; ``names``: the spellings that were looked for, the fullest first.
    """

    model: str
    base_url: str
    prices: Prices | None
    source: str
    row: str | None
    provider: str | None
    why: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a look-up found. ``entry``: a model whose prices change is kept as it is listed."""

    entry: Prices | ModelInfo | None
    source: str
    row: str | None = None
    provider: str | None = None
    why: str = ""


class PriceBook:
    """Implements :class:`cheapspec.core.ports.PriceSource` and ``OutputLimits``. Thread-safe; nothing is raised.

    :param user: the user's table by model, ``"*"`` for any other (``Speculation.prices``).
    :param now: the clock for prices that depend on the time; tests pass their own.
    """

    def __init__(self, user: Mapping[str, Prices] | None = None, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._user = dict(user or {})
        self._folded = {name.lower(): prices for name, prices in self._user.items()}
        self._now = now
        self._remembered: dict[tuple[str, str], _Found] = {}
        self._windows: dict[tuple[str, str], int | None] = {}

    def lookup(self, model: str, base_url: str) -> tuple[Prices | None, str]:
        """Prices of ``model`` at ``base_url`` and who says so: ``user``, ``genai-prices`` or ``unknown``."""
        key = (model, base_url)
        found = self._remembered.get(key)
        if found is None:
            found = self._find(model, base_url)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered = {}  # a new dict: another thread may be reading the old one
            self._remembered[key] = found
        prices = self._now_of(found)
        return prices, found.source if prices is not None else "unknown"

    def output_limit(self, model: str, base_url: str) -> int | None:
        """Tokens of the longest reply that a listed model can write, by its context window; ``None`` unknown."""
        key = (model, base_url)
        if key not in self._windows:
            if len(self._windows) >= _REMEMBERED:
                self._windows = {}
            listed = _listed(model, base_url).entry
            self._windows[key] = getattr(listed, "context_window", None)
        return self._windows[key]

    def quote(self, model: str, base_url: str = "") -> Quote:
        """The same look-up, with its reasons."""
        found = self._find(model, base_url)
        prices = self._now_of(found)
        why = found.why if prices is not None or found.entry is None else f"{found.why}, but without a price per token"
        source = found.source if prices is not None else "unknown"
        return Quote(model, base_url, prices, source, found.row, found.provider, why, tuple(spellings(model)))

    def _now_of(self, found: _Found) -> Prices | None:
        entry = found.entry
        return entry if entry is None or isinstance(entry, Prices) else _prices_of(entry, self._now())

    def _find(self, model: str, base_url: str) -> _Found:
        for name in spellings(model):
            for table, key in ((self._user, name), (self._folded, name.lower())):
                if (prices := table.get(key)) is not None:
                    return _Found(prices, "user", key, None, f"your table has {_row_of(key, model)}")
        if (any_model := self._user.get("*")) is not None:
            return _Found(any_model, "user", "*", None, "your table has a row for every model ('*')")
        found = _listed(model, base_url)
        listed = found.entry
        if listed is None or isinstance(listed, Prices) or isinstance(listed.prices, list) or listed.price_variants:
            return found
        prices = _prices_of(listed, self._now())
        return found if prices is None else _Found(prices, found.source, found.row, found.provider, found.why)


def _row_of(key: str, model: str) -> str:
    """Which row it is, and what was left out of the model's name to find it."""
    rest = model[len(model) - len(key) :] if model.lower().endswith(key.lower()) else model
    left_out = [
        word
        for word, differs in (
            ("router prefixes", key.count("/") < model.count("/")),
            ("the date at the end", rest.lower() != key.lower()),
            ("case", key.lower() in model.lower() and key not in model),
        )
        if differs
    ]
    return f"a row {key!r}" + (f" ({' and '.join(left_out)} of {model!r} left out)" if left_out else "")


def spellings(model: str) -> Iterator[str]:
    """The names under which a model may stand in a table, the fullest first."""
    names = [model]
    rest = model
    while (parts := rest.partition("/"))[1] and parts[0].lower() in _PREFIXES:
        rest = parts[2]
        names.append(rest)
    yield from names
    for name in names:
        if (undated := _DATE.sub("", name)) != name:
            yield undated


def _listed(model: str, base_url: str) -> _Found:
    snapshot = current_snapshot()
    names = list(spellings(model))
    attempts: list[tuple[str, str | None, str | None]] = [(name, None, base_url) for name in names]
    if not base_url:
        providers = [part for part in model.split("/")[:-1] if part.lower() in _PREFIXES]
        attempts = [(name, provider, None) for provider in providers for name in names]
        attempts += [(names[-1], None, None)] if not providers else []
        attempts += [(name, None, None) for name in names]
    for name, provider, url in attempts:
        try:
            owner, listed = snapshot.find_provider_model(name, None, provider, url)
        except (LookupError, ValueError):
            continue
        how = f", and {base_url} is theirs" if base_url else " (by the name alone; with a base URL it is sure)"
        return _Found(listed, "genai-prices", listed.id, owner.id, f"{owner.name} lists {listed.id!r}{how}")
    if not base_url:
        return _Found(None, "unknown", why="your table has no row for it, and no listed model has this name")
    try:
        owner = snapshot.find_provider(None, None, base_url)
    except (LookupError, ValueError):
        why = f"your table has no row for it, and no provider with list prices is known at {base_url}"
        return _Found(None, "unknown", why=why)
    why = f"your table has no row for it, and {owner.name} lists no model of this name"
    return _Found(None, "unknown", None, owner.id, why)


def _prices_of(model: ModelInfo, now: datetime) -> Prices | None:
    standard = _convert(model.get_prices(now))
    if standard is None:
        return None
    known = {
        variant.when["service_tier"]
        for variant in model.price_variants or ()
        if list(variant.when) == ["service_tier"] and variant.when["service_tier"] in _TIERS
        if variant.constraint is None or variant.constraint.active(now)
    }
    tiers = ((tier, _convert(model.get_prices(now, {"service_tier": tier}))) for tier in sorted(known))
    return _with(standard, tiers=tuple((tier, prices) for tier, prices in tiers if prices is not None))


def _convert(listed: ModelPrice) -> Prices | None:
    """A row of genai-prices as ours; ``None`` without a price of input per token."""
    starts = sorted(
        {
            tier.start
            for value in (listed.input_mtok, listed.output_mtok, listed.cache_read_mtok, listed.cache_write_mtok)
            for tier in getattr(value, "tiers", ())
        }
    )
    base = _row(listed, -1)
    if base is None:
        return None
    return _with(base, steps=tuple((start, row) for start in starts if (row := _row(listed, start)) is not None))


def _row(listed: ModelPrice, start: int) -> Prices | None:
    """The flat prices of calls that reach the step at ``start`` (-1: the base)."""

    def at(value: Any) -> Decimal | None:
        if value is None or isinstance(value, Decimal):
            return value
        reached = [tier.price for tier in value.tiers if tier.start <= start]
        price: Decimal = reached[-1] if reached else value.base
        return price

    per_input, per_output = at(listed.input_mtok), at(listed.output_mtok)
    if per_input is None:
        return None
    per_thousand_calls = at(listed.requests_kcount)
    return Prices(
        input=per_input,
        output=Decimal(0) if per_output is None else per_output,
        cached_input=at(listed.cache_read_mtok),
        cache_write=at(listed.cache_write_mtok),
        request=per_thousand_calls / 1000 if per_thousand_calls is not None else Decimal(0),
        input_only=per_output is None,
    )


def _with(
    row: Prices, *, tiers: tuple[tuple[str, Prices], ...] = (), steps: tuple[tuple[int, Prices], ...] = ()
) -> Prices:
    return replace(row, tiers=tiers, steps=steps or row.steps)
