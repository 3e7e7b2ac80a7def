"""From the engine's emissions to an HTTP response of the kind the target itself would have sent.

A response is built with ``stream=`` and closes its run when it is closed, so that leaving a stream early
gives up what is still open. Headers (``x-request-id``, rate limits) are those of the last target call
before the status was fixed.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import httpx2

from cheapspec.core.effects import Emit, Finish, HttpReply
from cheapspec.core.info import Info
from cheapspec.core.ports import Identity
from cheapspec.core.received import error_of
from cheapspec.core.reply import DONE, ReplyBuilder, encode_event, error_frame, strict_json
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.admission import Admitted, Refused

_NOT_SHOWN = re.compile(r"[^ -~]")  # what a header's value may not hold, or not everywhere
_LONGEST_RULE = 200  # a validator's name holds its schema

__all__ = ["Writer", "elapsed", "failure_event", "mark", "refusal", "response_headers"]

_NOT_OURS = {"content-length", "content-encoding", "content-type", "transfer-encoding", "connection", "keep-alive"}


def mark(response: httpx2.Response, info: Info) -> None:
    """Say on a passed-through response what was decided."""
    response.headers["x-cheapspec-request-id"] = info.request_id
    response.headers["x-cheapspec-decision"] = info.decision
    if info.reason:
        response.headers["x-cheapspec-reason"] = info.reason


def response_headers(
    upstream: httpx2.Headers, request_id: str, *, stream: bool = True, rule: str | None = None
) -> httpx2.Headers:
    """Headers of a synthetic response. ``rule``: on whose word it goes out, where that is known by now."""
    headers = httpx2.Headers([(name, value) for name, value in upstream.multi_items() if name.lower() not in _NOT_OURS])
    headers["content-type"] = "text/event-stream; charset=utf-8" if stream else "application/json"
    headers["x-cheapspec-request-id"] = request_id
    headers["x-cheapspec-decision"] = "speculate"
    if rule is not None:
        headers["x-cheapspec-rule"] = _NOT_SHOWN.sub("?", rule)[:_LONGEST_RULE]
    return headers


def refusal(refused: Refused, request: httpx2.Request) -> httpx2.Response:
    """A 400 of our own: what the request says about itself is unusable, and nothing was sent."""
    error = {"message": refused.message, "type": "invalid_request_error", "param": "cheapspec"}
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-cheapspec-request-id": refused.request_id,
        "x-cheapspec-decision": "refused",
    }
    content = strict_json({"error": {**error, "code": "invalid_cheapspec_option"}})
    return httpx2.Response(400, headers=headers, content=content, request=request)


def failure_event(status: int, body: bytes, message: str) -> bytes:
    """An error that comes when status 200 is already out, as an event of the stream."""
    error = error_of(as_mapping(HttpReply(status, body).json())) or {"message": message}
    return encode_event(error_frame({"code": status, **error}))


class Writer:
    """Turns emissions into the bytes of one reply. ``finished`` is told the reply's id when it is over and
    whether it is whole, and gives the run's facts. ``keeps_text``: of a stream too.
    """

    def __init__(self, admitted: Admitted, finished: Callable[[str, bool], Info], *, keeps_text: bool = False) -> None:
        self._keeps_text = keeps_text
        self._job = admitted.job
        self._finished = finished
        self._builder: ReplyBuilder | None = None
        self._text: list[str] = []
        self.done = False
        self.reply_id = ""

    def _build(self) -> ReplyBuilder:
        if self._builder is None:
            identity: Identity = self._job.tally.identity
            request = self._job.request
            prefix = "chatcmpl-" if request.kind == "chat" else "cmpl-"
            given = identity.id or uuid.uuid4().hex
            self.reply_id = prefix + given.removeprefix("chatcmpl-").removeprefix("cmpl-")
            created = identity.created or int(time.time())
            self._builder = ReplyBuilder(request, identity, created, self.reply_id)
        return self._builder

    def stream(self, effect: Emit | Finish) -> bytes:
        """The server-sent events of one emission."""
        opening = self._builder is None
        builder = self._build()
        first = builder.first_chunk() if opening else None
        head = b"" if first is None else encode_event(first)
        if isinstance(effect, Emit):
            if self._keeps_text:
                self.collect(effect)
            return head + encode_event(builder.chunk(effect.text, effect.source))
        self.done = True
        info = self._finished(self.reply_id, effect.error is None)
        if effect.error is not None:
            return head + encode_event(error_frame(effect.error))
        chunks = builder.last_chunks(effect.finish_reason, effect.usage, info.to_dict())
        return head + b"".join(map(encode_event, chunks)) + DONE

    @property
    def text(self) -> str:
        """What was kept so far."""
        return "".join(self._text)

    def collect(self, effect: Emit) -> None:
        """Keep text."""
        self._text.append(effect.text)

    def whole(self, effect: Finish) -> bytes:
        """The body of an unstreamed reply."""
        self.done = True
        builder = self._build()
        info = self._finished(self.reply_id, effect.error is None)
        return strict_json(builder.whole(self.text, effect.finish_reason, effect.usage, info.to_dict()))


def elapsed(response: httpx2.Response, started: float) -> None:
    """Set what httpx2 sets when a real response is closed."""
    response.elapsed = timedelta(seconds=max(0.0, time.monotonic() - started))
