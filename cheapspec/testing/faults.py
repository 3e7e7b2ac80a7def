"""Ways in which a server goes wrong, to be planned on a stand-in server.

Rules
-----
* A fault is plain data; ``server.plan("score", Status(503), times=1)`` puts it to work. Several faults
  on one request compose in the order given.
* Faults are what real servers were seen to do, not what a mock can do: every one of them arrives over a
  socket.
* Faults of streams are in :mod:`cheapspec.testing.stream_faults`; this module has them all.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cheapspec.testing.stream_faults import (
    Chunks,
    Comments,
    CutAfter,
    DoneOnly,
    ErrorInStream,
    FinishOnly,
    HangAfter,
    Preamble,
    Reasoning,
    text_of,
)
from cheapspec.testing.wire import Action, Connection, Frame, Replied, items, mapping

__all__ = [
    "BadLogprobs",
    "Chunks",
    "CloseAfterBody",
    "Comments",
    "CutAfter",
    "DoneOnly",
    "EmptyBody",
    "ErrorInStream",
    "FinishOnly",
    "Gzip",
    "Hang",
    "HangAfter",
    "Html200",
    "Json",
    "MissingLogprobs",
    "NaNLogprobs",
    "NoUsage",
    "NullChoices",
    "OffByOne",
    "Preamble",
    "Reasoning",
    "Refuse",
    "RefuseStreamOptions",
    "RefuseTrailingSpace",
    "Say",
    "Status",
    "ZeroLogprobs",
    "text_of",
]


# --- instead of an answer ------------------------------------------------------------------------


@dataclass(frozen=True)
class Status(Action):
    """An error reply. ``body``: JSON, or ``None`` for the usual error object around ``message``."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    message: str = "planned fault"

    async def before(self, connection: Connection) -> None:
        error = {"message": self.message, "type": "PlannedFault", "param": None, "code": self.status}
        await connection.answer(self.status, {"error": error} if self.body is None else self.body, self.headers)
        raise Replied


@dataclass(frozen=True)
class Refuse(Action):
    """A 400 for requests of which ``when`` is true; others pass."""

    message: str
    when: Callable[[Mapping[str, Any]], bool]
    param: str | None = None

    async def before(self, connection: Connection) -> None:
        if self.when(connection.exchange.body):
            error = {"message": self.message, "type": "BadRequestError", "param": self.param, "code": 400}
            await connection.answer(400, {"error": error})
            raise Replied


def RefuseStreamOptions() -> Refuse:
    """A server that does not know ``stream_options`` (older compatible servers)."""
    return Refuse("Unrecognized request argument: stream_options", lambda body: "stream_options" in body)


def RefuseTrailingSpace() -> Refuse:
    """A server that takes no prefill ending in whitespace (Anthropic's rule, and of gateways to it)."""

    def when(body: Mapping[str, Any]) -> bool:
        last = mapping((items(body.get("messages")) or [{}])[-1])
        content = last.get("content")
        return last.get("role") == "assistant" and isinstance(content, str) and content != content.rstrip()

    return Refuse("final assistant content cannot end with trailing whitespace", when)


@dataclass(frozen=True)
class Hang(Action):
    """Nothing for so many seconds, then the normal reply."""

    seconds: float

    async def before(self, connection: Connection) -> None:
        await connection.wait(self.seconds)


@dataclass(frozen=True)
class CloseAfterBody(Action):
    """The connection is cut after the request was read, before any byte of a reply."""

    async def before(self, connection: Connection) -> None:
        connection.abort()


@dataclass(frozen=True)
class Json(Action):
    """Any JSON under any status."""

    data: Any
    status: int = 200

    async def before(self, connection: Connection) -> None:
        await connection.answer(self.status, self.data)
        raise Replied


def NullChoices(error: Mapping[str, Any] | None = None, choices: Any = None) -> Json:
    """Status 200 and no choices, with or without an error object (OpenRouter's way to pass on a failure)."""
    data: dict[str, Any] = {"id": None, "object": "chat.completion", "choices": choices}
    return Json({**data, "error": error} if error is not None else data)


@dataclass(frozen=True)
class Html200(Action):
    """A web page under status 200 (a captive portal, a gateway's error page)."""

    async def before(self, connection: Connection) -> None:
        page = b"<!doctype html><html><body><h1>Welcome</h1></body></html>"
        await connection.answer(200, page, {"content-type": "text/html"})
        raise Replied


@dataclass(frozen=True)
class EmptyBody(Action):
    """Status 200 and not a byte of body."""

    async def before(self, connection: Connection) -> None:
        await connection.answer(200, b"")
        raise Replied


# --- another text, other numbers -------------------------------------------------------------------


@dataclass(frozen=True)
class Say(Action):
    """Another text instead of the model's own (then the end of the turn)."""

    said: str

    def text(self, body: Mapping[str, Any]) -> str | None:
        return self.said


@dataclass(frozen=True)
class BadLogprobs(Action):
    """Every log-probability of the scored text becomes ``value``, from position ``start`` on.

    ``when``: only for requests of which it is true.
    """

    value: float
    start: int = 1
    when: Callable[[Mapping[str, Any]], bool] | None = None

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        if self.when is not None and not self.when(body):
            return data
        for holder in _holders(data):
            for position in items(holder.get("prompt_logprobs"))[self.start :]:
                for entry in mapping(position).values():
                    entry["logprob"] = self.value
            legacy = mapping(holder.get("logprobs"))
            for name in ("token_logprobs", "top_logprobs"):
                if isinstance(legacy.get(name), list):
                    legacy[name] = [legacy[name][0], *(_flat(entry, self.value) for entry in legacy[name][1:])]
            for entry in items(legacy.get("content")):
                entry["logprob"] = self.value
        return data


def ZeroLogprobs(when: Callable[[Mapping[str, Any]], bool] | None = None) -> BadLogprobs:
    """0.0 everywhere: values read after filtering, when one survivor is certain."""
    return BadLogprobs(0.0, when=when)


def NaNLogprobs(start: int = 1) -> BadLogprobs:
    """Bare ``NaN`` literals, which strict JSON does not know."""
    return BadLogprobs(math.nan, start)


@dataclass(frozen=True)
class MissingLogprobs(Action):
    """Log-probabilities asked for and not given.

    ``shape``: ``"null"``, ``"absent"``, ``"content_null"`` (``{"content": null}``), ``"content_empty"``,
    ``"placeholder"`` (``[null]``: one null for the whole prompt), ``"nulls"`` (a null a position),
    ``"short"`` (the last half is missing).
    """

    shape: str = "null"

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        for holder in _holders(data):
            for name in ("prompt_logprobs", "logprobs"):
                if name not in holder:
                    continue
                value: Any = holder[name]
                scored = name == "prompt_logprobs" and isinstance(value, list)
                if self.shape == "absent":
                    del holder[name]
                elif self.shape.startswith("content_") and name == "logprobs":
                    holder[name] = {"content": None if self.shape == "content_null" else []}
                elif self.shape == "placeholder" and scored:
                    holder[name] = [None]
                elif self.shape == "nulls" and scored:
                    holder[name] = [None] * len(items(value))
                elif self.shape == "short" and scored:
                    holder[name] = items(value)[: len(items(value)) // 2]
                else:
                    holder[name] = None
        return data


@dataclass(frozen=True)
class OffByOne(Action):
    """Each token carries the numbers of the position after it (llama-cpp-python's echo, 0.3.36)."""

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        for holder in _holders(data):
            positions = [mapping(position) for position in items(holder.get("prompt_logprobs"))]
            values = [mapping(next(iter(position.values()), None)) for position in positions]
            for position, following in zip(positions, values[1:], strict=False):
                for key, entry in list(position.items())[:1]:
                    position[key] = {**following, "decoded_token": entry["decoded_token"]}
        return data


@dataclass(frozen=True)
class NoUsage(Action):
    """No usage anywhere, asked for or not."""

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        data.pop("usage", None)
        return data

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        async for frame in frames:
            if not (isinstance(frame, dict) and frame.pop("usage", None) and not frame.get("choices")):
                yield frame


@dataclass(frozen=True)
class Gzip(Action):
    """The reply is compressed, a streamed one chunk by chunk."""

    gzip: bool = True


# --- inside ----------------------------------------------------------------------------------------


def _holders(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Where a reply may keep log-probabilities: itself, and its choices."""
    return [data, *items(data.get("choices"))]


def _flat(entry: Any, value: float) -> Any:
    return {key: value for key in mapping(entry)} if isinstance(entry, dict) else value
