"""What a round is worth when more rounds may follow: backward induction over the rest of a draft.

Rules
-----
* A state is a place in the draft and the number of misses on the way there. Whoever stands there may hand off (worth
  0) or have the tokens from there to a later place scored. What comes after a miss is drafted anew, and is taken
  to be as predictable as the draft that is there; past its end nothing is hoped for.
* The look is honest: each state has the belief that it would have (:mod:`cheapspec.core.priors`: every token passed
  adds its hazard, every miss 1 to the shape), so a request that has disappointed is expected to go on so. Drafting
  again is paid for, and every round pays for its whole context.
* At most :data:`MISSES` further misses are looked ahead; after them it is the hand-off.
* Places are a grid: all tokens of a short draft; of a long one the places around its most doubtful tokens, and
  some between. Within a step of the grid a miss counts as in its middle.

With w_k the probability that the first k tokens hold (at the shape of m misses), V the value of a state, j its place, e
the round's end, a the gain of an accepted token, d the price of a scored one and F_j a round's fixed price::

    V_m(j) = max(0, max_e S_m(j, e) / w_j − d·(e − j) − F_j)
    S_m(j, e) = a·Σ_{j<k≤e} w_k + Σ_{j≤k<e} (w_k − w_{k+1})·V_{m+1}(k + 1) + w_e·T_m(e)

T is what follows a round of which all was accepted: the next token is the target's own, which the draft may have
foreseen; at the draft's very end the reply may be over, and the hand-off is saved.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from cheapspec.core.priors import Outlook

__all__ = ["GRID", "MISSES", "Course", "Terms", "best_course"]

GRID = 32
"""Places of a draft that are looked at."""

MISSES = 3
"""Rounds that end in a miss which are looked ahead."""

_HOPELESS = 100.0  # sum of hazards after which no token is reached


@dataclass(frozen=True, slots=True)
class Terms:
    """Prices of rounds. ``accepted``: gain of a token accepted; ``scored``: price of one scored; ``now``: fixed price
    of the round that is decided on; ``later``: of one at the same place later on, ``further`` more for each token
    that the reply has grown; ``ended``: gain of a round that ends the reply at the place where the draft begins,
    ``reread`` more for each token further; ``drafting``: price of a token drafted anew.
    """

    accepted: float
    scored: float
    now: float
    later: float
    further: float
    ended: float
    reread: float
    drafting: float = 0.0


@dataclass(frozen=True, slots=True)
class Course:
    """The best way on: ``tokens`` to score, their expected ``value`` over handing off now (≤ 0: hand off)."""

    tokens: int
    value: float


def best_course(outlook: Outlook, ending: float, terms: Terms) -> Course:
    """The best K ≥ 1. ``ending``: probability that the reply ends with the draft, all of it accepted."""
    hazards = outlook.hazards
    passed = [0.0, *accumulate(hazards)]
    reachable = max(2, bisect_right(passed, _HOPELESS))
    if reachable < len(passed):
        ending = 0.0
        passed = passed[:reachable]
    rate = outlook.rate or outlook.shape
    # With one more miss the shape is one more: each further level is a product with these.
    factors = [rate / (rate + hazard) for hazard in passed]
    alive = [factor**outlook.shape for factor in factors]
    levels = [alive]
    for _ in range(1, MISSES):
        alive = list(map(mul, alive, factors))
        levels.append(alive)
    places = _grid(hazards[: len(passed) - 1])
    values = [0.0] * len(places)
    course = Course(1, -math.inf)
    for misses in reversed(range(MISSES)):
        values, course = _level(levels[misses], places, misses, values, ending, terms)
    return course


def _level(
    alive: Sequence[float],
    places: Sequence[int],
    misses: int,
    after: Sequence[float],
    ending: float,
    terms: Terms,
) -> tuple[list[float], Course]:
    """The values of all places after so many misses, from those after one more; and the best K at the first place.
    ``alive``: probability that the first k tokens hold.
    """
    last, longest = len(places) - 1, places[-1]
    reached = list(accumulate(alive))
    lost, bases = 0.0, list[float]()
    for index, place in enumerate(places):
        if index:
            before, step = places[index - 1], place - places[index - 1]
            middle = (step + 1) / (2 * step)
            lost += (alive[before] - alive[place]) * (after[index - 1] + middle * (after[index] - after[index - 1]))
        bases.append(terms.accepted * (reached[place] - 1.0) + lost)
    ends = list(bases)  # of a round up to there: what its tokens gain, and what follows them
    ends[last] += alive[longest] * ending * (terms.ended + terms.reread * longest)
    scored = [terms.scored * place for place in places]
    values = [0.0] * (last + 1)
    course = Course(1, -math.inf)
    for index in reversed(range(last)):
        place = places[index]
        up = 1.0 / alive[place]
        bills = [up * end - price for end, price in zip(ends[index + 1 :], scored[index + 1 :], strict=True)]
        best = max(bills)
        first = not (index or misses)
        fixed = terms.now if first else terms.later + terms.further * place
        fixed += terms.drafting * (longest - place) if misses else 0.0
        value = best - up * bases[index] + scored[index] - fixed
        values[index] = max(0.0, value)
        if first:
            course = Course(places[index + 1 + bills.index(best)], value)
        elif index:
            foreseen = alive[place + 1] * up
            share = 1 / (places[index + 1] - place)
            on = values[index] + share * (values[index + 1] - values[index])
            anew = after[index] + share * (after[index + 1] - after[index])
            ends[index] += alive[place] * (foreseen * on + (1 - foreseen) * anew)
    return values, course


def _grid(hazards: Sequence[float]) -> list[int]:
    """Places from 0 to the last: all, or those around the most doubtful tokens and some at even distances."""
    longest = len(hazards)
    if longest <= GRID:
        return list(range(longest + 1))
    chosen = {0, 1, *(round(longest * step / (GRID // 3)) for step in range(1, GRID // 3 + 1))}
    doubtful = iter(sorted(range(longest), key=hazards.__getitem__, reverse=True))
    while len(chosen) < GRID:
        place = next(doubtful)
        chosen |= {place, place + 1}
    return sorted(chosen)
