"""From findings about lossy rules to thresholds and certificates.

Rules
-----
* A *batch* is what was found of one rule, with one prompt, one draft, one target (its newest fingerprint) and one
  comparison, in one workload. Findings without a comparison, and of another fingerprint, are in none.
* A batch is looked at once. A look freezes it: what is found later begins the next batch, and is looked at when it
  could bear a promise by itself. Looking at a growing batch again and again until it passes would break the promise;
  asking the same frozen batch for another loss or confidence does not.
* Audits are no part of it: they are of accepted replies only.
* What a rule saves is :mod:`cheapspec.rules.breakeven`'s formula at the acceptance that was seen; a rule that makes no
  call saves the direct call of each accepted request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from statistics import fmean

from cheapspec.core.money import Prices
from cheapspec.core.shadows import SHADOW, CertificateRow, ShadowRow
from cheapspec.rules.breakeven import SHAPES, Host, costs, shape
from cheapspec.rules.certificates import (
    CONFIDENCE,
    LOSS,
    THRESHOLDS,
    Audit,
    Certificate,
    Scope,
    Trial,
    certify,
    needed,
    trials,
)

__all__ = ["LASTS_SECONDS", "Batch", "Outlook", "Tuned", "batches", "outlook", "row_of", "tune"]

LASTS_SECONDS = 90 * 86400.0
"""A certificate holds for so long at most: traffic drifts, though nothing that it names has changed."""

_KEY = ("workload", "rule", "prompt_version", "draft", "target")


@dataclass(frozen=True, slots=True)
class Batch:
    """``rows`` in the order of time. ``uncompared``: findings that nothing compared; ``others``: those of earlier
    fingerprints or comparisons; ``used``: those that were looked at before, in vain.
    """

    scope: Scope
    rows: tuple[ShadowRow, ...]
    uncompared: int = 0
    others: int = 0
    used: int = 0

    @property
    def audits(self) -> list[Audit]:
        """As certificates count them."""
        return [Audit(row.score, bool(row.bad)) for row in self.rows]

    @property
    def graded(self) -> bool:
        """Whether the rule accepts by a score of its own."""
        return self.scope.rule.startswith(("judge(", "agree("))


@dataclass(frozen=True, slots=True)
class Tuned:
    """One look. ``certificate``: ``None``, and ``missing`` says what is wanting. ``looked``: the batch was large enough
    to bear a promise, so that it is used up by now. ``trial``: of the chosen threshold, else of the strictest.
    """

    batch: Batch
    trials: tuple[Trial, ...]
    certificate: Certificate | None
    missing: str
    looked: bool

    @property
    def trial(self) -> Trial | None:
        held = [trial for trial in self.trials if trial.holds]
        return held[-1] if held else next(iter(self.trials), None)


def batches(rows: Iterable[ShadowRow], looks: Iterable[CertificateRow] = (), least: int = needed(0)) -> list[Batch]:
    """The batches to look at now, by rule. ``looks``: at earlier ones; ``least``: rows that bear a promise."""
    groups: dict[tuple[str, ...], list[ShadowRow]] = {}
    for row in rows:
        if row.kind == SHADOW:
            groups.setdefault(tuple(getattr(row, name) for name in _KEY), []).append(row)
    seen = list(looks)
    return [_batch(sorted(group, key=lambda row: row.at), seen, least) for _, group in sorted(groups.items())]


def _batch(group: Sequence[ShadowRow], looks: Sequence[CertificateRow], least: int) -> Batch:
    told = [row for row in group if row.bad is not None]
    last = told[-1] if told else group[-1]
    scope = Scope(
        last.workload, last.rule, last.prompt_version, last.draft, last.target, last.fingerprint, last.comparison
    )
    mine = [row for row in told if (row.fingerprint, row.comparison) == (last.fingerprint, last.comparison)]
    ends = sorted({look.seen_until for look in looks if _scope(look) == scope})
    fresh = [row for row in mine if not ends or row.at > ends[-1]]
    if ends and len(fresh) < least:  # the last one, as it was frozen
        begins = ends[-2] if len(ends) > 1 else float("-inf")
        kept = [row for row in mine if begins < row.at <= ends[-1]]
        if kept:
            fresh = kept
    used = sum(bool(fresh) and row.at < fresh[0].at for row in mine)
    return Batch(scope, tuple(fresh), len(group) - len(told), len(told) - len(mine), used)


def _scope(look: CertificateRow) -> Scope:
    return Scope(
        look.workload, look.rule, look.prompt_version, look.draft, look.target, look.fingerprint, look.comparison
    )


def tune(batch: Batch, loss: float = LOSS, confidence: float = CONFIDENCE) -> Tuned:
    """Try thresholds, strictest first, up to the first that fails.

    :raises ValueError: the promise is out of range.
    """
    n, least = len(batch.rows), needed(0, loss, confidence)
    if not batch.scope.comparison:
        return Tuned(batch, (), None, "nothing compares its replies with the target's: give comparison=…", False)
    thresholds = THRESHOLDS if batch.graded else (1.0,)
    tried = tuple(trials(batch.audits, thresholds, loss, confidence))
    chances = [row.chance for row in batch.rows if row.chance is not None]
    made = certify(batch.audits, batch.scope, thresholds, loss, confidence, fmean(chances) if chances else None)
    bad = tried[0].failures
    if made is not None:
        return Tuned(batch, tried, made, "", True)
    wanted = needed(bad, loss, confidence)
    told = f"{wanted:,} audited requests with {bad:,} bad are needed; you have {n:,}"
    if n < least:
        return Tuned(batch, tried, None, told, False)
    return Tuned(batch, tried, None, f"{told}, looked at and used up: a new batch begins with the next one", True)


def row_of(tuned: Tuned, at: float, loss: float, confidence: float) -> CertificateRow | None:
    """What the ledger keeps of a look; ``None``: the batch was too small to be looked at."""
    if not tuned.looked or tuned.trial is None:
        return None
    scope, trial, made = tuned.batch.scope, tuned.trial, tuned.certificate
    until = tuned.batch.rows[-1].at
    key = repr((astuple(scope), until, loss, confidence, trial.n, trial.failures))
    return CertificateRow(
        f"ct-{hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}",
        at,
        scope.workload,
        scope.rule,
        scope.prompt_version,
        scope.draft,
        scope.target,
        scope.fingerprint,
        scope.comparison,
        None if made is None else made.threshold,
        trial.n,
        trial.failures,
        trial.accepted,
        loss,
        confidence,
        until,
        at + LASTS_SECONDS,
        None if made is None else made.chance,
    )


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a rule costs and saves. ``break_even``: the share of drafts that must be accepted (``None``: it never pays);
    ``accepted``: that was; ``saving``: share of the direct cost that is saved, negative where it costs more;
    ``direct_usd``: of a request.
    """

    break_even: float | None
    accepted: float
    saving: float
    direct_usd: Decimal | None = None


def outlook(
    tuned: Tuned, prices: Prices | None, prompt_tokens: float | None, reply_tokens: float | None
) -> Outlook | None:
    """With the mean lengths of the batch's requests; ``None``: too little is known."""
    if tuned.trial is None or not tuned.trial.n:
        return None
    rate, kind = tuned.trial.accepted / tuned.trial.n, tuned.batch.scope.rule.partition("(")[0]
    if kind in ("validator", "agree"):
        return Outlook(0.0, rate, rate)
    host = None if prices is None else Host.of(prices)
    if prices is None or host is None or kind not in SHAPES or prompt_tokens is None or reply_tokens is None:
        return None
    told = costs(host, shape(kind), round(prompt_tokens), max(1, round(reply_tokens)))
    usd = Decimal(str(told.direct)) * prices.input / 1_000_000
    return replace(Outlook(told.break_even, rate, 1 - told.expected(rate)), direct_usd=usd)
