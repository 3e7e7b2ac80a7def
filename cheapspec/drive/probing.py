"""Asks an endpoint what it can do, in the background, with the caller's own way to it.

Never in the path of a request. A billed call is booked, with purpose ``probe``, on the request that caused it. It
earns nothing by itself, so the allowance must bear it like a step of speculation; without that it is not made. Nor is
it where a budget has no room for it beside what the request has reserved: each call reserves its own worst case, and
holds it until the books of the request count what it cost.
"""

from __future__ import annotations

import logging
import time
import uuid
from decimal import Decimal

import httpx2

from cheapspec.backends.llamacpp_wire import usage_of
from cheapspec.backends.probe import Facts
from cheapspec.core.books import Grant, Reservations
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Side
from cheapspec.core.exposure import exposure
from cheapspec.core.money import charge, format_usd
from cheapspec.core.ports import Call, CallRow
from cheapspec.core.reply import read_usage
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.books import Books
from cheapspec.drive.io import Send, Steps, Written
from cheapspec.drive.permits import account_keys
from cheapspec.drive.policy import broke_kind
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.urls import api_base, target_request

__all__ = ["ask_beside", "probing"]

log = logging.getLogger("cheapspec")


def probing(runtime: Runtime, passed: Passed, probe: Op[Facts], books: Books) -> Steps[None]:
    """Carry the probe out beside the request of these ``books``; what it found goes to the runtime, and nothing if it
    was cut short.
    """
    found: Facts | None = None
    reply: HttpReply | None = None
    try:
        while True:
            request = probe.send(reply)
            reply = yield from ask_beside(runtime, passed, request, books)
    except StopIteration as stop:
        found = stop.value
    except Exception:
        log.exception("the probe of %s failed", api_base(passed.request.url))
    finally:
        runtime.probed(passed, found)


def ask_beside(
    runtime: Runtime, passed: Passed, request: HttpRequest, books: Books, *, purpose: str = "probe"
) -> Steps[HttpReply | None]:
    """One call of the caller's target beside a request, booked on it with this purpose; ``None``: it was not made, or
    has no answer.
    """
    call_id = f"{passed.request_id}.{purpose}-{uuid.uuid4().hex[:8]}"
    started = time.monotonic()
    sent = target_request(passed.request, request, f"cheapspec-{call_id}")
    prices, _ = runtime.prices.lookup(passed.model, api_base(passed.request.url))
    worst = exposure(request.body or {}, len(sent.content), "chat", prices) if request.billed else Decimal(0)
    permit = runtime.permits.of(account_keys(passed.settings, passed.parsed), call_id)
    if worst and passed.settings.draft_tokens is None:
        asked = permit.admit(worst)
        if not isinstance(asked, bool) and not asked.done:
            yield Written(asked)
        if not (asked if isinstance(asked, bool) else asked.value):
            return None
    if request.billed and not (yield from _reserved(runtime, passed, call_id, worst)):
        permit.settle(Decimal(0), Decimal(0))
        return None
    row = CallRow(
        call_id,
        passed.request_id,
        Side.TARGET,
        purpose,
        request.billed,
        time.time(),
        format_usd(worst),
        passed.tier if request.billed else None,
    )
    ticket = runtime.ledger.open_call(row)
    status, outcome = "failed", None
    try:
        if ticket is not None and not ticket.done:
            yield Written(ticket)
        status = "possibly_billed"
        outcome = yield Send(sent, False)
        if isinstance(outcome, Exception):
            status = "failed" if broke_kind(outcome) == "connect" else "possibly_billed"
            return None
        status = "ok" if outcome.status_code < 300 else "failed"
        return HttpReply(outcome.status_code, outcome.content, dict(outcome.headers))
    finally:
        closed = _closed(runtime, passed, call_id, status, outcome, time.monotonic() - started)
        runtime.ledger.close_call(closed)
        cost = Decimal(0) if status == "failed" or not request.billed else closed.cost_usd
        permit.settle(None if cost is None else Decimal(cost), Decimal(0))
        books.release(call_id)


def _reserved(runtime: Runtime, passed: Passed, call_id: str, worst: Decimal | None) -> Steps[bool]:
    """Whether every budget of the request has room for one more call."""
    ledger, caps = runtime.ledger, passed.settings.caps
    if not caps or not isinstance(ledger, Reservations):
        return True
    made = ledger.reserve(call_id, caps, [worst])
    if not isinstance(made, Grant):
        if not made.done:
            yield Written(made)
        return made.value is not None and made.value.choice is not None
    return made.choice is not None


def _closed(runtime: Runtime, passed: Passed, call_id: str, status: str, outcome: object, seconds: float) -> Call:
    if not isinstance(outcome, httpx2.Response):
        return Call(call_id, status, seconds=seconds)
    told = as_mapping(HttpReply(outcome.status_code, outcome.content).json())
    usage = read_usage(told.get("usage"), told.get("service_tier"))
    if usage is None and "tokens_evaluated" in told:
        usage = usage_of(told)  # llama.cpp's own route counts under names of its own
    if usage is None:
        return Call(call_id, status, None, None, seconds, outcome.status_code)
    prices, _ = runtime.prices.lookup(passed.model, api_base(passed.request.url))
    found = charge(usage, prices, passed.tier)
    sums = format_usd(found.usd), seconds, outcome.status_code, format_usd(found.budget_usd)
    return Call(call_id, status, usage, *sums, found.flags)
