"""What a ledger may keep about lossy rules: audited requests, and certificates of what a rule loses.

Rules
-----
* A *shadowed* request went to the target while a rule was tried beside it; an *audited* one (``kind`` ``audit``) was
  answered on a rule's word, and the target was asked besides. One row a request and rule.
* ``bad`` is the audit's finding: the rule accepted, and the reply does not bear it out. ``None``: nothing was found
  out (no reply of the target's, or nothing to compare with); such a row is in no count.
* A certificate whose ``threshold`` is ``None`` promises nothing: it says that records up to ``seen_until`` were looked
  at, since a batch may be looked at once.
* Protocols and frozen data, like :mod:`cheapspec.core.books`: ask with ``isinstance``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["AUDIT", "SHADOW", "CertificateRow", "ShadowBook", "ShadowReader", "ShadowRow", "fingerprint_of"]

SHADOW, AUDIT = "shadow", "audit"


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """One request and one rule. ``at``: seconds since the epoch, UTC. ``rule``: its own name; ``prompt_version``: of
    what it asked, ``""`` nothing. ``draft``: ``NAME@BASE_URL`` of each that wrote; ``target``: ``MODEL@BASE_URL``;
    ``fingerprint``: see :func:`fingerprint_of`. ``outcome``: ``accept``, ``reject`` or ``none``. ``score``: from which
    threshold down the rule accepts, ``None``: from none. ``comparison``: how replies were compared, ``""``: not at all;
    ``equal``: what came of it. ``draft_text``: only where the ledger keeps text.
    """

    request_id: str
    rule: str
    at: float
    workload: str
    prompt_version: str
    draft: str
    target: str
    outcome: str
    kind: str = SHADOW
    fingerprint: str | None = None
    score: float | None = None
    comparison: str = ""
    equal: bool | None = None
    bad: bool | None = None
    chance: float | None = None
    why: str = ""
    draft_text: str | None = None


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """One look at a frozen batch of ``n`` audited requests. Names as in :class:`ShadowRow`; ``threshold``: the score
    from which the rule's word counts, on which ``accepted`` were accepted and ``failures`` of those were bad;
    ``loss`` is promised with ``confidence``. ``seen_until``: the newest record that was in the batch.
    """

    certificate_id: str
    at: float
    workload: str
    rule: str
    prompt_version: str
    draft: str
    target: str
    fingerprint: str | None
    comparison: str
    threshold: float | None
    n: int
    failures: int
    accepted: int
    loss: float
    confidence: float
    seen_until: float
    expires_at: float
    chance: float | None = None
    revoked_at: float | None = None
    revoked_why: str | None = None

    def valid(self, now: float) -> bool:
        """Whether it promises anything at ``now`` (its scope may have changed all the same)."""
        return self.threshold is not None and self.revoked_at is None and now < self.expires_at


@runtime_checkable
class ShadowBook(Protocol):
    """A ledger that keeps them. All return at once and never raise; what other processes wrote is known a little later
    (those of one ledger in memory know it at once).
    """

    def shadowed(self, workload: str, target: str, draft: str) -> int:
        """How many requests of this workload were shadowed so far, with this draft, as far as is known."""
        ...

    def add_shadow(self, row: ShadowRow) -> None:
        """Keep a finding. The first one of a request, rule and kind counts."""
        ...

    def certificates(self, workload: str, target: str) -> tuple[CertificateRow, ...]:
        """Those that are not revoked, the newest first, as far as is known."""
        ...

    def put_certificate(self, row: CertificateRow) -> None:
        """Keep it. The first one under an id counts."""
        ...

    def revoke(self, row: CertificateRow, at: float, why: str) -> None:
        """It promises nothing any more, for anybody."""
        ...

    def audits(self, row: CertificateRow) -> tuple[int, int]:
        """Audited requests since a certificate was made, of its rule, workload and target, and how many of them were
        bad, as far as is known.
        """
        ...


@runtime_checkable
class ShadowReader(Protocol):
    """A ledger whose findings can be read."""

    def shadow_rows(
        self, *, workload: str | None = None, since: float | None = None, until: float | None = None
    ) -> Iterable[ShadowRow]:
        """All findings, the oldest first. ``since`` (from then on), ``until`` (before then): in seconds.

        :raises LedgerError: the store cannot be read.
        """
        ...

    def certificate_rows(self) -> Iterable[CertificateRow]:
        """All certificates, revoked ones and mere looks included, the oldest first.

        :raises LedgerError: the store cannot be read.
        """
        ...


def fingerprint_of(model: str | None, system_fingerprint: str | None) -> str | None:
    """What a reply says of who wrote it, ``None``: nothing. A name that is served by another snapshot, or from another
    configuration of the host (OpenAI's API reference, ``system_fingerprint``, 2026-11), has another one.
    """
    told = [part for part in (model, system_fingerprint) if part]
    return "/".join(told) or None
