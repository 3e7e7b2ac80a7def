"""The client's allowance, shared by its threads, tasks and copies (:mod:`cheapspec.core.allowance`).

Rules
-----
* A request belongs to everything, to its session and to its workload (the caller's tag, else a hash of the system
  prompt); each of these accounts must bear its steps.
* Where the ledger keeps accounts (:class:`~cheapspec.core.books.RiskBook`) they are everybody's who shares it, and
  outlive the process. Otherwise they are the client's, in memory.
* What a request holds already is not asked for again: a step asks the ledger once at most.
* A request settles once, whatever becomes of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from decimal import Decimal

from cheapspec.core.allowance import CAP, Allowance, Hold, change
from cheapspec.core.books import RiskBook, Ticket
from cheapspec.core.ports import Ledger
from cheapspec.core.request import Request
from cheapspec.drive.settings import Settings

__all__ = ["ALL", "BoundPermit", "Permits", "account_keys"]

ALL = "all"
"""The account of all requests."""


def account_keys(settings: Settings, request: Request | None) -> list[str]:
    """The accounts of a request besides the one for everything."""
    keys = [f"session:{settings.session}"] if settings.session is not None else []
    if settings.workload is not None:
        return [*keys, f"workload:{settings.workload}"]
    messages = () if request is None else request.messages
    told = [str(message.get("content", "")) for message in messages if message.get("role") in ("system", "developer")]
    if not told:
        return keys
    digest = hashlib.blake2b("\0".join(told).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return [*keys, f"system:{digest}"]


class BoundPermit:
    """The allowance as one request sees it (:class:`cheapspec.core.ports.Permit`)."""

    def __init__(self, permits: Permits, request_id: str, accounts: Sequence[str], hold: Hold) -> None:
        self._permits = permits
        self._request_id = request_id
        self._accounts = tuple(accounts)
        self._hold = hold
        self._held = Decimal(0)  # that the ledger is known to know of
        self._asked: tuple[Ticket[bool], Decimal] | None = None
        self._limit: Decimal | None = None
        self._asking = self._settled = False

    def headroom(self) -> Decimal:
        """Dollars that the request may hold now at most, as far as is known."""
        most = self._permits.headroom(self._accounts, self._hold)
        return most if self._limit is None else min(most, self._limit)

    def limit(self, usd: Decimal) -> None:
        """So much may be held at most: what a budget has reserved for it."""
        self._limit = usd

    def admit(self, worst: Decimal) -> Ticket[bool] | bool:
        """Hold ``worst`` in the place of what is held, if every account bears it."""
        if self._limit is not None and worst > self._limit:
            return False
        if self._permits.book is None:
            return self._permits.admit(self._hold, worst)
        self._learn()
        if worst <= self._held:
            return True
        self._asking = True
        told = self._permits.book.hold(self._request_id, self._accounts, worst, self._permits.seed)
        if isinstance(told, bool):
            self._held = worst if told else self._held
        else:
            self._asked = told, worst
        return told

    def _learn(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and asked[0].value is True:
            self._held = asked[1]

    def settle(self, paid: Decimal | None, baseline: Decimal | None) -> None:
        """The request is over; unknown money counts as what is held. Only the first time counts."""
        if self._settled:
            return
        self._settled = True
        permits = self._permits
        if permits.book is None:
            permits.settle(self._hold, paid, baseline)
            return
        self._learn()
        told, held = change(paid, baseline, permits.share), self._held if self._asking else None
        permits.book.release(self._request_id, self._accounts, told, permits.seed * CAP, held)


class Permits:
    """The allowance of a client: locked in memory, or kept by its ledger. ``share``, ``seed``: as
    :class:`~cheapspec.core.allowance.Allowance` takes them.
    """

    def __init__(self, share: Decimal, seed: Decimal, ledger: Ledger | None = None) -> None:
        self.share = share
        self.seed = seed
        self.book = ledger if isinstance(ledger, RiskBook) else None
        self._allowance = Allowance(share, seed)
        self._lock = threading.Lock()

    def of(self, keys: Sequence[str], request_id: str = "") -> BoundPermit:
        """A permit for one request."""
        with self._lock:
            hold = self._allowance.hold(() if self.book is not None else keys)
            return BoundPermit(self, request_id, (ALL, *keys), hold)

    def admit(self, hold: Hold, worst: Decimal) -> bool:
        """See :meth:`BoundPermit.admit`."""
        with self._lock:
            return self._allowance.admit(hold, worst)

    def headroom(self, accounts: Sequence[str], hold: Hold) -> Decimal:
        """See :meth:`BoundPermit.headroom`."""
        if self.book is not None:
            return self.book.balance(accounts) + self.seed
        with self._lock:
            return self._allowance.left(hold)

    def settle(self, hold: Hold, paid: Decimal | None, baseline: Decimal | None) -> None:
        """See :meth:`BoundPermit.settle`."""
        with self._lock:
            self._allowance.settle(hold, paid, baseline)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
