"""What a token of the context costs at an endpoint: by its prices, and by what a probe found."""

from __future__ import annotations

from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.drive.state import TargetFacts

__all__ = ["context_prices"]


def context_prices(prices: Prices | None, facts: TargetFacts, share: float) -> ContextPrices:
    """What a context token costs, as multiples of the input price. ``share``: of the prompt that the direct call
    would find cached.

    A probe tells which share of a known context a scoring call and a continuation compute anew (``qs``, ``qh``).
    Where it does not, scoring is taken to compute everything, unless the dialect says otherwise
    (``Target.scores_from_cache``), and a hand-off to find what was just scored.
    """
    if prices is None or prices.cached_input is None or not prices.input:
        cached = written = 1.0
    else:
        cached = float(prices.cached_input / prices.input)
        written = max(1.0, float((prices.cache_write or prices.input) / prices.input))
    unknown = 0.0 if facts.target is not None and facts.target.scores_from_cache else 1.0
    qs, qh = (fresh + (1 - fresh) * cached for fresh in (_or(facts.qs, unknown), _or(facts.qh, 0.0)))
    return ContextPrices(share * cached + 1 - share, qs, qh, cold=share * qs + (1 - share) * written)


def _or(known: float | None, otherwise: float) -> float:
    return otherwise if known is None else min(max(known, 0.0), 1.0)
