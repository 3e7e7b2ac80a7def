"""The acceptance rules that a caller can name, as values.

``exact`` is the default and has no object. A rule here says what is given up for what is saved; what it changed
is counted beside what the target itself would have written, never as the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Lenient"]


@dataclass(frozen=True, slots=True)
class Lenient:
    """Accept a draft token as long as its log-probability is at most ``nats`` below the likeliest token's.

    Lossy: the reply may differ from the target's own at every such token (at 1 nat a token that is at least
    e^−1 = .37 times as likely as the best). How many tokens it changed is in the facts of each reply
    (``lenient_tokens``). ``nats=0`` is ``exact`` but for ties.

    :raises ValueError: ``nats`` is negative or no finite number.
    """

    nats: float = 1.0

    def __post_init__(self) -> None:
        given: object = self.nats  # a caller may write anything
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise ValueError(f"Lenient(nats={given!r}): write a number of nats, such as 1.0")
        if not math.isfinite(given) or given < 0:
            raise ValueError(f"Lenient(nats={given!r}): nats must be 0 or more, and finite")
