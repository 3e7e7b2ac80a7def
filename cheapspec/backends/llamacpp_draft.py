"""llama.cpp as drafter. Rules in :mod:`cheapspec.backends.llamacpp`, and:

1. A draft is greedy and comes through ``/completion`` on the rendered prompt, so a prefix is continued by
   plain text: no template stands between.
2. A prefix is sent without its trailing spaces (a token boundary there makes small models write
   something else); the draft must begin with them, and loses them again. One that does not is unusable.
3. A stop string ends a draft but is part of the reply's text until the target's side has seen it, so it
   is put back; such a draft claims nothing about the end of the turn.
4. The template is told that the draft model shall not think. One that opens a block of thoughts all the same
   leaves nothing to draft with; the host is then not asked again (a llama.cpp server has one model).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cheapspec.backends.llamacpp_wire import Entry, Events, greedy, read_entries, render
from cheapspec.backends.openai_wire import error_message
from cheapspec.core.acceptance import DraftToken
from cheapspec.core.alignment import align_draft
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request
from cheapspec.core.text import opens_thoughts
from cheapspec.core.untyped import as_mapping

__all__ = ["DraftReader", "Lead", "LlamaCppDrafter"]

_ENDS = {"eos": "stop", "limit": "length"}


class Lead:
    """Takes white space off the front of a draft that repeats the end of its prefix (rule 2)."""

    def __init__(self, space: str) -> None:
        self._left = space

    def strip(self, tokens: tuple[DraftToken, ...]) -> tuple[DraftToken, ...] | None:
        """The tokens without what is left of the white space; ``None``: the draft goes another way."""
        out: list[DraftToken] = []
        for token in tokens:
            text = token.text
            if self._left:
                same = min(len(text), len(self._left))
                if text[:same] != self._left[:same]:
                    return None
                self._left, text = self._left[same:], text[same:]
            if text:
                out.append(token if text == token.text else DraftToken(text))
        return tuple(out)


class LlamaCppDrafter:
    """Drafts with a llama.cpp server at ``base_url`` (its root: ``http://host:port``)."""

    def __init__(self, base_url: str, *, name: str | None = None) -> None:
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        self._name = name or f"llamacpp:{urlsplit(self._base_url).netloc.rpartition('@')[2] or self._base_url}"
        self._thinks = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def base_url(self) -> str:
        return self._base_url

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...] | None:
        return None

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        """Render, then one streamed ``/completion`` of at most ``max_tokens`` tokens."""
        if max_tokens < 1:
            return NoDraft("no_draft", "no room for a draft")
        prompt = request.prompt or ""
        if request.kind == "chat":
            if self._thinks:
                return self._thoughtful()
            variables = {**as_mapping(request.body.get("chat_template_kwargs")), "enable_thinking": False}
            messages = [dict(message) for message in request.messages]
            told = {**request.body, "messages": messages, "chat_template_kwargs": variables}
            reply = yield render(Request("chat", told, request.model, request.stream))
            rendered: object = as_mapping(reply.json()).get("prompt") if reply is not None else None
            if reply is None or reply.status >= 300 or not isinstance(rendered, str):
                return refused(reply, self.name)
            prompt = rendered
            if opens_thoughts(prompt):
                self._thinks = True
                return self._thoughtful()
        sent = prefix.rstrip(" ")
        body: dict[str, Any] = {
            **greedy(),
            "prompt": prompt + sent,
            "n_predict": max_tokens,
            "n_probs": 1,
            "stream": True,
        }
        if request.stops:
            body["stop"] = list(request.stops)
        call = HttpRequest("draft", "/completion", body, stream=True)
        return Streaming(call, DraftReader(prefix[len(sent) :]), lambda reply: refused(reply, self.name))

    def _thoughtful(self) -> NoDraft:
        return NoDraft("no_draft", f"{self.name}: the draft model's chat template makes it think first")


def refused(reply: HttpReply | None, name: str) -> NoDraft:
    """Why a draft host gave no draft. A 503 is a busy host or one that is loading its model."""
    if reply is None:
        return NoDraft("no_draft", f"{name}: no reply", broken=True)
    told = reply.json()
    message = error_message(told)[:200]
    kind: object = as_mapping(as_mapping(told).get("error")).get("type")
    if kind == "exceed_context_size_error" or "context" in message.lower():
        return NoDraft("draft_context", f"{name}: {message}")
    if reply.status in (429, 503):
        return NoDraft("draft_busy", f"{name}: {message}", broken=reply.status == 503)
    return NoDraft("no_draft", f"{name}: HTTP {reply.status} {message}".rstrip(), broken=reply.status >= 500)


class DraftReader:
    """Decodes a streamed ``/completion`` into :class:`DraftPiece`.

    Text and entries of one event may be out of step while a character is incomplete or a stop string
    is possible: entries wait for their text.
    """

    def __init__(self, space: str = "") -> None:
        self._events = Events()
        self._lead = Lead(space)
        self._text = ""
        self._entries: list[Entry] = []
        self._ended = False

    def feed(self, data: bytes) -> list[DraftPiece]:
        """Pieces of the events that are complete."""
        return self._read(self._events.feed(data))

    def close(self) -> list[DraftPiece]:
        """What is left; a body that ended without its last event is ``cut``."""
        pieces = self._read(self._events.close())
        return pieces if self._ended else [*pieces, self._piece("cut", last=True)]

    def _read(self, events: list[Mapping[str, Any]]) -> list[DraftPiece]:
        return [piece for told in events if not self._ended and (piece := self._event(told)) is not None]

    def _event(self, told: Mapping[str, Any]) -> DraftPiece | None:
        if "error" in told:
            self._ended = True
            return DraftPiece(problem=NoDraft("no_draft", error_message(told)[:200], broken=True))
        content: object = told.get("content")
        self._text += content if isinstance(content, str) else ""
        self._entries += read_entries(told)
        if told.get("stop") is not True:
            piece = self._piece(None, last=False)
            return piece if piece.tokens or piece.problem else None
        if told.get("truncated") is True:
            self._ended = True
            return DraftPiece(problem=NoDraft("draft_context", "the draft host's window was full"))
        stop: object = told.get("stopping_word")
        if told.get("stop_type") == "word" and isinstance(stop, str):
            self._text += stop
        return self._piece(_ENDS.get(str(told.get("stop_type")), "cut"), last=True)

    def _piece(self, end: str | None, *, last: bool) -> DraftPiece:
        self._ended = last
        wanted = self._text.encode("utf-8", "replace")
        shown = b"".join(entry.data for entry in self._entries)
        if not last and shown != wanted and shown.startswith(wanted):
            return DraftPiece()
        entries = [(entry.token, entry.data, entry.logprob) for entry in self._entries]
        tokens = self._lead.strip(align_draft(entries, self._text))
        self._text, self._entries = "", []
        if tokens is None:
            self._ended = True
            return DraftPiece(problem=NoDraft("no_draft", "the draft does not take up the prefix's white space"))
        return DraftPiece(tokens, end)
