"""Ways in which a streamed reply goes wrong; :mod:`cheapspec.testing.faults` has the others, and the rules.

A *content frame* is a frame that carries text (a chat chunk, a text completion chunk, a line of Ollama's);
faults that count, count those.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from cheapspec.testing.wire import Action, Connection, Frame, items, mapping

__all__ = [
    "Chunks",
    "Comments",
    "CutAfter",
    "DoneOnly",
    "ErrorInStream",
    "FinishOnly",
    "HangAfter",
    "Preamble",
    "Reasoning",
    "text_of",
]


@dataclass(frozen=True)
class CutAfter(Action):
    """The stream ends after so many content frames: the connection is cut, or, ``clean``, the body just ends."""

    chunks: int
    clean: bool = False

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        left = self.chunks
        async for frame in frames:
            if text_of(frame) is not None:
                left -= 1
            if left < 0:
                break
            yield frame
        if left >= 0:
            return
        if not self.clean:
            await connection.wait(0.02)  # let the last frame out of the socket's buffer
            connection.abort()


@dataclass(frozen=True)
class HangAfter(Action):
    """The stream stands still for so many seconds after so many content frames."""

    chunks: int
    seconds: float

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        left = self.chunks
        async for frame in frames:
            if text_of(frame) is not None:
                left -= 1
                if left == -1:
                    await connection.wait(self.seconds)
            yield frame


@dataclass(frozen=True)
class ErrorInStream(Action):
    """An error under status 200, after so many content frames, then the end of the body.

    ``shape``: ``"data"`` (a data frame), ``"event"`` (``event: error``), ``"string"`` (``error`` is a
    string), ``"line"`` (an NDJSON line, Ollama's way).
    """

    shape: str = "data"
    after: int = 3
    code: int = 502
    message: str = "overloaded"

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        left = self.after
        async for frame in frames:
            if text_of(frame) is not None:
                left -= 1
            if left < 0:
                break
            yield frame
        error: Any = {"message": self.message, "code": self.code}
        if self.shape in ("string", "line"):
            error = self.message
        text = json.dumps({"error": error})
        head = "event: error\n" if self.shape == "event" else ""
        yield f"{text}\n".encode() if self.shape == "line" else f"{head}data: {text}\n\n".encode()


@dataclass(frozen=True)
class Comments(Action):
    """Keep-alive comments, an empty data frame (unless ``empty`` is false), and data frames without a space
    after the colon.
    """

    empty: bool = True

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        yield b": OPENROUTER PROCESSING\n\n"
        count = 0
        async for frame in frames:
            if text_of(frame) is not None:
                count += 1
                if count == 2:
                    yield b": ping\n\n" + (b"data: \n\n" if self.empty else b"")
            if isinstance(frame, bytes):
                yield frame
            else:
                text = frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False)
                yield f"data:{text}\n\n".encode()


@dataclass(frozen=True)
class Preamble(Action):
    """Chunks without a choice: Azure's content-filter preamble, and one without the key itself."""

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        head = {"id": "", "object": "", "created": 0, "model": ""}
        yield {**head, "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
        count = 0
        async for frame in frames:
            if text_of(frame) is not None:
                count += 1
                if count == 2:
                    yield head
            yield frame


@dataclass(frozen=True)
class FinishOnly(Action):
    """A finish reason, but no ``[DONE]``."""

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        async for frame in frames:
            if frame != "[DONE]":
                yield frame


@dataclass(frozen=True)
class DoneOnly(Action):
    """``[DONE]``, but no finish reason (or, for NDJSON, no line with ``done: true``)."""

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        async for frame in frames:
            if isinstance(frame, dict):
                if frame.get("done") is True:
                    continue
                for choice in items(frame.get("choices")):
                    choice["finish_reason"] = None
            yield frame


class Chunks(Action):
    """The text in exactly these pieces, a content frame each, instead of the model's own."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def text(self, body: Mapping[str, Any]) -> str | None:
        return "".join(self.pieces)

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        sent = False
        async for frame in frames:
            if text_of(frame) is None:
                yield frame
            elif not sent:
                sent = True
                for piece in self.pieces:
                    yield _with_text(frame, piece)
                if _ends(frame):
                    yield _with_text(frame, "", keep_end=True)
            elif _ends(frame):
                yield _with_text(frame, "", keep_end=True)


@dataclass(frozen=True)
class Reasoning(Action):
    """Thoughts before the answer, in a field of their own (``reasoning``, ``reasoning_content``, ``thinking``)."""

    thought: str
    name: str = "reasoning_content"

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        for choice in items(data.get("choices")):
            choice.setdefault("message", {})[self.name] = self.thought
        if "message" in data:
            data["message"][self.name] = self.thought
        return data

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        sent = False
        async for frame in frames:
            if not sent and (text_of(frame) is not None or _ends(frame)):
                sent = True
                yield _with_text(frame, self.thought, self.name)
            yield frame


def text_of(frame: Frame) -> str | None:
    """The text that a frame carries (chat chunk, text completion chunk, Ollama line), ``None`` without."""
    if not isinstance(frame, dict):
        return None
    choices = items(frame.get("choices"))
    if choices:
        return mapping(choices[0].get("delta")).get("content") or choices[0].get("text") or None
    return mapping(frame.get("message")).get("content") or frame.get("response") or None


def _ends(frame: Frame) -> bool:
    """Whether a frame carries the finish reason (vLLM's last content frame may)."""
    if not isinstance(frame, dict):
        return False
    return frame.get("done") is True or any(choice.get("finish_reason") for choice in items(frame.get("choices")))


def _with_text(frame: Frame, text: str, name: str = "content", *, keep_end: bool = False) -> Frame:
    """A copy of a content frame with another text (for ``name``, another field instead of the content)."""
    copy: dict[str, Any] = json.loads(json.dumps(frame))
    copy.pop("logprobs", None)
    choices = items(copy.get("choices"))
    if choices:
        if not keep_end:
            choices[0]["finish_reason"] = None
        if "delta" in choices[0]:
            choices[0]["delta"] = {name: text}
        else:
            choices[0]["text"] = text
    elif "message" in copy:
        copy["message"] = {"role": "assistant", "content": "", name: text}
    else:
        copy["response"] = text
    if "done" in copy:  # an NDJSON line: what only the last one carries goes
        only_last = ("done_reason", "total_duration", "load_duration", "prompt_eval_count", "eval_count")
        return {name: value for name, value in copy.items() if name not in only_last} | {"done": False}
    return copy
