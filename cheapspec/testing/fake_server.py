"""A stand-in HTTP server that writes down every request and can be told to misbehave.

Rules
-----
* Every request becomes an :class:`~cheapspec.testing.wire.Exchange` in ``server.requests``, in order of
  arrival.
* Faults (:mod:`cheapspec.testing.faults`) are planned by purpose (``"score"``, ``"continue"``,
  ``"direct"``, …), path or function; the first rule that matches and is not used up applies.
* An error of the stand-in itself is raised when its block ends: it must not pass for a planned one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from cheapspec.testing.server import Server, serve
from cheapspec.testing.wire import Action, ClientGone, Connection, Exchange, Match, Replied, Rule, mapping

__all__ = ["FakeServer"]


@dataclass
class FakeServer:
    """A stand-in server on a free port of the loopback interface; a context manager.

    ``latency``: seconds before the first byte of a reply that costs model work. ``token_seconds``:
    seconds a generated token takes.
    """

    latency: float = 0.0
    token_seconds: float = 0.0
    requests: list[Exchange] = field(default_factory=list[Exchange], init=False)
    _rules: list[Rule] = field(default_factory=list[Rule], init=False, repr=False)
    _server: Server | None = field(default=None, init=False, repr=False)
    _serving: AbstractContextManager[Server] | None = field(default=None, init=False, repr=False)
    _errors: list[Exception] = field(default_factory=list[Exception], init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __enter__(self) -> Self:
        self._serving = serve(self._app)
        self._server = self._serving.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._serving is not None:
            self._serving.__exit__(kind, value, trace)
        for error in self._errors:  # a fault of the stand-in itself must not pass for one of the server it plays
            if value is None:
                raise error
            value.add_note("the stand-in server failed:\n" + "".join(traceback.format_exception(error)))

    @property
    def url(self) -> str:
        """The server's root, without a trailing slash. Raises :class:`RuntimeError` outside its block."""
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} serves inside its with block only")
        return self._server.url

    @property
    def connections_opened(self) -> int:
        """How many TCP connections clients have opened so far."""
        return self._server.connections_opened if self._server else 0

    def plan(self, match: Match, *actions: Action, times: int | None = None, after: int = 0) -> Rule:
        """Misbehave on matching requests: ``"any"``, a purpose, the end of a path, or a function."""
        rule = Rule(match, actions, times, after)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget planned faults and recorded requests."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def of(self, *purposes: str) -> list[Exchange]:
        """The recorded requests of these purposes."""
        return [exchange for exchange in list(self.requests) if exchange.purpose in purposes]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 2.0) -> bool:
        """Poll until ``condition`` holds, at most ``seconds``; what it said last."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return condition()
            time.sleep(0.01)
        return True

    # --- for subclasses ----------------------------------------------------------------------

    def purpose(self, exchange: Exchange) -> str:
        """What a request is for."""
        raise NotImplementedError

    async def handle(self, connection: Connection) -> None:
        """Answer a request."""
        raise NotImplementedError

    # --- ASGI --------------------------------------------------------------------------------

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await _lifespan(receive, send)
            return
        content = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            content += message.get("body", b"")
            more = message.get("more_body", False)
        exchange = _read(scope, content)
        exchange.purpose = self.purpose(exchange)
        connection = Connection(exchange, scope, receive, send)
        with self._lock:
            self.requests.append(exchange)
            rule = next((rule for rule in self._rules if rule.applies(exchange)), None)
        connection.actions = rule.actions if rule else ()
        watching = asyncio.ensure_future(connection.watch())
        try:
            for action in connection.actions:
                await action.before(connection)
            await self.handle(connection)
        except (ClientGone, Replied):
            pass
        except Exception as error:
            self._errors.append(error)
            raise
        finally:
            watching.cancel()


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _read(scope: Any, content: bytes) -> Exchange:
    try:
        body: Any = json.loads(content) if content else {}
    except ValueError:
        body = {}
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return Exchange(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        content=content,
        body=mapping(body),
        at=time.monotonic(),
    )
