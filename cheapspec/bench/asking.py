"""Asks a drafter directly, outside any request: the bench's look at what a draft model would have said.

A failure is no draft (nothing is agreed there), since a clairvoyant without drafts saves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx2

from cheapspec.bench.spoken import Drafted
from cheapspec.core.effects import HttpReply, HttpRequest
from cheapspec.core.ports import Drafter, DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request
from cheapspec.drive.urls import draft_url

__all__ = ["DraftAsker"]


class DraftAsker:
    """Callable with a prefix of the reply; returns what ``drafter`` would write next, at most ``window`` tokens.

    Close it with :meth:`close`.
    """

    def __init__(self, drafter: Drafter, request: Request, window: int = 8) -> None:
        self._drafter = drafter
        self._request = request
        self._window = window
        self._http = httpx2.Client(
            timeout=600,
            trust_env=False,  # draft hosts are near: no proxy
            limits=httpx2.Limits(max_keepalive_connections=0),  # llama.cpp hangs up on idle ones without a word
        )

    def close(self) -> None:
        """Free what the HTTP client holds."""
        self._http.close()

    def __call__(self, prefix: str) -> Sequence[Drafted]:
        """The next tokens after ``prefix``; empty when there is no draft."""
        pieces = self._pieces(prefix)
        if any(piece.problem is not None for piece in pieces):
            return ()
        out = [Drafted(token.text.encode(), token.logprob) for piece in pieces for token in piece.tokens]
        if pieces and pieces[-1].end == "stop":
            out.append(Drafted(b"", None, end=True))
        return out

    def _pieces(self, prefix: str) -> list[DraftPiece]:
        steps = self._drafter.draft(self._request, prefix, self._window)
        reply: HttpReply | None = None
        try:
            asked = next(steps)
            while True:
                reply = self._send(asked)
                asked = steps.send(reply)
        except StopIteration as ended:
            found: Streaming[DraftPiece] | NoDraft = ended.value
        return self._stream(found, again=True) if isinstance(found, Streaming) else []

    def _send(self, asked: HttpRequest) -> HttpReply | None:
        try:
            url = draft_url(self._drafter.base_url, asked.path)
            reply = self._http.request(asked.method, url, json=asked.body)
        except httpx2.HTTPError:
            return None
        return HttpReply(reply.status_code, reply.content, dict(reply.headers))

    def _stream(self, streaming: Streaming[DraftPiece], *, again: bool) -> list[DraftPiece]:
        """The whole stream at once: nobody reads along here."""
        reply = self._send(streaming.request)
        if reply is None:
            return []
        if reply.status >= 300:
            other = streaming.on_error(reply)
            return self._stream(other, again=False) if again and isinstance(other, Streaming) else []
        return [*streaming.decoder.feed(reply.body), *streaming.decoder.close()]
