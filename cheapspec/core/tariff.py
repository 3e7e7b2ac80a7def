"""What the calls of one request cost, as replay and the clairvoyant count them: dollars, or seconds.

Rules
-----
* A call costs its context at one of three prices, its fresh tokens, its generated tokens, and a fee. All of it is
  linear, so a tariff of seconds (prefill, decode, round trip) has the same form as one of dollars.
* Nobody has written the target's cache for this request before its first call: that call reads the prompt at no
  less than the direct call would (``max(q0, qs)``), whatever scoring pays on a warm cache.
* q0 is the request's own: its cached share at ``cached``, the rest in full, unless the tariff states one for all.
* A scoring call generates one token and pays for it. What follows an accepted prefix (the correction) is free.
"""

from __future__ import annotations

from dataclasses import dataclass

from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, Rates
from cheapspec.core.traces import RequestTrace

__all__ = ["Tariff"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of one endpoint. ``cached``: price of a cached context token over the input price (c); ``qs``, ``qh``:
    what a scoring call and a hand-off pay for a context token, as multiples of the input price; ``q0``: the same for
    the direct call, ``None``: by the request's own cached share.
    """

    rates: Rates
    cached: float = 1.0
    qs: float = 1.0
    qh: float = 1.0
    q0: float | None = None

    @classmethod
    def of(cls, prices: Prices, qs: float | None = None, qh: float | None = None, q0: float | None = None) -> Tariff:
        """In dollars. ``qs`` and ``qh`` are the cached price unless given."""
        known = prices.cached_input is not None and prices.input
        cached = float(prices.cached_input / prices.input) if known and prices.cached_input is not None else 1.0
        return cls(Rates.of(prices), cached, cached if qs is None else qs, cached if qh is None else qh, q0)

    def context(self, trace: RequestTrace) -> ContextPrices:
        """The three prices of a context token for this request."""
        share = trace.cached_prompt_tokens / trace.prompt_tokens if trace.prompt_tokens else 0.0
        q0 = 1.0 - share * (1.0 - self.cached) if self.q0 is None else self.q0
        return ContextPrices(q0, self.qs, self.qh)

    def direct(self, trace: RequestTrace) -> float:
        """The target alone."""
        return self.begun(trace, trace.reply_tokens)

    def begun(self, trace: RequestTrace, position: int) -> float:
        """The target alone, as far as ``position``."""
        return self._call(trace.prompt_tokens * self.context(trace).q0, position)

    def score(self, trace: RequestTrace, position: int, draft_tokens: int) -> float:
        """Scoring ``draft_tokens`` after the first ``position`` tokens of the reply; the first round is at 0."""
        context = self.context(trace)
        price = context.qs if position else context.first
        read = (trace.prompt_tokens + position) * price
        return self._call(read, 1) + self.rates.draft * draft_tokens

    def hand_off(self, trace: RequestTrace, position: int) -> float:
        """The target writes the rest of the reply from ``position`` on; from 0: the direct call."""
        if not position:
            return self.direct(trace)
        read = (trace.prompt_tokens + position) * self.qh
        return self._call(read, trace.reply_tokens - position)

    def _call(self, context_tokens: float, generated: int) -> float:
        rates = self.rates
        return rates.input * context_tokens + rates.output * generated + rates.request
