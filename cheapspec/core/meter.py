"""Reads a stream that passes by: what it used, whether it was whole; and takes out the one chunk that was asked for.

Rules
-----
* Bytes go on as they came, at once. Where something is to be taken out (``hide``), an event goes on when its blank
  line has come, comments at once, and all but one kind of event unchanged, whatever is in it: the kind is a chunk
  with usage and without choices, which a server sends to those who asked for usage.
* A body that is no stream of events is kept (:data:`_KEPT` bytes at most) and read as a whole reply: some servers
  answer a streaming request with JSON, and a gateway's page has status 200 too.
* A line, or an event, of more than :data:`_KEPT` bytes is no event: it goes on unread, and nothing of it is kept.
* Reading never raises. Of a stream that tells no usage the written text is counted: its bytes, and its pieces, each
  of which is a token at least.

Server-sent events as in :mod:`cheapspec.core.sse`; Responses' own events (``response.completed``) are read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cheapspec.core.counting import estimate, size_of
from cheapspec.core.effects import HttpReply, Usage
from cheapspec.core.received import Problem, as_error, error_of, read_completion, read_usage
from cheapspec.core.shadows import fingerprint_of
from cheapspec.core.untyped import as_list, as_mapping, is_mapping

__all__ = ["Metered", "StreamMeter"]

_BOM = b"\xef\xbb\xbf"
_KEPT = 4_000_000
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_LAST = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True)
class Metered:
    """What a body that passed by said. ``usage``: as reported, ``None`` if it was not. ``written``: bytes of text
    that the model wrote, thoughts and arguments included; ``tokens``: about how many tokens that is. ``whole``: an end
    sign was there. ``problem``: an error, or no answer at all. ``began``: an answer was under way. ``text``: what the
    model wrote, where the meter keeps it; ``said``: the first choice's visible text alone, likewise. ``fingerprint``:
    who wrote it, see :func:`cheapspec.core.shadows.fingerprint_of`.
    """

    usage: Usage | None = None
    written: int = 0
    tokens: int = 0
    whole: bool = False
    problem: Problem | None = None
    began: bool = False
    reply_id: str | None = None
    text: str = ""
    said: str = ""
    fingerprint: str | None = None


class StreamMeter:
    """Of one body. ``kind``: ``chat``, ``completion`` or ``responses``; ``hide``: take out the chunk of usage;
    ``keep_text``: tell the text that was written too (of all choices, thoughts and arguments, as they came).
    """

    def __init__(self, kind: str, *, hide: bool = False, keep_text: bool = False) -> None:
        self._text: list[str] | None = [] if keep_text else None
        self._said: list[str] = []
        self._model: str | None = None
        self._fingerprint: str | None = None
        self._kind = kind
        self._hide = hide
        self._tail: list[bytes] = []
        self._frame: list[bytes] = []
        self._data: list[bytes] = []
        self._waiting = self._framed = 0  # bytes of the tail and of the frame
        self._skipping = False
        self._event = b""
        self._body: list[bytes] | None = []
        self._size = 0
        self._begun = False
        self._hidden = False
        self._usage: Usage | None = None
        self._reply_id: str | None = None
        self._tier: Any = None
        self._written = 0
        self._pieces = 0
        self._whole = False
        self._problem: Problem | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body, content decoding undone. Returns those that go on now."""
        if self._body is not None:
            self._body.append(data)
            self._size += len(data)
            if self._size > _KEPT:
                self._body = None
        self._tail.append(data)
        if b"\n" not in data and b"\r" not in data:
            self._waiting += len(data)
            freed = self._let_go() if self._waiting > _KEPT else b""
            return freed if self._hide else data
        *lines, last = [*b"".join(self._tail).splitlines(keepends=True), b""]
        if lines and not lines[-1].endswith(b"\n"):  # a CR at the end may be half of a line end
            last = lines.pop()
        self._tail, self._waiting = [last], len(last)
        out = [part for line in lines for part in self._line(line)]
        return b"".join(out) if self._hide else data

    def close(self) -> bytes:
        """The body is over, whichever way. Returns what was still held back."""
        out = [part for line in b"".join(self._tail).splitlines(keepends=True) for part in self._line(line)]
        self._tail = []
        out += self._end_frame()
        return b"".join(out) if self._hide else b""

    def _let_go(self) -> bytes:
        """What was held back of an event that is too long; the rest of its line goes on as it comes."""
        held = b"".join([*self._frame, *self._tail])
        self._skipping = bool(self._tail)
        self._frame, self._data, self._event, self._tail = [], [], b"", []
        self._waiting = self._framed = 0
        return held

    def _line(self, line: bytes) -> list[bytes]:
        """The lines that go on."""
        if self._skipping:
            self._skipping = False
            return [line]
        content = line.rstrip(b"\r\n")
        if not self._begun:
            content, self._begun = content.removeprefix(_BOM), True
        if not content:
            self._frame.append(line)
            return self._end_frame()
        if content[:1] == b":" and not self._frame:
            return [line]
        self._frame.append(line)
        self._framed += len(line)
        if self._framed > _KEPT:
            waiting, self._tail = self._tail, []
            freed = self._let_go()
            self._tail, self._waiting = waiting, sum(map(len, waiting))
            return [freed]
        name, _, value = content.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.strip()
        return []

    def _end_frame(self) -> list[bytes]:
        frame, self._frame, self._framed = self._frame, [], 0
        if self._data:
            data, event = b"\n".join(self._data), self._event
            self._data, self._event = [], b""
            self._hidden = False
            self._read(data, event)
            if self._hidden:
                return [line for line in frame if line.startswith(b":")]
        return frame

    # --- what an event says ----------------------------------------------------------------------

    def _read(self, data: bytes, event: bytes) -> None:
        text = data.strip()
        if not text:
            return
        self._body = None
        if text == b"[DONE]":
            self._whole = True
            return
        try:
            told: Any = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not is_mapping(told):
            return
        error = error_of(told) or (told if event == b"error" or told.get("type") == "error" else None)
        if error is not None:
            self._problem = self._problem or Problem(502, error)
            return
        if self._kind == "responses":
            self._read_response(told)
            return
        choices = as_list(told.get("choices"))
        for choice in map(as_mapping, choices):
            self._read_choice(choice)
        self._reply_id = self._reply_id or _text(told.get("id"))
        self._model = self._model or _text(told.get("model"))
        self._fingerprint = self._fingerprint or _text(told.get("system_fingerprint"))
        self._tier = told.get("service_tier") or self._tier
        usage = read_usage(told.get("usage"), self._tier)
        if usage is not None:
            self._usage = usage
            self._hidden = self._hide and not choices

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if reason == "error":
            self._problem = self._problem or Problem(502, as_error("the provider ended the stream with an error"))
        elif reason is not None:
            self._whole = True
        delta = as_mapping(choice.get("delta"))
        for value in (choice.get("text"), delta.get("content"), delta.get("refusal")):
            self._count(value)
        if self._text is not None and not choice.get("index"):
            self._said += (value for value in (choice.get("text"), delta.get("content")) if isinstance(value, str))
        self._count(next((delta[name] for name in _THOUGHTS if delta.get(name)), None))
        for call in (*as_list(delta.get("tool_calls")), {"function": delta.get("function_call")}):
            function = as_mapping(as_mapping(call).get("function"))
            self._count(function.get("name"))
            self._count(function.get("arguments"))

    def _count(self, value: Any) -> None:
        if isinstance(value, str):
            self._written += size_of(value)
            self._pieces += bool(value)
            if self._text is not None:
                self._text.append(value)
        else:
            for part in map(as_mapping, as_list(value)):
                self._count(part.get("text"))

    def _read_response(self, told: Mapping[str, Any]) -> None:
        response = as_mapping(told.get("response"))
        self._reply_id = self._reply_id or _text(response.get("id"))
        self._usage = read_usage(response.get("usage"), response.get("service_tier")) or self._usage
        self._whole = self._whole or told.get("type") in _LAST
        if told.get("type") == "response.failed":
            self._problem = self._problem or Problem(502, error_of(response) or as_error("the response failed"))
        self._count(told.get("delta"))

    # --- what it comes to ------------------------------------------------------------------------

    def metered(self) -> Metered:
        """What is known. After :meth:`close`; before it, what has passed so far."""
        if self._body is not None:
            return self._metered_body(b"".join(self._body))
        tokens = max(estimate(self._written), self._pieces)
        whole = self._whole and self._problem is None
        text = "".join(self._text or ())
        said, writer = "".join(self._said), fingerprint_of(self._model, self._fingerprint)
        return Metered(
            self._usage, self._written, tokens, whole, self._problem, True, self._reply_id, text, said, writer
        )

    def _metered_body(self, body: bytes) -> Metered:
        """Of what is no stream of events. An empty line or a comment is one that has not begun."""
        reply = HttpReply(200, body)
        told = as_mapping(reply.json())
        if self._kind == "responses" and error_of(told) is None and told.get("object") == "response":
            usage = read_usage(told.get("usage"), told.get("service_tier"))
            return Metered(usage, whole=True, began=True, reply_id=_text(told.get("id")))
        read = read_completion(reply, self._kind)
        if isinstance(read, Problem):
            return Metered(problem=read)
        size = size_of(read.text)
        text = "" if self._text is None else read.text
        writer = fingerprint_of(read.identity.model, read.identity.system_fingerprint)
        return Metered(read.usage, size, estimate(size), True, None, True, read.identity.id, text, text, writer)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
