"""What a ledger gives back: requests with their calls, as they were written.

A ledger that can be read is a :class:`LedgerReader` (ask with ``isinstance``); :mod:`cheapspec.report` turns
what it reads into totals. Frozen data and a Protocol, like :mod:`cheapspec.core.ports`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from cheapspec.core.books import Trace
from cheapspec.core.effects import Usage
from cheapspec.core.estimate import Row
from cheapspec.core.ports import CallRow, RequestRow

__all__ = [
    "AccountRecord",
    "AllowanceReader",
    "CallRecord",
    "EstimateReader",
    "LedgerReader",
    "RequestRecord",
    "TraceReader",
]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. ``status``: open, ok, failed, cancelled, possibly_billed or expired; ``cost_usd``: ``None`` unknown;
    ``flags``: what is odd about its price (:class:`cheapspec.core.money.Charge`).
    """

    row: CallRow
    status: str = "open"
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    seconds: float | None = None
    http_status: int | None = None
    flags: tuple[str, ...] = ()

    @property
    def unpriced(self) -> bool:
        """It may have cost something that nobody can name. A call that failed with an answer costs nothing."""
        return self.row.billed and self.cost_usd is None and self.status in {"ok", "possibly_billed", "expired"}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One logical request with its calls, in the order in which they were opened. ``info``: as it was closed
    with (the reply's extra key), ``None`` while it is open.
    """

    row: RequestRow
    info: Mapping[str, Any] | None = None
    calls: tuple[CallRecord, ...] = ()


@runtime_checkable
class LedgerReader(Protocol):
    """A ledger that can be read."""

    def requests(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> Iterable[RequestRecord]:
        """Requests, oldest first, each with its calls.

        ``since`` (from then on) and ``until`` (before then): seconds since the epoch, UTC; ``session``: a session's
        name, or its id. ``None``: all.

        :raises LedgerError: the store cannot be read.
        """
        ...


@runtime_checkable
class TraceReader(Protocol):
    """A ledger whose traces can be read."""

    def traced(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> Iterable[tuple[RequestRecord, tuple[Trace, ...]]]:
        """Requests as :meth:`LedgerReader.requests` gives them (their calls may be left out), each with its rounds in
        order, none for one that was not speculated on.

        :raises LedgerError: the store cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """An account of the allowance, in dollars: ``balance_usd``, without the seed, and ``open_usd``, which requests
    under way may lose of it.
    """

    account: str
    balance_usd: Decimal
    open_usd: Decimal


@runtime_checkable
class AllowanceReader(Protocol):
    """A ledger whose accounts of the allowance can be read."""

    def account_rows(self) -> Iterable[AccountRecord]:
        """All accounts, that of all requests first.

        :raises LedgerError: the store cannot be read.
        """
        ...


@runtime_checkable
class EstimateReader(Protocol):
    """A ledger whose acceptance estimates can be read."""

    def estimate_rows(self) -> Iterable[Row]:
        """All counts, by target, workload, drafter and bucket.

        :raises LedgerError: the store cannot be read.
        """
        ...
