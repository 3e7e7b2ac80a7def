"""What a process remembers between requests: facts about targets, broken draft hosts, answered requests.

Every class here is small, bounded and locked; all take ``now`` (``time.monotonic`` seconds) as an argument.
The locks are reentrant: a stream that nobody closed is settled by the garbage collector, which may strike
inside a locked section. A forked child gets new ones, since another thread may have held them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from cheapspec.core.info import Info
from cheapspec.core.ports import Target
from cheapspec.rules.verdict import Endpoint

__all__ = ["Breaker", "InfoTable", "TargetFacts", "Targets", "infos", "targets"]


class Breaker:
    """A short circuit breaker for each drafter: after ``threshold`` failures in a row, none of them older than
    twice ``seconds``, it is left alone for ``seconds``; one more failure then opens it again.
    """

    def __init__(self, threshold: int = 3, seconds: float = 30.0) -> None:
        self._threshold = threshold
        self._seconds = seconds
        self._lock = threading.RLock()
        self._failures: dict[str, list[float]] = {}
        self._until: dict[str, float] = {}

    def open(self, name: str, now: float) -> bool:
        """Whether this drafter is to be left alone now."""
        with self._lock:
            return self._until.get(name, 0.0) > now

    def failed(self, name: str, now: float) -> None:
        """The host did not answer, or answered with a fault of its own."""
        with self._lock:
            recent = [at for at in self._failures.get(name, ()) if now - at <= 2 * self._seconds]
            self._failures[name] = [*recent, now][-self._threshold :]
            if len(self._failures[name]) == self._threshold:
                self._until[name] = now + self._seconds

    def worked(self, name: str) -> None:
        """A draft came."""
        with self._lock:
            self._failures.pop(name, None)
            self._until.pop(name, None)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()


@dataclass(slots=True)
class TargetFacts:
    """What is known of one endpoint and model. ``target`` is ``None`` while nothing is known or when it
    cannot serve; ``reason`` then says why (``not_probed``, ``cannot_score``). ``backend``: the API family that a probe
    found. ``refuses_usage``: it does not know ``stream_options``. ``qs``, ``qh``: share of a known context that a
    scoring call, or a continuation, pays at the uncached price (``None``: not seen). ``confirmed``: by a probe, not
    only by name. ``in_vain``: probes in a row that learnt nothing; no other before ``next_probe``. ``recalled``: the
    ledger was asked. ``plain_sampling``, ``hidden_defaults``: as in :class:`~cheapspec.backends.facts.Facts`. ``chat``:
    what its chat route takes, as replies have shown.
    """

    target: Target | None = None
    reason: str = "not_probed"
    detail: str = ""
    probing: bool = False
    expires: float = float("inf")
    cooldown_until: float = 0.0
    backend: str = ""
    refuses_usage: bool = False
    qs: float | None = None
    qh: float | None = None
    confirmed: bool = False
    in_vain: int = 0
    next_probe: float = 0.0
    recalled: bool = False
    plain_sampling: bool | None = None
    hidden_defaults: tuple[str, ...] = ()
    chat: Endpoint | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


TargetKey: TypeAlias = tuple[str, str, str, bool]


class Targets:
    """Facts by (base URL, model, backend, whether scoring is simulated, since a target is built with that), at most
    ``limit`` of them, the least recently used go first.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._facts: OrderedDict[TargetKey, TargetFacts] = OrderedDict()

    def get(self, key: TargetKey) -> TargetFacts:
        """The facts of an endpoint, made when first asked for."""
        with self._lock:
            facts = self._facts.setdefault(key, TargetFacts())
            self._facts.move_to_end(key)
            while len(self._facts) > self._limit:
                self._facts.popitem(last=False)
            return facts

    def clear(self) -> None:
        """Forget everything (tests)."""
        with self._lock:
            self._facts.clear()

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()
        for facts in self._facts.values():
            facts.lock, facts.probing = threading.RLock(), False


class InfoTable:
    """The facts of the last ``limit`` requests, by request id and by the reply's own id."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._rows: OrderedDict[str, Info] = OrderedDict()

    def put(self, info: Info, *names: str | None) -> None:
        """Remember an info under its request id and other names."""
        with self._lock:
            for name in (info.request_id, *names):
                if name:
                    self._rows[name] = info
            while len(self._rows) > self._limit:
                self._rows.popitem(last=False)

    def get(self, name: str) -> Info | None:
        """The info of a request, if it is still remembered."""
        with self._lock:
            return self._rows.get(name)

    def clear(self) -> None:
        """Forget everything (tests)."""
        with self._lock:
            self._rows.clear()

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()


infos = InfoTable()
targets = Targets()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=infos.renew_locks)
    os.register_at_fork(after_in_child=targets.renew_locks)
