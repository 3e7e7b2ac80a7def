"""The acceptance rules that a caller can name, as values.

``exact`` is the default and has no object. A rule here says what is given up for what is saved; what it changed
is counted beside what the target itself would have written, never as the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cheapspec.core.money import Prices
from cheapspec.core.untyped import is_number

__all__ = ["MOST_NATS", "WINDOW", "Lenient", "TextMatch", "text_match_cost", "text_match_refusal"]


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


WINDOW = 32
"""Draft tokens that text match compares in one window, unless ``draft_tokens`` says otherwise."""


@dataclass(frozen=True, slots=True)
class TextMatch:
    """The target writes by itself at temperature 0, and a draft holds as far as it says the same: proof of agreement.

    The reply is the target's own. Every compared token is billed as output, so this costs more than the target alone.
    ``min_probability``: a draft token that differs holds as well if the target gives it at least so much (above 0, at
    most 1). That is lossy: how many tokens it changed is in the facts of each reply (``lenient_tokens``).

    :raises ValueError: ``min_probability`` is no probability.
    """

    min_probability: float | None = None

    def __post_init__(self) -> None:
        given: Any = self.min_probability  # a caller may write anything
        if given is None:
            return
        if not is_number(given) or not math.exp(-MOST_NATS) <= given <= 1:
            raise ValueError(f"TextMatch(min_probability={given!r}): write a probability above 0 and at most 1")

    @property
    def name(self) -> str:
        """``text_match``, or under a probability, which is no exact rule, ``text_match_probable``."""
        return "text_match" if self.min_probability is None else "text_match_probable"

    @property
    def nats(self) -> float | None:
        """The least probability as nats below a certain token; ``None``: only what the target wrote holds."""
        return None if self.min_probability is None else -math.log(self.min_probability)


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


def text_match_refusal(prices: Prices | None = None) -> str:
    """Why text match is refused where dollars are the objective, with the figure. ``prices``: the caller's; ``None``:
    output at 5 times the price of input, cached input at a tenth.
    """
    ratio, cached, whose = 5.0, 0.1, "output at 5 times the price of input, cached input at a tenth"
    if prices is not None and prices.input:
        ratio = float(prices.output / prices.input)
        cached = float((prices.input if prices.cached_input is None else prices.cached_input) / prices.input)
        whose = f"at your prices, output {ratio:g} times and cached input {cached:g} times the price of input"
    cost = text_match_cost(500, 300, WINDOW, ratio, cached)
    return (
        "accept='text_match' never pays with objective='cost': it makes the target write every token that it compares, "
        f"so it costs no less than the target alone, {cost:.2f} times as much for 300 reply tokens after 500 of a "
        f"prompt in windows of {WINDOW} ({whose}), even if every draft token is right. For proof of agreement write "
        "objective='latency', or a fixed draft_tokens; to save dollars, accept='exact' or a rule about whole drafts."
    )
