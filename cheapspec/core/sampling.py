"""Drawing the target's own sample at temperature above 0, from what it lists at each position.

A draft is taken as a point mass: at each position y is drawn from the target's distribution, and the draft's
token holds while it equals y (rejection sampling; nothing is needed of the draft model, and any tokenizer may
have written the draft). After the first difference y itself is the correction. So the reply is distributed as
the target's own whatever the draft says.

Rules
-----
* A server tells the likeliest tokens at a position (their log-probabilities at temperature 1), and the
  probability of the rest, together. The distribution is known well enough to draw from it

  - with ``top_p`` below 1, where the listed tokens cover the nucleus for certain: then the rest does not
    matter. What is in it may not be doubtful: not by a tie, not by rounding, not by what is not listed.
  - with ``top_p`` 1, where the server can be asked for a token *outside* the listed ones (one generated token with
    those banned). At temperature T < 1 the weight p^(1/T) of the rest is unknown, but it is at most
    b^(1/T − 1) · mass for tokens of at most probability b. So the rest is drawn with that envelope, and a token
    of it is kept with probability (p / b)^(1/T − 1), else everything is drawn anew (von Neumann's rejection).
* Whether to draw at a position at all is decided before drawing, by what the prefix fixes. What was
  drawn is never thrown away: else what is awkward to handle would become rare.
* A token that cannot be named (part of a character, a control token of unknown meaning) counts as the rest.
* One number a position decides (:class:`SeededDraws`: of the seed, the position in the reply, and a step), so that
  neither the length of drafts nor the number of rounds changes what is accepted or corrected. The listed tokens'
  shares are laid out from the likeliest down, whether or not the draft's token is listed besides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cheapspec.core.acceptance import Alternative, TargetLogprob, usable

__all__ = ["Draws", "Law", "Sampler", "SeededDraws", "Spread", "spread"]

_MARGIN = 1e-6
"""How far from ``top_p`` a sum of probabilities must be for float32 servers (epsilon 6e-8, thousands of
summands) to see it on the same side."""

_NOTHING = 1e-9
"""A mass below this is rounding: log-probabilities are float32 numbers."""

_TOO_MUCH = 1e-3  # by which probabilities may sum to more than 1 (half precision)


class Draws(Protocol):
    """A source of choices. Equal arguments give equal answers."""

    def pick(self, weights: Sequence[float], position: int, step: int) -> int:
        """An index with probability in proportion to its weight (not negative, not all 0)."""
        ...

    def seed(self, position: int, step: int) -> int | None:
        """The seed for a token that the server draws there; ``None``: the caller gave none, the server's own."""
        ...


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """Choices by a counter-based generator: BLAKE2b of seed, position and step (RFC 7693), its first 53 bits as a
    number in [0, 1), and the inverse of the cumulative weights at it.

    ``given``: the seed is the caller's, so tokens that the server draws get seeds of their own from it.
    """

    entropy: int
    given: bool = False

    def pick(self, weights: Sequence[float], position: int, step: int) -> int:
        uniform = (self._bits("draw", position, step) >> 11) / 2**53
        threshold = uniform * math.fsum(weights)
        for index, weight in enumerate(weights):
            threshold -= weight
            if threshold < 0:
                return index
        return max(index for index, weight in enumerate(weights) if weight > 0)

    def seed(self, position: int, step: int) -> int | None:
        return self._bits("server", position, step) >> 33 if self.given else None

    def _bits(self, what: str, position: int, step: int) -> int:
        key = f"{what}|{self.entropy}|{position}|{step}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Law:
    """How a server samples. ``temperature``: above 0, at most 1. ``top_p``: above 0; 1 means no nucleus.
    ``alternatives``: how many of the likeliest tokens it lists at a position. ``nucleus_first``: the nucleus is
    taken of the probabilities at temperature 1 (llama.cpp), not at the caller's (vLLM).
    """

    temperature: float
    top_p: float = 1.0
    alternatives: int = 20
    nucleus_first: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """What may stand at a position: the listed ``tokens`` and their ``weights``, likeliest first, and the rest.

    ``outside``: the envelope's weight of the rest, 0: there is none. ``mass``: the probability of the rest.
    ``bound``: no token of it is likelier. ``power``: 1/T − 1. ``extra``: the draft's own token where it is listed
    although it is none of the likeliest: a part of the rest whose probability is known.
    """

    tokens: tuple[Alternative, ...]
    weights: tuple[float, ...]
    outside: float = 0.0
    mass: float = 0.0
    bound: float = 0.0
    power: float = 0.0
    extra: Alternative | None = None

    @property
    def banned(self) -> tuple[int, ...]:
        """Ids of all tokens that the rest does not contain."""
        known = self.tokens if self.extra is None else (*self.tokens, self.extra)
        return tuple(token.token_id for token in known if token.token_id is not None)


def spread(position: TargetLogprob, law: Law, named: Callable[[Alternative], bool]) -> Spread | None:
    """The distribution at a position as far as it is needed, or ``None``: not known well enough.

    ``position``: with the token that stands there, or with ``logprob=None`` where none does. ``named``: whether a
    token can be shown, or is known to end the turn.
    """
    listed: dict[int, Alternative] = {}
    for one in position.top:
        if one.token_id is None:
            return None
        if usable(one.logprob):
            listed[one.token_id] = one
    extra = _extra(position, listed, law.alternatives)
    tokens = [one for one in listed.values() if extra is None or one.token_id != extra.token_id]
    tokens.sort(key=lambda one: (-one.logprob, one.token_id or 0))
    shares = [_probability(one) for one in tokens]
    mass = 1.0 - math.fsum(shares)
    if not tokens or mass < -_TOO_MUCH:
        return None
    mass = mass if mass > _NOTHING else 0.0
    if law.top_p < 1:
        return _nucleus(tokens, shares, mass, law, named)
    return _whole(tokens, shares, mass, law, named, extra)


def _extra(position: TargetLogprob, listed: dict[int, Alternative], asked: int) -> Alternative | None:
    """The token that stands there, if it is listed only because it does."""
    own, logprob = position.token_id, position.logprob
    if own is None or logprob is None or not usable(logprob):
        return None
    if own in listed and len(listed) <= asked and (position.rank is None or position.rank <= len(listed)):
        return None
    return Alternative(position.text, logprob, own)


def _probability(token: Alternative) -> float:
    return math.exp(min(token.logprob, 0.0))


def _nucleus(
    tokens: list[Alternative], shares: list[float], mass: float, law: Law, named: Callable[[Alternative], bool]
) -> Spread | None:
    """The likeliest tokens that just reach ``top_p``, if it is certain which they are and what each of them is."""
    power = 1.0 / law.temperature - 1.0
    weights = _weights(shares, shares[0], power)
    sizes = shares if law.nucleus_first else weights
    # All there is weighs between what is listed and that with the most that the rest can weigh.
    least = most = 1.0
    if not law.nucleus_first and power:
        least = math.fsum(weights)
        most = least + mass * (shares[-1] / shares[0]) ** power
    before = reached = 0.0
    count = 0
    for size in sizes:
        before, reached, count = reached, reached + size, count + 1
        if reached >= (law.top_p + _MARGIN) * most:
            break
    else:
        return None
    if before >= (law.top_p - _MARGIN) * least:
        return None
    tied = shares[count] == shares[count - 1] if count < len(shares) else mass > 0
    if tied or not all(map(named, tokens[:count])):
        return None
    return Spread(tuple(tokens[:count]), tuple(weights[:count]))


def _whole(
    tokens: list[Alternative],
    shares: list[float],
    mass: float,
    law: Law,
    named: Callable[[Alternative], bool],
    extra: Alternative | None,
) -> Spread | None:
    """All tokens: the listed ones that can be named (one at least), and an envelope of the rest."""
    power = 1.0 / law.temperature - 1.0
    names = [named(one) for one in tokens]
    if not any(names):
        return None
    hidden = [share for share, name in zip(shares, names, strict=True) if not name]
    mass += math.fsum(hidden)
    bound = max([shares[-1], *hidden])
    if extra is not None and (mass == 0 or not named(extra)):
        extra = None  # a part of the rest like any other
    if extra is not None:
        mass = max(mass, _probability(extra))
    weights = _weights(shares, shares[0], power)
    return Spread(
        tuple(one for one, name in zip(tokens, names, strict=True) if name),
        tuple(weight for weight, name in zip(weights, names, strict=True) if name),
        mass * (bound / shares[0]) ** power,
        mass,
        bound,
        power,
        extra,
    )


def _weights(shares: Sequence[float], largest: float, power: float) -> list[float]:
    """p^(1/T), up to a common factor."""
    return [share * (share / largest) ** power for share in shares]


class Sampler:
    """Draws at one position, step by step until a token is kept."""

    def __init__(self, spread: Spread, draws: Draws, position: int) -> None:
        self.spread = spread
        self._draws = draws
        self._position = position
        self._step = 0

    def choose(self) -> Alternative | None:
        """A listed token, or ``None``: ask the server for one of the rest, and then :meth:`keeps`."""
        spread = self.spread
        while True:
            index = self._pick((*spread.weights, spread.outside))
            if index < len(spread.tokens):
                return spread.tokens[index]
            if spread.extra is None:
                return None
            share = _probability(spread.extra)
            if self._pick((share, spread.mass - share)) == 1:
                return None
            if self.keeps(spread.extra.logprob):
                return spread.extra

    def keeps(self, logprob: float) -> bool:
        """Whether a token of the rest with this log-probability (at temperature 1) is kept; else choose anew."""
        if self.spread.power == 0:
            return True
        share = min(1.0, (math.exp(min(logprob, 0.0)) / self.spread.bound) ** self.spread.power)
        return self._pick((share, 1.0 - share)) == 0

    def seed(self) -> int | None:
        """The seed for the server's draw of a token of the rest."""
        return self._draws.seed(self._position, self._step)

    def _pick(self, weights: Sequence[float]) -> int:
        self._step += 1
        return self._draws.pick(weights, self._position, self._step - 1)
