"""Sessions: a name, and perhaps a budget, for all requests that are made inside a ``with`` block.

Rules
-----
* The session of a request is the innermost one in its context variables, so it follows tasks, ``asyncio.to_thread``
  and whatever copies the context. A *thread* does not inherit context (PEP 567): one that was started while
  the session is open, and has no session of its own, takes it too. If several that are not nested in one another
  are open, nothing says which, and it takes none. Threads older than the session (a pool) take part through
  :meth:`Session.bind`. A session that a thread opens itself is nested only in what its context variables say:
  a server's threads are not inside one another.
* Nested sessions count in all budgets around them. A budget belongs to the session's *name* on the ledger: a session
  opened again under the name goes on with the same cap (a ``period`` renews it).
* A request counts in the session that it was made in, even if it ends after the block.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from typing import ParamSpec, Self, TypeVar

from cheapspec.core.books import Cap, SessionBook, SessionRow
from cheapspec.core.ports import Ledger
from cheapspec.errors import SettingsError
from cheapspec.ledger.budgets import Budget, distinct

__all__ = ["Session", "current_session", "session_caps"]

P = ParamSpec("P")
R = TypeVar("R")

_current: ContextVar[Session | None] = ContextVar("cheapspec_session", default=None)
_open: list[Session] = []
_lock = threading.RLock()


class Session:
    """One block of requests on one ledger; made by ``client.session(…)``. It is used once.

    ``name``: what the user calls it; ``id``: its row in the ledger; ``parent``: the session around it; ``older``:
    threads that were there before it.
    """

    def __init__(self, ledger: Ledger, name: str, budget: Budget | None = None) -> None:
        if not name or not name.isprintable():
            raise SettingsError(f"session name {name!r}: write a name of printable characters.")
        self.ledger = ledger
        self.name = name
        self.budget = budget
        self.id = uuid.uuid4().hex
        self.parent: Session | None = None
        self.older: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._around: Session | None = None
        self._token: Token[Session | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise SettingsError(f"session {self.name!r} was opened before: make a new one.")
        self._around = _current.get()
        self.parent = self._around.on(self.ledger) if self._around is not None else None
        self.older.update(thread for thread in threading.enumerate() if thread is not threading.current_thread())
        self._token = _current.set(self)
        with _lock:
            _open.append(self)
        if isinstance(self.ledger, SessionBook):
            parent_id = None if self.parent is None else self.parent.id
            self.ledger.open_session(SessionRow(self.id, self.name, time.time(), parent_id))
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _open.remove(self)
        assert self._token is not None
        try:
            _current.reset(self._token)
        except ValueError:  # left in another context than it was entered in (an async generator's)
            _current.set(self._around)
        if isinstance(self.ledger, SessionBook):
            self.ledger.close_session(self.id, time.time())

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """``function`` as part of this session, wherever it runs.

        Threads that are older than the session need it (a ``ThreadPoolExecutor`` that has worked before): without it
        their requests are outside of the session and count in none of its budgets, silently, since nothing tells whose
        work such a thread does: ``pool.submit(session.bind(work), item)``.
        """

        def bound(*args: P.args, **kwargs: P.kwargs) -> R:
            token = _current.set(self)
            try:
                return function(*args, **kwargs)
            finally:
                _current.reset(token)

        return bound

    def on(self, ledger: Ledger) -> Session | None:
        """The innermost of this block and those around it that is a session on ``ledger``."""
        session: Session | None = self
        while session is not None and session.ledger is not ledger:
            session = session._around
        return session

    def chain(self) -> Iterator[Session]:
        """The session itself and those around it, from the inside."""
        session: Session | None = self
        while session is not None:
            yield session
            session = session.parent


def current_session(ledger: Ledger) -> Session | None:
    """The session on ``ledger`` that a request made here and now belongs to."""
    inherited = _current.get()
    if inherited is not None:
        return inherited.on(ledger)
    if not _open:
        return None
    here = threading.current_thread()
    with _lock:
        candidates = [session for session in _open if session.ledger is ledger and here not in session.older]
    if not candidates:
        return None
    innermost = max(candidates, key=lambda session: len(list(session.chain())))
    around = set(innermost.chain())
    return innermost if all(session in around for session in candidates) else None


def session_caps(session: Session | None, now: float) -> tuple[Cap, ...]:
    """The budgets that a request of this session counts in, at ``now`` (UTC seconds since the epoch)."""
    if session is None:
        return ()
    around = ((f"session:{each.name}", each.budget) for each in session.chain())
    return distinct(budget.cap(name, now) for name, budget in around if budget is not None)
