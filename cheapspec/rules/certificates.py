"""Certificates: what a lossy rule may be promised to lose, from audited requests, and until when.

Rules
-----
* *Loss* is one-sided and joint: the share of all audited requests on which the rule accepted a draft that was bad
  (unequal to the target's own reply; with labelled data: wrong, and the target right). Rejections and requests without
  a verdict count in n. Two runs of one target differ too, so the promise is about the excess over that where the caller
  names the target's own disagreement.
* A promise "at most ``loss``, with ``confidence``" holds when P(X ≤ failures | n, loss) ≤ 1 − confidence for X
  binomial: the one-sided interval of Clopper and Pearson (Biometrika 26, 1934, 404–413).
* Thresholds are tried on a frozen batch in an order that is fixed beforehand, **strictest first, stopping at the first
  failure** (fixed-sequence testing: each at the full level, since a later one is only looked at when all before it
  held). Taking the loosest one whose *observed* loss is small breaks the promise far more often than stated.
* A certificate names what it was made with and expires when any of it changes, the target's fingerprint included.
  Without a comparison of answers (typed equality, a validator, labels) there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from cheapspec.core.untyped import is_number

__all__ = [
    "CONFIDENCE", "LOSS", "THRESHOLDS", "Audit", "Certificate", "Scope", "Trial", "certify", "needed", "promised",
    "tail", "trials", "upper_bound",
]  # fmt: skip

LOSS: Final = 0.01
CONFIDENCE: Final = 0.95
THRESHOLDS: Final = (0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
"""Scores from which a draft is accepted, strictest first; fixed before any record is looked at."""


@dataclass(frozen=True, slots=True)
class Audit:
    """One shadowed request. ``score``: the rule's (1.0 for a rule that only accepts or rejects and accepted), ``None``:
    it rejected or had no verdict. ``bad``: the draft must not have been accepted.
    """

    score: float | None
    bad: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """What a certificate is good for. ``rule``: the rule's own ``name``; ``prompt_version``: of what it asked (``""``:
    nothing); ``draft`` and ``target``: model and base URL of each; ``fingerprint``: the target's
    ``system_fingerprint`` (``None``: it tells none); ``comparison``: how replies were compared, ``""``: not at all.
    """

    workload: str
    rule: str
    prompt_version: str
    draft: str
    target: str
    fingerprint: str | None
    comparison: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One threshold tried on ``n`` audited requests: ``failures`` of the ``accepted`` ones were bad."""

    threshold: float
    n: int
    accepted: int
    failures: int
    holds: bool

    def bound(self, confidence: float = CONFIDENCE) -> float:
        """The loss that is not exceeded with this confidence, for the report."""
        return upper_bound(self.n, self.failures, confidence)


@dataclass(frozen=True, slots=True)
class Certificate:
    """At most ``loss`` of requests lost, with ``confidence``: seen on ``n`` audited requests with ``failures``, of
    which ``accepted`` were accepted, at ``threshold``. ``chance``: how often the rule's comparison agrees by chance,
    where that is known; it is said beside the promise, which holds whatever it is.
    """

    scope: Scope
    threshold: float
    n: int
    failures: int
    accepted: int
    loss: float
    confidence: float
    chance: float | None = None

    def expired(self, now: Scope) -> str | None:
        """What has changed since it was made, ``None``: it is valid."""
        changed = [part.name for part in fields(Scope) if getattr(self.scope, part.name) != getattr(now, part.name)]
        return f"changed since it was certified: {', '.join(changed).replace('_', ' ')}" if changed else None

    def __str__(self) -> str:
        scope = self.scope
        told = (
            f"{scope.rule} loses at most {self.loss:.2%} of the requests of workload {scope.workload!r} with "
            f"{self.confidence:.0%} confidence: {self.failures} of {self.n} audited requests were accepted and bad "
            f"({self.accepted} accepted, threshold {self.threshold:g}); draft {scope.draft}, target {scope.target}"
            f"{'' if scope.fingerprint is None else f' ({scope.fingerprint})'}, "
            f"prompt {scope.prompt_version or 'none'}, compared by {scope.comparison}"
        )
        return told if self.chance is None else f"{told}; unlike answers agree by chance in {self.chance:.0%} of cases"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, for the ledger."""
        return asdict(self)

    @staticmethod
    def of(told: Mapping[str, Any]) -> Certificate:
        """What :meth:`as_json` gave, checked again: the promise is computed, not believed.

        :raises ValueError: it is no certificate, or its figures do not bear its promise.
        """
        try:
            made = Certificate(
                Scope(**told["scope"]), **{name: value for name, value in told.items() if name != "scope"}
            )
            whole = all(_is_count(count) for count in (made.n, made.failures, made.accepted))
            sound = whole and all(is_number(share) for share in (made.threshold, made.loss, made.confidence))
            sound = sound and 0 <= made.failures <= made.accepted <= made.n and made.scope.comparison != ""
            held = sound and promised(made.n, made.failures, made.loss, made.confidence)
        except (KeyError, TypeError) as problem:
            raise ValueError(f"no certificate: {problem}") from None
        if not held:
            raise ValueError("no certificate: its figures do not bear its promise")
        return made


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def tail(n: int, failures: int, share: float) -> float:
    """P(X ≤ failures) for X binomial(n, share).

    :raises ValueError: counts or share out of range.
    """
    if not 0 <= failures <= n or not 0 <= share <= 1:
        raise ValueError(f"no binomial tail for {failures} of {n} at {share}")
    if share in (0, 1):
        return 1.0 if share == 0 or failures == n else 0.0
    up, down = math.log(share), math.log1p(-share)
    # log C(n, k), built up term by term: exact to rounding for any n
    terms: list[float] = []
    choose = 0.0
    for k in range(failures + 1):
        terms.append(math.exp(choose + k * up + (n - k) * down))
        choose += math.log(n - k) - math.log(k + 1) if k < n else 0.0
    return min(1.0, math.fsum(terms))


def promised(n: int, failures: int, loss: float = LOSS, confidence: float = CONFIDENCE) -> bool:
    """Whether so many failures of ``n`` bear the promise.

    :raises ValueError: counts out of range, or a loss or confidence that is not between 0 and 1.
    """
    if not 0 < loss < 1 or not 0.5 <= confidence < 1:
        raise ValueError(f"a promise needs a loss in (0, 1) and a confidence in [.5, 1), not {loss} and {confidence}")
    return tail(n, failures, loss) <= 1 - confidence


def needed(failures: int, loss: float = LOSS, confidence: float = CONFIDENCE) -> int:
    """The fewest audited requests on which so many failures bear the promise."""
    low, high = failures, max(failures, 1)
    while not promised(high, failures, loss, confidence):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if promised(middle, failures, loss, confidence) else (middle, high)
    return high


def upper_bound(n: int, failures: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided Clopper–Pearson bound: the loss that is not exceeded with this confidence (1.0 for n = 0)."""
    if n == 0 or failures >= n:
        return 1.0
    low, high = failures / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if tail(n, failures, middle) <= 1 - confidence else (middle, high)
    return high


def trials(
    batch: Sequence[Audit],
    thresholds: Sequence[float] = THRESHOLDS,
    loss: float = LOSS,
    confidence: float = CONFIDENCE,
) -> list[Trial]:
    """The thresholds in their order up to the first that fails, that one included.

    :raises ValueError: the thresholds are not strictly falling, or the promise is out of range.
    """
    if any(later >= sooner for sooner, later in pairwise(thresholds)):
        raise ValueError("thresholds are tried strictest first: write them in falling order")
    given = [one for one in batch if one.score is not None]
    made: list[Trial] = []
    for threshold in thresholds:
        accepted = [one for one in given if one.score is not None and one.score >= threshold]
        failures = sum(one.bad for one in accepted)
        holds = bool(batch) and promised(len(batch), failures, loss, confidence)
        made.append(Trial(threshold, len(batch), len(accepted), failures, holds))
        if not holds:
            break
    return made


def certify(
    batch: Sequence[Audit],
    scope: Scope,
    thresholds: Sequence[float] = THRESHOLDS,
    loss: float = LOSS,
    confidence: float = CONFIDENCE,
    chance: float | None = None,
) -> Certificate | None:
    """The certificate of the loosest threshold that held, ``None``: none did, or nothing compared the replies."""
    if not scope.comparison:
        return None
    held = [trial for trial in trials(batch, thresholds, loss, confidence) if trial.holds]
    if not held:
        return None
    last = held[-1]
    return Certificate(scope, last.threshold, len(batch), last.failures, last.accepted, loss, confidence, chance)
