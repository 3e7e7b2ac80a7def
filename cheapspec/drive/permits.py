"""The client's allowance, shared by its threads, tasks and copies (:mod:`cheapspec.core.allowance`).

A request belongs to everything, to its session and to its workload (the caller's tag, else a hash of the
system prompt); each of these accounts must bear its steps.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from decimal import Decimal

from cheapspec.core.allowance import Allowance, Hold
from cheapspec.core.request import Request
from cheapspec.drive.settings import Settings

__all__ = ["BoundPermit", "Permits", "account_keys"]


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

    def __init__(self, permits: Permits, hold: Hold) -> None:
        self._permits = permits
        self._hold = hold
        self._left: Decimal | None = None

    def headroom(self) -> Decimal:
        """Dollars that steps may risk now at most."""
        return self._permits.headroom(self._hold)

    def limit(self, usd: Decimal) -> None:
        """So much at most for all steps: what a budget has reserved for them."""
        self._left = usd

    def admit(self, worst: Decimal) -> bool:
        """Reserve a step's worst case, if every account bears it."""
        if self._left is not None and worst > self._left:
            return False
        if not self._permits.admit(self._hold, worst):
            return False
        if self._left is not None:
            self._left -= worst
        return True

    def settle(self, paid: Decimal | None, baseline: Decimal | None) -> None:
        """The request is over; unknown money counts as the worst case of its steps."""
        self._permits.settle(self._hold, paid, baseline)


class Permits:
    """A locked allowance."""

    def __init__(self, share: Decimal, seed: Decimal) -> None:
        self._allowance = Allowance(share, seed)
        self._lock = threading.Lock()

    def of(self, keys: Sequence[str]) -> BoundPermit:
        """A permit for one request."""
        with self._lock:
            return BoundPermit(self, self._allowance.hold(keys))

    def admit(self, hold: Hold, worst: Decimal) -> bool:
        """See :meth:`BoundPermit.admit`."""
        with self._lock:
            return self._allowance.admit(hold, worst)

    def headroom(self, hold: Hold) -> Decimal:
        """See :meth:`BoundPermit.headroom`."""
        with self._lock:
            return min(account.balance - account.open for account in hold.accounts)

    def settle(self, hold: Hold, paid: Decimal | None, baseline: Decimal | None) -> None:
        """See :meth:`BoundPermit.settle`."""
        with self._lock:
            self._allowance.settle(hold, paid, baseline)

    def renew_locks(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
