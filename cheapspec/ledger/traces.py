"""Reads a database ledger's traces back, each request with its rounds, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from cheapspec.core.books import Trace
from cheapspec.core.records import RequestRecord
from cheapspec.core.untyped import as_list, is_number
from cheapspec.ledger.schema import traces

__all__ = ["read_traces"]

_PAGE = 500


def read_traces(
    connection: Connection, records: Iterable[RequestRecord]
) -> Iterator[tuple[RequestRecord, tuple[Trace, ...]]]:
    """These requests, each with its rounds in order (:class:`cheapspec.core.records.TraceReader`)."""
    left = iter(records)
    while page := list(islice(left, _PAGE)):
        wanted = [record.row.request_id for record in page]
        query = select(traces).where(traces.c.request_id.in_(wanted)).order_by(traces.c.request_id, traces.c.round)
        rows = connection.execute(query).all()
        rounds = {name: tuple(map(_trace, group)) for name, group in groupby(rows, attrgetter("request_id"))}
        for record in page:
            yield record, rounds.get(record.row.request_id, ())


def _trace(row: Any) -> Trace:
    """A row that another program has spoilt is read as far as it goes, unknown where it is no number."""
    try:
        told = as_list(json.loads(row.logprobs))
    except ValueError:
        told = []
    agreed = tuple(bit == "1" for bit in row.agreed)
    numbers = [float(value) if is_number(value) else None for value in told[: len(agreed)]]
    numbers += [None] * (len(agreed) - len(numbers))
    return Trace(row.request_id, row.round, row.drafter, row.position, tuple(numbers), agreed, row.ended, row.model)
