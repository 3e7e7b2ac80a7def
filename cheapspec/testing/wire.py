"""One request at a stand-in server: what came in, what went out, and what may go wrong on the way.

Rules
-----
* An :class:`Exchange` is the record of a request: what came in, what went out, and whether and when the
  client hung up before its reply was whole.
* A hang-up is noticed at once, also before the first byte of the reply: whatever the handler waits for,
  it waits for through :meth:`Connection.wait`, which a hang-up ends.
* A reply is made in three steps, and a fault (:class:`Action`) may take part in each: before anything is
  done, on the reply's JSON, on the frames of a streamed reply.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from cheapspec.testing.server import ABORT

__all__ = [
    "Action",
    "ClientGone",
    "Connection",
    "Exchange",
    "Frame",
    "Match",
    "Replied",
    "Rule",
    "items",
    "mapping",
]

Frame = dict[str, Any] | str | bytes
"""One piece of a streamed reply: JSON to be framed, ``"[DONE]"`` or other text to be framed, or raw bytes."""


class ClientGone(Exception):
    """The client hung up; ends the handler."""


class Replied(Exception):
    """A fault has answered the request itself; ends the handler."""


@dataclass(slots=True)
class Exchange:
    """One request as the server saw it. Times are :func:`time.monotonic` seconds.

    ``body``: the JSON body, ``{}`` when there is none. ``tokens``: tokens generated for it so far
    (what a provider would charge for, whether or not the client was still there). ``hung_up_at``: when
    the client closed the connection before its reply was whole. ``ended_at``: when the reply was whole.
    ``usage``: what the server counted, whether or not it told the client.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    content: bytes
    body: dict[str, Any]
    at: float
    purpose: str = ""
    status: int | None = None
    reply: Any = None
    tokens: int = 0
    usage: dict[str, Any] | None = None
    hung_up_at: float | None = None
    ended_at: float | None = None

    @property
    def hung_up(self) -> bool:
        """The client left before its reply was whole."""
        return self.hung_up_at is not None


class Action:
    """A fault. Each method does nothing unless a subclass says otherwise."""

    gzip: bool = False

    async def before(self, connection: Connection) -> None:
        """Before any work. Answer through ``connection`` and raise :class:`Replied` to leave it at that."""

    def text(self, body: Mapping[str, Any]) -> str | None:
        """A text to reply with instead of the model's own."""
        return None

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of an unstreamed reply, changed."""
        return data

    def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        """The frames of a streamed reply, changed."""
        return frames


Match = str | Callable[[Exchange], bool]


@dataclass(slots=True)
class Rule:
    """A planned fault. ``after``: leave that many matching requests alone first; ``times``: then apply to
    that many (``None``: to all). ``hits``: how often it has applied.
    """

    match: Match
    actions: Sequence[Action]
    times: int | None = None
    after: int = 0
    seen: int = 0
    hits: int = 0

    def applies(self, exchange: Exchange) -> bool:
        """Whether this rule takes the request; counts it if so."""
        if callable(self.match):
            matching = self.match(exchange)
        else:
            matching = self.match in ("any", exchange.purpose) or exchange.path.endswith("/" + self.match.lstrip("/"))
        if not matching or (self.times is not None and self.hits >= self.times):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        return True


class Connection:
    """The server's end of one request."""

    def __init__(self, exchange: Exchange, scope: Any, receive: Any, send: Any) -> None:
        self.exchange = exchange
        self.actions: Sequence[Action] = ()
        self._abort: Callable[[], None] = scope["extensions"][ABORT]
        self._receive, self._send = receive, send
        self._gone = asyncio.Event()
        self._gzip: Any = None

    async def watch(self) -> None:
        """Runs beside the handler and notices when the client leaves."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.exchange.ended_at is None:
            self.exchange.hung_up_at = time.monotonic()
            self._gone.set()

    async def wait(self, seconds: float = 0.0, until: asyncio.Event | None = None) -> None:
        """Wait, but not for a client that has left (:class:`ClientGone`)."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._gone.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(until.wait()))
        else:
            waits.append(asyncio.ensure_future(asyncio.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        if self._gone.is_set():
            raise ClientGone

    def abort(self) -> None:
        """Cut the TCP connection without another byte and end the handler."""
        self.exchange.ended_at = time.monotonic()
        self._abort()
        raise Replied

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.exchange.status = status
        sent = dict(headers)
        if any(action.gzip for action in self.actions):
            sent["content-encoding"] = "gzip"
            self._gzip = zlib.compressobj(wbits=31)
        pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send part of the body; the whole of it is out when ``last`` is sent."""
        if self._gone.is_set():
            raise ClientGone
        if self._gzip is not None:
            data = self._gzip.compress(data) + self._gzip.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        if last:
            self.exchange.ended_at = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def answer(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        """A whole reply: JSON, or bytes with a ``content-type`` among ``headers``."""
        self.exchange.reply = data
        body = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
        await self.start(status, {"content-type": "application/json", **(headers or {})})
        await self.write(body, last=True)

    async def answer_json(self, data: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """A whole JSON reply under status 200, after the planned faults have changed it."""
        for action in self.actions:
            data = action.reply(data, self.exchange.body)
        await self.answer(200, data, headers)

    async def stream(self, frames: AsyncIterator[Frame], *, ndjson: bool, headers: Mapping[str, str]) -> None:
        """A streamed reply, after the planned faults have changed its frames."""
        for action in self.actions:
            frames = action.frames(frames, self)
        await self.start(200, headers)
        async for frame in frames:
            if isinstance(frame, bytes):
                await self.write(frame)
                continue
            text = frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
            await self.write(f"{text}\n".encode() if ndjson else f"data: {text}\n\n".encode())
        await self.write(b"", last=True)


def items(value: Any) -> list[Any]:
    """A JSON list, or an empty one for anything else."""
    return value if _is_list(value) else []


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return value if _is_mapping(value) else {}


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_mapping(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
