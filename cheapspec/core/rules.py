"""The acceptance rules that a caller can name, as values.

``exact`` is the default and has no object. A rule here says what is given up for what is saved; what it changed
is counted beside what the target itself would have written, never as the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cheapspec.core.untyped import is_number

__all__ = ["MOST_NATS", "Lenient", "text_match_cost", "text_match_refusal"]


MOST_NATS = 100.0
"""The widest margin: e^-100 is below what a probability in float32 can be. Servers that do not list a token leave only
numbers far below (llama-cpp-python's dialect), and no margin may take those for close."""


@dataclass(frozen=True, slots=True)
class Lenient:
    """Accept a draft token as long as its log-probability is at most ``nats`` below the likeliest token's.

    Lossy: the reply may differ from the target's own at every such token (at 1 nat a token that is at least
    e^−1 = .37 times as likely as the best). How many tokens it changed is in the facts of each reply
    (``lenient_tokens``). ``nats=0`` is ``exact`` but for ties.

    :raises ValueError: ``nats`` is negative, above :data:`MOST_NATS`, or no number.
    """

    nats: float = 1.0

    def __post_init__(self) -> None:
        given: Any = self.nats  # a caller may write anything
        if not is_number(given):
            raise ValueError(f"Lenient(nats={given!r}): write a number of nats, such as 1.0")
        if given < 0:
            raise ValueError(f"Lenient(nats={given!r}): nats must be 0 or more")
        if given > MOST_NATS:
            raise ValueError(f"Lenient(nats={given!r}): nats must be {MOST_NATS:g} or less")


def text_match_cost(prompt: int, reply: int, tokens: int, ratio: float, cached: float) -> float:
    """What text match costs, as a multiple of the direct call, when every draft token is right.

    The target generates ``tokens`` a round to compare them with the draft: each token of the ``reply`` is billed at
    output price (``ratio`` times an input token), and each round after the first reads the context again, at ``cached``
    times an input token. ``prompt``: tokens. Linear in the counts, as every bill is.
    """
    begins = range(tokens, reply, tokens)
    again = sum((prompt + at) * cached for at in begins)
    direct = prompt + reply * ratio
    return (direct + again) / direct


def text_match_refusal() -> str:
    """Why text match is refused, with the figure for the objective under which it would never pay."""
    cost = text_match_cost(500, 300, 16, 5.0, 0.1)
    return (
        "accept='text_match' is not available in this version, under any objective. With objective='cost' it would "
        "never pay: it makes the target write every token that it compares, so it costs no less than the target alone, "
        f"{cost:.2f} times as much for 300 reply tokens after 500 of a prompt in rounds of 16 (output at "
        "5 times the price of input, cached input at a tenth), even if every draft token is right. Use "
        "accept='exact' or accept='lenient'."
    )
