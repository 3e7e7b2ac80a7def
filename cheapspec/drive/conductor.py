"""Obeys one run of the engine, written once for sync and async: a generator of :mod:`cheapspec.drive.io`.

Rules
-----
* A draft call runs in the background (:mod:`cheapspec.drive.local`) and reports to the inbox. A target
  call is made where the caller waits, one at a time, through the ``send`` that the door gave: so that
  auth, hooks, proxies and context variables are the caller's own.
* Repeats follow :mod:`cheapspec.drive.policy`, with one budget for the whole request.
* ``settle`` gives up what is open and closes every row; it may be called at any time, more than once.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

import httpx2

from cheapspec.core.counting import input_bound
from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Cancelled,
    Check,
    Checked,
    Closed,
    Emit,
    Event,
    Finish,
    GoDirect,
    HttpReply,
    HttpRequest,
    Note,
    Opened,
    Received,
    Risk,
    Risked,
    Side,
    Start,
    TimedOut,
    Usage,
    WaitAny,
)
from cheapspec.core.engine import Run
from cheapspec.core.exposure import exposure
from cheapspec.core.money import Prices, charge
from cheapspec.core.reply import Problem, read_completion
from cheapspec.drive.admission import Admitted
from cheapspec.drive.books import Books
from cheapspec.drive.io import Channel, Io, Overdue, Read, ReadAll, Send, Shut, Sleep, Steps, Wait, Written
from cheapspec.drive.io import Run as Compute
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.local import DraftCall, Inbox, hosts
from cheapspec.drive.policy import Attempts, broke_kind, is_stale, retry_after, should_retry, takes_one
from cheapspec.drive.runtime import Runtime
from cheapspec.drive.traces import keep_trace
from cheapspec.drive.urls import api_base, draft_url, masked, target_request
from cheapspec.drive.verdicts import judge_facts
from cheapspec.drive.work import begin
from cheapspec.rules.judge import Judge
from cheapspec.rules.ladder import Ladder

__all__ = ["Conductor", "Said"]

log = logging.getLogger("cheapspec")

Said: TypeAlias = Emit | Finish | GoDirect

_ROUTES = {"chat/completions": "chat", "completions": "completion"}
_NO_ANSWER_BYTES = 8192


@dataclass(slots=True)
class _Open:
    """A paid side's call: what was asked, where its answer stands, what it cost. ``away``: it runs in the background
    (a judge's); ``prices``: of its model; ``other``: that is not the target's.
    """

    request: HttpRequest
    sent: httpx2.Request
    row: str
    key: str
    prices: Prices | None = None
    other: bool = False
    away: DraftCall | None = None
    worst: Decimal | None = None
    channel: Channel | None = None
    went: bool = False
    usage: Usage | None = None
    status: str = "open"
    http_status: int | None = None
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None


class Conductor:
    """One run under way. ``headers`` are those of the last target call; ``paid``: calls sent that may be billed."""

    def __init__(self, runtime: Runtime, admitted: Admitted, books: Books, attempts: Attempts, inbox: Inbox) -> None:
        self.headers = httpx2.Headers()
        self.paid = 0
        self._runtime = runtime
        self._admitted = admitted
        self._books = books
        self._attempts = attempts
        self._inbox = inbox
        self._targets: dict[int, _Open] = {}
        self._drafts: dict[int, tuple[DraftCall, str]] = {}
        self._settled = False
        self._learns = target_of(admitted.passed), workload_of(admitted.passed.settings, admitted.job.request)
        self._run: Run = begin(admitted.job)

    # --- the run -------------------------------------------------------------------------------

    def play(self) -> Generator[Io | Said, Any, None]:
        """Carry the engine's effects out until it is done."""
        answer: Event | None = None
        while True:
            try:
                effect = self._run.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(effect, Start):
                yield from self._start(effect)
            elif isinstance(effect, WaitAny):
                answer = yield from self._wait_any(effect)
            elif isinstance(effect, Cancel):
                yield from self._cancel(effect)
            elif isinstance(effect, Risk):
                answer = yield from self._risk(effect)
            elif isinstance(effect, Check):
                checked: object = yield Compute(effect.work)
                answer = Checked(None if isinstance(checked, Exception) else checked, time.monotonic())
            elif isinstance(effect, Note):
                self._note(effect)
            else:
                yield effect

    def _start(self, effect: Start) -> Steps[None]:
        request = effect.request
        if effect.side is Side.JUDGE:
            yield from self._start_judge(effect)
            return
        if effect.side is Side.TARGET:
            key = self._lost_key(request) or f"cheapspec-{self._books.next_id}"
            sent = target_request(self._admitted.passed.request, request, key)
            size = len(sent.content)
            if self._admitted.passed.settings.caps:
                size = input_bound(request.body or {}, size)
            prices, other = self._admitted.job.prices, self._is_another(request)
            if other:
                told = str((request.body or {}).get("model"))
                prices = self._runtime.prices.lookup(told, api_base(self._admitted.passed.request.url))[0]
            worst = exposure(request.body or {}, size, "chat", prices)
            row = self._books.open_call(effect.side, request.purpose, billed=request.billed, worst=worst)
            self._targets[effect.call_id] = _Open(request, sent, row, key, prices, other, worst=worst)
            return
        row = self._books.open_call(effect.side, request.purpose, billed=request.billed)
        limit = self._admitted.passed.settings.draft_concurrency
        self._drafts[effect.call_id] = hosts.submit(effect.call_id, effect.host, request, self._inbox, limit), row

    def _is_another(self, request: HttpRequest) -> bool:
        """Whether another model than the caller's is asked, at the caller's URL."""
        return request.purpose == "judge" and (request.body or {}).get("model") != self._admitted.job.request.model

    def _start_judge(self, effect: Start) -> Steps[None]:
        """A judge has a client, a key and prices of its own; nothing of the target's goes there."""
        request, job = effect.request, self._admitted.job
        body = request.body or {}
        rules = job.rules if isinstance(job, Ladder) else ()
        key = next((rule.api_key for rule in rules if isinstance(rule, Judge) and rule.base_url == effect.host), None)
        prices = self._runtime.prices.lookup(str(body.get("model")), effect.host.rstrip("/"))[0]
        sent = httpx2.Request("POST", draft_url(effect.host, request.path), json=body)
        worst = exposure(body, input_bound(body, len(sent.content)), "chat", prices)
        row = self._books.open_call(effect.side, request.purpose, billed=True, worst=worst)
        call = self._targets[effect.call_id] = _Open(request, sent, row, "", prices, True, worst=worst)
        yield from self._books.written(row)
        call.went = True
        self.paid += 1
        call.away = hosts.submit(effect.call_id, effect.host, request, self._inbox, 1, key=key or "")

    def _judged(self, call: _Open, event: Answered | Broke) -> Event:
        """A judge's call is over."""
        call.seconds = time.monotonic() - call.started
        if isinstance(event, Broke):
            call.status = "failed" if event.kind == "connect" else "possibly_billed"
            call.usage = None
            self.paid -= event.kind == "connect"
            return event
        call.http_status = event.reply.status
        if event.reply.status == 429:
            model = str((call.request.body or {}).get("model"))
            asked = retry_after(httpx2.Headers(dict(event.reply.headers)))
            self._runtime.slow_down(judge_facts(api_base(call.sent.url), model), asked)
        reply = _believed(call.request, event.reply)
        call.status = "ok" if reply.status < 300 else "failed"
        return replace(event, reply=reply)

    def _lost_key(self, request: HttpRequest) -> str | None:
        """The idempotency key of the same call, if its answer got lost: the server may have done the work."""
        lost = (call for call in self._targets.values() if call.status == "possibly_billed")
        return next((call.key for call in lost if call.request == request), None)

    def _risk(self, effect: Risk) -> Steps[Event]:
        """Ask the allowance. Who cannot be asked says no: a bound that cannot be checked is not a bound."""
        permit = self._admitted.job.permit
        assert permit is not None
        asked = permit.admit(effect.worst)
        if isinstance(asked, bool):
            return Risked(asked, time.monotonic())
        if not asked.done:
            yield Written(asked)
        if asked.value is None:
            self._runtime.warn(
                "allowance",
                "the ledger cannot be asked what speculation may lose, so requests go direct until it can",
            )
        return Risked(asked.value is True, time.monotonic())

    def _wait_any(self, effect: WaitAny) -> Steps[Event]:
        """Target calls first: they are made here, while events of drafts wait in the inbox."""
        for call_id in effect.call_ids:
            found = self._targets.get(call_id)
            if found is not None and found.away is None and found.status == "open":
                return (yield from self._target_event(call_id, self._targets[call_id], effect.seconds))
        event: Event | None = yield Wait(effect.seconds)
        if event is None:
            return TimedOut(time.monotonic())
        if isinstance(event, Answered | Broke) and event.call_id in self._targets:
            return self._judged(self._targets[event.call_id], event)
        if isinstance(event, Answered | Closed | Broke):
            _, row = self._drafts.pop(event.call_id, (None, None))
            if row is not None:
                self._books.close_call(row, "failed" if isinstance(event, Broke) else "ok")
        return event

    # --- target calls --------------------------------------------------------------------------

    def _target_event(self, call_id: int, call: _Open, seconds: float | None) -> Steps[Event]:
        if call.channel is None:
            return (yield from self._first_answer(call_id, call, seconds if call.request.billed else None))
        chunk: bytes | Exception | None = yield Read(call.channel)
        now = time.monotonic()
        if isinstance(chunk, bytes):
            return Received(call_id, chunk, now)
        yield from self._end(call, "ok" if chunk is None else "possibly_billed")
        if chunk is None:
            return Closed(call_id, now)
        self._attempts.failed(chunk)
        return Broke(call_id, "cut", str(chunk) or type(chunk).__name__, now)

    def _first_answer(self, call_id: int, call: _Open, seconds: float | None) -> Steps[Event]:
        """Send, repeat what may be repeated, and say how it was answered, or that it was not within ``seconds``:
        then it is given up, and may have been billed.
        """
        latest = None if seconds is None else time.monotonic() + seconds
        if self._attempts.exhausted:
            yield from self._end(call, "failed")
            return Broke(call_id, "exhausted", "no attempts are left for this request", time.monotonic())
        if self._attempts.pause:  # something failed and nothing has worked since
            yield Sleep(self._attempts.pause)
        yield from self._books.written(call.row)
        call.went, repeated = True, False
        while True:
            self.paid += call.request.billed
            left = None if latest is None else max(0.0, latest - time.monotonic())
            outcome: httpx2.Response | Exception = yield Send(call.sent, call.request.stream, left)
            if isinstance(outcome, Overdue):
                yield from self._end(call, "possibly_billed")
                return TimedOut(time.monotonic())
            if isinstance(outcome, httpx2.Response):
                if outcome.status_code == 429 and call.other:
                    base = api_base(call.sent.url)
                    model = str((call.request.body or {}).get("model"))
                    self._runtime.slow_down(judge_facts(base, model), retry_after(outcome.headers))
                elif outcome.status_code == 429:
                    self._runtime.slow_down(self._admitted.facts, retry_after(outcome.headers))
                if not should_retry(outcome):
                    self._attempts.worked()
                    break
                again = call.request.purpose == "continue"
            else:
                again = broke_kind(outcome) == "connect" and isinstance(outcome, httpx2.HTTPError)
                self.paid -= call.request.billed and broke_kind(outcome) == "connect"
            if is_stale(call.request, outcome) and not repeated:
                repeated = True
                continue
            if call.other or not takes_one(call.request, outcome):
                break
            pause = self._attempts.failed(outcome)
            if pause is None or not again:
                break
            if isinstance(outcome, httpx2.Response) and call.request.stream:
                yield Shut(Channel(outcome))
            yield Sleep(pause)
        return (yield from self._judge(call_id, call, outcome))

    def _judge(self, call_id: int, call: _Open, outcome: httpx2.Response | Exception) -> Steps[Event]:
        if isinstance(outcome, Exception):
            kind = broke_kind(outcome)
            yield from self._end(call, "failed" if kind == "connect" else "possibly_billed")
            where = call.sent.url.copy_with(query=None, userinfo=b"")
            message = masked(f"{where}: {type(outcome).__name__}: {outcome}", call.sent)
            return Broke(call_id, kind, message, time.monotonic())
        call.http_status = outcome.status_code
        self.headers = outcome.headers
        names = {name.lower(): value for name, value in outcome.headers.items()}
        good = outcome.status_code < 300
        if call.request.stream and good:
            call.channel = Channel(outcome)
            return Opened(call_id, outcome.status_code, names, time.monotonic())
        body: bytes | Exception = outcome.content if not call.request.stream else (yield ReadAll(Channel(outcome)))
        if isinstance(body, Exception):
            body, good = b"", False
        reply = _believed(call.request, HttpReply(outcome.status_code, body, names))
        yield from self._end(call, "ok" if good and reply.status < 300 else "failed")
        return Answered(call_id, reply, time.monotonic())

    @staticmethod
    def _end(call: _Open, status: str) -> Steps[None]:
        call.status = status
        call.seconds = time.monotonic() - call.started
        if call.channel is not None:
            yield Shut(call.channel)

    def _cancel(self, effect: Cancel) -> Steps[None]:
        draft, row = self._drafts.pop(effect.call_id, (None, ""))
        if draft is not None:
            draft.cancel(linger=effect.linger)
            self._books.close_call(row, "cancelled")
        call = self._targets.get(effect.call_id)
        if call is not None and call.status == "open":
            if call.away is not None:
                call.away.cancel()
            yield from self._end(call, "cancelled" if call.away is None else "possibly_billed")

    def _note(self, note: Note) -> None:
        if note.kind == "usage":
            self._targets[note.data["call_id"]].usage = note.data["usage"]
        elif note.kind == "cut_short":
            self._attempts.failed(httpx2.RemoteProtocolError(str(note.data["message"])))
        elif note.kind == "endpoint":
            self._learned(note)
        elif note.kind == "verdict":
            log.debug("%s: %s (%s)", note.data["outcome"], note.data["rule"], note.data["why"])
        elif note.kind == "trace":
            keep_trace(self._runtime.ledger, self._admitted.passed.request_id, note.data)
        elif not self._runtime.learning.observe(*self._learns, note):
            data = dict(note.data)
            if "detail" in data:
                data["detail"] = masked(str(data["detail"]), self._admitted.passed.request)
            self._runtime.note(self._admitted.passed, self._admitted.facts, Note(note.kind, data))

    def _learned(self, note: Note) -> None:
        """What a chat endpoint takes after all: the target's, or a judge's."""
        job, base, model = self._admitted.job, api_base(self._admitted.passed.request.url), self._admitted.passed.model
        if isinstance(job, Ladder) and not note.data["own"]:
            judge = next(rule for rule in job.rules if isinstance(rule, Judge) and rule.name == note.data["rule"])
            base, model = judge.base_url or base, judge.model or model
        self._runtime.learned_endpoint(base, model, note.data["endpoint"])

    # --- the end -------------------------------------------------------------------------------

    def settle(self) -> Steps[None]:
        """Tell the engine that the caller is gone (if it is not done), give up open calls, close rows."""
        if self._settled:
            return
        self._settled = True
        self._abandon()
        for draft, row in self._drafts.values():
            draft.cancel()
            self._books.close_call(row, "cancelled")
        for call in self._targets.values():
            if call.away is not None:
                call.away.cancel()
            self._close_row(call)
        for call in self._targets.values():
            if call.channel is not None and call.seconds is None:
                yield Shut(call.channel)

    def _close_row(self, call: _Open) -> None:
        status = call.status
        if status == "open":
            status = "cancelled" if call.channel is not None or not call.went else "possibly_billed"
        usd, counted = None, None
        flags: tuple[str, ...] = ()
        if not call.went:
            usd = Decimal(0)
        elif call.usage is not None:
            charged = charge(call.usage, call.prices) if call.other else self._books.charged(call.usage, call.prices)
            usd, counted = charged.usd, call.worst if call.usage.estimated else charged.budget_usd
            flags = charged.flags
        seconds = time.monotonic() - call.started if call.seconds is None else call.seconds
        self._books.close_call(call.row, status, call.usage, usd, seconds, call.http_status, counted, flags)
        if status == "ok" and not call.other:
            self._runtime.learning.called(self._learns[0], call.usage, call.seconds, call.request.purpose)

    def _abandon(self) -> None:
        """Wherever the engine waits it is told ``Cancelled``; its notes are taken, nothing else is done."""
        if inspect.getgeneratorstate(self._run) != inspect.GEN_SUSPENDED:
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


def _believed(request: HttpRequest, reply: HttpReply) -> HttpReply:
    """The reply with the status that it should have had: 200 proves nothing. A long JSON reply has an answer."""
    if not request.billed or reply.status >= 300 or request.path not in _ROUTES:
        return reply
    if len(reply.body) > _NO_ANSWER_BYTES and reply.body.lstrip()[:1] == b"{":
        return reply
    told = read_completion(reply, _ROUTES[request.path])
    return replace(reply, status=told.status) if isinstance(told, Problem) else reply
