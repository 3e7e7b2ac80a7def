"""Runs an ASGI app on a real socket, in a thread of this process, for as long as a ``with`` block lasts.

Rules
-----
* Port 0: the system picks a free port, so any number of servers run side by side.
* Leaving the block cuts every open connection and joins the thread: a test that left a reply hanging
  ends as fast as any other.
* An app may cut its own connection without a word: ``scope["extensions"]["cheapspec.abort"]`` is a
  function that does it. HTTP has no message for "the server died", so ASGI has none either.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Server", "refusing_url", "serve"]

ABORT = "cheapspec.abort"


class _Connections:
    """Every connection that one server has seen. Touched by the server's own thread only, but for the count."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: set[asyncio.Transport] = set()


def _protocol(connections: _Connections) -> type[asyncio.Protocol]:
    """An h11 protocol class that counts its connections and lets the app cut them."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections.opened += 1
            connections.open.add(transport)
            inner: Any = self.app

            async def app(scope: Any, receive: Any, send: Any) -> None:
                scope["extensions"] = {**(scope.get("extensions") or {}), ABORT: transport.abort}
                await inner(scope, receive, send)

            self.app = app

        def connection_lost(self, exc: Exception | None) -> None:
            connections.open.discard(self.transport)
            super().connection_lost(exc)

    return Protocol


@dataclass(slots=True)
class Server:
    """A running server. ``url``: its root without a trailing slash."""

    url: str
    port: int
    _connections: _Connections = field(repr=False)

    @property
    def connections_opened(self) -> int:
        """How many TCP connections clients have opened so far."""
        return self._connections.opened


@contextmanager
def serve(app: Callable[..., Any], *, host: str = "127.0.0.1") -> Generator[Server]:
    """Serve an ASGI ``app`` until the block ends.

    Raises :class:`RuntimeError` when the server does not come up within 10 s.
    """
    # asyncio switches Nagle's algorithm off only where the protocol is named: without, a reply waits 40 ms for an ACK.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, 0))
    port: int = sock.getsockname()[1]
    connections = _Connections()
    config = uvicorn.Config(
        app,
        http=_protocol(connections),
        ws="none",
        loop="asyncio",
        interface="asgi3",
        proxy_headers=False,
        lifespan="auto",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    loop: list[asyncio.AbstractEventLoop] = []
    up = threading.Event()

    async def main() -> None:
        loop.append(asyncio.get_running_loop())
        running = asyncio.ensure_future(server.serve(sockets=[sock]))
        while not server.started and not running.done():
            await asyncio.sleep(0.005)
        up.set()
        await running

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            up.set()

    def cut() -> None:
        server.should_exit = True
        for transport in list(connections.open):
            transport.abort()

    thread = threading.Thread(target=run, name=f"serve-{port}", daemon=True)
    thread.start()
    try:
        if not up.wait(10) or not server.started:
            raise RuntimeError(f"the server on {host}:{port} did not come up")
        yield Server(f"http://{host}:{port}", port, connections)
    finally:
        if loop and not loop[0].is_closed():
            loop[0].call_soon_threadsafe(cut)
        thread.join(10)
        sock.close()


@contextmanager
def refusing_url(host: str = "127.0.0.1") -> Generator[str]:
    """A URL whose port refuses connections: bound, so that nobody else gets it, but not listening."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind((host, 0))
        yield f"http://{host}:{sock.getsockname()[1]}"
