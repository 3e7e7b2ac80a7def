"""What a ledger's thread is asked to write, and how a batch of it becomes SQL.

Rules
-----
* An operation is data. A batch is written in one transaction, kind by kind: within a request the kinds follow one
  another (opened, called, answered, closed, settled), so that this order is as good as the order of arrival.
* Rows may be written twice (a commit whose answer was lost is repeated): inserts ignore what is there.
* The later word counts: a call that was given up, or that expired, can still be closed with what it cost.
* Statements are SQLAlchemy's, compiled once, and run on the driver's own cursor: a row costs a caller tens of
  microseconds, not hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

from sqlalchemy import Dialect, Double, Executable, Table, bindparam, case
from sqlalchemy.dialects import postgresql, sqlite

from cheapspec.core.books import Cap
from cheapspec.ledger.cleaning import cleaner
from cheapspec.ledger.schema import (
    calls,
    capabilities,
    certificates,
    estimates,
    requests,
    sessions,
    shadows,
    traces,
)
from cheapspec.ledger.tickets import WriteTicket

__all__ = [
    "Kind",
    "Operation",
    "Reserve",
    "Statement",
    "Statements",
    "insert_adding",
    "insert_ignoring",
    "insert_replacing",
]


class Kind(IntEnum):
    """What an operation does, in the order in which a batch is written."""

    OPEN_SESSION = 0
    OPEN_REQUEST = 1
    OPEN_CALL = 2
    TRACE = 3
    CLOSE_CALL = 4
    CLOSE_REQUEST = 5
    TEXT = 6
    SETTLE = 7
    RESERVE = 8
    CLOSE_SESSION = 9
    CAPABILITY = 10
    ESTIMATE = 11
    SHADOW = 12
    CERTIFICATE = 13
    REVOKE = 14
    ALLOWANCE = 15
    FLUSH = 16


@dataclass(frozen=True, slots=True)
class Reserve:
    """``amounts`` in nano-dollars, the dearest first; ``None`` unknown."""

    request_id: str
    caps: tuple[Cap, ...]
    amounts: tuple[int | None, ...]


@dataclass(slots=True)
class Operation:
    """``values``: a row's columns, a :class:`Reserve`, or a request's id to settle. ``ticket``: who waits for it."""

    kind: Kind
    values: Any
    ticket: WriteTicket[Any] | None = None


class Statement:
    """One statement, compiled for one driver. Its constants are bound like the values that it is given."""

    __slots__ = ("_constants", "_names", "sql")

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled = cast(Any, statement).compile(dialect=dialect)
        self.sql = str(compiled)
        self._names: list[str] | None = compiled.positiontup if compiled.positional else None
        bound = cast("dict[str, Any]", compiled.params)
        self._constants = {name: value for name, value in bound.items() if value is not None}

    def run(self, cursor: Any, values: dict[str, Any]) -> Any:
        """Execute once; returns the cursor."""
        return cursor.execute(self.sql, self._arranged(values))

    def run_many(self, cursor: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Execute for each row."""
        if len(rows) == 1:
            cursor.execute(self.sql, self._arranged(rows[0]))
        else:
            cursor.executemany(self.sql, [self._arranged(row) for row in rows])

    def _arranged(self, values: dict[str, Any]) -> Any:
        if self._constants:
            values = {**self._constants, **values}
        return values if self._names is None else [values[name] for name in self._names]


def insert_ignoring(table: Table, dialect: Dialect, columns: Iterable[str]) -> Statement:
    """An insert of these columns that leaves a row with the same key as it is."""
    make = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
    names = list(columns)
    return Statement(make(table).values({name: bindparam(name) for name in names}).on_conflict_do_nothing(), dialect)


def insert_replacing(table: Table, dialect: Dialect) -> Statement:
    """An insert of a whole row in the place of one with the same key."""
    make = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
    names = [column.name for column in table.columns]
    insert = make(table).values({name: bindparam(name) for name in names})
    key = [column.name for column in table.primary_key.columns]
    new = {name: insert.excluded[name] for name in names if name not in key}
    return Statement(insert.on_conflict_do_update(index_elements=key, set_=new), dialect)


def insert_adding(table: Table, dialect: Dialect, sums: Iterable[str], kept: str) -> Statement:
    """An insert of a whole row; of one with the same key the ``sums`` are added, what was there first multiplied by
    the value bound as ``kept``.
    """
    make = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
    names = [column.name for column in table.columns]
    insert = make(table).values({name: bindparam(name) for name in names})
    key = [column.name for column in table.primary_key.columns]
    new: dict[str, Any] = {name: insert.excluded[name] for name in names if name not in key}
    new |= {name: table.c[name] * bindparam(kept, type_=Double) + insert.excluded[name] for name in sums}
    return Statement(insert.on_conflict_do_update(index_elements=key, set_=new), dialect)


_CALL_OPENED = [
    "call_id",
    "request_id",
    "side",
    "purpose",
    "billed",
    "status",
    "at",
    "owner",
    "lease_expires",
    "worst_nano",
    "asked_tier",
]
_REQUEST_OPENED = [
    "request_id",
    "at",
    "owner",
    "lease_expires",
    "model",
    "kind",
    "stream",
    "session",
    "session_id",
    "workload",
]
_CALL_CLOSED = [
    "status",
    "closed_at",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "estimated",
    "service_tier",
    "cost_nano",
    "budget_nano",
    "seconds",
    "http_status",
    "price_flags",
]
INFO_TEXT = ("decision", "reason", "rule", "drafter", "baseline", "priced_by", "target")
INFO_COUNTS = [
    "rounds",
    "ties",
    "drafted_tokens",
    "accepted_tokens",
    "corrected_tokens",
    "handoff_tokens",
    "unverified_tokens",
    "lenient_tokens",
    "target_calls",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
]
INFO_ALONE = ("fixed_draft_tokens", "prompt_tokens", "cached_prompt_tokens", "reply_tokens")
INFO_MONEY = ("paid", "baseline", "local", "forecast")
INFO_FLAGS = ("simulated", "lossy")
INFO_SECONDS = ("draft", "verify", "handoff", "total")
_REQUEST_CLOSED = (
    "closed_at",
    *INFO_TEXT,
    *INFO_COUNTS,
    *INFO_ALONE,
    *INFO_FLAGS,
    *(f"{name}_nano" for name in INFO_MONEY),
    *(f"seconds_{name}" for name in INFO_SECONDS),
)


class Statements:
    """The statements of everything but reservations."""

    def __init__(self, dialect: Dialect) -> None:
        self._inserts = {
            Kind.OPEN_SESSION: insert_ignoring(sessions, dialect, ("session_id", "name", "parent_id", "at", "owner")),
            Kind.OPEN_REQUEST: insert_ignoring(requests, dialect, _REQUEST_OPENED),
            Kind.OPEN_CALL: insert_ignoring(calls, dialect, _CALL_OPENED),
            Kind.TRACE: insert_ignoring(traces, dialect, [column.name for column in traces.columns]),
            Kind.CAPABILITY: insert_replacing(capabilities, dialect),
            Kind.ESTIMATE: insert_adding(estimates, dialect, ("trials", "hits", "predicted"), "kept"),
            Kind.SHADOW: insert_ignoring(shadows, dialect, [column.name for column in shadows.columns]),
            Kind.CERTIFICATE: insert_ignoring(certificates, dialect, [column.name for column in certificates.columns]),
            Kind.REVOKE: Statement(
                certificates.update()
                .where(certificates.c.certificate_id == bindparam("key"), certificates.c.revoked_at.is_(None))
                .values(revoked_at=bindparam("revoked_at"), revoked_why=bindparam("revoked_why")),
                dialect,
            ),
            Kind.CLOSE_CALL: Statement(
                calls.update()
                .where(calls.c.call_id == bindparam("key"))
                .values({name: bindparam(name) for name in _CALL_CLOSED}),
                dialect,
            ),
            Kind.CLOSE_REQUEST: Statement(
                requests.update()
                .where(requests.c.request_id == bindparam("key"))
                .values({name: bindparam(name) for name in _REQUEST_CLOSED}),
                dialect,
            ),
            Kind.TEXT: Statement(
                requests.update()
                .where(requests.c.request_id == bindparam("key"))
                .values({name: bindparam(name) for name in ("prompt_text", "reply_text")}),
                dialect,
            ),
            Kind.CLOSE_SESSION: Statement(
                sessions.update()
                .where(sessions.c.session_id == bindparam("key"))
                .values(closed_at=bindparam("closed_at")),
                dialect,
            ),
        }
        self._give_up = Statement(
            calls.update()
            .where(calls.c.request_id == bindparam("key"), calls.c.status == "open")
            .values(
                status=case((calls.c.billed, "possibly_billed"), else_="cancelled"), closed_at=bindparam("closed_at")
            ),
            dialect,
        )

        tables = {Kind.OPEN_SESSION: sessions, Kind.OPEN_CALL: calls, Kind.CLOSE_CALL: calls, Kind.TRACE: traces}
        tables |= {Kind.CLOSE_SESSION: sessions, Kind.CAPABILITY: capabilities, Kind.ESTIMATE: estimates}
        tables |= {Kind.SHADOW: shadows, Kind.CERTIFICATE: certificates, Kind.REVOKE: certificates}
        self._clean = {kind: cleaner(tables.get(kind, requests), ("key",)) for kind in self._inserts}

    def write(self, cursor: Any, kind: Kind, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows of one kind; odd values are made to fit (:mod:`cheapspec.ledger.cleaning`)."""
        rows = [self._clean[kind](row) for row in rows]
        self._inserts[kind].run_many(cursor, rows)
        if kind is Kind.CLOSE_REQUEST:  # its calls that nobody closed were written just before they went out
            self._give_up.run_many(cursor, [{"key": row["key"], "closed_at": row["closed_at"]} for row in rows])
