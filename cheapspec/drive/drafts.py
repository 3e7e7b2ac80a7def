"""Asking a drafter outside any request of a caller's: one draft, nothing else going on.

Rules
-----
* What a failure means is the drafter's to say (:class:`~cheapspec.core.ports.NoDraft`); nothing is raised.
* :func:`draft_in_time` asks as a request would: with its deadline, its limit of drafts at a time a host, and its way of
  using a draft as far as it came. This thread waits meanwhile.
* :class:`DraftHosts` is for work that must not miss a draft (bench, estimates): it waits for whole ones.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

import httpx2

from cheapspec.core.calls import Calls, Steps
from cheapspec.core.drafting import Draft, Drafting
from cheapspec.core.effects import Cancel, Event, HttpReply, HttpRequest, Start, TimedOut, WaitAny
from cheapspec.core.ports import Drafter, DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request
from cheapspec.drive.local import DraftCall, hosts
from cheapspec.drive.urls import draft_url

__all__ = ["DraftHosts", "draft_in_time"]


def draft_in_time(
    drafter: Drafter, request: Request, max_tokens: int, *, seconds: float, limit: int
) -> Draft | NoDraft:
    """What a draft model would write at the beginning of the reply, in ``seconds``. ``limit``: how many drafts its host
    may write at a time, this one included.
    """
    inbox: SimpleQueue[Event] = SimpleQueue()
    under_way: dict[int, DraftCall] = {}
    steps, answer = _drafted(drafter, request, max_tokens, seconds), None
    try:
        while True:
            effect = steps.send(answer)
            answer = None
            if isinstance(effect, Start):
                call = hosts.submit(effect.call_id, effect.host, effect.request, inbox.put, limit)
                under_way[effect.call_id] = call
            elif isinstance(effect, Cancel):
                under_way.pop(effect.call_id).cancel(linger=effect.linger)
            else:
                assert isinstance(effect, WaitAny)
                try:
                    answer = inbox.get(timeout=effect.seconds)
                except Empty:
                    answer = TimedOut(time.monotonic())
    except StopIteration as ended:
        found: Draft | NoDraft = ended.value
        return found
    finally:
        for call in under_way.values():
            call.cancel()


def _drafted(drafter: Drafter, request: Request, max_tokens: int, seconds: float) -> Steps[Draft | NoDraft]:
    calls = Calls(time.monotonic())
    drafting, deadline = Drafting(calls, drafter), calls.now + seconds
    yield from drafting.begin(request, "", max_tokens)
    while drafting.result is None:
        in_time = yield from calls.step(deadline - calls.now)
        yield from drafting.pump()
        if not in_time or calls.now >= deadline:
            yield from drafting.stop()
    return drafting.result


class DraftHosts:
    """Connections to draft hosts, to be closed (or used in a ``with``). ``seconds``: the longest wait for a reply."""

    def __init__(self, seconds: float = 600.0) -> None:
        self._http = httpx2.Client(
            timeout=httpx2.Timeout(seconds, connect=5.0),
            trust_env=False,  # draft hosts are near: no proxy
            limits=httpx2.Limits(max_keepalive_connections=0),  # llama.cpp hangs up on idle ones without a word
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free what the HTTP client holds."""
        self._http.close()

    def draft(self, drafter: Drafter, request: Request, prefix: str, max_tokens: int) -> Draft | NoDraft:
        """What ``drafter`` would write after ``prefix`` (the reply so far), at most ``max_tokens`` tokens. A draft
        without tokens ends its turn at once.
        """
        given = drafter.propose(request, prefix, max_tokens)
        if given is not None:
            return Draft(given, drafter.name, static=True)
        found = self._opened(drafter, request, prefix, max_tokens)
        if isinstance(found, NoDraft):
            return found
        pieces = self._read(drafter, found, again=True)
        problem = pieces if isinstance(pieces, NoDraft) else next((one.problem for one in pieces if one.problem), None)
        if problem is not None or isinstance(pieces, NoDraft):
            return problem or NoDraft("no_draft")
        tokens = tuple(token for piece in pieces for token in piece.tokens if token.text)
        end = pieces[-1].end if pieces else None
        if not tokens and end != "stop":
            return NoDraft("no_draft", f"{drafter.name} drafted nothing")
        return Draft(tokens, drafter.name, end)

    def _opened(
        self, drafter: Drafter, request: Request, prefix: str, max_tokens: int
    ) -> Streaming[DraftPiece] | NoDraft:
        steps = drafter.draft(request, prefix, max_tokens)
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self._send(drafter, asked))
        except StopIteration as ended:
            found: Streaming[DraftPiece] | NoDraft = ended.value
        return found

    def _send(self, drafter: Drafter, asked: HttpRequest) -> HttpReply | None:
        try:
            reply = self._http.request(asked.method, draft_url(drafter.base_url, asked.path), json=asked.body)
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return None
        return HttpReply(reply.status_code, reply.content, dict(reply.headers))

    def _read(self, drafter: Drafter, streaming: Streaming[DraftPiece], *, again: bool) -> list[DraftPiece] | NoDraft:
        """The whole stream at once: nobody reads along here."""
        reply = self._send(drafter, streaming.request)
        if reply is None:
            return NoDraft("no_draft", f"{drafter.name}: no reply", broken=True)
        if reply.status >= 300:
            other = streaming.on_error(reply)
            if again and isinstance(other, Streaming):
                return self._read(drafter, other, again=False)
            return other if isinstance(other, NoDraft) else NoDraft("no_draft", f"{drafter.name}: HTTP {reply.status}")
        return [*streaming.decoder.feed(reply.body), *streaming.decoder.close()]
