"""Reads a database ledger back: requests with their calls, a page at a time, in one view of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select

from cheapspec.core.effects import Usage
from cheapspec.core.info import Info, Seconds
from cheapspec.core.money import format_usd
from cheapspec.core.ports import CallRow, RequestRow
from cheapspec.core.records import CallRecord, RequestRecord
from cheapspec.ledger.money import from_nano
from cheapspec.ledger.operations import INFO_ALONE, INFO_COUNTS
from cheapspec.ledger.schema import calls, requests, sessions

__all__ = ["read_requests"]

_PAGE = 500


def read_requests(
    connection: Connection, since: float | None, until: float | None, session: str | None
) -> Iterator[RequestRecord]:
    """See :class:`cheapspec.core.records.LedgerReader`. A session takes those inside it along."""
    query = select(requests).order_by(requests.c.at, requests.c.request_id)
    if since is not None:
        query = query.where(requests.c.at >= since)
    if until is not None:
        query = query.where(requests.c.at < until)
    if session is not None:
        query = query.where(or_(requests.c.session == session, requests.c.session_id.in_(_inside(session))))
    found = connection.execute(query)
    while page := found.fetchmany(_PAGE):
        yield from _with_calls(connection, page)


def _inside(session: str) -> Select[Any]:
    """Ids of the sessions called so (or with this id), and of all that were opened inside them."""
    named = or_(sessions.c.name == session, sessions.c.session_id == session)
    tree = select(sessions.c.session_id).where(named).cte("tree", recursive=True)
    tree = tree.union(select(sessions.c.session_id).where(sessions.c.parent_id == tree.c.session_id))
    return select(tree.c.session_id)


def _with_calls(connection: Connection, page: Sequence[Any]) -> Iterator[RequestRecord]:
    ids = [row.request_id for row in page]
    order = (calls.c.request_id, calls.c.at, func.length(calls.c.call_id), calls.c.call_id)
    rows = connection.execute(select(calls).where(calls.c.request_id.in_(ids)).order_by(*order)).all()
    made = {name: tuple(map(_call, group)) for name, group in groupby(rows, attrgetter("request_id"))}
    for row in page:
        opened = RequestRow(
            row.request_id, row.at, row.model, row.kind, row.stream, row.session, row.workload, row.session_id
        )
        yield RequestRecord(opened, _info(row), made.get(row.request_id, ()))


def _call(row: Any) -> CallRecord:
    worst = format_usd(from_nano(row.worst_nano))
    opened = CallRow(row.call_id, row.request_id, row.side, row.purpose, row.billed, row.at, worst, row.asked_tier)
    flags = tuple((row.price_flags or "").split())
    usage = None
    if row.input_tokens is not None:
        usage = Usage(
            row.input_tokens,
            row.output_tokens,
            row.cached_tokens,
            row.cache_write_tokens,
            row.reasoning_tokens,
            None,
            row.service_tier,
            row.estimated,
        )
    return CallRecord(opened, row.status, usage, from_nano(row.cost_nano), row.seconds, row.http_status, flags)


def _info(row: Any) -> dict[str, Any] | None:
    """The reply's extra key, as it was closed with; ``None`` for a request that is open or was cut short."""
    if row.decision is None:
        return None
    counts: dict[str, Any] = {name: getattr(row, name) or 0 for name in INFO_COUNTS}
    info = Info(
        decision=row.decision,
        request_id=row.request_id,
        reason=row.reason,
        rule=row.rule,
        drafter=row.drafter,
        session=row.session,
        paid_usd=from_nano(row.paid_nano),
        baseline_usd=from_nano(row.baseline_nano),
        baseline=row.baseline or "estimated",
        priced_by=row.priced_by or "unknown",
        seconds=Seconds(
            row.seconds_draft or 0.0, row.seconds_verify or 0.0, row.seconds_handoff or 0.0, row.seconds_total or 0.0
        ),
        simulated=bool(row.simulated),
        lossy=bool(row.lossy),
        local_usd=from_nano(row.local_nano),
        forecast_usd=from_nano(row.forecast_nano),
        target=row.target,
        **{name: getattr(row, name) for name in INFO_ALONE},
        **counts,
    )
    return info.to_dict()
