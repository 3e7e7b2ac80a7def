"""Incremental decoding of streamed bodies: any split of the bytes gives the same events.

Rules
-----
* Server-sent events as the WHATWG HTML standard reads them (section 9.2, read November 2026): lines end
  in LF, CRLF or CR; one space after the colon is dropped; ``data`` lines of one event are joined by LF; a
  blank line ends the event. Comments are dropped: they keep a connection alive, for hours if need be, and
  say nothing. An event with empty data is ignored. Beyond the standard, an event that the end of the body
  cuts off before its blank line is still delivered: some servers leave the last blank line out.
* A reply is complete when it showed a finish reason or ``[DONE]``; the end of the bytes alone proves
  nothing. An error object inside the stream ends it: nothing after it counts.
* Reasoning fields and log-probability entries are not text. ``choices`` may be missing, ``null`` or
  empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cheapspec.core.ports import Identity, TargetPiece
from cheapspec.core.received import (
    as_error,
    content_text,
    error_of,
    first_choice,
    read_identity,
    read_usage,
    token_ids,
)
from cheapspec.core.untyped import as_mapping, is_mapping

__all__ = ["BadLine", "ChatStreamReader", "NDJSONDecoder", "SSEDecoder", "SSEEvent"]

_BOM = b"\xef\xbb\xbf"


class _Lines:
    """Bytes to whole lines without their ends. ``carriage``: a lone CR ends a line, too."""

    def __init__(self, *, carriage: bool) -> None:
        self._carriage = carriage
        self._tail: list[bytes] = []
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\n" not in data and not (self._carriage and b"\r" in data):
            self._tail.append(data)
            return []
        whole = b"".join((*self._tail, data))
        if self._carriage:
            self._after_cr = whole.endswith(b"\r")
            lines = whole.splitlines()
            rest = b"" if whole.endswith((b"\r", b"\n")) else lines.pop()
        else:
            *lines, rest = whole.split(b"\n")
        self._tail = [rest]
        return self._unmark(lines)

    def close(self) -> list[bytes]:
        rest = b"".join(self._tail)
        self._tail = []
        return self._unmark([rest]) if rest else []

    def _unmark(self, lines: list[bytes]) -> list[bytes]:
        """Drop a byte order mark at the very beginning."""
        if not self._begun:
            lines[0] = lines[0].removeprefix(_BOM)
            self._begun = True
        return lines


@dataclass(frozen=True, slots=True)
class SSEEvent:
    """One server-sent event: its data, and its name where it has one."""

    data: str
    event: str | None = None

    @property
    def done(self) -> bool:
        """Whether it is OpenAI's end sign."""
        return self.data.strip() == "[DONE]"


class SSEDecoder:
    """Server-sent events out of bytes (:class:`cheapspec.core.ports.Decoder`)."""

    def __init__(self) -> None:
        self._lines = _Lines(carriage=True)
        self._data: list[str] = []
        self._event: str | None = None

    def feed(self, data: bytes) -> list[SSEEvent]:
        return self._read(self._lines.feed(data))

    def close(self) -> list[SSEEvent]:
        return self._read([*self._lines.close(), b""])

    def _read(self, lines: list[bytes]) -> list[SSEEvent]:
        events: list[SSEEvent] = []
        for raw in lines:
            name, colon, value = raw.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif not name and not colon:
                data = "\n".join(self._data)
                if data.strip():
                    events.append(SSEEvent(data, self._event or None))
                self._data, self._event = [], None
        return events


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not JSON."""

    text: str


class NDJSONDecoder:
    """One JSON value a line (Ollama's streams); blank lines are skipped, a bad one becomes a :class:`BadLine`."""

    def __init__(self) -> None:
        self._lines = _Lines(carriage=False)

    def feed(self, data: bytes) -> list[Any]:
        return self._read(self._lines.feed(data))

    def close(self) -> list[Any]:
        """What is left after the last line end: a whole value, or a :class:`BadLine` if it was cut."""
        return self._read(self._lines.close())

    def _read(self, lines: list[bytes]) -> list[Any]:
        values: list[Any] = []
        for line in lines:
            if line.strip():
                try:
                    values.append(json.loads(line))
                except (ValueError, RecursionError):
                    values.append(BadLine(line.decode("utf-8", "replace")))
        return values


class ChatStreamReader:
    """An OpenAI-style stream as pieces of the target's text (:class:`cheapspec.core.ports.Decoder`).

    ``kind``: ``"chat"`` or ``"completion"``. Only the choice with index 0 is read.
    """

    def __init__(self, kind: str) -> None:
        self._chat = kind == "chat"
        self._events = SSEDecoder()
        self._identity: Identity | None = None
        self._failed = False

    def feed(self, data: bytes) -> list[TargetPiece]:
        return self._read(self._events.feed(data))

    def close(self) -> list[TargetPiece]:
        """What is left. If no piece ever said ``complete`` or ``error``, the reply was cut."""
        return self._read(self._events.close())

    def _read(self, events: list[SSEEvent]) -> list[TargetPiece]:
        pieces: list[TargetPiece] = []
        for event in events:
            if self._failed:
                break
            piece = self._piece(event)
            self._failed = piece.error is not None
            if piece != TargetPiece():
                pieces.append(piece)
        return pieces

    def _piece(self, event: SSEEvent) -> TargetPiece:
        if event.done:
            return TargetPiece(complete=True)
        try:
            chunk: object = json.loads(event.data)
        except (ValueError, RecursionError):
            chunk = None
        if not is_mapping(chunk):
            return TargetPiece(error=as_error(event.data))
        error = error_of(chunk)
        if error is None and event.event == "error":
            error = chunk
        if error is not None:
            return TargetPiece(error=error)
        choice = first_choice(chunk)
        text = content_text(as_mapping(choice.get("delta")).get("content") if self._chat else choice.get("text"))
        reason = choice.get("finish_reason")
        if reason == "error":  # OpenRouter, where the error object itself went missing
            return TargetPiece(text=text, error=as_error("the provider ended the stream with an error"))
        ids = token_ids(choice)
        usage = chunk.get("usage") or choice.get("usage") or as_mapping(chunk.get("x_groq")).get("usage")
        return TargetPiece(
            text=text,
            finish_reason=reason if isinstance(reason, str) else None,
            usage=read_usage(usage, chunk.get("service_tier")),
            identity=self._changed(chunk),
            tokens=None if ids is None else len(ids),
            ids=ids,
            complete=isinstance(reason, str),
        )

    def _changed(self, chunk: Mapping[str, Any]) -> Identity | None:
        """The reply's identity where it says something new."""
        identity = read_identity(chunk)
        if identity in (self._identity, Identity()):
            return None
        self._identity = identity
        return identity
