"""Obeys one run of the engine, written once for sync and async: a generator of :mod:`cheapspec.drive.io`.

Rules
-----
* A draft call runs in the background (:mod:`cheapspec.drive.local`) and reports to the inbox. A target
  call is made where the caller waits, one at a time, through the ``send`` that the door gave: so that
  auth, hooks, proxies and context variables are the caller's own.
* A ledger row is opened before a call goes out and closed when it ended, whichever way.
* Repeats follow :mod:`cheapspec.drive.policy`. When the budget is used up, the last failure is the
  answer: an error reply goes back as it came, marked ``x-should-retry: false``.
* ``close`` settles everything that is still open; it may be called at any time, more than once.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2

from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Cancelled,
    Closed,
    Emit,
    Event,
    HttpReply,
    HttpRequest,
    Note,
    Opened,
    Received,
    Side,
    Start,
    TimedOut,
    Usage,
    WaitAny,
)
from cheapspec.core.engine import Job, Run, run
from cheapspec.core.ports import Call, CallRow
from cheapspec.drive.io import Channel, Io, Out, Read, ReadAll, Send, Shut, Sleep, Wait
from cheapspec.drive.local import DraftCall, Inbox, hosts
from cheapspec.drive.outcome import TargetFailed
from cheapspec.drive.policy import Attempts, broke_kind, should_retry
from cheapspec.drive.runtime import Admitted, Runtime
from cheapspec.drive.shared import target_request

__all__ = ["Conductor"]

T = TypeVar("T")
Steps = Generator[Io, Any, T]


@dataclass(slots=True)
class _Open:
    """A target call: what was asked, where its answer stands, what it cost."""

    request: HttpRequest
    sent: httpx2.Request
    channel: Channel | None = None
    usage: Usage | None = None
    status: str = "open"
    http_status: int | None = None
    started: float = field(default_factory=time.monotonic)


class Conductor:
    """One request under way. ``headers`` are those of the last target call."""

    def __init__(self, runtime: Runtime, admitted: Admitted, template: httpx2.Request, max_retries: int) -> None:
        self.runtime = runtime
        self.admitted = admitted
        self.request_id = admitted.request_id
        self.template = template
        self.attempts = Attempts(max_retries)
        self.paid_calls = 0
        self.headers: httpx2.Headers = httpx2.Headers()
        self.inbox: Inbox = lambda event: None
        self._targets: dict[int, _Open] = {}
        self._drafts: dict[int, DraftCall] = {}
        self._settled = False
        self._run: Run | None = None
        self._pause = 0.0

    # --- the run -------------------------------------------------------------------------------

    def play(self, job: Job) -> Steps[None]:
        """Carry the engine's effects out until it is done."""
        self._run = run(job)
        answer: Event | None = None
        while True:
            try:
                effect = self._run.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(effect, Start):
                self._start(effect)
            elif isinstance(effect, WaitAny):
                answer = yield from self._wait_any(effect)
            elif isinstance(effect, Cancel):
                yield from self._cancel(effect)
            elif isinstance(effect, Note):
                self._note(effect)
            else:
                yield Out(effect)

    def _start(self, effect: Start) -> None:
        request = effect.request
        row_id = f"{self.request_id}.{effect.call_id}"
        row = CallRow(row_id, self.request_id, effect.side, request.purpose, request.billed, time.time())
        self.runtime.ledger.open_call(row)
        if effect.side is Side.TARGET:
            sent = target_request(self.runtime, self.template, request, f"cheapspec-{row_id}")
            self._targets[effect.call_id] = _Open(request, sent)
            return
        limit = self.runtime.settings.draft_concurrency
        self._drafts[effect.call_id] = hosts.submit(effect.call_id, effect.host, request, self.inbox, limit)

    def _wait_any(self, effect: WaitAny) -> Steps[Event]:
        """Target calls first: they are made here, while events of drafts wait in the inbox."""
        for call_id in effect.call_ids:
            if call_id in self._targets and self._targets[call_id].status == "open":
                return (yield from self._target_event(call_id, self._targets[call_id]))
        event = yield Wait(effect.seconds)
        if event is None:
            return TimedOut(time.monotonic())
        if isinstance(event, Answered | Closed | Broke):
            self._end_draft(event)
        return event  # type: ignore[no-any-return]

    def _end_draft(self, event: Answered | Closed | Broke) -> None:
        self._drafts.pop(event.call_id, None)
        status = "failed" if isinstance(event, Broke) else "ok"
        self.runtime.ledger.close_call(Call(f"{self.request_id}.{event.call_id}", status))

    # --- target calls --------------------------------------------------------------------------

    def _target_event(self, call_id: int, call: _Open) -> Steps[Event]:
        if call.channel is None:
            return (yield from self._first_answer(call_id, call))
        chunk = yield Read(call.channel)
        now = time.monotonic()
        if isinstance(chunk, bytes):
            return Received(call_id, chunk, now)
        if chunk is None:
            yield from self._end(call_id, call, "ok")
            return Closed(call_id, now)
        self.attempts.failed(chunk)
        yield from self._end(call_id, call, "possibly_billed")
        return Broke(call_id, "cut", str(chunk) or type(chunk).__name__, now)

    def _first_answer(self, call_id: int, call: _Open) -> Steps[Event]:
        """Send, repeat what may be repeated, and say how it was answered."""
        if self.attempts.exhausted:
            yield from self._end(call_id, call, "failed")
            return Broke(call_id, "exhausted", "no attempts are left for this request", time.monotonic())
        repeat_status = call.request.purpose == "continue"
        while True:
            self.paid_calls += call.request.billed
            outcome = yield Send(call.sent, call.request.stream)
            failed = isinstance(outcome, Exception) or should_retry(outcome)
            if not failed:
                break
            pause = self.attempts.failed(outcome)
            self._pause = pause or 0.0
            nothing_sent = isinstance(outcome, Exception) and broke_kind(outcome) == "connect"
            self.paid_calls -= call.request.billed and nothing_sent
            again = nothing_sent or (repeat_status and not isinstance(outcome, Exception))
            if pause is None or not again:
                break
            if isinstance(outcome, httpx2.Response) and call.request.stream:
                yield Shut(Channel(outcome))
            yield Sleep(pause)
        return (yield from self._judge(call_id, call, outcome))

    def _judge(self, call_id: int, call: _Open, outcome: httpx2.Response | Exception) -> Steps[Event]:
        if isinstance(outcome, Exception):
            kind = broke_kind(outcome)
            yield from self._end(call_id, call, "failed" if kind == "connect" else "possibly_billed")
            message = f"{call.sent.url.copy_with(query=None)}: {type(outcome).__name__}: {outcome}"
            return Broke(call_id, kind, message, time.monotonic())
        call.http_status = outcome.status_code
        self.headers = outcome.headers
        names = {name.lower(): value for name, value in outcome.headers.items()}
        if call.request.stream and outcome.status_code < 300:
            call.channel = Channel(outcome)
            return Opened(call_id, outcome.status_code, names, time.monotonic())
        body: bytes | Exception = outcome.content if not call.request.stream else (yield ReadAll(Channel(outcome)))
        good = outcome.status_code < 300
        if isinstance(body, Exception):
            body, good = b"", False
        yield from self._end(call_id, call, "ok" if good else "failed")
        return Answered(call_id, HttpReply(outcome.status_code, body, names), time.monotonic())

    def _end(self, call_id: int, call: _Open, status: str) -> Steps[None]:
        if call.channel is not None:
            yield Shut(call.channel)
        call.status = status

    def _cancel(self, effect: Cancel) -> Steps[None]:
        draft = self._drafts.pop(effect.call_id, None)
        if draft is not None:
            draft.cancel(linger=effect.linger)
            self.runtime.ledger.close_call(Call(f"{self.request_id}.{effect.call_id}", "cancelled"))
        call = self._targets.get(effect.call_id)
        if call is not None and call.status == "open":
            yield from self._end(effect.call_id, call, "cancelled")

    def _note(self, note: Note) -> None:
        if note.kind == "usage":
            call = self._targets[note.data["call_id"]]
            call.usage = note.data["usage"]
        else:
            self.runtime.note(self.admitted, note)

    # --- going direct --------------------------------------------------------------------------

    def direct(self, request: httpx2.Request, stream: bool) -> Steps[httpx2.Response]:
        """The caller's own request, untouched. While nothing has failed and nothing was paid, the sender's
        own repeats apply; else what is left of the budget is used here and the sender is told to stop.
        """
        ours = self.attempts.failures > 0 or self.paid_calls > 0
        if self.attempts.exhausted and self.attempts.last is not None:
            return self._last_word(self.attempts.last)
        if self._pause and self.attempts.failures:
            yield Sleep(self._pause)
        row_id = f"{self.request_id}.direct"
        while True:
            self.runtime.ledger.open_call(CallRow(row_id, self.request_id, Side.TARGET, "direct", True, time.time()))
            outcome = yield Send(request, stream)
            if isinstance(outcome, httpx2.Response) and not should_retry(outcome):
                self.runtime.ledger.close_call(Call(row_id, "ok" if outcome.status_code < 300 else "failed"))
                return outcome
            refused = isinstance(outcome, httpx2.Response) or broke_kind(outcome) == "connect"
            self.runtime.ledger.close_call(Call(row_id, "failed" if refused else "possibly_billed"))
            if not ours:
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome  # type: ignore[no-any-return]
            pause = self.attempts.failed(outcome)
            if pause is None or (isinstance(outcome, Exception) and not isinstance(outcome, httpx2.HTTPError)):
                return self._last_word(outcome)
            if isinstance(outcome, httpx2.Response) and stream:
                yield Shut(Channel(outcome))
            yield Sleep(pause)

    def _last_word(self, outcome: httpx2.Response | Exception) -> httpx2.Response:
        if isinstance(outcome, httpx2.Response):
            outcome.headers["x-should-retry"] = "false"
            return outcome
        if not isinstance(outcome, httpx2.HTTPError):
            raise outcome
        kind = "timeout" if isinstance(outcome, httpx2.TimeoutException) else "connection"
        raise TargetFailed(kind, str(outcome) or type(outcome).__name__) from outcome

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> Steps[None]:
        """Tell the engine that the caller is gone (if it is not done), give up open calls, settle rows."""
        if self._settled:
            return
        self._settled = True
        self._abandon()
        for draft in self._drafts.values():
            draft.cancel()
        for call_id, call in self._targets.items():
            if call.status == "open":
                yield from self._end(call_id, call, "cancelled" if call.channel is not None else "possibly_billed")
            usage_cost = self.runtime.cost(self.admitted, call.usage)
            seconds = time.monotonic() - call.started
            self.runtime.ledger.close_call(
                Call(f"{self.request_id}.{call_id}", call.status, call.usage, usage_cost, seconds, call.http_status)
            )

    def _abandon(self) -> None:
        """Wherever the engine waits it is told ``Cancelled``; its notes are taken, nothing else is done."""
        if self._run is None or inspect.getgeneratorstate(self._run) != inspect.GEN_SUSPENDED:
            return
        answer: Event | None = Cancelled(time.monotonic())
        try:
            while True:
                effect = self._run.send(answer)
                if isinstance(effect, Note):
                    self._note(effect)
                answer = Cancelled(time.monotonic()) if isinstance(effect, WaitAny | Emit) else None
        except StopIteration:
            return
