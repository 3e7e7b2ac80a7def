"""How often a target agrees with a drafter: counts by what the drafter itself said, learned as requests go by.

Rules
-----
* A draft token falls into a *bucket*: by the draft model's probability for it, ``unknown`` without one, ``static``
  where it comes from given text (prompt lookup, a prediction), ``start`` for the first one of those (whether the text
  applies here at all is another question than whether it goes on), ``end`` for a draft's claim that the reply ends.
* A rate is hits / trials, with a stated prior counted in as :data:`PRIOR_TRIALS` observations (for given text
  :data:`GIVEN_TRIALS`): measured tables, both. What the target's other workloads showed moves that prior likewise.
* Where the target samples (temperature above 0) a drafter is counted apart. The prior is then the draft's own
  probability: a model and a smaller one of its kind are about as unsure.
* Only what was looked at counts: the tokens up to the first one that the target did not confirm, and that one. What
  lies behind it was written after a text that the target did not write.
* Old observations fade with each new one of their bucket (:data:`KEPT`), not with time: nothing here has a clock.
* What was observed is a :data:`Delta`, and counts are sums, so that processes add theirs in any order.
* Kept beside the hits is the sum of what had been predicted, so that predictions can be held against the facts
  (:func:`calibration_error`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, TypeVar

__all__ = [
    "AGREEMENT",
    "AGREEMENT_CAP",
    "END",
    "GIVEN_TRIALS",
    "KEPT",
    "PRIOR_TRIALS",
    "SAMPLED",
    "START",
    "STATIC",
    "STATIC_AGREEMENT",
    "STATIC_END",
    "STATIC_START",
    "UNKNOWN",
    "UNKNOWN_AGREEMENT",
    "Count",
    "Counts",
    "Delta",
    "EstimateTable",
    "Estimates",
    "Row",
    "bucket_of",
    "calibration_error",
    "known_as",
    "merge",
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
"""The prior of the last row, which is 1.00 after rounding and so at least .995."""

UNKNOWN_AGREEMENT = 0.73
"""Agreement where a draft model's probability is unknown, and of a draft's end with the target's: the mean
of the least predictable kind of the same measurement (open questions; code had .975)."""

STATIC_AGREEMENT: Mapping[str, float] = {"prediction": 0.94, "lookup": 0.94}
"""Prior of given text by drafter, once its first token holds. Measured 2026-11: replies of Qwen2.5-Coder-1.5B to 25
prompts that are in no other measurement here (benchmarks/data/priors.toml), given text proposed anew after each miss:
482 of 512 tokens of predictions, 1,070 of 1,139 of prompt lookup."""

STATIC_START: Mapping[str, float] = {"prediction": 0.40, "lookup": 0.81}
"""The same for the first token of a proposal: 38 of 94, 78 of 96. (A reply that opens a code block begins otherwise
than the file that it will repeat.)"""

STATIC_END: Mapping[str, float] = {"prediction": 0.10}
"""That the reply ends where a prediction does, all of what was left of it having held: 0 of 8, and one of either
outcome counted in."""

PRIOR_TRIALS = 40.0
"""Observations that a prior counts for."""

GIVEN_TRIALS = 10.0
"""The same for given text, which differs more from one kind of request to the next: in those 25 replies the rate of a
kind lay within about .15 of that of all, which is as far as 10 observations tell."""

KEPT = 1 - 1 / 4000
"""What an old observation still counts after one new one: a bucket remembers some 4,000."""

STATIC, START, UNKNOWN, END = "static", "start", "unknown", "end"
VERDICT = "accepted"
"""What rules said about whole drafts: trials are requests, not tokens."""
SAMPLED = " (sampled)"
"""Added to a drafter's name where the target samples: a draw agrees less often than an argmax does."""

_LENIENT = " (lenient "

_EDGES = [math.log(edge) if edge else -math.inf for edge, _ in AGREEMENT]
_NAMES = [f"{edge:g}" for edge, _ in AGREEMENT]
_PRIOR = {name: min(rate, AGREEMENT_CAP) for name, (_, rate) in zip(_NAMES, AGREEMENT, strict=True)}
_MIDDLES = [(low + high) / 2 for (low, _), (high, _) in pairwise((*AGREEMENT, (1.0, 1.0)))]
_SAMPLED_PRIOR = {name: min(middle, _PRIOR[name]) for name, middle in zip(_NAMES, _MIDDLES, strict=True)}


@dataclass(frozen=True, slots=True)
class Count:
    """Decayed observations of one bucket. ``hits``: accepted ones; ``predicted``: sum of the rates they were planned
    with.
    """

    trials: float = 0.0
    hits: float = 0.0
    predicted: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.trials + other.trials, self.hits + other.hits, self.predicted + other.predicted)

    def faded(self, observations: float) -> Count:
        """After so many newer observations."""
        kept = KEPT**observations
        return Count(self.trials * kept, self.hits * kept, self.predicted * kept)


Counts: TypeAlias = Mapping[tuple[str, str], Count]
"""By (drafter, bucket)."""

Delta: TypeAlias = Counts
"""What was observed since; plain sums."""


def bucket_of(logprob: float | None, *, static: bool = False) -> str:
    """The bucket of a draft token. ``static``: it comes from given text."""
    if static:
        return STATIC
    if logprob is None or logprob != logprob:  # NaN
        return UNKNOWN
    return _NAMES[bisect_right(_EDGES, logprob) - 1]


def merge(counts: Counts, *deltas: Delta) -> dict[tuple[str, str], Count]:
    """Counts after these observations: what is old fades, what is new is added."""
    merged = dict(counts)
    for delta in deltas:
        for key, seen in delta.items():
            merged[key] = merged.get(key, Count()).faded(seen.trials) + seen
    return merged


def calibration_error(counts: Iterable[Count]) -> float | None:
    """The expected calibration error: Σ trials / Σ trials · |hits − predicted| / trials (0 to 1); ``None`` without
    observations.

    Guo et al. 2017, arXiv:1706.04599, over the buckets as bins.
    """
    told = [count for count in counts if count.trials > 0]
    trials = math.fsum(count.trials for count in told)
    return math.fsum(abs(count.hits - count.predicted) for count in told) / trials if told else None


@dataclass(frozen=True)
class Estimates:
    """Rates of one (target, workload), as known when a request began. ``background``: what is known of all of the
    target's workloads together, which is believed where this one has shown little.
    """

    counts: Counts = field(default_factory=dict[tuple[str, str], Count])
    background: Counts = field(default_factory=dict[tuple[str, str], Count])
    _rates: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float], repr=False)

    def rate(self, logprob: float | None, drafter: str = "", *, static: bool = False) -> float:
        """The probability that the target agrees with a token of this drafter."""
        return self.bucket_rate(drafter, bucket_of(logprob, static=static))

    def end_rate(self, drafter: str = "") -> float:
        """The probability that the reply ends where the draft says so, everything before it accepted."""
        return self.bucket_rate(drafter, END)

    def observe(
        self,
        drafter: str,
        logprobs: Sequence[float | None],
        accepted: int,
        *,
        missed: bool,
        static: bool = False,
        ended: bool | None = None,
    ) -> Delta:
        """What a round showed. ``logprobs``: of the scored draft tokens; ``accepted``: how many of them the target
        confirmed, from the first on; ``missed``: it said something else than the next one. ``ended``: the draft
        claimed the reply's end, all of it was accepted, and whether the target ended there.
        """
        trials: dict[str, int] = {}
        hits: dict[str, int] = {}
        for position, logprob in enumerate(logprobs[: accepted + missed]):
            bucket = START if static and not position else bucket_of(logprob, static=static)
            trials[bucket] = trials.get(bucket, 0) + 1
            if position < accepted:
                hits[bucket] = hits.get(bucket, 0) + 1
        if ended is not None:
            trials[END], hits[END] = 1, int(ended)
        return {
            (drafter, bucket): Count(
                float(count), float(hits.get(bucket, 0)), count * self.bucket_rate(drafter, bucket)
            )
            for bucket, count in trials.items()
        }

    def bucket_rate(self, drafter: str, bucket: str) -> float:
        """The rate of a bucket."""
        key = (drafter, bucket)
        rate = self._rates.get(key)
        if rate is None:
            rate, weight = _prior(drafter, bucket)
            for counts in (self.background, self.counts):
                seen = counts.get(key, Count())
                rate = (seen.hits + rate * weight) / (seen.trials + weight)
            self._rates[key] = rate
        return rate


Row: TypeAlias = tuple[str, str, str, str, Count]
"""target, workload, drafter, bucket, count: as a ledger's table has them."""


_Key = TypeVar("_Key")


class EstimateTable:
    """Counts by target and workload (:class:`cheapspec.core.books.EstimateBook`), ``most`` workloads and ``most``
    targets of them: those that nobody asked for or added to for longest go first. What is known of all of a target's
    workloads together does not go with them. Nothing here is locked: threads that share a table take turns.
    """

    def __init__(self, rows: Iterable[Row] = (), most: int = 2000) -> None:
        self._most = most
        self._counts: dict[tuple[str, str], Counts] = {}
        self._background: dict[str, Counts] = {}
        for target, workload, drafter, bucket, count in rows:
            self.add_estimates(target, workload, {(drafter, bucket): count})

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """See :meth:`cheapspec.core.books.EstimateBook.estimates`."""
        if workload is None:
            return _used(self._background, target)
        return _used(self._counts, (target, workload))

    def rows(self) -> list[Row]:
        """What is counted, workload by workload."""
        return [
            (target, workload, drafter, bucket, count)
            for (target, workload), counts in self._counts.items()
            for (drafter, bucket), count in counts.items()
        ]

    def add_estimates(self, target: str, workload: str, delta: Delta) -> None:
        """See :meth:`cheapspec.core.books.EstimateBook.add_estimates`."""
        self._counts[target, workload] = merge(self._counts.pop((target, workload), {}), delta)
        self._background[target] = merge(self._background.pop(target, {}), delta)
        if len(self._counts) > self._most:
            del self._counts[next(iter(self._counts))]
        if len(self._background) > self._most:
            del self._background[next(iter(self._background))]


def _used(table: dict[_Key, Counts], key: _Key) -> Counts:
    """What is in the table, which is kept in the order of use."""
    counts = table.pop(key, None)
    if counts is None:
        return {}
    table[key] = counts
    return counts


def known_as(drafter: str, *, sampled: bool = False, lenient: float | None = None) -> str:
    """The name under which a drafter's rates are kept: what holds under one rule need not under another. ``lenient``:
    nats of the lenient rule, ``None``: the exact one.
    """
    loose = "" if lenient is None else f"{_LENIENT}{lenient:g})"
    return drafter + loose + (SAMPLED if sampled else "")


_GIVEN = {STATIC: STATIC_AGREEMENT, START: STATIC_START, END: STATIC_END}


def _prior(drafter: str, bucket: str) -> tuple[float, float]:
    """The rate, and how many observations it counts for."""
    plain = drafter.removesuffix(SAMPLED).partition(_LENIENT)[0]
    given = _GIVEN.get(bucket, {}).get(plain)
    if given is not None or bucket in (STATIC, START):
        return UNKNOWN_AGREEMENT if given is None else given, GIVEN_TRIALS
    return (_SAMPLED_PRIOR if drafter.endswith(SAMPLED) else _PRIOR).get(bucket, UNKNOWN_AGREEMENT), PRIOR_TRIALS
