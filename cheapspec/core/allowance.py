"""Never pay more: how much speculation may lose, whatever the planner believes.

Rules
-----
* Every account (all requests, a session, a workload) keeps a balance: for each settled request, (1 + share) × its
  baseline − what was paid for it. The stated ``seed`` may be lost on top.
* A request under way *holds* the most that it may still turn out to have lost (:func:`at_risk`). A step is admitted
  only if every account of the request bears the new hold in the place of the old one, on top of what the others hold.
  Settling replaces the hold by the truth. So, at any moment::

      paid + holds ≤ (1 + share) × baseline + seed        of the settled requests

  and traffic on which speculation never helps costs at most ``1 + share`` times the baseline plus the seed, by
  construction.
* What savings may be lost again is *capped* (ten times the seed by default): old luck cannot pay for a long run of
  losses.
* A request whose baseline or price turns out to be unknown is settled at what it holds.

What a step may lose: all that was paid so far, its scoring call uncached, the hand-off's reading uncached, writing the
cache at its surcharge, *less* the part of the request's own baseline that is certain by now (its prompt as the direct
call would have read it, its verified tokens). A token that the step gains is read once more by the hand-off and is in
the baseline at output price: none is the worst case, unless reading is dearer than writing. The tokens that the target
writes are in the baseline too and are not counted. Once a token is verified the request hands off if there is trouble
(:mod:`cheapspec.core.rounds`): beginning anew would lose what was verified.

A call that broke and may have been billed is in what was paid. Scoring is never repeated; a hand-off that broke is,
and its second reading is *not* held beforehand: the target alone, broken off at the same token, would have been sent
its prompt and paid all tokens again, which is more. It is settled as what it cost, and later steps must earn it.

Everything is ``Decimal`` dollars; nothing here is locked (the driver locks).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from cheapspec.core.money import Prices

__all__ = ["CAP", "Allowance", "Hold", "at_risk", "change", "worst_case"]

CAP = 10
"""Savings that may be lost again, in seeds."""

_MILLION = Decimal(1_000_000)


@dataclass(slots=True)
class _Account:
    balance: Decimal = Decimal(0)
    open: Decimal = Decimal(0)


@dataclass(slots=True)
class Hold:
    """What one request may still lose, in these accounts."""

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
        self._cap = seed * CAP if cap is None else cap
        self._limit = limit
        self._all = _Account()
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def hold(self, keys: Sequence[str] = ()) -> Hold:
        """The accounts of a request that belongs to ``keys`` (session, workload) and to everything."""
        return Hold((self._all, *(self._account(key) for key in keys)))

    def admit(self, hold: Hold, worst: Decimal) -> bool:
        """Let the request hold ``worst`` in the place of what it holds, if every account bears it. What is not more
        than it holds already, no account need bear.
        """
        more = worst - hold.worst
        if more > 0 and any(self._left(account) < more for account in hold.accounts):
            return False
        hold.worst = worst
        for account in hold.accounts:
            account.open += more
        return True

    def settle(self, hold: Hold, paid: Decimal | None, baseline: Decimal | None) -> None:
        """A request is over (direct ones too: they add their share). Unknown money counts as what it holds."""
        told = change(paid, baseline, self._share)
        for account in hold.accounts:
            account.open -= hold.worst
            made = account.balance + (-hold.worst if told is None else told)
            account.balance = min(made, max(self._cap, account.balance))
        hold.worst = Decimal(0)

    def headroom(self, keys: Sequence[str] = ()) -> Decimal:
        """Dollars that the next request may risk at most."""
        return self.left(self.hold(keys))

    def left(self, hold: Hold) -> Decimal:
        """Dollars that this request may hold at most."""
        return min(self._left(account) for account in hold.accounts) + hold.worst

    def _left(self, account: _Account) -> Decimal:
        return account.balance + self._seed - account.open

    def _account(self, key: str) -> _Account:
        account = self._accounts.setdefault(key, _Account())
        self._accounts.move_to_end(key)
        while len(self._accounts) > self._limit:
            self._accounts.popitem(last=False)
        return account


def change(paid: Decimal | None, baseline: Decimal | None, share: Decimal) -> Decimal | None:
    """What a settled request does to the balance of its accounts; ``None``: not known."""
    return None if paid is None or baseline is None else (1 + share) * baseline - paid


def at_risk(
    prices: Prices,
    context_tokens: int,
    draft_tokens: int,
    *,
    spent: Decimal = Decimal(0),
    sure: Decimal = Decimal(0),
    prompt_tokens: int | None = None,
    forced: bool = False,
    draws: int = 0,
) -> Decimal | None:
    """Dollars that a request may have lost in the end if ``draft_tokens`` are scored now after ``context_tokens``.

    Never negative. ``spent``: paid for it so far. ``sure``: the part of its baseline that is certain.
    ``forced``: the target generates the draft, at
    output price. ``draws``: single tokens that the target may be asked for after the round. ``prompt_tokens``: the
    least that the prompt may be, if not ``context_tokens``. ``None``: there is no bound, as prices change with the
    length of the input somewhere between the two calls.
    """
    longest = context_tokens + draft_tokens + 1 + draws
    stepped = prices.at(longest)
    if stepped != prices.at(context_tokens if prompt_tokens is None else prompt_tokens):
        return None
    scored = spent + worst_case(prices, context_tokens, draft_tokens, forced=forced, draws=draws)
    per_input = _reading(stepped)
    gained = (longest - context_tokens) * max(Decimal(0), per_input - stepped.output / _MILLION)
    again = context_tokens * per_input + stepped.request + gained
    return max(scored + again - sure, Decimal(0))


def worst_case(
    prices: Prices, context_tokens: int, draft_tokens: int, *, forced: bool = False, draws: int = 0
) -> Decimal:
    """Dollars that scoring ``draft_tokens`` after ``context_tokens`` costs at most, draws included; as
    :func:`at_risk`.
    """
    longest = context_tokens + draft_tokens + 1 + draws
    stepped = prices.at(longest)
    written = (draft_tokens + 1 if forced else 1) + draws
    return (1 + draws) * (longest * _reading(stepped) + stepped.request) + written * stepped.output / _MILLION


def _reading(prices: Prices) -> Decimal:
    """Dollars of an input token at most."""
    return max(prices.input, prices.cache_write or prices.input, prices.cached_input or prices.input) / _MILLION
