"""Certificates in use: which thresholds hold for a request now, and what takes them back.

Rules
-----
* A certificate holds for what it names: workload, rule, prompt version, draft, target, comparison and the target's
  fingerprint. It is checked again before it is used: its figures must bear its promise.
* Any reply of the target's tells its fingerprint. One that is another revokes the certificate, for everybody on the
  ledger; until this process has heard the target, what is kept stands.
* Audits of what a rule accepted revoke it when they show, with the certificate's own confidence, that more than the
  promised share of requests is lost: the share of audits that were bad, at least so large by the interval of Clopper
  and Pearson, times the share that the rule accepts.
* Nothing here waits for a store or raises.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cheapspec.core.ports import Drafter, Ledger
from cheapspec.core.request import Request
from cheapspec.core.shadows import CertificateRow, ShadowBook
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.passed import Passed
from cheapspec.drive.urls import shown_url
from cheapspec.rules.certificates import Scope, promised, upper_bound
from cheapspec.rules.comparison import Comparison, comparison_for
from cheapspec.rules.prospects import VerdictRule

__all__ = ["LABELLED", "Certificates", "compared", "draft_name", "scope_of"]

LABELLED = "label by "
"""What a comparison's name has before it where drafts were compared with right answers that somebody knew."""
_MOST = 1000


def draft_name(drafters: Sequence[Drafter]) -> str:
    """``NAME@BASE_URL`` of each that may write a draft."""
    told = [f"{one.name}@{shown_url(one.base_url)}" if one.base_url else one.name for one in drafters]
    return ", ".join(told)


def compared(
    rule: VerdictRule, rules: Sequence[VerdictRule], given: object | None, request: Request | None
) -> Comparison | None:
    """What compares replies for a rule; ``None`` also where the caller's own is none (settings refuse that before)."""
    try:
        return comparison_for(rule, rules, given, request)
    except ValueError:
        return None


def scope_of(
    passed: Passed, rule: VerdictRule, version: str, rules: Sequence[VerdictRule], drafters: Sequence[Drafter]
) -> Scope:
    """What a certificate of this rule must name to hold for this request; its fingerprint is asked for elsewhere."""
    found = compared(rule, rules, passed.settings.comparison, passed.parsed)
    return Scope(
        workload_of(passed.settings, passed.parsed),
        rule.name,
        version,
        draft_name(drafters),
        target_of(passed),
        None,
        "" if found is None else found.name,
    )


class Certificates:
    """Of one client, its copies and its threads."""

    def __init__(self, ledger: Ledger) -> None:
        self.book = ledger if isinstance(ledger, ShadowBook) else None
        if self.book is not None:
            self.book.certificates("", "")  # so that reading begins
        self._told: OrderedDict[str, str] = OrderedDict()
        self.renew_locks()

    def renew_locks(self) -> None:
        """After a fork, in the child, where nothing is under way."""
        self._lock = threading.RLock()
        self._under_way: dict[tuple[str, str, str], int] = {}

    def begin_shadow(self, scope: tuple[str, str, str], limit: int) -> bool:
        """Whether one more request of this (workload, target, draft) is shadowed; it counts until :meth:`end_shadow`,
        and from then on if it has left findings.
        """
        if self.book is None:
            return False
        known = self.book.shadowed(*scope)
        with self._lock:
            begun = self._under_way.get(scope, 0)
            if known + begun >= limit:
                return False
            self._under_way[scope] = begun + 1
            return True

    def end_shadow(self, scope: tuple[str, str, str]) -> None:
        """It is over, and what it found is in the book."""
        with self._lock:
            left = self._under_way.get(scope, 1) - 1
            if left > 0:
                self._under_way[scope] = left
            else:
                self._under_way.pop(scope, None)

    def cutoffs(self, scopes: Mapping[str, Scope]) -> dict[str, float]:
        """By rule name, the thresholds of certificates that hold now."""
        found = {name: self.certified(scope) for name, scope in scopes.items()}
        return {name: threshold for name, threshold in found.items() if threshold is not None}

    def certified(self, scope: Scope) -> float | None:
        """The threshold from which a rule's word counts; ``None``: no certificate holds. ``scope``: without the
        fingerprint, which is what the target last told of itself.
        """
        if self.book is None:
            return None
        with self._lock:
            told = self._told.get(scope.target)
        now = time.time()
        for made in self.book.certificates(scope.workload, scope.target):
            if not made.valid(now) or made.rule != scope.rule or not _sound(made):
                continue
            if told is not None and made.fingerprint != told:
                self._changed(made, told)
            elif _scope(made) == replace(scope, fingerprint=made.fingerprint):
                return made.threshold
        return None

    def knows(self, target: str, fingerprint: str) -> bool:
        """Whether :meth:`told` has nothing to learn from this."""
        return self.book is None or self._told.get(target) == fingerprint

    def told(self, target: str, workload: str, fingerprint: str) -> None:
        """A reply of the target's says who wrote it."""
        if self.book is None:
            return
        with self._lock:
            self._told[target] = fingerprint
            if len(self._told) > _MOST:
                self._told.popitem(last=False)
        for made in self.book.certificates(workload, target):
            if made.fingerprint != fingerprint:
                self._changed(made, fingerprint)

    def audited(self, workload: str, target: str, rule: str) -> None:
        """One more audit of this rule is in the book."""
        if self.book is None:
            return
        for made in self.book.certificates(workload, target):
            asked, bad = self.book.audits(made)
            if made.rule != rule or made.threshold is None or not asked:
                continue
            least = 1 - upper_bound(asked, asked - bad, made.confidence)
            lost = least * made.accepted / made.n
            if lost > made.loss:
                why = f"{bad} of {asked} audited replies were bad: at least {lost:.2%} of requests are lost"
                self.book.revoke(made, time.time(), why)

    def _changed(self, made: CertificateRow, fingerprint: str) -> None:
        assert self.book is not None
        self.book.revoke(made, time.time(), f"the target's fingerprint is {fingerprint!r} now")


def _scope(made: CertificateRow) -> Scope:
    return Scope(
        made.workload,
        made.rule,
        made.prompt_version,
        made.draft,
        made.target,
        made.fingerprint,
        made.comparison.removeprefix(LABELLED),
    )


def _sound(made: CertificateRow) -> bool:
    """Whether the figures bear the promise: it is computed, not believed."""
    try:
        counts = 0 <= made.failures <= made.accepted <= made.n
        return counts and made.comparison != "" and promised(made.n, made.failures, made.loss, made.confidence)
    except (TypeError, ValueError):
        return False
