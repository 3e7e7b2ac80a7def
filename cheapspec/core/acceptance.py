"""Acceptance rules: pure functions on log-probabilities.

Rules
-----
* "Unverified" is never "accepted". A number that is no number (NaN, an infinity, a server's −9999 for
  "none", a missing one) ends the walk; every test here is written so that NaN fails it.
* At temperature 0 a token holds when it is the argmax of the target's own distribution at its
  position; of equally likely leaders that is the one with the lowest id ("the first maximal value":
  torch.argmax, PyTorch 2.15). Without ids nobody can say which it is, and a leader holds as a tie. The
  order of a listing means nothing; the given token may be missing from it or stand in it twice. A
  listing that cannot show who the argmax is gives no evidence.
* Tokens are told apart by id, by text only where an id is missing: different ids can share a text
  (U+FFFD for parts of characters).
* Randomness is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "Alternative",
    "DraftToken",
    "StochasticResult",
    "TargetLogprob",
    "VerificationResult",
    "shows_distribution",
    "usable",
    "verify_draft_tokens",
    "verify_greedy",
    "verify_lenient",
    "verify_stochastic",
]

_NONE_BELOW = -9000.0  # vLLM and OpenAI's legacy route clamp to -9999.0
_ROUNDING = 1e-3  # log-probabilities of near certain tokens come out a little above 0 in half precision
_HALF = math.log(0.5)


@dataclass(frozen=True, slots=True)
class DraftToken:
    """A token of the draft model.

    ``text``: its text; the texts of a draft's tokens concatenate to the draft. ``logprob``: natural
    log of the draft model's own probability, ``None`` when unknown (an entry that spans several
    tokens, a drafter without log-probabilities).
    """

    text: str
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One token that the target lists at a position. ``text`` may hold U+FFFD for part of a character."""

    text: str
    logprob: float
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class TargetLogprob:
    """The target's judgement of one position of the scored text.

    ``text``/``token_id``: the token that stands there. ``logprob``: its natural-log probability, or
    ``None`` when the reply has no usable number. ``rank``: 1-based rank where the server says it
    (ties share the lower rank, so two equal leaders are both 2). ``top``: listed alternatives, the
    given token among them or not, in any order.
    """

    text: str
    logprob: float | None
    token_id: int | None = None
    rank: int | None = None
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """``accepted``: how many leading tokens hold. ``correction``: the target's own token at the first
    position that does not, ``None`` when all hold or no usable alternative is listed. ``ties``:
    accepted tokens that were not the sole argmax. ``unverified``: positions without usable numbers
    at which the walk had to stop (0 or 1). ``lenient``: accepted tokens that were not the target's own choice.
    """

    accepted: int
    correction: Alternative | None = None
    ties: int = 0
    unverified: int = 0
    lenient: int = 0


@dataclass(frozen=True, slots=True)
class StochasticResult:
    """``accepted``: how many leading draft tokens hold. ``token``: what comes after them, drawn from the
    residual distribution (after a rejection) or from the target's own (all hold); ``None`` when all
    hold and no distribution for the next position was given.
    """

    accepted: int
    token: str | None


def usable(logprob: float | None) -> bool:
    """Whether it is a natural-log probability at all. NaN, ±inf, ``None`` and −9999 ("none") are not."""
    return logprob is not None and _NONE_BELOW < logprob <= _ROUNDING


def shows_distribution(logprobs: Iterable[float | None]) -> bool:
    """Whether these numbers can come from a real distribution.

    False when none is usable or every usable one is exactly 0.0: some servers report log-probabilities
    after top-p filtering, or fill in zeros, and everything looks certain.
    """
    return any(usable(logprob) and logprob != 0.0 for logprob in logprobs)


def verify_greedy(
    target: Sequence[TargetLogprob], *, tie_nats: float = 0.0, limit: int | None = None
) -> VerificationResult:
    """Accept the leading tokens that the target itself would have chosen at temperature 0.

    ``target``: one entry a scored token, in order. ``tie_nats``: accept a token this much (in nats)
    below the best as well, whatever its id; at 0 a leader is accepted beside equal ones unless one of them
    is known to have a lower id. ``limit``: look at no more positions.
    """
    ties = 0
    considered = target if limit is None else target[: max(limit, 0)]
    # A reply in which no position lists another token may list nothing but what it was given: no evidence.
    lists_others = any(not _same(other, position) for position in target for other in position.top)
    for accepted, position in enumerate(considered):
        verdict, best = _judge(position, tie_nats, lists_others)
        if verdict is None:
            return VerificationResult(accepted, None, ties, unverified=1)
        if verdict == "rejected":
            return VerificationResult(accepted, best, ties)
        ties += verdict == "tie"
    return VerificationResult(len(considered), None, ties)


def verify_lenient(
    target: Sequence[TargetLogprob], nats: float, *, tie_nats: float = 0.0, limit: int | None = None
) -> VerificationResult:
    """:func:`verify_greedy` that also accepts what is at most ``nats`` below the likeliest token (lossy).

    Tokens that only this accepts are counted as ``lenient``; they are no ties.
    """
    considered = target if limit is None else target[: max(limit, 0)]
    ties = lenient = 0
    lists_others = any(not _same(other, position) for position in target for other in position.top)
    for accepted, position in enumerate(considered):
        verdict, best = _judge(position, tie_nats, lists_others)
        if verdict is None:
            return VerificationResult(accepted, None, ties, 1, lenient)
        if verdict == "rejected":
            top = max((other.logprob for other in position.top if usable(other.logprob)), default=None)
            if top is None or position.logprob is None or not position.logprob >= top - nats:
                return VerificationResult(accepted, best, ties, 0, lenient)
            lenient += 1
        ties += verdict == "tie"
    return VerificationResult(len(considered), None, ties, 0, lenient)


def _judge(position: TargetLogprob, tie_nats: float, lists_others: bool) -> tuple[str | None, Alternative | None]:
    """``sole``, ``tie``, ``rejected`` (with the best other token) or ``None``: no evidence."""
    logprob = position.logprob
    if logprob is None or not usable(logprob):
        return None, None
    if position.rank == 1:
        contradicted = any(usable(other.logprob) and other.logprob > logprob + _ROUNDING for other in position.top)
        return (None if contradicted else "sole"), None
    listed = [alternative for alternative in position.top if usable(alternative.logprob)]
    others = [alternative for alternative in listed if not _same(alternative, position)]
    # Equal leaders: the lowest id, as argmax over a vocabulary gives it.
    best = max(others, key=lambda other: (other.logprob, -(other.token_id or 0)), default=None)
    if best is None:
        if position.rank is not None:
            return "rejected", None  # others rank at least as high, but nobody says who
        return ("sole" if (listed and lists_others) or logprob > _HALF else None), None
    if logprob > best.logprob:
        # A server that counts others above the token and lists none of them contradicts itself.
        return ("sole" if position.rank is None else None), None
    if logprob == best.logprob and tie_nats <= 0:
        return _settle_tie(position, [other for other in others if other.logprob == logprob])
    return ("tie" if logprob >= best.logprob - tie_nats else "rejected"), best


def _settle_tie(position: TargetLogprob, leaders: Sequence[Alternative]) -> tuple[str, Alternative | None]:
    """``leaders``: the other tokens that are as likely as the given one, the likeliest of all.

    The correction is named only where all leaders are known: a rank counts those that are not listed, too.
    """
    own = position.token_id
    ids = {leader.token_id for leader in leaders}
    lower = [leader for leader in leaders if own is not None and leader.token_id is not None and leader.token_id < own]
    if not lower:
        return "tie", leaders[0]
    hidden = None in ids or (position.rank is not None and position.rank > len(ids) + 1)
    return "rejected", None if hidden else min(lower, key=lambda leader: leader.token_id or 0)


def _same(alternative: Alternative, position: TargetLogprob) -> bool:
    if alternative.token_id is not None and position.token_id is not None:
        return alternative.token_id == position.token_id
    return alternative.text == position.text


def verify_draft_tokens(
    draft: Sequence[DraftToken],
    target: Sequence[TargetLogprob],
    *,
    tie_nats: float = 0.0,
    limit: int | None = None,
) -> VerificationResult:
    """:func:`verify_greedy` for a draft in another tokenizer's tokens.

    Counts are in the target's tokens. Unless both spell the same text, the log-probabilities are of
    something else, and everything is unverified.
    """
    if "".join(token.text for token in draft) != "".join(position.text for position in target):
        return VerificationResult(0, unverified=1)
    return verify_greedy(target, tie_nats=tie_nats, limit=limit)


def verify_stochastic(
    draft_tokens: Sequence[str],
    q: Sequence[Mapping[str, float]],
    p: Sequence[Mapping[str, float]],
    uniforms: Iterable[float],
) -> StochasticResult:
    """Speculative sampling: the result is distributed as the target's own sample.

    ``draft_tokens[i]`` was drawn from ``q[i]``; ``p[i]`` is the target's distribution at the same
    position (probabilities, not logs); ``p`` may have one entry more, for the token after the draft.
    Each position takes one number of ``uniforms`` (in [0, 1)), the final draw one more. Accept with
    min(1, p/q), else draw from max(0, p - q), normalised (Leviathan et al. 2023, arXiv 2211.17192;
    Chen et al. 2023, arXiv 2302.01318).

    Raises ``ValueError`` when the lengths do not fit or a draft token has no probability under ``q``.
    """
    if len(q) != len(draft_tokens) or len(p) - len(draft_tokens) not in (0, 1):
        raise ValueError(f"{len(draft_tokens)} draft tokens need as many q and as many p or one more")
    chance = iter(uniforms)
    for index, token in enumerate(draft_tokens):
        drafted, wanted = q[index].get(token, 0), p[index].get(token, 0)
        if not drafted > 0:
            raise ValueError(f"draft token {index} has no probability under its own distribution")
        if next(chance) * drafted < wanted:
            continue
        residual = {other: share - q[index].get(other, 0) for other, share in p[index].items()}
        if not any(weight > 0 for weight in residual.values()):
            residual = dict(p[index])  # p is q but for rounding
        return StochasticResult(index, _draw(residual, next(chance)))
    if len(p) == len(draft_tokens):
        return StochasticResult(len(draft_tokens), None)
    return StochasticResult(len(draft_tokens), _draw(p[-1], next(chance)))


def _draw(weights: Mapping[str, float], uniform: float) -> str | None:
    """The token at ``uniform`` of the positive weights' cumulative sum; ``None`` if there is none."""
    positive = [(token, weight) for token, weight in weights.items() if weight > 0]
    threshold = uniform * sum(weight for _, weight in positive)
    for token, weight in positive:
        threshold -= weight
        if threshold < 0:
            return token
    return positive[-1][0] if positive else None
