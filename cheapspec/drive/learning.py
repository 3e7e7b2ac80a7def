"""What a client learns from request to request: how far drafts may be believed, and how long calls take.

Rules
-----
* Acceptance is learned per (drafter, target, workload) and kept in the ledger, if it keeps such things, else in this
  object. Speeds are learned per target and per drafter, in this process.
* A target is ``MODEL@BASE_URL``; a workload the caller's tag, else a hash of the system prompt, else nothing.
* Nothing here waits for a store on the path of a request. A lock is held for the time of a look into a dictionary;
  a ledger that keeps estimates has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from cheapspec.core.books import EstimateBook
from cheapspec.core.effects import Note, Usage
from cheapspec.core.estimate import Delta, Estimates, EstimateTable
from cheapspec.core.ports import Ledger
from cheapspec.core.request import Request
from cheapspec.core.speed import DraftSpeed, Speed, TargetSpeed
from cheapspec.drive.passed import Passed
from cheapspec.drive.permits import account_keys
from cheapspec.drive.settings import Settings
from cheapspec.rules.prospects import Lengths

__all__ = ["Learning", "target_of", "workload_of"]

_MOST = 1000
_REMEMBERED = 50  # calls that a mean of lengths goes back to
_MEANS = ("direct", "answer", "judge", "ok_or_answer", "patch")


def target_of(passed: Passed) -> str:
    """``MODEL@BASE_URL``."""
    return passed.target


def workload_of(settings: Settings, request: Request | None) -> str:
    """The caller's tag, else a hash of the system prompt; empty where there is neither."""
    keys = [key for key in account_keys(settings, request) if not key.startswith("session:")]
    return keys[-1].partition(":")[2] if keys else ""


class Learning:
    """Shared by a client, its copies and its threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._lock = threading.RLock()
        self._book = ledger if isinstance(ledger, EstimateBook) else None
        self._table = EstimateTable()
        if self._book is not None:
            self._book.estimates("")  # so that reading begins
        self._targets: dict[str, TargetSpeed] = {}
        self._drafts: dict[str, DraftSpeed] = {}
        self._lengths: dict[str, dict[str, tuple[float, int]]] = {}

    def estimates(self, target: str, workload: str) -> Estimates:
        """What is known when a request begins."""
        if self._book is not None:
            return Estimates(self._book.estimates(target, workload), self._book.estimates(target))
        with self._lock:
            return Estimates(self._table.estimates(target, workload), self._table.estimates(target))

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()

    def observe(self, target: str, workload: str, note: Note) -> bool:
        """Take in a note of the engine. Whether it was for this."""
        if note.kind == "estimates":
            self._observed(target, workload, note.data["delta"])
        elif note.kind == "drafted":
            self._drafted(note.data)
        else:
            return False
        return True

    def _observed(self, target: str, workload: str, delta: Delta) -> None:
        if self._book is not None:
            self._book.add_estimates(target, workload, delta)
            return
        with self._lock:
            self._table.add_estimates(target, workload, delta)

    def called(self, target: str, usage: Usage | None, seconds: float | None, purpose: str = "") -> None:
        """A target call is over. ``purpose``: what it was for."""
        if usage is not None and seconds is not None and not usage.estimated:
            fresh = max(0, usage.input_tokens - (usage.cached_tokens or 0))
            with self._lock:
                if purpose in _MEANS:
                    self._wrote(target, purpose, usage)
                seen = self._targets.pop(target, TargetSpeed())
                self._targets[target] = seen.observe(fresh, usage.output_tokens, seconds)
                if len(self._targets) > _MOST:
                    del self._targets[next(iter(self._targets))]

    def _wrote(self, target: str, purpose: str, usage: Usage) -> None:
        hidden = min(usage.reasoning_tokens, usage.output_tokens)
        means = self._lengths.pop(target, {})
        for name, tokens in ((purpose, usage.output_tokens - hidden), (f"{purpose} hidden", hidden)):
            before, count = means.get(name, (0.0, 0))
            count = min(count + 1, _REMEMBERED)
            means[name] = before + (tokens - before) / count, count
        self._lengths[target] = means
        if len(self._lengths) > _MOST:
            del self._lengths[next(iter(self._lengths))]

    def lengths(self, target: str) -> Lengths:
        """How much direct replies and verdicts of this target had in this process."""
        with self._lock:
            means = {name: mean for name, (mean, _) in self._lengths.get(target, {}).items()}
        said = {name: means[name] + means[f"{name} hidden"] for name in _MEANS if name != "direct" and name in means}
        return Lengths(means.get("direct"), means.get("direct hidden", 0.0), said)

    def speed(self, target: str) -> Speed:
        """Seconds of the target's calls; the stated prior before any."""
        with self._lock:
            return self._targets.get(target, TargetSpeed()).speed

    def measured(self, target: str) -> Speed | None:
        """The same, ``None`` before any."""
        with self._lock:
            seen = self._targets.get(target)
        return None if seen is None else seen.speed

    def draft_seconds(self) -> Mapping[str, float]:
        """Seconds a token, by drafter."""
        with self._lock:
            return {name: speed.decode for name, speed in self._drafts.items()}

    def _drafted(self, data: Mapping[str, Any]) -> None:
        name = str(data["drafter"])
        with self._lock:
            self._drafts[name] = self._drafts.get(name, DraftSpeed()).observe(data["tokens"], data["seconds"])
