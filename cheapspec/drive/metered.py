"""A response of the target's that passes to the caller unread: its books are closed when it is over.

Rules
-----
* The response stays the object that came, and its bytes as they came; only its stream is wrapped. Where the chunk
  with usage was asked for and is taken out, a compressed body goes on decoded, without the headers that would be
  wrong then (``content-encoding``, ``content-length``).
* A body is over when it ended, broke off or was closed, at the latest when nobody holds it any more. Then it is booked
  as what it was: ``ok`` if it was whole, ``failed`` with an error or without an answer in it, ``cancelled`` if the
  caller left before its end, else ``possibly_billed``.
* What was used is what the stream said, else an estimate of what was seen (:mod:`cheapspec.core.counting`), marked as
  one. A charge follows from it only if the server did its work or was told to stop: none is made up for a stream that
  broke or failed. Budgets count a bound where the usage is an estimate: of a whole reply what its bytes can be at
  most, else the worst case.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import httpx2

from cheapspec.core.counting import input_bound, input_estimate
from cheapspec.core.effects import Usage
from cheapspec.core.exposure import text_only
from cheapspec.core.meter import Metered, StreamMeter
from cheapspec.core.money import money_context
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.books import Books, Read
from cheapspec.drive.replies import mark
from cheapspec.drive.runtime import Passed
from cheapspec.drive.tapped import tapped
from cheapspec.drive.work import Work

__all__ = ["METERED", "Unread", "metered"]

METERED = frozenset({"chat", "completion", "responses"})
"""Routes whose streams tell what they used."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A good answer whose body is still to come. ``hide``: its usage was asked for by us; ``worst``: dollars that the
    call can cost at most, ``None`` unknown.
    """

    call_id: str
    kind: str
    started: float
    hide: bool
    worst: Decimal | None


def metered(
    books: Books, passed: Passed, unread: Unread, response: httpx2.Response, job: Work | None
) -> httpx2.Response:
    """The response, marked, which closes the books of its request when it is over."""
    mark(response, books.begins_direct(passed, job))
    kind = response.headers.get("content-type", "")
    hide = unread.hide and "json" not in kind and "html" not in kind
    meter = StreamMeter(unread.kind, hide=hide, keep_text=books.keeps_text or books.heard is not None)
    ending = _Ending(books, passed, unread, job, meter, response.status_code)
    if response.is_stream_consumed or response.is_closed:  # its content was there from the start
        content = response.content
        told = meter.feed(content) + meter.close()
        ending.over("ended")
        return _with_content(response, told) if hide and told != content else response
    encoding = response.headers.get("content-encoding", "")
    if hide:
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
    response.stream = tapped(response.stream, meter, ending.over, "" if encoding == "identity" else encoding, hide=hide)
    return response


def _with_content(response: httpx2.Response, content: bytes) -> httpx2.Response:
    dropped = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in dropped]
    return httpx2.Response(
        response.status_code,
        headers=headers,
        content=content,
        request=response.request,
        extensions=dict(response.extensions),
    )


class _Ending:
    """Closes the books, once."""

    def __init__(
        self, books: Books, passed: Passed, unread: Unread, job: Work | None, meter: StreamMeter, status: int
    ) -> None:
        self._books = books
        self._passed = passed
        self._unread = unread
        self._job = job
        self._meter = meter
        self._http_status = status
        self.done = False

    def over(self, how: str) -> None:
        """``how``: the body ``ended``, ``broke`` off, or the caller ``left``."""
        if self.done:
            return
        self.done = True
        with money_context():
            self._book(how)

    def _book(self, how: str) -> None:
        told = self._meter.metered()
        status = _status(told, how)
        read = self._read(told, status)
        seconds = time.monotonic() - self._unread.started
        self._books.close_call(
            self._unread.call_id, status, read.usage, read.usd, seconds, self._http_status, read.budget_usd, read.flags
        )
        self._books.timed(status, read.usage, seconds)
        heard = replace(read, text=told.text, said=told.said, fingerprint=told.fingerprint, whole=told.whole)
        self._books.went_direct(self._passed, heard, self._job)

    def _read(self, told: Metered, status: str) -> Read:
        if told.usage is not None:
            return self._books.priced(told.reply_id, told.usage)
        if not told.began and status != "cancelled":
            return Read(told.reply_id)
        body = self._body()
        known = text_only(body)
        usage = Usage(input_estimate(body), told.tokens, estimated=True)
        most = replace(usage, input_tokens=input_bound(body, len(self._content())), output_tokens=told.written)
        read = self._books.priced(told.reply_id, usage)
        bound = self._books.priced(None, most).budget_usd if known else None
        if status == "ok":
            return replace(read, usd=read.usd if known else None, budget_usd=bound)
        if status == "cancelled":
            return replace(read, usd=read.usd if known else None, budget_usd=self._unread.worst)
        return replace(read, usd=None, budget_usd=bound if status == "failed" else None)

    def _content(self) -> bytes:
        try:
            return self._passed.request.content
        except httpx2.RequestNotRead:
            return b""

    def _body(self) -> Mapping[str, Any]:
        if self._passed.parsed is not None:
            return self._passed.parsed.body
        try:
            return as_mapping(json.loads(self._content()))
        except (ValueError, RecursionError):
            return {}


def _status(told: Metered, how: str) -> str:
    if told.problem is not None and (told.began or how == "ended"):
        return "failed"
    if told.whole or told.usage is not None:
        return "ok"
    return "cancelled" if how == "left" else "possibly_billed"
