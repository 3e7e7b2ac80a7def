"""When a verdict pays: costs of a draft that is accepted or rejected, and the acceptance rate between them.

Rules
-----
* Everything is in units of the price of one input token: output costs ``output``, cached input ``cached`` of it.
* The verdict's own prompt is paid: instructions, marks, and the draft where the rule shows it.
* The verdict's call comes first and pays for the context what the direct call would have paid. After a rejection the
  direct call reads it from the host's cache, but only what that keeps: **below** ``block`` tokens (1,024 at OpenAI, its
  prompt caching guide of 2026-11) **nothing is cached, and every rejection pays the prompt twice.**
* Hidden thinking is output: the direct call's makes a verdict cheap, the verdict's own makes it dear.
* Break-even is the acceptance rate at which the expected cost is that of the direct call; ``None`` where even a draft
  that is always accepted costs more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cheapspec.core.money import Prices

__all__ = ["Costs", "Host", "Shape", "costs", "shape"]

RuleName = Literal["judge", "answer", "ok_or_answer", "patch"]


@dataclass(frozen=True, slots=True)
class Host:
    """Prices as multiples of the input price. ``block``: tokens of the shortest prompt that the host caches; ``None``:
    it caches none. ``request``: a fee a call.
    """

    output: float
    cached: float
    block: int | None = 1024
    request: float = 0.0

    @staticmethod
    def of(prices: Prices, block: int | None = 1024) -> Host | None:
        """From a price list; ``None`` where input is free, so that nothing can be a multiple of it."""
        if prices.input <= 0:
            return None
        cached = prices.input if prices.cached_input is None else prices.cached_input
        million = 1_000_000
        return Host(
            float(prices.output / prices.input),
            float(cached / prices.input),
            block,
            float(prices.request * million / prices.input),
        )

    def again(self, prompt: int) -> float:
        """What a second reading of a context costs soon after the first."""
        return prompt * (self.cached if self.block is not None and prompt >= self.block else 1.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of a verdict's call. ``asked``: its own words in the prompt; ``shown``: the draft stands in the prompt;
    ``said``: output of the verdict, hidden thinking included; ``replies``: a rejection brings the whole reply with it,
    so that no direct call follows.
    """

    asked: int
    said: int
    shown: bool = True
    replies: bool = False


SHAPES: Final[dict[str, Shape]] = {
    "judge": Shape(60, 1),
    "answer": Shape(24, 6, shown=False),
    "ok_or_answer": Shape(75, 2, replies=True),
}
"""With the prompts of :mod:`cheapspec.rules.prompts`, in tokens of about four characters."""


def shape(rule: str, thinking: int = 0) -> Shape:
    """The usual tokens of a rule's call. ``thinking``: mean hidden tokens of its own.

    :raises KeyError: the rule makes no call of a known shape.
    """
    usual = SHAPES[rule]
    return Shape(usual.asked, usual.said + thinking, usual.shown, usual.replies)


@dataclass(frozen=True, slots=True)
class Costs:
    """``direct``: the target alone; ``accepted`` and ``rejected``: a request whose draft was judged, all of it."""

    direct: float
    accepted: float
    rejected: float

    @property
    def break_even(self) -> float | None:
        """The acceptance rate from which the rule pays (0 to 1), ``None``: it never does."""
        if self.accepted >= self.direct:
            return None
        if self.rejected <= self.direct:
            return 0.0
        return (self.rejected - self.direct) / (self.rejected - self.accepted)

    def expected(self, rate: float) -> float:
        """Cost at an acceptance rate, over the direct call's."""
        return (rate * self.accepted + (1 - rate) * self.rejected) / self.direct


def costs(
    host: Host, call: Shape, prompt: int, reply: int, draft: int | None = None, *, hidden: int = 0, read: float = 1.0
) -> Costs:
    """``prompt``, ``reply``, ``draft`` (``None``: as long as the reply): tokens; ``hidden``: tokens of thinking that
    the direct call is billed for besides; ``read``: what the direct call pays for a token of context (q0; a chat's
    later turn is often cached).
    """
    written = (reply + hidden) * host.output
    direct = host.request + prompt * read + written
    own = call.asked + ((reply if draft is None else draft) if call.shown else 0)
    first = host.request + prompt * read + own
    accepted = first + call.said * host.output
    if call.replies:
        return Costs(direct, accepted, first + written)
    second = min(prompt * read, host.again(prompt))
    return Costs(direct, accepted, accepted + host.request + second + written)
