"""Prices × usage in ``Decimal``; unknown is ``None``, never 0.

Rules
-----
* What the provider itself says a call cost wins over every table.
* ``input_tokens`` already contains the cached and the cache-written tokens, ``output_tokens`` the
  reasoning tokens: nothing is added twice. Counts that contradict each other are clamped, so that a
  bill never goes negative.
* A call is priced by the service tier that the reply names, else by the one that was asked for. A
  tier without a price is unknown, not standard. Where the two tiers differ, a budget counts the dearer.
* Sound and pictures have prices of their own, which no table here has: a call whose usage counts some is unknown,
  unless the provider says what it cost.
* Some models write no tokens that are billed (embeddings, rerankers): their prices are of input alone. A call that was
  answered with tokens all the same is unknown.
* A price list may have steps: above so many input tokens *all* tokens of the call cost more.
* Money has a decimal context of its own, so that the application's (its precision, its traps) changes no figure and
  raises nothing. An amount of more than :data:`MOST_USD` is none: it is unknown, like one that nobody told.
* The baseline is what the target alone would have cost *including its own prompt cache*.
  :class:`PrefixMemory` knows which share of a prompt an earlier call has put there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)

from cheapspec.core.effects import Usage

__all__ = [
    "CONTEXT",
    "MOST_USD",
    "Charge",
    "LocalPrice",
    "PrefixMemory",
    "Prices",
    "baseline",
    "charge",
    "cost",
    "format_usd",
    "known_usd",
    "money_context",
    "saved_usd",
]

MOST_USD = Decimal(2**63 - 1).scaleb(-9)
"""The largest amount that counts as one: 9.2e9 dollars, what 64 bits hold in nano-dollars."""

_MILLION = Decimal(1_000_000)
_HOUR = 3600
_NANO = Decimal("0.000000001")
_STANDARD_TIERS = frozenset({"", "auto", "default", "standard"})
CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Of all arithmetic with money: the application\'s own may round to four digits, or raise."""


def money_context() -> AbstractContextManager[Context]:
    """A ``with`` block in which decimal arithmetic is money's: 60 digits, whatever the caller's context says."""
    return localcontext(CONTEXT)


def known_usd(usd: Decimal | None) -> Decimal | None:
    """The amount, ``None`` where it is none: not finite, or larger than :data:`MOST_USD` either way."""
    return usd if usd is not None and usd.is_finite() and usd.copy_abs() <= MOST_USD else None


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens; ``request``: dollars per call. ``None``: not known separately
    (``cached_input`` then falls back to ``input``, ``cache_write`` to ``input``). ``input_only``: nobody says what
    output costs (``output`` is 0), since the model writes none.

    ``tiers``: prices of other service tiers (``flex``, ``priority``). ``steps``: prices of calls with
    more than so many input tokens, in rising order.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    request: Decimal = Decimal(0)
    tiers: tuple[tuple[str, Prices], ...] = ()
    steps: tuple[tuple[int, Prices], ...] = ()
    input_only: bool = False

    @property
    def of_text(self) -> Prices | None:
        """The same for a reply of text, ``None`` where nobody says what that costs."""
        return None if self.input_only else self

    def of_tier(self, tier: str | None) -> Prices | None:
        """The prices of a service tier, ``None`` when this table does not know them."""
        name = (tier or "").lower()
        for known, prices in self.tiers:
            if known == name:
                return prices
        return self if name in _STANDARD_TIERS else None

    def at(self, input_tokens: int) -> Prices:
        """The prices of a call with that many input tokens."""
        found = self
        for above, prices in self.steps:
            if input_tokens > above:
                found = prices
        return found


@dataclass(frozen=True, slots=True)
class LocalPrice:
    """What drafting on one's own machine costs: dollars per million tokens that the draft model writes, or dollars
    per hour that it is at work. It is a part of what was paid, never of the baseline.
    """

    per_million_tokens: Decimal = Decimal(0)
    per_hour: Decimal = Decimal(0)

    def usd(self, tokens: int, seconds: float) -> Decimal:
        """Dollars of so many draft tokens, written in so many seconds."""
        with money_context():
            return tokens * self.per_million_tokens / _MILLION + Decimal(str(seconds)) * self.per_hour / _HOUR


@dataclass(frozen=True, slots=True)
class Charge:
    """What a call cost. ``usd`` and ``budget_usd`` are ``None`` when unknown; ``budget_usd`` is the dearer
    of the tier asked for and the tier that served. ``flags``: ``tier_differs``, ``tier_unpriced``.
    """

    usd: Decimal | None
    budget_usd: Decimal | None
    tier: str | None = None
    flags: tuple[str, ...] = ()


def charge(usage: Usage, prices: Prices | None, requested_tier: str | None = None) -> Charge:
    """Price one call, service tiers included.

    ``requested_tier``: the request's own ``service_tier``, used where the reply names none.
    """
    tier = usage.service_tier or requested_tier
    with money_context():
        told = _told(usage.cost_usd)
        if told is not None:
            usd = known_usd(told)
            return Charge(usd, usd, tier)
        return _charged(usage, prices, requested_tier, tier)


def _charged(usage: Usage, prices: Prices | None, requested_tier: str | None, tier: str | None) -> Charge:
    if prices is None or usage.media_tokens > 0 or (prices.input_only and usage.output_tokens > 0):
        return Charge(None, None, tier)
    served = prices.of_tier(tier)
    flags = () if served is not None else ("tier_unpriced",)
    usd = None if served is None else _bill(usage, served)
    if requested_tier is None or _tier(requested_tier) in (_tier(tier), "auto"):
        return Charge(usd, usd, tier, flags)
    asked = prices.of_tier(requested_tier)
    other = None if asked is None else _bill(usage, asked)
    dearer = None if other is None or usd is None else max(usd, other)
    return Charge(usd, dearer, tier, (*flags, "tier_differs"))


def cost(usage: Usage, prices: Prices | None) -> Decimal | None:
    """Dollars of one call, or ``None`` when nobody knows: the provider's own figure, else prices × usage."""
    return charge(usage, prices).usd


def baseline(
    prompt_tokens: int, completion_tokens: int, cached_tokens: int | None, prices: Prices | None
) -> Decimal | None:
    """Dollars that the target alone would have cost: the whole reply at output price, the cached part
    of the prompt at the cached price. ``None`` when prices are unknown.
    """
    return cost(Usage(prompt_tokens, completion_tokens, cached_tokens), prices)


def saved_usd(paid: Decimal | None, baseline: Decimal | None) -> Decimal | None:
    """Baseline minus paid; negative when it cost more; ``None`` when either is unknown."""
    if paid is None or baseline is None:
        return None
    with money_context():
        return baseline - paid


def format_usd(usd: Decimal | None) -> str | None:
    """Dollars as a JSON string: plain notation, six to nine decimals, rounded to nano-dollars. ``None`` for what is
    unknown or no amount (:func:`known_usd`).
    """
    usd = known_usd(usd)
    if usd is None:
        return None
    with money_context():
        text = f"{usd.quantize(_NANO) + 0:f}"  # + 0 turns -0 into 0
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(6, '0')}"


class PrefixMemory:
    """Which prompts a prompt cache has seen lately: block hashes, never text.

    A text shares with an earlier one the longest run of leading whole blocks, as real caches do
    (vLLM hashes blocks of 16 tokens, OpenAI steps of 128 tokens from 1,024 up: documentation of
    2026-11). The default block of 64 characters is about 16 tokens, and there is no minimum length:
    the memory would rather call a token cached than claim a saving that the target's own cache made.

    At most ``max_blocks`` blocks are kept, the least recently used go first; a block counts for
    ``lifetime`` seconds after it was last remembered. Not locked: callers with threads lock it.
    """

    def __init__(self, block: int = 64, max_blocks: int = 100_000, lifetime: float = 3600.0) -> None:
        self._block = block
        self._max_blocks = max_blocks
        self._lifetime = lifetime
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def shared(self, key: tuple[str, ...], text: str, now: float) -> float:
        """The share (0 to 1) of ``text`` that an earlier call with the same ``key`` (URL, API key's digest,
        model) begins with as whole blocks. ``now``: seconds on the clock that ``remember`` is given.
        """
        blocks = 0
        for digest in self._chain(key, text):
            seen = self._seen.get(digest)
            if seen is None or now - seen > self._lifetime:
                break
            blocks += 1
        return blocks * self._block / len(text) if blocks else 0.0

    def remember(self, key: tuple[str, ...], text: str, now: float) -> None:
        """Note that a call with this ``text`` went out (for the next turn: prompt and reply together)."""
        for digest in self._chain(key, text):
            self._seen[digest] = now
            self._seen.move_to_end(digest)
        while len(self._seen) > self._max_blocks:
            self._seen.popitem(last=False)

    def _chain(self, key: tuple[str, ...], text: str) -> Iterator[bytes]:
        """One digest a whole block, each covering everything before it."""
        state = hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=12)
        for start in range(0, len(text) - self._block + 1, self._block):
            state.update(text[start : start + self._block].encode("utf-8", "surrogatepass"))
            yield state.digest()


def _bill(usage: Usage, prices: Prices) -> Decimal | None:
    try:
        return known_usd(_product(usage, prices))
    except DecimalException:  # counts or prices beyond all measure
        return None


def _product(usage: Usage, prices: Prices) -> Decimal:
    total = max(usage.input_tokens, 0)
    prices = prices.at(total)
    cached = min(max(usage.cached_tokens or 0, 0), total)
    written = min(max(usage.cache_write_tokens, 0), total - cached)
    cached_price = prices.input if prices.cached_input is None else prices.cached_input
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    tokens = (
        (total - cached - written) * prices.input
        + cached * cached_price
        + written * write_price
        + max(usage.output_tokens, 0) * prices.output
    )
    return tokens / _MILLION + prices.request


def _told(cost_usd: str | None) -> Decimal | None:
    """The provider's own figure, if it is one: a finite amount that is not negative."""
    if cost_usd is None:
        return None
    try:
        told = Decimal(cost_usd)
    except InvalidOperation:
        return None
    return told if told.is_finite() and told >= 0 else None


def _tier(name: str | None) -> str:
    """One name for the standard tier; ``auto`` stays apart, since whatever serves it was asked for."""
    name = (name or "").lower()
    return "" if name in _STANDARD_TIERS - {"auto"} else name
