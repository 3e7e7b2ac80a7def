"""Whether to have a draft scored, and how many of its tokens: expected value in dollars.

The choice of every round is between *handing off now* (before round one: going direct) and *scoring
the first K draft tokens, then handing off*. Their difference is the gain of K. It is looked one round
ahead and no further: what later rounds may add is not counted, so the plan errs on the dear side of
its promise, and a later round is taken only when it pays by itself.

In units of the input price (r = output price, X = tokens of prompt and verified reply, s_k =
probability that the first k draft tokens are accepted, f = probability that the reply ends inside
this round, g = generated tokens billed with a scoring call, q = price of a context token in a direct
call (q0), a scoring call (qs) and a hand-off (qh); q_now = q0 before round one, qh after)::

    gain(K) = r·(Σ_{k≤K} s_k + (1 − f) − g) − K − X·(qs − q_now) − (1 − f)·(X + E[n + 1 | unfinished])·qh

Tokens gained include the correction (one of the scored alternatives, free) or the bonus token (the
generated one, billed in g). Before round one nobody has written the target's cache for this request:
``plan`` then takes qs as at least q0, whatever was probed on a warm cache. A target that is *forced* to
generate the draft bills it at output price.
Everything here is a float: plans are estimates; bills are ``Decimal`` (:mod:`cheapspec.core.money`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.money import Prices

__all__ = [
    "AGREEMENT",
    "AGREEMENT_CAP",
    "UNKNOWN_AGREEMENT",
    "ContextPrices",
    "Decision",
    "Rates",
    "estimate",
    "gain",
    "plan",
]

AGREEMENT: tuple[tuple[float, float], ...] = (
    (0.0, 0.07),
    (0.1, 0.19),
    (0.2, 0.34),
    (0.3, 0.39),
    (0.4, 0.53),
    (0.5, 0.60),
    (0.6, 0.73),
    (0.7, 0.86),
    (0.8, 0.92),
    (0.9, 0.97),
    (0.99, 1.00),
)
"""From which draft probability on, how often target and draft agree. Measured 2026-11: Qwen2.5-Coder
0.5B → 1.5B Instruct, greedy, 36 prompts of six kinds, 5,229 positions (2,900 of them at ≥ .99)."""

AGREEMENT_CAP = 0.995
"""No position counts as certain: the table's last row is 1.00 after rounding, so at least .995."""

UNKNOWN_AGREEMENT = 0.73
"""Agreement where a draft model's probability is unknown, and of a draft's end with the target's: the mean
of the least predictable kind of the same measurement (open questions; code had .975)."""

_EDGES = [math.log(edge) if edge else -math.inf for edge, _ in AGREEMENT]
_RATES = [min(rate, AGREEMENT_CAP) for _, rate in AGREEMENT]
_GENERATED = 1  # no target scores without generating a token
_ROUNDING = 1e-9  # a gain below this share of the hand-off's cost is arithmetic, not money


@dataclass(frozen=True, slots=True)
class ContextPrices:
    """Price of a context token as a multiple of the input price: ``q0`` in the direct call, ``qs`` in a
    scoring call, ``qh`` in the hand-off; cache-write surcharges are part of ``qs`` and ``qh``.
    """

    q0: float = 1.0
    qs: float = 1.0
    qh: float = 1.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What the gain is computed with: price of an input, an output and a draft token, and of a call."""

    input: float
    output: float
    draft: float
    request: float = 0.0

    @classmethod
    def of(cls, prices: Prices, *, forced: bool = False) -> Rates:
        """Dollars per token (per call). ``forced``: the target generates the draft, at output price."""
        per_input, per_output = float(prices.input) / 1e6, float(prices.output) / 1e6
        return cls(per_input, per_output, per_output if forced else per_input, float(prices.request))


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next.

    ``action``: ``"score"`` the first ``draft_tokens`` tokens, ``"handoff"`` (later rounds) or
    ``"direct"`` (before round one). ``expected_gain``: dollars over handing off now of the best K
    (≤ 0 when that is not worth it), ``None`` when unknown. ``why``: one sentence with the numbers;
    ``reason``: one of the reasons that replies and ledger use, empty for ``"score"``.
    """

    action: str
    draft_tokens: int
    expected_gain: float | None
    why: str
    reason: str = ""


def estimate(tokens: Sequence[DraftToken], unknown: float = UNKNOWN_AGREEMENT) -> list[float]:
    """s_1 … s_n: probability that the first k draft tokens are all accepted (a running product).

    ``unknown``: the agreement of a token without a log-probability.
    """
    survival: list[float] = []
    alive = 1.0
    for token in tokens:
        alive *= _agreement(token.logprob, unknown)
        survival.append(alive)
    return survival


def gain(
    survival: Sequence[float],
    *,
    rates: Rates,
    context_tokens: float,
    context: ContextPrices,
    first: bool,
    finish: float = 0.0,
    generated: int = 1,
) -> float:
    """Expected gain of scoring all ``len(survival)`` tokens over handing off now, in the unit of ``rates``.

    ``context_tokens``: X. ``first``: before round one. ``finish``: f, the probability that the round ends
    the reply; it can only do so with every token accepted. ``generated``: g.
    """
    return _gain(len(survival), math.fsum(survival), rates, context_tokens, context, first, finish, generated)


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
    unknown: float = UNKNOWN_AGREEMENT,
) -> Decision:
    """Choose K among all prefixes of the draft, or not to score. O(n), nothing is raised.

    ``round_index``: 0 before round one. ``context_tokens``: prompt and verified reply, in tokens.
    ``finished``: the draft model ended its turn at the end of ``draft``. ``remaining``: reply tokens left
    of the caller's limit; a draft that fills them ends the reply. ``can_force`` (without ``can_score``):
    the draft is billed at output price, unless ``simulate_scoring`` prices it as scored. ``fixed``: a
    given K, no planning. ``unknown``: the agreement of tokens without a log-probability
    (:mod:`cheapspec.core.priors` for given text).
    """
    stop = "handoff" if round_index else "direct"
    if not (can_score or can_force):
        return Decision(stop, 0, None, "the target cannot score given text", "cannot_score")
    longest = min([len(draft), *(limit for limit in (remaining, fixed) if limit is not None)])
    if longest <= 0:
        return Decision(stop, 0, None, "there is no draft to score", "no_draft")
    if fixed is not None:
        return Decision("score", longest, None, f"draft_tokens={fixed} is fixed: {longest} tokens, no planning")
    if prices is None:
        return Decision(stop, 0, None, "the target's price is unknown", "price_unknown")

    rates = Rates.of(prices, forced=not can_score and not simulate_scoring)
    if not round_index:
        context = replace(context, qs=max(context.qs, context.q0))
    survival = estimate(draft[:longest], unknown)
    first, last = not round_index, survival[-1]
    end = last if longest == remaining else last * UNKNOWN_AGREEMENT if finished and longest == len(draft) else 0.0
    # Only the last K can end the reply. For all others f = 0, and the gain is linear in E[n] and K.
    fixed_part = _gain(0, 0.0, rates, context_tokens, context, first, 0.0, _GENERATED)
    per_accepted = rates.output - rates.input * context.qh
    best, best_gain, accepted = 0, -math.inf, 0.0
    for k, alive in enumerate(survival[:-1], start=1):
        accepted += alive
        expected = fixed_part + per_accepted * accepted - rates.draft * k
        if expected > best_gain:
            best, best_gain = k, expected
    whole = _gain(longest, accepted + last, rates, context_tokens, context, first, end, _GENERATED)
    if whole > best_gain:
        best, best_gain = longest, whole
    numbers = (
        f"{best} of {len(draft)} draft tokens on {context_tokens} context tokens: "
        f"expected gain ${best_gain:+.7f} (output/input {_ratio(rates)}, "
        f"q0 {context.q0:g}, qs {context.qs:g}, qh {context.qh:g})"
    )
    if best_gain > _ROUNDING * rates.output:
        return Decision("score", best, best_gain, f"score {numbers}")
    return Decision(stop, 0, best_gain, f"not worth it: at best {numbers}", "not_worth_it")


def _gain(
    k: int,
    accepted: float,
    rates: Rates,
    context_tokens: float,
    context: ContextPrices,
    first: bool,
    finish: float,
    generated: int,
) -> float:
    """The closed form. ``accepted``: E[n] = Σ s_k. A round that ends the reply has accepted all k tokens,
    so E[(n + 1)·unfinished] = E[n] + 1 − f·(k + 1). A call's own fee is due once more unless it ends.
    """
    unfinished = 1.0 - finish
    q_now = context.q0 if first else context.qh
    reread = unfinished * context_tokens + accepted + 1.0 - finish * (k + 1)
    return (
        rates.output * (accepted + unfinished - generated)
        - rates.draft * k
        - rates.input * (context_tokens * (context.qs - q_now) + reread * context.qh)
        - rates.request * unfinished
    )


def _agreement(logprob: float | None, unknown: float) -> float:
    if logprob is None or math.isnan(logprob):
        return min(unknown, AGREEMENT_CAP)
    return _RATES[bisect_right(_EDGES, logprob) - 1]


def _ratio(rates: Rates) -> str:
    return f"{rates.output / rates.input:.3g}" if rates.input else "free input"
