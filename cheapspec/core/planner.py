"""Whether to have a draft scored, and how many of its tokens: expected value, with a look at later rounds.

The choice of every round is between *handing off now* (before round one: going direct) and *scoring
the first K draft tokens*, after which it is made anew.

In units of the input price (r = output price, X = tokens of prompt and verified reply, s_k =
probability that the first k draft tokens are accepted, f = probability that the reply ends inside
this round, g = generated tokens billed with a scoring call, q = price of a context token in a direct
call (q0), a scoring call (qs) and a hand-off (qh); q_now = q0 before round one, qh after) a round that is
followed by a hand-off gains over handing off now::

    gain(K) = r·(Σ_{k≤K} s_k + (1 − f) − g) − K − X·(qs − q_now) − (1 − f)·(X + E[n + 1 | unfinished])·qh

Tokens gained include the correction (one of the scored alternatives, free) or the bonus token (the
generated one, billed in g). Where the target samples, either may have to be asked for: t draws a round (expected),
each a call of its own, take off (1 − f)·t·(X·qh + r). Before round one nobody may have written the target's
cache for this request: the first scoring call pays for the context at ``ContextPrices.first``. A target that is
*forced* to generate the draft bills it at output price. After the round comes not a hand-off but the better
of hand-off and another round (:mod:`cheapspec.core.lookahead`): its expected value is added, and the best K is taken.

The same formula serves seconds: :class:`Rates` is then a vector of seconds (:mod:`cheapspec.core.speed`).
Everything here is a float: plans are estimates; bills are ``Decimal`` (:mod:`cheapspec.core.money`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.lookahead import Terms, best_course
from cheapspec.core.money import Prices
from cheapspec.core.priors import Outlook

__all__ = [
    "ContextPrices",
    "Decision",
    "Rates",
    "call_prices",
    "gain",
    "lookahead_terms",
    "plan",
]

_GENERATED = 1  # no target scores without generating a token
_ROUNDING = 1e-9  # a gain below this share of an output token's price is arithmetic, not money


@dataclass(frozen=True, slots=True)
class ContextPrices:
    """Price of a context token as a multiple of the input price: ``q0`` in the direct call, ``qs`` in a
    scoring call on a warm cache, ``qh`` in the hand-off. ``cold``: in the first scoring call of the request,
    surcharges for writing the cache included; ``None``: the dearer of ``q0`` and ``qs``.
    """

    q0: float = 1.0
    qs: float = 1.0
    qh: float = 1.0
    cold: float | None = None

    @property
    def first(self) -> float:
        """What the first scoring call pays: what the direct call reads cold, scoring reads cold too."""
        return max(self.q0, self.qs) if self.cold is None else self.cold


@dataclass(frozen=True, slots=True)
class Rates:
    """What the gain is computed with: price of an input, an output and a scored draft token, of a call, and of
    drafting a token once more (after a rejection).
    """

    input: float
    output: float
    draft: float
    request: float = 0.0
    drafting: float = 0.0

    @classmethod
    def of(cls, prices: Prices, *, forced: bool = False) -> Rates:
        """Dollars per token (per call). ``forced``: the target generates the draft, at output price. Scored
        tokens are written to the cache, at its surcharge where there is one.
        """
        per_input, per_output = float(prices.input) / 1e6, float(prices.output) / 1e6
        scored = max(per_input, float(prices.cache_write or 0) / 1e6)
        return cls(per_input, per_output, per_output if forced else scored, float(prices.request))


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next.

    ``action``: ``"score"`` the first ``draft_tokens`` tokens, ``"handoff"`` (later rounds) or
    ``"direct"`` (before round one). ``expected_gain``: over handing off now, of the best K, later rounds
    included (≤ 0 when that is not worth it), in the unit of the rates; ``None`` when unknown. ``why``: one
    sentence with the numbers; ``reason``: one of the reasons that replies and ledger use, empty for ``"score"``.
    ``best_tokens``: the best K, also where it is not worth it.
    """

    action: str
    draft_tokens: int
    expected_gain: float | None
    why: str
    reason: str = ""
    best_tokens: int = 0


def gain(
    survival: Sequence[float],
    *,
    rates: Rates,
    context_tokens: float,
    context: ContextPrices,
    first: bool,
    finish: float = 0.0,
    generated: int = _GENERATED,
    drawn: float = 0.0,
) -> float:
    """Expected gain of scoring all ``len(survival)`` tokens and then handing off, over handing off now, in the
    unit of ``rates``.

    ``context_tokens``: X. ``first``: before round one. ``finish``: f, the probability that the round ends
    the reply; it can only do so with every token accepted. ``generated``: g. ``drawn``: t.
    """
    # E[(n + 1)·unfinished] = E[n] + 1 − f·(K + 1). A call's own fee is due once more unless the reply ends.
    accepted, unfinished = math.fsum(survival), 1.0 - finish
    q_now, q_score = (context.q0, context.first) if first else (context.qh, context.qs)
    reread = unfinished * context_tokens + accepted + 1.0 - finish * (len(survival) + 1)
    return (
        rates.output * (accepted + unfinished - generated)
        - rates.draft * len(survival)
        - rates.input * (context_tokens * (q_score - q_now) + reread * context.qh)
        - rates.request * unfinished
        - unfinished * drawn * _draw(rates, context, context_tokens)
    )


def _draw(rates: Rates, context: ContextPrices, context_tokens: float) -> float:
    """What it costs to have the target draw one token of its rest."""
    return rates.output + rates.request + rates.input * context_tokens * context.qh


def call_prices(prices: Prices | None, tier: str | None, input_tokens: int) -> Prices | None:
    """What a call of this service tier and so many input tokens is planned with: the standard tier's prices where those
    of the tier are unknown.
    """
    return None if prices is None else (prices.of_tier(tier) or prices).at(input_tokens)


def plan(
    round_index: int,
    prices: Prices | None,
    context_tokens: int,
    context: ContextPrices,
    draft: Sequence[DraftToken],
    *,
    finished: bool = False,
    remaining: int | None = None,
    can_score: bool = True,
    can_force: bool = False,
    simulate_scoring: bool = False,
    fixed: int | None = None,
    outlook: Outlook | None = None,
    rates: Rates | None = None,
    drawn: float = 0.0,
) -> Decision:
    """Choose K, or not to score. Nothing is raised; at most a millisecond for 512 tokens.

    ``round_index``: 0 before round one. ``context_tokens``: prompt and verified reply, in tokens.
    ``finished``: the draft model ended its turn at the end of ``draft``. ``remaining``: reply tokens left
    of the caller's limit; a draft that fills them ends the reply. ``can_force`` (without ``can_score``):
    the draft is billed at output price, unless ``simulate_scoring`` prices it as scored. ``fixed``: a
    given K, no planning. ``outlook``: what is believed of these tokens (:mod:`cheapspec.core.priors`);
    without it the stated prior. ``drawn``: draws that a round is expected to pay for where the target samples.
    ``rates``: plan in these (seconds), not in dollars of ``prices``.
    """
    stop = "handoff" if round_index else "direct"
    if not (can_score or can_force):
        return Decision(stop, 0, None, "the target cannot score given text", "cannot_score")
    longest = min([len(draft), *(limit for limit in (remaining, fixed) if limit is not None)])
    if longest <= 0:
        return Decision(stop, 0, None, "there is no draft to score", "no_draft")
    if fixed is not None:
        return Decision("score", longest, None, f"draft_tokens={fixed} is fixed: {longest} tokens, no planning")
    unit = "$" if rates is None else "s "
    if rates is None:
        if prices is None:
            return Decision(stop, 0, None, "the target's price is unknown", "price_unknown")
        rates = Rates.of(prices, forced=not can_score and not simulate_scoring)
    believed = (Outlook.prior(draft) if outlook is None else outlook).head(longest)
    ending = 1.0 if longest == remaining else believed.end if finished and longest == len(draft) else 0.0
    terms = lookahead_terms(rates, context, context_tokens, first=not round_index, drawn=drawn)
    course = best_course(believed, ending, terms)
    numbers = (
        f"{course.tokens} of {len(draft)} draft tokens on {context_tokens} context tokens: "
        f"expected gain {unit}{course.value:+.7f} (output/input {_ratio(rates)}, "
        f"q0 {context.q0:g}, qs {context.qs:g}, qh {context.qh:g})"
    )
    if course.value > _ROUNDING * rates.output:
        return Decision("score", course.tokens, course.value, f"score {numbers}", best_tokens=course.tokens)
    reason: str = "not_worth_it" if unit == "$" else "latency"
    return Decision(stop, 0, course.value, f"not worth it: at best {numbers}", reason, course.tokens)


def lookahead_terms(
    rates: Rates, context: ContextPrices, context_tokens: float, *, first: bool, drawn: float = 0.0
) -> Terms:
    """The parts of the gain, in the unit of ``rates``. Every round pays for its context and generates a token, and for
    ``drawn`` more calls unless it ends the reply; the hand-off after it reads what is there then.
    """
    draw = drawn * _draw(rates, context, context_tokens)
    generated = rates.output * (_GENERATED - 1.0)
    each = generated + rates.request + rates.input * context.qh + draw
    later = each + rates.input * context_tokens * context.qs
    cold = each + rates.input * context_tokens * (context.first - context.q0 + context.qh)
    reread = rates.input * context.qh
    return Terms(
        accepted=rates.output - reread,
        scored=rates.draft,
        now=cold if first else later,
        later=later,
        further=rates.input * (context.qs + drawn * context.qh),
        ended=reread * (context_tokens + 1.0) + rates.request - rates.output + draw,
        reread=reread,
        drafting=rates.drafting,
    )


def _ratio(rates: Rates) -> str:
    return f"{rates.output / rates.input:.3g}" if rates.input else "free input"
