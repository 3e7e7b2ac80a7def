"""Acceptance rules: pure functions on log-probabilities. (Types first; rules below.)"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Alternative", "DraftToken", "TargetLogprob", "VerificationResult"]


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
    at which the walk had to stop (0 or 1)."""

    accepted: int
    correction: Alternative | None = None
    ties: int = 0
    unverified: int = 0
