"""What a ledger may keep besides requests and calls: budgets, sessions, traces; and how a writer is waited for.

Protocols and frozen data, like :mod:`cheapspec.core.ports`, whose ``Ledger`` is the part that every ledger has.
A ledger that also keeps budgets is a :class:`Reservations`, and so on: ask with ``isinstance``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, TypeVar, runtime_checkable

from cheapspec.core.estimate import Counts, Delta

__all__ = [
    "Cap",
    "Capability",
    "CapabilityBook",
    "EstimateBook",
    "Grant",
    "Reservations",
    "RiskBook",
    "SessionBook",
    "SessionRow",
    "Ticket",
    "Trace",
    "TraceBook",
]

R = TypeVar("R", covariant=True)


class Ticket(Protocol[R]):
    """Something that a ledger writes meanwhile. A caller that must know waits, in a thread by :meth:`wait`, in an
    event loop by a callback.
    """

    @property
    def done(self) -> bool:
        """It is written, or the ledger gave it up (and said so in the log)."""
        ...

    @property
    def value(self) -> R | None:
        """What came of it; ``None`` before it is done."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait that long at most. Returns :attr:`done`."""
        ...

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call this once it is done: from the ledger's thread, or at once."""
        ...


@dataclass(frozen=True, slots=True)
class Cap:
    """A budget at the time of a request. ``period`` names the day or month that it is for (empty: for ever);
    ``name`` and ``period`` are shared by everyone on one ledger. ``allow_unknown``: a request whose price nobody
    knows may pass, uncounted.
    """

    name: str
    usd: Decimal
    period: str = ""
    allow_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What became of a reservation. ``choice``: index of the amount that was reserved, ``None``: refused, because
    of the budget ``cap``, which has ``left_usd`` left, ``why``: ``exceeded``, ``unknown`` (price) or
    ``unavailable`` (the ledger cannot be asked).
    """

    choice: int | None
    cap: str = ""
    left_usd: Decimal | None = None
    why: str = ""


@runtime_checkable
class Reservations(Protocol):
    """A ledger that keeps budgets. What is reserved never exceeds a cap, whoever else uses the ledger."""

    def reserve(self, request_id: str, caps: Sequence[Cap], amounts: Sequence[Decimal | None]) -> Ticket[Grant] | Grant:
        """Reserve the first of ``amounts`` (dollars, the dearest first; ``None``: unknown) that every cap has
        room for, in all of them or in none.
        """
        ...

    def settle(self, request_id: str) -> None:
        """The request is over: its calls' costs take the place of what was reserved. May come again when more is
        known of a call.
        """
        ...


@runtime_checkable
class RiskBook(Protocol):
    """A ledger that keeps the accounts of an allowance (:mod:`cheapspec.core.allowance`), for whoever shares it."""

    def hold(self, request_id: str, accounts: Sequence[str], worst: Decimal, seed: Decimal) -> Ticket[bool] | bool:
        """Let the request hold ``worst`` dollars in the place of what it holds, in all of these accounts or in none.
        ``seed``: what each may lose besides its balance. The ticket's value: whether it does; ``None``: nobody knows.
        """
        ...

    def release(
        self, request_id: str, accounts: Sequence[str], change: Decimal | None, cap: Decimal, held: Decimal | None
    ) -> None:
        """The request is over: instead of what it holds, each balance changes by so many dollars (``None``: by the
        loss of what it holds), though what is saved does not rise above ``cap``. ``held``: what the caller knows that
        it holds; where somebody has settled it meanwhile, that is undone. ``None``: it never asked to hold anything.
        """
        ...

    def balance(self, accounts: Sequence[str]) -> Decimal:
        """Dollars left of the one that has least, as far as is known: what may be risked is that and the seed. Returns
        at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it was opened. ``parent_id``: the session around it."""

    session_id: str
    name: str
    at: float
    parent_id: str | None = None


@runtime_checkable
class SessionBook(Protocol):
    """A ledger that keeps sessions."""

    def open_session(self, row: SessionRow) -> None: ...
    def close_session(self, session_id: str, at: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Trace:
    """One round along the final text. ``position``: of its first token there; ``logprobs``: the draft model's own
    (``None`` unknown), ``agreed``: whether the target would have written the token. Both one entry a token.
    ``ended``: whether the target ended its turn after this round (``None`` unknown); ``model``: the target, as it
    names itself.
    """

    request_id: str
    round: int
    drafter: str | None
    position: int
    logprobs: tuple[float | None, ...]
    agreed: tuple[bool, ...]
    ended: bool | None = None
    model: str | None = None


@runtime_checkable
class TraceBook(Protocol):
    """A ledger that keeps traces, and text where it was told to."""

    def add_trace(self, trace: Trace) -> None: ...
    def add_text(self, request_id: str, prompt: str, reply: str) -> None:
        """Does nothing unless the ledger stores text."""
        ...


@runtime_checkable
class TextBook(Protocol):
    """A ledger that can keep text. ``keeps_text``: it was told to."""

    @property
    def keeps_text(self) -> bool: ...
    def add_text(self, request_id: str, prompt: str, reply: str) -> None:
        """Does nothing unless the ledger stores text."""
        ...


@dataclass(frozen=True, slots=True)
class Capability:
    """What a probe found out about an endpoint. ``backend``: the dialect that was asked for (``auto``: none was
    named); ``facts``: plain JSON (:class:`cheapspec.backends.facts.Facts`). Times are UTC seconds since the epoch.
    """

    base_url: str
    model: str
    backend: str
    facts: Mapping[str, Any]
    probed_at: float
    expires_at: float


@runtime_checkable
class CapabilityBook(Protocol):
    """A ledger that keeps what probes found. All return quickly and never raise."""

    def read_capabilities(self) -> bool:
        """Begin to read what is kept, if nobody has. Whether :meth:`capability` knows by now all that it will."""
        ...

    def capability(self, base_url: str, model: str, backend: str, now: float) -> Capability | None:
        """What is known and has not expired at ``now``."""
        ...

    def put_capability(self, found: Capability) -> None:
        """Keep it in the place of what was known; one that has expired revokes that."""
        ...


@runtime_checkable
class EstimateBook(Protocol):
    """A ledger that keeps acceptance estimates. ``target``: ``MODEL@BASE_URL``. Both return at once, never raise."""

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """A snapshot of what was observed of this workload, or of all of the target's together (``None``)."""
        ...

    def add_estimates(self, target: str, workload: str, delta: Delta) -> None:
        """More was observed; it is added to what any process has observed."""
        ...
