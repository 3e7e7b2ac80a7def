"""A verdict of one letter, read from log-probabilities; of one digit, where there are none.

Rules
-----
* What counts is the first token that is not blank (white space, or marks such as ``**`` alone). Its alternatives are
  told apart by their bytes, stripped of white space and such marks, and case-folded; spellings of a letter are summed.
  One that is listed twice with the same text and the same number is one token.
* A letter that is not listed counts min(lowest listed probability, remaining mass): the most that it can be. The
  accepting letter must be listed itself, and above the other.
* Mass of both letters below .5 (prose, thinking), numbers that are all 0.0, −9999 or NaN, or that sum to more than 1:
  no verdict.
* After the letter only blank text and marks may follow: "No problems at all" is prose, not an N.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from cheapspec.core.acceptance import shows_distribution, usable
from cheapspec.rules.chat import Listed, Said, Token
from cheapspec.rules.verdict import Verdict

__all__ = ["LEAST_MASS", "read_digit", "read_letter"]

LEAST_MASS: Final = 0.5
"""Probability that both letters must have together."""

_ROUNDING: Final = 0.01  # half-precision probabilities of a full list sum to a little more than 1
_MARKS: Final = " \t\r\n\u00a0*_`\"'“”‘’()[]{}<>.,:;!#-"


def read_letter(said: Said, threshold: float, accept: str = "y", reject: str = "n") -> Verdict:
    """The verdict on a reply that was to be one letter. Accepted at a score of ``threshold`` or more."""
    if said.problem is not None:
        return Verdict("none", said.problem)
    if not said.tokens:
        return Verdict("none", "the endpoint gave no log-probabilities of this reply", lasting=True)
    at = next((index for index, token in enumerate(said.tokens) if _plain(token.text)), None)
    if at is None:
        return Verdict("none", "the reply holds no letter")
    if _plain("".join(token.text for token in said.tokens[at + 1 :])):
        return Verdict("none", "the reply is prose, not one letter")
    listed = list(_unlike(said.tokens[at]))
    numbers = [one.logprob for one in listed]
    if any(math.isnan(number) for number in numbers) or not usable(said.tokens[at].logprob):
        return Verdict("none", "the log-probabilities are no numbers", lasting=True)
    if not shows_distribution(numbers):
        return Verdict("none", "the log-probabilities show no distribution", lasting=True)
    shares = [(_plain(one.text), math.exp(min(one.logprob, 0.0))) for one in listed if usable(one.logprob)]
    total = sum(share for _, share in shares)
    if total > 1 + _ROUNDING:
        return Verdict("none", "the probabilities sum to more than 1", lasting=True)
    hidden = min(min(share for _, share in shares), max(0.0, 1 - total))
    masses = {letter: sum(share for text, share in shares if text == letter) for letter in (accept, reject)}
    seen = {letter for letter in masses if any(text == letter for text, _ in shares)}
    yes, no = (masses[letter] if letter in seen else hidden for letter in (accept, reject))
    if not seen or yes + no < LEAST_MASS:
        return Verdict("none", f"{yes + no:.2f} of the probability is on the two letters: the reply is something else")
    score = yes / (yes + no)
    good = accept in seen and yes > no and score >= threshold
    return Verdict("accept" if good else "reject", f"the judge gives {score:.3f}; {threshold:g} is needed", score)


def read_digit(said: Said, threshold: float) -> Verdict:
    """The verdict on a reply that was to be one digit from 0 to 9, without log-probabilities: ten operating points.
    The score is the digit's share of 9.
    """
    if said.problem is not None:
        return Verdict("none", said.problem)
    digit = _plain(said.text)
    if len(digit) != 1 or digit not in "0123456789":
        return Verdict("none", "the reply is not one digit")
    score = int(digit) / 9
    return Verdict(
        "accept" if score >= threshold else "reject", f"the judge gives {digit} of 9; {threshold * 9:.1f} needed", score
    )


def _plain(text: str) -> str:
    return text.strip(_MARKS).casefold()


def _unlike(token: Token) -> Iterable[Listed]:
    """The alternatives, each once, with the token itself where its text is not among them."""
    yield from dict.fromkeys(token.top)
    if all(one.text != token.text for one in token.top):
        yield Listed(token.text, token.logprob)
