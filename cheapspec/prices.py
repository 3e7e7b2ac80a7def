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
* Nobody knows → ``(None, "unknown")``. Never 0.

genai-prices (0.2.3) is read for its data only: its ``calc_price`` raises ``ValueError`` when more tokens
are cached than sent, and prices a tier that it does not know like the standard one. It is imported at the
first look-up that the user's table does not answer (a third of a second, once). Look-ups are remembered;
prices that change with date or time of day are taken anew each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cheapspec.core.money import Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

__all__ = ["PriceBook", "spellings"]

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


class PriceBook:
    """Implements :class:`cheapspec.core.ports.PriceSource`. Thread-safe; nothing is raised.

    :param user: the user's table by model, ``"*"`` for any other (``Speculation.prices``).
    :param now: the clock for prices that depend on the time; tests pass their own.
    """

    def __init__(self, user: Mapping[str, Prices] | None = None, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._user = dict(user or {})
        self._folded = {name.lower(): prices for name, prices in self._user.items()}
        self._now = now
        self._remembered: dict[tuple[str, str], tuple[Prices | ModelInfo | None, str]] = {}

    def lookup(self, model: str, base_url: str) -> tuple[Prices | None, str]:
        """Prices of ``model`` at ``base_url`` and who says so: ``user``, ``genai-prices`` or ``unknown``."""
        key = (model, base_url)
        found = self._remembered.get(key)
        if found is None:
            found = self._find(model, base_url)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered = {}  # a new dict: another thread may be reading the old one
            self._remembered[key] = found
        entry, source = found
        if entry is None or isinstance(entry, Prices):
            return entry, source
        prices = _prices_of(entry, self._now())
        return (prices, source) if prices is not None else (None, "unknown")

    def _find(self, model: str, base_url: str) -> tuple[Prices | ModelInfo | None, str]:
        for name in spellings(model):
            prices = self._user.get(name) or self._folded.get(name.lower())
            if prices is not None:
                return prices, "user"
        if (any_model := self._user.get("*")) is not None:
            return any_model, "user"
        listed = _listed(model, base_url)
        if listed is None:
            return None, "unknown"
        if isinstance(listed.prices, list) or listed.price_variants:
            return listed, "genai-prices"
        prices = _prices_of(listed, self._now())
        return (prices, "genai-prices") if prices is not None else (None, "unknown")


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


def _listed(model: str, base_url: str) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    names = list(spellings(model))
    attempts: list[tuple[str, str | None, str | None]] = [(name, None, base_url) for name in names]
    if not base_url:
        providers = [part for part in model.split("/")[:-1] if part.lower() in _PREFIXES]
        attempts = [(name, provider, None) for provider in providers for name in names]
        attempts += [(names[-1], None, None)] if not providers else []
        attempts += [(name, None, None) for name in names]
    for name, provider, url in attempts:
        try:
            return snapshot.find_provider_model(name, None, provider, url)[1]
        except (LookupError, ValueError):
            continue
    return None


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
    """A row of genai-prices as ours; ``None`` without an input or output price per token."""
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
    if per_input is None or per_output is None:
        return None
    per_thousand_calls = at(listed.requests_kcount)
    return Prices(
        input=per_input,
        output=per_output,
        cached_input=at(listed.cache_read_mtok),
        cache_write=at(listed.cache_write_mtok),
        request=per_thousand_calls / 1000 if per_thousand_calls is not None else Decimal(0),
    )


def _with(
    row: Prices, *, tiers: tuple[tuple[str, Prices], ...] = (), steps: tuple[tuple[int, Prices], ...] = ()
) -> Prices:
    return Prices(row.input, row.output, row.cached_input, row.cache_write, row.request, tiers, steps or row.steps)
