"""Reads a streamed Ollama reply (``/api/chat`` or ``/api/generate``) into draft pieces.

Rules
-----
* The draft's text comes from ``response`` or ``message.content`` only. Log-probability entries are
  laid along it; they may not fit (0.24 sends U+FFFD for parts of a character, and whole tokens past a
  stop string) or cover several tokens (0.33 joins the tokens of a character, and those held back for
  a possible stop string, under the value of the last one). Where that is possible the value is unknown.
* The reply begins with what was asked to be continued: an echo of the prefix (native chat templates
  put it into ``content``, without entries) and the white space that was cut off the prefix. Both are
  taken away; a reply that begins otherwise does not continue the prefix and is no draft.
* Thoughts never get into a draft: thinking fields are skipped, a leading ``<think>`` block is taken
  away, one that never closes leaves no draft, a stray ``</think>`` makes the text unusable.
* A draft never ends in part of a character: a trailing U+FFFD waits for what follows and is dropped
  at the end.
* ``done: true`` with a reason ends a draft. Without it (both versions stop so after 31 equal tokens)
  the draft is ``"cut"``: usable, its end means nothing. An ``error`` line, an empty text, a load or
  unload answer, or counts that show a cut prompt make it unusable.

Formats as recorded from Ollama 0.24.0 and 0.33.0-rc2 (2026-11-29).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cheapspec.backends.ollama_json import as_list, as_object, is_list
from cheapspec.core.alignment import align_draft
from cheapspec.core.drafting import slice_tokens
from cheapspec.core.ports import DraftPiece, NoDraft
from cheapspec.core.sse import BadLine, NDJSONDecoder
from cheapspec.core.untyped import is_number

__all__ = ["OllamaDecoder", "Reading", "read_entries"]

Entry = tuple[str, bytes | None, float | None]

_REPLACEMENT = "�"
_THINK, _END_THINK = "<think>", "</think>"
_THOUGHTS = ("thinking", "reasoning", "reasoning_content")
_SURE_LENGTH = 256  # shorter prompts fit any window that anybody sets, so a low count proves nothing


@dataclass(frozen=True, slots=True)
class Reading:
    """What the decoder must know about the call whose reply it reads.

    ``window``: tokens of the context window the call ran in, ``None`` unknown. ``low``: the fewest
    tokens that the prompt can have. ``echo``, ``tail``: what the reply must begin with (see above).
    ``stops``: stop strings, the caller's and the model's own. ``logprobs``: whether values mean
    anything. ``on_thoughts``: called when thoughts were all that came.
    """

    window: int | None = None
    low: int = 0
    echo: str = ""
    tail: str = ""
    stops: tuple[str, ...] = ()
    logprobs: bool = True
    on_thoughts: Callable[[], object] | None = None


class OllamaDecoder:
    """A :class:`~cheapspec.core.ports.Decoder` of NDJSON lines. One per reply; any split of the bytes."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._lines = NDJSONDecoder()
        self._text = ""  # arrived, not released
        self._entries: list[Entry] = []
        self._begun = False  # echo, thoughts and tail are behind us
        self._last = ""  # the last characters released, to find a tag across pieces
        self._thought = False
        self._released = False
        self._done = False

    def feed(self, data: bytes) -> list[DraftPiece]:
        """Take bytes, return the pieces they complete."""
        return [piece for line in self._lines.feed(data) for piece in self._line(line)]

    def close(self) -> list[DraftPiece]:
        """The body ended. A last line may lack its newline (load answers, unstreamed replies)."""
        pieces = [piece for line in self._lines.close() for piece in self._line(line, last=True)]
        return pieces if self._done else [*pieces, self._end("cut")]

    def _line(self, reply: Any, last: bool = False) -> list[DraftPiece]:
        if self._done:
            return []
        if isinstance(reply, BadLine) and last:
            return []  # what a dropped connection leaves of a line is no news; garbage in mid-stream is
        if not isinstance(reply, dict):
            return [self._problem("no_draft", "a line of the reply is not a JSON object", broken=True)]
        return self._object(as_object(reply))

    def _object(self, reply: dict[str, Any]) -> list[DraftPiece]:
        if reply.get("error"):
            return [self._problem("no_draft", f"Ollama: {reply['error']}", broken=True)]
        message = as_object(reply.get("message"))
        text: Any = reply.get("response")
        if not isinstance(text, str):
            text = message.get("content")
        text = text if isinstance(text, str) else ""
        self._thought = self._thought or any(reply.get(key) or message.get(key) for key in _THOUGHTS)
        if text:  # entries without text belong to thoughts
            self._text += text
            self._entries += [self._doubted(entry) for entry in read_entries(reply.get("logprobs"))]
        if not reply.get("done"):
            piece = self._release(final=False)
            return [piece] if piece else []
        return [self._finish(reply)]

    def _finish(self, reply: dict[str, Any]) -> DraftPiece:
        reason = reply.get("done_reason")
        if reason in ("load", "unload"):
            return self._problem("no_draft", f"Ollama answered that it did a model {reason}, no text")
        prompt, reply_tokens = _count(reply, "prompt_eval_count"), _count(reply, "eval_count")
        if prompt:
            window = self._reading.window
            if window is not None and prompt + reply_tokens >= window:
                return self._problem("draft_context", f"prompt and draft filled the window of {window} tokens")
            if prompt < self._reading.low >= _SURE_LENGTH:
                return self._problem(
                    "draft_context", f"only {prompt} prompt tokens were read of at least {self._reading.low}"
                )
        return self._end(reason if reason in ("stop", "length") else "cut")

    def _end(self, end: str) -> DraftPiece:
        piece = self._release(final=True) or DraftPiece()
        if piece.problem is not None:
            return piece
        self._done = True
        if not self._released:
            if self._thought and self._reading.on_thoughts is not None:
                self._reading.on_thoughts()
            return DraftPiece(problem=NoDraft("no_draft", "only thoughts" if self._thought else "an empty text"))
        return DraftPiece(piece.tokens, end)

    def _release(self, *, final: bool) -> DraftPiece | None:
        """What can go out now, if anything."""
        start = 0
        if not self._begun:
            found = self._beginning(final)
            if found is None or isinstance(found, NoDraft):
                return None if found is None else self._problem(found.reason, found.detail)
            start, self._begun = found, True
        text = self._text
        whole = text.rstrip(_REPLACEMENT)
        if len(whole) < len(text) and not final:
            if start:
                self._begun = False  # look again when the character is whole
            return None
        entries, self._entries, self._text = self._entries, [], ""
        if _END_THINK in self._last + whole[start:]:
            return self._problem("no_draft", "thoughts in the text")
        self._last = (self._last + whole[start:])[-len(_END_THINK) + 1 :]
        echo = len(self._reading.echo) if start else 0
        spoken = text[echo:]
        tokens = slice_tokens(align_draft(entries, spoken), start - echo, len(whole) - echo)
        self._released = self._released or bool(tokens)
        return DraftPiece(tokens) if tokens else None

    def _beginning(self, final: bool) -> int | NoDraft | None:
        """Where the draft begins in the text so far; ``None``: not clear yet."""
        text, echo, tail = self._text, self._reading.echo, self._reading.tail
        mismatch = NoDraft("no_draft", "the reply does not continue the text so far")
        if not text.startswith(echo):
            return None if not final and echo.startswith(text) else mismatch
        at = len(echo)
        lead = text[at:].lstrip()
        if lead.startswith(_THINK):
            self._thought = True
            close = text.find(_END_THINK, at)
            if close < 0:
                return len(text) if final else None
            after = text[close + len(_END_THINK) :].lstrip()
            at = len(text) - len(after)
            if not after and not final:
                return None
        elif _THINK.startswith(lead) and not final:
            return None
        rest = text[at:]
        if rest.startswith(tail):
            return at + len(tail)
        return None if not final and tail.startswith(rest) else mismatch

    def _doubted(self, entry: Entry) -> Entry:
        token, raw, _ = entry
        sure = self._reading.logprobs and not _held_back(token, self._reading.stops)
        return entry if sure else (token, raw, None)

    def _problem(self, reason: str, detail: str, *, broken: bool = False) -> DraftPiece:
        self._done = True
        return DraftPiece(problem=NoDraft(reason, detail, broken))


def read_entries(value: Any) -> list[Entry]:
    """``logprobs`` as (token, its bytes, its log-probability); what is unusable is ``None``."""
    entries: list[Entry] = []
    for entry in map(as_object, as_list(value)):
        token, number, raw = entry.get("token"), entry.get("logprob"), entry.get("bytes")
        logprob = float(number) if is_number(number) and number <= 0 else None
        try:
            octets = bytes(raw) if is_list(raw) else None
        except (TypeError, ValueError):
            octets = None
        if isinstance(token, str):
            entries.append((token, octets, logprob))
    return entries


def _held_back(token: str, stops: Sequence[str]) -> bool:
    """Whether an inner end of ``token`` could have been held back for a stop string, so that the entry
    may cover several tokens.
    """
    return any(
        token[:end].endswith(stop[:size])
        for stop in stops
        for end in range(1, len(token))
        for size in range(1, min(len(stop), end) + 1)
    )


def _count(reply: dict[str, Any], key: str) -> int:
    """A token count; Ollama leaves zero out, and older versions also the count of a cached prompt."""
    value = reply.get(key)
    return value if isinstance(value, int) and value > 0 else 0
