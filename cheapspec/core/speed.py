"""How long calls take, measured as they are made: round trip, prefill and decode of a target, decode of a draft.

Rules
-----
* A target call is taken to last ``round_trip + prefill · fresh input tokens + decode · output tokens``: a linear
  regression over the calls seen, with a stated prior counted in as :data:`PRIOR_CALLS` calls. What would come
  out negative is 0.
* Old calls fade with each new one (:data:`KEPT`), not with time: nothing here has a clock, seconds are given.
* A draft is its tokens over its seconds, the host's queue and the prompt's reading included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cheapspec.core.planner import ContextPrices, Rates

__all__ = ["KEPT", "PRIOR", "PRIOR_CALLS", "DraftSpeed", "Speed", "TargetSpeed", "seconds_context", "seconds_rates"]

KEPT = 1 - 1 / 50
"""What an old call still counts after one new one: some fifty are remembered."""

PRIOR_CALLS = 1.0


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds: of a ``round_trip``, an input token read anew (``prefill``), an output token (``decode``)."""

    round_trip: float
    prefill: float
    decode: float


PRIOR = Speed(round_trip=0.3, prefill=0.0002, decode=0.015)
"""An assumption for hosted models of a middle size, to begin with: it weighs as much as one call."""

_DRAFT_PRIOR, _DRAFT_TOKENS = 0.02, 20.0  # seconds a token, and for how many tokens that counts
_SPREAD = (0.3, 0.0002, 0.015)  # how far from the prior a coefficient may well be


@dataclass(frozen=True, slots=True)
class TargetSpeed:
    """Decayed sums of the regression's normal equations: ``products`` of (1, input, output) with themselves, row by
    row above the diagonal, and ``seconds`` with them.
    """

    products: tuple[float, ...] = (0.0,) * 6
    seconds: tuple[float, ...] = (0.0,) * 3

    def observe(self, fresh_input: int, output: int, seconds: float) -> TargetSpeed:
        """A call read so many tokens anew, wrote so many, and took so long."""
        x, y = float(fresh_input), float(output)
        a, b, c, d, e, f = self.products  # written out: every call is observed
        p, q, r = self.seconds
        k = KEPT
        return TargetSpeed(
            (k * a + 1.0, k * b + x, k * c + y, k * d + x * x, k * e + x * y, k * f + y * y),
            (k * p + seconds, k * q + x * seconds, k * r + y * seconds),
        )

    @property
    def speed(self) -> Speed:
        """The coefficients that fit best, the prior counted in."""
        prior = (PRIOR.round_trip, PRIOR.prefill, PRIOR.decode)
        free = [0, 1, 2]
        while True:  # a negative coefficient is set to 0 and the others are fitted anew
            found = self._fit(prior, free)
            negative = [index for index in free if found[index] < 0]
            if not negative:
                return Speed(*(found[index] if index in free else 0.0 for index in range(3)))
            free.remove(min(negative, key=lambda index: found[index] / _SPREAD[index]))

    def _fit(self, prior: Sequence[float], free: Sequence[int]) -> list[float]:
        a, b, c, d, e, f = self.products
        full = ((a, b, c), (b, d, e), (c, e, f))
        # In units of the spreads, so that the ridge is the identity and the numbers are of a size.
        scale = [_SPREAD[index] for index in range(3)]
        matrix = [
            [full[i][j] * scale[i] * scale[j] / _NOISE + (PRIOR_CALLS if i == j else 0.0) for j in free] for i in free
        ]
        right = [self.seconds[i] * scale[i] / _NOISE + PRIOR_CALLS * prior[i] / scale[i] for i in free]
        solved = _solve(matrix, right)
        found = [0.0] * 3
        for value, index in zip(solved, free, strict=True):
            found[index] = value * scale[index]
        return found


_NOISE = 0.3**2  # variance of a call's seconds around the line


@dataclass(frozen=True, slots=True)
class DraftSpeed:
    """Decayed sums of a draft host's tokens and seconds."""

    tokens: float = 0.0
    seconds: float = 0.0

    def observe(self, tokens: int, seconds: float) -> DraftSpeed:
        """A draft of so many tokens took so long."""
        return DraftSpeed(KEPT * self.tokens + tokens, KEPT * self.seconds + seconds)

    @property
    def decode(self) -> float:
        """Seconds a draft token."""
        return (self.seconds + _DRAFT_PRIOR * _DRAFT_TOKENS) / (self.tokens + _DRAFT_TOKENS)


def seconds_rates(target: Speed, draft: float = 0.0, *, forced: bool = False) -> Rates:
    """The planner's price vector in seconds. ``draft``: seconds a draft token. ``forced``: the target generates the
    draft.
    """
    scored = target.decode if forced else target.prefill
    return Rates(target.prefill, target.decode, scored, target.round_trip, drafting=draft)


def seconds_context(cached_share: float, *, scoring_reuses: bool) -> ContextPrices:
    """What share of the context a call reads anew: nothing of what the cache holds."""
    fresh = 1.0 - cached_share
    return replace(ContextPrices(fresh, 0.0 if scoring_reuses else 1.0, 0.0), cold=None if scoring_reuses else 1.0)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination of a positive definite system."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [low - factor * high for low, high in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found
