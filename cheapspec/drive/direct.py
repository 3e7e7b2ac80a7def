"""The caller's own request to the target, untouched: bypass, direct, and direct after the engine gave up.

Rules
-----
* The first time the sender's own repeats apply (the openai client's, say), so there is one attempt here.
  Once something has failed or was paid for this request, what is left of the budget is used here and the
  sender is told to stop (``x-should-retry: false``, or :class:`~cheapspec.drive.outcome.TargetFailed`).
* A stream is asked for its usage (:mod:`cheapspec.drive.asking`), metered as it passes, and booked when it is over
  (:mod:`cheapspec.drive.metered`).
* The reply goes back as the object that came. One exception: a *direct* reply under status 200 that is no
  answer (an error object, no choices, a web page) becomes the error that it is, unless the caller asked for
  the raw response. A completion that is whole but for its list of choices, which is empty, is the server's own word.
"""

from __future__ import annotations

import time
from decimal import Decimal

import httpx2

from cheapspec.core.effects import HttpReply, Side
from cheapspec.core.reply import Problem, strict_json
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.asking import asking, refuses
from cheapspec.drive.books import Books, Read
from cheapspec.drive.io import Channel, ReadAll, Send, Shut, Sleep, Steps
from cheapspec.drive.metered import METERED, Unread, metered
from cheapspec.drive.outcome import TargetFailed
from cheapspec.drive.policy import Attempts, broke_kind, retry_after, should_retry
from cheapspec.drive.replies import mark
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.spending import request_worst
from cheapspec.drive.state import TargetFacts
from cheapspec.drive.urls import paid_route
from cheapspec.drive.work import Work

__all__ = ["go_direct", "pass_through"]

_RAW = "x-stainless-raw-response"


def pass_through(books: Books, passed: Passed, *, stream: bool) -> Steps[httpx2.Response]:
    """One attempt. Raises what the sender raised."""
    outcome, read = yield from _attempt(books, passed, None, stream=stream)
    if isinstance(read, Unread):
        assert isinstance(outcome, httpx2.Response)
        return metered(books, passed, read, outcome, None)
    info = books.went_direct(passed, read)
    if isinstance(outcome, Exception):
        raise outcome
    mark(outcome, info)
    return outcome


def go_direct(
    runtime: Runtime,
    books: Books,
    passed: Passed,
    facts: TargetFacts,
    job: Work,
    attempts: Attempts,
    *,
    paid: bool,
    stream: bool,
) -> Steps[httpx2.Response]:
    """After a run. ``paid``: a call that may be billed was sent."""
    ours = attempts.failures > 0 or paid
    outcome = attempts.last
    read: Read | Unread = Read()
    hopeless = isinstance(outcome, Exception) and not isinstance(outcome, httpx2.HTTPError)
    pause = None if hopeless else attempts.pause
    while outcome is None or pause is not None:
        if pause:
            yield Sleep(pause)
        outcome, read = yield from _attempt(books, passed, job, stream=stream)
        if isinstance(outcome, httpx2.Response) and outcome.status_code == 429:
            runtime.slow_down(facts, retry_after(outcome.headers))
        failed = isinstance(outcome, Exception) or should_retry(outcome)
        if not ours or not failed:
            break
        pause = attempts.failed(outcome)
        if not isinstance(outcome, httpx2.Response | httpx2.HTTPError):
            break
        if pause is not None and isinstance(outcome, Exception) and broke_kind(outcome) != "connect":
            job.tally.uncounted = True  # the repeat's price says nothing of the lost call's
        if pause is not None and isinstance(outcome, httpx2.Response) and stream:
            yield Shut(Channel(outcome))
    if isinstance(read, Unread):
        assert isinstance(outcome, httpx2.Response)
        return metered(books, passed, read, outcome, job)
    info = books.went_direct(passed, read, job)
    if isinstance(outcome, httpx2.Response):
        mark(outcome, info)
        if ours and outcome.status_code >= 400:
            outcome.headers["x-should-retry"] = "false"
        return outcome
    if not ours or not isinstance(outcome, httpx2.HTTPError):
        raise outcome
    kind = "timeout" if isinstance(outcome, httpx2.TimeoutException) else "connection"
    raise TargetFailed(kind, str(outcome) or type(outcome).__name__) from outcome


def _attempt(
    books: Books, passed: Passed, job: Work | None, *, stream: bool
) -> Steps[tuple[httpx2.Response | Exception, Read | Unread]]:
    kind = paid_route(passed.request, passed.kind)
    if not kind:
        try:
            return (yield Send(passed.request, stream)), Read()
        except GeneratorExit:
            books.went_direct(passed, Read())
            raise
    asked = asking(books.runtime, passed) if stream else None
    if asked is None:
        return (yield from _call(books, passed, job, passed.request, kind, stream=stream, asked=False))
    outcome, read = yield from _call(books, passed, job, asked, kind, stream=True, asked=True)
    if not isinstance(outcome, httpx2.Response) or outcome.status_code not in (400, 422):
        return outcome, read
    body: bytes | Exception = yield ReadAll(Channel(outcome))
    if isinstance(body, Exception) or not refuses(outcome.status_code, body):
        return outcome, read
    again, read = yield from _call(books, passed, job, passed.request, kind, stream=True, asked=False)
    if isinstance(again, httpx2.Response) and again.status_code < 300:
        books.runtime.endpoint(passed).refuses_usage = True
    return again, read


def _call(
    books: Books, passed: Passed, job: Work | None, request: httpx2.Request, kind: str, *, stream: bool, asked: bool
) -> Steps[tuple[httpx2.Response | Exception, Read | Unread]]:
    """One paid call, in the books from before it goes out. ``asked``: for its usage, by us."""
    worst = request_worst(books.runtime, passed)
    call_id = books.open_call(Side.TARGET, "direct", billed=True, worst=worst)
    try:
        yield from books.written(call_id)
    except GeneratorExit:  # the caller is gone before it was sent
        books.close_call(call_id, "cancelled", usd=Decimal(0))
        books.went_direct(passed, Read(), job)
        raise
    started = time.monotonic()
    try:
        outcome: httpx2.Response | Exception = yield Send(request, stream)
    except GeneratorExit:  # the caller is gone
        books.close_call(call_id, "possibly_billed", seconds=time.monotonic() - started)
        books.went_direct(passed, Read(), job)
        raise
    seconds = time.monotonic() - started
    if isinstance(outcome, Exception):
        status = "failed" if broke_kind(outcome) == "connect" else "possibly_billed"
        books.close_call(call_id, status, seconds=seconds)
        return outcome, Read()
    if stream and outcome.status_code < 300 and kind in METERED:
        return outcome, Unread(call_id, kind, started, asked, worst)
    read = books.read(outcome, stream=stream)
    good = outcome.status_code < 300 and read.problem is None
    status = "ok" if good else "failed"
    books.close_call(call_id, status, read.usage, read.usd, seconds, outcome.status_code, read.budget_usd, read.flags)
    books.timed(status, read.usage, seconds)
    if read.problem is not None and not _as_it_came(passed, outcome):
        outcome = _as_error(outcome, read.problem)
    return outcome, read


def _as_it_came(passed: Passed, response: httpx2.Response) -> bool:
    """Whether the caller sees a reply that is no answer: it was not ours to judge, it was asked for raw, or it is a
    well-formed completion that says, in so many words, that there are no choices.
    """
    if passed.decision != "direct" or response.request.headers.get(_RAW):
        return True
    body = as_mapping(HttpReply(response.status_code, response.content).json())
    kinds = {"id": str, "object": str, "created": int, "model": str, "choices": list}
    whole = all(isinstance(body.get(name), kind) for name, kind in kinds.items())
    return whole and not body["choices"] and "error" not in body


def _as_error(response: httpx2.Response, problem: Problem) -> httpx2.Response:
    kept = {"content-type", "content-length", "content-encoding", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in kept]
    content = strict_json({"error": dict(problem.error)})
    return httpx2.Response(
        problem.status,
        headers=[*headers, ("content-type", "application/json")],
        content=content,
        request=response.request,
    )
