"""Never pay more: how much speculation may lose, whatever the planner believes.

Rules
-----
* Every account (all requests, a session, a workload) keeps a balance: the stated ``seed``, plus, for each
  settled request, (1 + share) × its baseline − what was paid for it.
* A step is admitted only if *every* account it belongs to can bear its worst case on top of the worst cases
  still open. Settling replaces a worst case by the truth. So, at any moment::

      paid ≤ (1 + share) × baseline of the settled requests + seed + worst cases that came true

  where the last are within what had been admitted: traffic on which speculation never helps costs at most
  ``1 + share`` times the baseline plus the seed, by construction.
* The balance never rises above the seed plus a cap (ten times the seed by default): old luck cannot pay for
  a long run of losses.
* A request whose baseline or price turns out to be unknown is settled at its worst case.

A worst case is what a step may cost *on top of* the baseline: its scoring call uncached, the hand-off's
context read again uncached, and one call that may have been billed though it broke. The reply's own output
tokens are in the baseline too and are not counted.

Everything is ``Decimal`` dollars; nothing here is locked (the driver locks).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from cheapspec.core.money import Prices

__all__ = ["Allowance", "Hold", "worst_case"]

_CAP = 10  # times the seed


@dataclass(slots=True)
class _Account:
    balance: Decimal
    open: Decimal = Decimal(0)


@dataclass(slots=True)
class Hold:
    """Worst cases reserved for one request, in these accounts."""

    accounts: tuple[_Account, ...]
    worst: Decimal = Decimal(0)


class Allowance:
    """The accounts of one client. ``share``: the stated allowance (.02 is 2 %); ``seed``: dollars that may be
    lost while nothing is known yet; ``cap``: most headroom that savings may build up, in dollars.

    At most ``limit`` accounts besides the first key of each request (which is the one for everything) are
    kept; a forgotten one starts again at the seed, bounded by the account for everything.
    """

    def __init__(self, share: Decimal, seed: Decimal, cap: Decimal | None = None, limit: int = 1000) -> None:
        self._share = share
        self._seed = seed
        self._most = seed + (seed * _CAP if cap is None else cap)
        self._limit = limit
        self._all = _Account(seed)
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def hold(self, keys: Sequence[str] = ()) -> Hold:
        """The accounts of a request that belongs to ``keys`` (session, workload) and to everything."""
        return Hold((self._all, *(self._account(key) for key in keys)))

    def admit(self, hold: Hold, worst: Decimal) -> bool:
        """Reserve a step's worst case on top of what the request already holds, if every account bears it."""
        if any(account.balance - account.open < worst for account in hold.accounts):
            return False
        hold.worst += worst
        for account in hold.accounts:
            account.open += worst
        return True

    def settle(self, hold: Hold, paid: Decimal | None, baseline: Decimal | None) -> None:
        """A request is over (direct ones too: they add their share). Unknown money counts as the worst case."""
        for account in hold.accounts:
            account.open -= hold.worst
            if paid is None or baseline is None:
                account.balance -= hold.worst
            else:
                account.balance = min(self._most, account.balance + (1 + self._share) * baseline - paid)
        hold.worst = Decimal(0)

    def headroom(self, keys: Sequence[str] = ()) -> Decimal:
        """Dollars that the next step may risk at most."""
        return min(account.balance - account.open for account in self.hold(keys).accounts)

    def _account(self, key: str) -> _Account:
        account = self._accounts.setdefault(key, _Account(self._seed))
        self._accounts.move_to_end(key)
        while len(self._accounts) > self._limit:
            self._accounts.popitem(last=False)
        return account


def worst_case(prices: Prices, context_tokens: int, draft_tokens: int, *, first: bool, forced: bool = False) -> Decimal:
    """Dollars that scoring ``draft_tokens`` after ``context_tokens`` may cost on top of the baseline.

    Everything is read uncached and written to the cache at its surcharge; one token is generated; the call may
    have to be paid twice. ``first``: the hand-off, which reads it all again, is counted once, with the first
    round. ``forced``: the target generates the draft, at output price.
    """
    per_input = max(prices.input, prices.cache_write or prices.input) / 1_000_000
    per_output = prices.output / 1_000_000
    read = (context_tokens + draft_tokens + 1) * per_input
    scoring = read + per_output * (draft_tokens + 1 if forced else 1) + prices.request
    return 2 * scoring + (read + prices.request if first else draft_tokens * per_input)
