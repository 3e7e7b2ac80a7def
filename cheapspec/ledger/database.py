"""The ledger in a database: what was asked, sent and paid, and the budgets, shared by all who use its URL.

Rules
-----
* A call's row is queued before the call goes out, and its ticket says when it is committed: whoever sends the
  call waits for that, so that a killed process leaves a row of everything that it paid for.
* Nothing here waits, raises or touches the disk on the path of a request: the writer's thread does
  (:mod:`cheapspec.ledger.writer`). :meth:`read` and :meth:`flush` are for reports.
* One ledger a URL and process (:mod:`cheapspec.ledger.opening`): clients and their copies share its thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from cheapspec.core.books import Cap, Capability, Grant, SessionRow, Ticket, Trace
from cheapspec.core.estimate import KEPT, Count, Counts, Delta, Row
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.records import AccountRecord, RequestRecord
from cheapspec.core.shadows import CertificateRow, ShadowRow
from cheapspec.errors import LedgerError
from cheapspec.ledger import certificates as certified
from cheapspec.ledger import shadows as shadowing
from cheapspec.ledger.allowances import Held, Released, read_accounts
from cheapspec.ledger.budgets import distinct
from cheapspec.ledger.capabilities import CapabilityCache, row_of
from cheapspec.ledger.cleaning import clean_text
from cheapspec.ledger.estimates import MOST_ROWS, EstimateCache
from cheapspec.ledger.leases import LEASE_SECONDS
from cheapspec.ledger.money import from_nano, to_nano
from cheapspec.ledger.operations import (
    INFO_ALONE,
    INFO_COUNTS,
    INFO_FLAGS,
    INFO_MONEY,
    INFO_SECONDS,
    INFO_TEXT,
    Kind,
    Operation,
    Reserve,
)
from cheapspec.ledger.reader import read_requests
from cheapspec.ledger.schema import estimates
from cheapspec.ledger.store import DEFAULT_URL, Store
from cheapspec.ledger.tickets import WriteTicket
from cheapspec.ledger.traces import read_traces
from cheapspec.ledger.writer import Writer

__all__ = ["DatabaseLedger"]


class DatabaseLedger:
    """Implements :class:`~cheapspec.core.ports.Ledger`, :class:`~cheapspec.core.books.Reservations`,
    :class:`~cheapspec.core.books.RiskBook`, :class:`~cheapspec.core.books.SessionBook`,
    :class:`~cheapspec.core.books.TraceBook` and :class:`~cheapspec.core.records.LedgerReader`.

    :param url: ``sqlite:///PATH`` or ``postgresql://…`` (extra ``[postgres]``).
    :param store_text: keep prompts and replies too.
    :param buffer: operations that are kept while the store is away.
    :param lease_seconds: how long an open row outlives a process that died.
    :raises LedgerError: the URL is unusable, or its driver is not installed.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        store_text: bool = False,
        buffer: int = 10_000,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = Store(url)
        self._writer = Writer(self._store, buffer=buffer, lease_seconds=lease_seconds)
        self._store_text = store_text
        self._capabilities = CapabilityCache(self.read)
        self._estimates = EstimateCache(self._newest_estimates)
        self._shadows = shadowing.ShadowCache(self.read)

    def __repr__(self) -> str:
        return f"DatabaseLedger({self._store.shown!r})"

    @property
    def url(self) -> str:
        """Where it is, a password hidden."""
        return self._store.shown

    @property
    def lost(self) -> int:
        """Rows that could not be kept, in this process."""
        return self._writer.lost

    @property
    def available(self) -> bool:
        """Whether the store worked when it was last tried."""
        return not self._writer.down

    # --- requests and calls ----------------------------------------------------------------------

    def open_request(self, row: RequestRow) -> None:
        writer = self._writer
        self._put(
            Kind.OPEN_REQUEST,
            {
                "request_id": row.request_id,
                "at": row.at,
                "owner": writer.owner,
                "lease_expires": writer.lease(),
                "model": row.model,
                "kind": row.kind,
                "stream": row.stream,
                "session": row.session,
                "session_id": row.session_id,
                "workload": row.workload,
            },
        )

    def open_call(self, row: CallRow) -> Ticket[object] | None:
        writer = self._writer
        ticket: WriteTicket[object] | None = writer.ticket() if row.billed and writer.ready else None
        values = {
            "call_id": row.call_id,
            "request_id": row.request_id,
            "side": str(row.side),
            "purpose": row.purpose,
            "billed": row.billed,
            "status": "open",
            "at": row.at,
            "owner": writer.owner,
            "lease_expires": writer.lease(),
            "worst_nano": to_nano(row.worst_usd, up=True),
            "asked_tier": row.service_tier,
        }
        writer.put(Operation(Kind.OPEN_CALL, values, ticket))
        return ticket

    def close_call(self, call: Call) -> None:
        usage = call.usage
        self._put(
            Kind.CLOSE_CALL,
            {
                "key": call.call_id,
                "status": call.status,
                "closed_at": time.time(),
                "input_tokens": None if usage is None else usage.input_tokens,
                "cached_tokens": None if usage is None else usage.cached_tokens,
                "cache_write_tokens": None if usage is None else usage.cache_write_tokens,
                "output_tokens": None if usage is None else usage.output_tokens,
                "reasoning_tokens": None if usage is None else usage.reasoning_tokens,
                "estimated": None if usage is None else usage.estimated,
                "service_tier": None if usage is None else usage.service_tier,
                "cost_nano": to_nano(call.cost_usd),
                "budget_nano": to_nano(call.budget_usd),
                "seconds": call.seconds,
                "http_status": call.http_status,
                "price_flags": " ".join(call.flags) or None,
            },
        )

    def close_request(self, request_id: str, info: Mapping[str, Any]) -> None:
        seconds: Mapping[str, Any] = info.get("seconds") or {}
        values: dict[str, Any] = {"key": request_id, "closed_at": time.time()}
        values |= {name: info.get(name) for name in (*INFO_TEXT, *INFO_COUNTS, *INFO_ALONE)}
        values |= {f"seconds_{name}": seconds.get(name) for name in INFO_SECONDS}
        values |= {name: bool(info.get(name)) for name in INFO_FLAGS}
        values |= {f"{name}_nano": to_nano(info.get(f"{name}_usd")) for name in INFO_MONEY}
        self._put(Kind.CLOSE_REQUEST, values)

    # --- budgets ---------------------------------------------------------------------------------

    def reserve(self, request_id: str, caps: Sequence[Cap], amounts: Sequence[Decimal | None]) -> Ticket[Grant] | Grant:
        if not caps:
            return Grant(0)
        if not self._writer.ready:
            return Grant(None, caps[0].name, why="unavailable")
        named = distinct(replace(cap, name=clean_text(cap.name)) for cap in caps)
        asked = Reserve(request_id, named, tuple(to_nano(amount, up=True) for amount in amounts))
        ticket: WriteTicket[Grant] = self._writer.ticket()
        self._writer.put(Operation(Kind.RESERVE, asked, ticket))
        return ticket

    def settle(self, request_id: str) -> None:
        self._put(Kind.SETTLE, request_id)

    # --- the allowance ---------------------------------------------------------------------------

    def hold(self, request_id: str, accounts: Sequence[str], worst: Decimal, seed: Decimal) -> Ticket[bool]:
        """See :class:`cheapspec.core.books.RiskBook`."""
        ticket: WriteTicket[bool] = self._writer.ticket()
        amount, stake = to_nano(worst, up=True), to_nano(seed)
        if amount is None or stake is None:
            ticket.finish(False)
        elif not self._writer.ready:
            ticket.finish(None)
        else:
            asked = Held(request_id, tuple(map(clean_text, accounts)), amount, stake)
            self._writer.put(Operation(Kind.ALLOWANCE, asked, ticket))
        return ticket

    def release(
        self, request_id: str, accounts: Sequence[str], change: Decimal | None, cap: Decimal, held: Decimal | None
    ) -> None:
        lost = None if change is None else to_nano(-change, up=True)  # rounded to the side of the loss
        moved = None if lost is None else -lost
        if held is None and not moved:
            return
        named = tuple(map(clean_text, accounts))
        over = Released(request_id, named, moved, to_nano(cap) or 0, to_nano(held, up=True))
        self._put(Kind.ALLOWANCE, over)

    def balance(self, accounts: Sequence[str]) -> Decimal:
        """As far as this process was told."""
        known = self._writer.allowances.known
        return from_nano(min(known.get(account, 0) for account in map(clean_text, accounts))) or Decimal(0)

    def account_rows(self) -> list[AccountRecord]:
        """See :class:`cheapspec.core.records.AllowanceReader`.

        :raises LedgerError: the store cannot be read.
        """
        with self.read() as connection:
            return read_accounts(connection)

    # --- sessions, traces, text ------------------------------------------------------------------

    def open_session(self, row: SessionRow) -> None:
        values = {"session_id": row.session_id, "name": row.name, "parent_id": row.parent_id, "at": row.at}
        self._put(Kind.OPEN_SESSION, {**values, "owner": self._writer.owner})

    def close_session(self, session_id: str, at: float) -> None:
        self._put(Kind.CLOSE_SESSION, {"key": session_id, "closed_at": at})

    def add_trace(self, trace: Trace) -> None:
        values = {
            "request_id": trace.request_id,
            "round": trace.round,
            "drafter": trace.drafter,
            "position": trace.position,
            "logprobs": json.dumps([None if p is None or p != p or p in _INFINITE else p for p in trace.logprobs]),
            "agreed": "".join("01"[agreed] for agreed in trace.agreed),
            "ended": trace.ended,
            "model": trace.model,
        }
        self._put(Kind.TRACE, values)

    @property
    def keeps_text(self) -> bool:
        """See :class:`cheapspec.core.books.TextBook`."""
        return self._store_text

    def add_text(self, request_id: str, prompt: str, reply: str) -> None:
        if self._store_text:
            self._put(Kind.TEXT, {"key": request_id, "prompt_text": prompt, "reply_text": reply})

    # --- what probes found -----------------------------------------------------------------------

    def capability(self, base_url: str, model: str, backend: str, now: float) -> Capability | None:
        """See :class:`cheapspec.core.books.CapabilityBook`."""
        return self._capabilities.get(base_url, model, backend, now)

    def read_capabilities(self) -> bool:
        return self._capabilities.begin()

    def put_capability(self, found: Capability) -> None:
        self._capabilities.put(found)
        self._put(Kind.CAPABILITY, row_of(found))

    # --- acceptance estimates --------------------------------------------------------------------

    def estimates(self, target: str, workload: str | None = None) -> Counts:
        """See :class:`cheapspec.core.books.EstimateBook`."""
        return self._estimates.estimates(target, workload)

    def add_estimates(self, target: str, workload: str, delta: Delta) -> None:
        self._estimates.observed(target, workload, delta)
        for (drafter, bucket), count in delta.items():
            key = {"target": target, "workload": workload, "drafter": drafter, "bucket": bucket}
            sums = {"trials": count.trials, "hits": count.hits, "predicted": count.predicted}
            self._put(Kind.ESTIMATE, {**key, **sums, "updated_at": time.time(), "kept": KEPT**count.trials})

    def estimate_rows(self) -> list[Row]:
        """See :class:`cheapspec.core.records.EstimateReader`.

        :raises LedgerError: the store cannot be read.
        """
        with self.read() as connection:
            rows = connection.execute(select(estimates).order_by(estimates.c.updated_at)).all()
        return _counted(rows)

    def _newest_estimates(self) -> list[Row]:
        """As many of them as a snapshot has use for, the newest last."""
        newest = select(estimates).order_by(estimates.c.updated_at.desc()).limit(MOST_ROWS)
        with self.read() as connection:
            rows = connection.execute(newest).all()
        return _counted(rows[::-1])

    # --- what lossy rules lose -------------------------------------------------------------------

    def shadowed(self, workload: str, target: str, draft: str) -> int:
        """See :class:`cheapspec.core.shadows.ShadowBook`."""
        return self._shadows.shadowed(workload, target, draft)

    def add_shadow(self, row: ShadowRow) -> None:
        kept = row if self._store_text else replace(row, draft_text=None)
        self._shadows.found(kept)
        self._put(Kind.SHADOW, shadowing.row_of(kept))

    def certificates(self, workload: str, target: str) -> tuple[CertificateRow, ...]:
        return self._shadows.certificates(workload, target)

    def put_certificate(self, row: CertificateRow) -> None:
        self._shadows.certified(row)
        self._put(Kind.CERTIFICATE, certified.row_of(row))

    def revoke(self, row: CertificateRow, at: float, why: str) -> None:
        self._shadows.certified(replace(row, revoked_at=at, revoked_why=why))
        self._put(Kind.REVOKE, {"key": row.certificate_id, "revoked_at": at, "revoked_why": why})

    def audits(self, row: CertificateRow) -> tuple[int, int]:
        return self._shadows.audits(row)

    def shadow_rows(
        self, *, workload: str | None = None, since: float | None = None, until: float | None = None
    ) -> Iterator[ShadowRow]:
        """See :class:`cheapspec.core.shadows.ShadowReader`.

        :raises LedgerError: the store cannot be read.
        """
        with self.read() as connection:
            yield from shadowing.read_shadows(connection, workload, since, until)

    def certificate_rows(self) -> list[CertificateRow]:
        with self.read() as connection:
            return certified.read_certificates(connection)

    # --- for reports and tests -------------------------------------------------------------------

    def flush(self, seconds: float = 30.0) -> bool:
        """Wait until what was given so far is written, and settle what dead processes left. Whether it is."""
        ticket: WriteTicket[object] = self._writer.ticket()
        self._writer.put(Operation(Kind.FLUSH, None, ticket))
        return ticket.wait(seconds) and ticket.value is True

    @contextmanager
    def read(self) -> Generator[Connection]:
        """A SQLAlchemy connection in a transaction, to read :mod:`cheapspec.ledger.schema`'s tables with.

        :raises LedgerError: the store cannot be read.
        """
        flushed = self.flush()
        away = self._writer.unreachable
        if not flushed and away is not None and self._store.dialect != "sqlite":  # a file may be there to be read only
            raise LedgerError(f"the ledger {self.url} cannot be read: {away}") from away
        try:
            self._store.connect().close()  # the tables are there, or it says why not
            connection = self._store.engine.connect()
        except (SQLAlchemyError, OSError, _driver_error(self._store)) as error:
            raise LedgerError(f"the ledger {self.url} cannot be read: {error}") from error
        with connection, connection.begin():
            yield connection

    def requests(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> Iterator[RequestRecord]:
        """See :class:`cheapspec.core.records.LedgerReader`. Read as they are asked for, in one view of the tables.

        :raises LedgerError: the store cannot be read.
        """
        with self.read() as connection:
            yield from read_requests(connection, since, until, session)

    def traced(
        self, *, since: float | None = None, until: float | None = None, session: str | None = None
    ) -> Iterator[tuple[RequestRecord, tuple[Trace, ...]]]:
        """See :class:`cheapspec.core.records.TraceReader`.

        :raises LedgerError: the store cannot be read.
        """
        with self.read() as connection:
            yield from read_traces(connection, read_requests(connection, since, until, session))

    def close(self, seconds: float = 10.0) -> None:
        """Write what is queued and end the thread. The ledger can be used again."""
        self._writer.close(seconds)

    def _put(self, kind: Kind, values: Any) -> None:
        self._writer.put(Operation(kind, values))


def _counted(rows: Iterable[Any]) -> list[Row]:
    counted = ((row, Count(row.trials, row.hits, row.predicted)) for row in rows)
    return [(row.target, row.workload, row.drafter, row.bucket, count) for row, count in counted]


_INFINITE = (float("inf"), float("-inf"))


def _driver_error(store: Store) -> type[BaseException]:
    kind: type[BaseException] = store.engine.dialect.loaded_dbapi.Error
    return kind
