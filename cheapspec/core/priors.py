"""What is believed of a draft: calibrated rates of its tokens, moved by what this request has shown so far.

Rules
-----
* The rate of a token is its bucket's (:mod:`cheapspec.core.estimate`); its *hazard* h follows from that. How much more
  or less predictable than usual *this* request is, is a factor θ on all its hazards (a *frailty*, as survival
  analysis calls it), a priori gamma-distributed with mean 1. Given θ the first k tokens hold with probability
  exp(−θ·H_k), H_k the sum of their hazards; over the gamma's shape a and rate b that is (b / (b + H_k))^a. So long runs
  of hits are likelier than independent tokens would have it, and so are rows of misses. h is such that a single token
  holds with its bucket's rate, (a / (a + h))^a with the prior's shape.
* Each token that was looked at adds its hazard to the rate b; a miss adds up to 1 to the shape a: 1 where a hit was
  almost sure, nothing where a miss was. (Exact for hits; for a miss the gamma with the exact posterior's mean.)
* Each drafter has a belief of its own, and so have the rules: what counts as a hit differs between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.estimate import START, UNKNOWN_AGREEMENT, Delta, Estimates, bucket_of, known_as

__all__ = ["CERTAIN", "SHAPE", "Outlook", "RequestRates", "survival"]

SHAPE = 2.0
"""The prior's shape for a draft model: how alike requests are (1 / shape is the variance of θ)."""

STATIC_SHAPE = 1.0
"""For given text: what follows a text mostly does so for long, what left it mostly has left it for good. The likeliest
shape for prompt lookup of .3, .5, 1, 2, 4 and 8 in the 25 replies from which its rates are
(:data:`~cheapspec.core.estimate.STATIC_AGREEMENT`); for predictions it makes no difference there (1 to 8)."""

CERTAIN = 1e9
"""A shape for which θ is 1: rates are believed as they stand."""

_LEAST = 1e-3  # no agreement is taken for less, and none for 1: a hazard is finite and not 0
_MOST = 1 - 1e-5


@dataclass(frozen=True, slots=True)
class Outlook:
    """``agreements``: of each draft token, given that the ones before hold and θ is 1. ``end``: that the reply ends
    where the draft does. ``shape``, ``rate``: of θ's gamma now; ``rate`` 0 stands for a mean of 1.
    """

    agreements: tuple[float, ...]
    end: float = UNKNOWN_AGREEMENT
    shape: float = SHAPE
    rate: float = 0.0

    @property
    def hazards(self) -> list[float]:
        """−log of each agreement."""
        known = {rate: -math.log(min(max(rate, _LEAST), _MOST)) for rate in set(self.agreements)}
        return [known[rate] for rate in self.agreements]

    def head(self, count: int) -> Outlook:
        """Of the first ``count`` tokens."""
        return self if count >= len(self.agreements) else replace(self, agreements=self.agreements[:count])

    @classmethod
    def prior(cls, tokens: Sequence[DraftToken], drafter: str = "", *, static: bool = False) -> Outlook:
        """Before anything was learned."""
        return RequestRates().outlook(tokens, drafter, static=static)


def survival(outlook: Outlook) -> list[float]:
    """s_1 … s_n: probability that the first k tokens are all accepted."""
    rate = outlook.rate or outlook.shape
    return [math.exp(-outlook.shape * math.log1p(hazard / rate)) for hazard in accumulate(outlook.hazards)]


@dataclass(slots=True)
class _Belief:
    shape: float
    rate: float

    def see(self, hazards: Sequence[float], missed: bool) -> None:
        *hits, last = (*hazards, 0.0) if not missed else hazards
        self.rate += math.fsum(hits)
        if missed:
            # θ's mean given a miss at hazard h, under the likelihood 1 − exp(−θh).
            alive = math.exp(-self.shape * math.log1p(last / self.rate))
            mean = (self.shape / self.rate - alive * self.shape / (self.rate + last)) / (1 - alive)
            self.shape = mean * self.rate
        else:
            self.rate += last


@dataclass(slots=True)
class RequestRates:
    """The beliefs of one request. ``estimates``: what was known of its workload when it began. ``sampled``: the
    target samples. ``lenient``: nats of the lenient rule, ``None``: the exact one.
    """

    estimates: Estimates = field(default_factory=Estimates)
    sampled: bool = False
    lenient: float | None = None
    _beliefs: dict[str, _Belief] = field(default_factory=dict[str, _Belief])

    def outlook(self, tokens: Sequence[DraftToken], drafter: str, *, static: bool = False) -> Outlook:
        """What to plan with for this draft."""
        drafter = self._known_as(drafter)
        belief = self._belief(drafter, static)
        agreements = self._agreements(drafter, [token.logprob for token in tokens], static)
        return Outlook(agreements, self.estimates.end_rate(drafter), belief.shape, belief.rate)

    def learn(
        self,
        drafter: str,
        logprobs: Sequence[float | None],
        accepted: int,
        *,
        missed: bool,
        static: bool = False,
        ended: bool | None = None,
    ) -> Delta:
        """Take in a round (arguments: :meth:`Estimates.observe`) and say what it adds to the counts."""
        drafter, looked = self._known_as(drafter), logprobs[: accepted + missed]
        missed = missed and len(looked) > accepted
        if looked:
            hazards = Outlook(self._agreements(drafter, looked, static)).hazards
            self._belief(drafter, static).see(hazards, missed)
        return self.estimates.observe(drafter, looked, accepted, missed=missed, static=static, ended=ended)

    def _known_as(self, drafter: str) -> str:
        return known_as(drafter, sampled=self.sampled, lenient=self.lenient)

    def _agreements(self, drafter: str, logprobs: Sequence[float | None], static: bool) -> tuple[float, ...]:
        """At θ = 1, such that the average over the prior of θ is the estimates' rate."""
        shape, known = STATIC_SHAPE if static else SHAPE, dict[str, float]()
        buckets = [bucket_of(logprob, static=static) for logprob in logprobs]
        buckets[:1] = [START] if static and buckets else buckets[:1]
        for bucket in set(buckets):
            rate = max(self.estimates.bucket_rate(drafter, bucket), _LEAST)
            known[bucket] = math.exp(-shape * (math.pow(rate, -1 / shape) - 1))
        return tuple([known[bucket] for bucket in buckets])

    def _belief(self, drafter: str, static: bool) -> _Belief:
        shape = STATIC_SHAPE if static else SHAPE
        return self._beliefs.setdefault(drafter, _Belief(shape, shape))
