"""How likely tokens of given text are to be accepted: a prior for each kind, moved by the request's own rounds.

Rules
-----
* Given text (the caller's ``prediction``, prompt lookup) comes without log-probabilities, so a token of it has
  the rate that such text has had so far in this request; before the first round that is the prior.
* The priors are assumptions, not measurements of these drafters. They lie between two figures of the
  measurement that :data:`cheapspec.core.planner.AGREEMENT` comes from: replies that quote given text agreed
  at .90 of their tokens, code at .975.
* Only what was looked at counts: the pieces up to the first one that the target did not confirm, and that one.
  A rate is the share of accepted pieces, the prior counted in as :data:`PRIOR_WEIGHT` pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cheapspec.core.drafting import Draft
from cheapspec.core.planner import UNKNOWN_AGREEMENT

__all__ = ["PRIOR_WEIGHT", "STATIC_AGREEMENT", "StaticRates"]

STATIC_AGREEMENT: Mapping[str, float] = {"prediction": 0.97, "lookup": 0.90}
"""Prior by drafter. Who sends a prediction expects most of it to hold; a place that reads alike may go on otherwise."""

PRIOR_WEIGHT = 10.0
"""Pieces that a prior counts for: two misses in a row end what a prediction is worth, ten hits make up for one."""


@dataclass(slots=True)
class StaticRates:
    """Hits and looks of one request, by drafter."""

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def unknown(self, draft: Draft) -> float:
        """The agreement to plan with where a token of this draft has no log-probability."""
        prior = STATIC_AGREEMENT.get(draft.drafter, UNKNOWN_AGREEMENT)
        if not draft.static:
            return UNKNOWN_AGREEMENT
        hits, looks = self._seen.get(draft.drafter, (0, 0))
        return (hits + prior * PRIOR_WEIGHT) / (looks + PRIOR_WEIGHT)

    def learn(self, scored: Draft, offset: int, missed: bool) -> None:
        """A round accepted ``scored`` up to a character offset; ``missed``: the target said something else there."""
        if not scored.static:
            return
        held, end = 0, 0
        for token in scored.tokens:
            end += len(token.text)
            held += end <= offset
        hits, looks = self._seen.get(scored.drafter, (0, 0))
        self._seen[scored.drafter] = hits + held, looks + held + missed
