"""The books of paid calls beside a request whose reply they do not belong to: verdicts in shadow.

Rules
-----
* Their rows are the request's, under ids of their own, so that they are in what it paid; its reply's facts know
  nothing of them.
* A budget reserves for them apart from the request, and an allowance must bear them like a step of speculation: they
  earn nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from cheapspec.core.books import Grant, Reservations, Ticket
from cheapspec.drive.books import Books
from cheapspec.drive.io import Steps, Written
from cheapspec.drive.runtime import Passed, Runtime

__all__ = ["BesideBooks", "reserved"]


class BesideBooks(Books):
    """Of the calls of one purpose beside a request. ``name``: what their ids have after the request's."""

    def __init__(self, runtime: Runtime, passed: Passed, name: str) -> None:
        self.runtime = runtime
        self._passed = passed
        self._name = name
        self._rows = self._sent = 0
        self._billed: set[str] = set()
        self._tickets: dict[str, Ticket[object]] = {}

    @property
    def next_id(self) -> str:
        return f"{self._passed.request_id}.{self._name}-{self._rows + 1}"


def reserved(runtime: Runtime, passed: Passed, hold: str, amounts: Sequence[Decimal]) -> Steps[int | None]:
    """Reserve the first of these amounts that every budget of the request has room for, under the id ``hold``: which,
    ``None``: none of them.
    """
    ledger, caps = runtime.ledger, passed.settings.caps
    if not caps or not isinstance(ledger, Reservations):
        return 0
    made = ledger.reserve(hold, caps, amounts)
    if isinstance(made, Grant):
        return made.choice
    if not made.done:
        yield Written(made)
    return None if made.value is None else made.value.choice
