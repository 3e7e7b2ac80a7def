"""Calls to draft hosts: one background thread with an event loop, for the whole process.

Why a thread of its own: a draft has a deadline and may be given up at any moment, which a blocking read
cannot be; and an ``AsyncOpenAI`` that is used from two event loops must not share connections between
them. So all drafting, for sync and async callers alike, runs on this loop, and events go back through
an inbox. A forked child starts a loop of its own.

The limit of streams per host is kept here (default 2): a call begins only while its host writes fewer than
the call's own limit, whoever asked for those; one that has to wait longer than 100 ms is answered
``Broke("busy")``. Draft hosts get no header of the caller's; a loopback host is never reached
through a proxy. A call that is given up while the host has said nothing yet may *linger*: a host that is
loading its model would start from zero if we hung up. Until it ends the host is :meth:`~LocalHosts.loading`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import httpx2

from cheapspec.core.effects import Answered, Broke, Closed, Event, HttpReply, HttpRequest, Opened, Received
from cheapspec.drive.urls import draft_url, shown_url

__all__ = ["DraftCall", "LocalHosts", "hosts"]

Inbox = Callable[[Event], None]
BUSY_SECONDS = 0.1
CONNECT_SECONDS = 2.0
LINGER_SECONDS = 300.0
_LOOPBACK = ("127.", "localhost", "::1")


class DraftCall:
    """A call under way. ``cancel`` closes its connection; ``linger`` lets it end unheard."""

    def __init__(self, host: str, lingering: dict[DraftCall, str]) -> None:
        self.future: Future[None] | None = None
        self.muted = False
        self._host = host
        self._lingering = lingering

    def cancel(self, *, linger: bool = False) -> None:
        """Give it up. Safe from any thread, and when it has ended."""
        self.muted = True
        if self.future is None:
            return
        if not linger:
            self.future.cancel()
        elif not self.future.done():
            self._lingering[self] = self._host
            self.future.add_done_callback(lambda ended: self._lingering.pop(self, None))


class LocalHosts:
    """Runs draft calls. ``submit`` may be called from any thread."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._writing: dict[str, int] = {}
        self._freed: dict[str, asyncio.Event] = {}
        self._lingering: dict[DraftCall, str] = {}

    def submit(
        self, call_id: int, host: str, request: HttpRequest, inbox: Inbox, limit: int, key: str = ""
    ) -> DraftCall:
        """Start a call; its events arrive at ``inbox``, stamped with ``time.monotonic``. ``key``: that of this host."""
        call = DraftCall(host, self._lingering)

        def deliver(event: Event) -> None:
            if not call.muted:
                inbox(event)

        job = self._run(call_id, host, request, deliver, limit, key)
        call.future = asyncio.run_coroutine_threadsafe(job, self._running_loop())
        return call

    def loading(self, host: str) -> bool:
        """Whether a call that was given up still waits for this host's first word."""
        return host in list(self._lingering.values())

    def soon(self, action: Callable[[], None]) -> None:
        """Run something short on this thread (now, when there is none): what a finalizer must not do itself."""
        loop = self._loop
        if loop is None:
            action()
            return
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:  # closed
            action()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="cheapspec-drafts", daemon=True
                )
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _client(self, host: str) -> httpx2.AsyncClient:
        client = self._clients.get(host)
        if client is None:
            url = httpx2.URL(host)
            timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
            encrypted = url.scheme == "https"  # reading the certificates takes longer than a call without them
            client = httpx2.AsyncClient(timeout=timeout, trust_env=not url.host.startswith(_LOOPBACK), verify=encrypted)
            self._clients[host] = client
        return client

    async def _run(self, call_id: int, host: str, request: HttpRequest, deliver: Inbox, limit: int, key: str) -> None:
        if request.stream:
            try:
                async with asyncio.timeout(BUSY_SECONDS):
                    await self._enter(host, limit)
            except TimeoutError:
                message = f"{shown_url(host)} is already writing {limit} drafts"
                deliver(Broke(call_id, "busy", message, time.monotonic()))
                return
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                await self._exchange(call_id, host, request, deliver, key)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, RuntimeError, ValueError) as error:
            kind = "connect" if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)) else "cut"
            message = f"{shown_url(host)}: {type(error).__name__}: {error}"
            deliver(Broke(call_id, kind, message, time.monotonic()))
        finally:
            if request.stream:
                self._leave(host)

    async def _enter(self, host: str, limit: int) -> None:
        """Wait until the host writes fewer than ``limit`` drafts, and count this one. Clients with different
        limits share one count, so a semaphore, which has one size, would not do.
        """
        while self._writing.get(host, 0) >= limit:
            await self._freed.setdefault(host, asyncio.Event()).wait()
        self._writing[host] = self._writing.get(host, 0) + 1

    def _leave(self, host: str) -> None:
        self._writing[host] -= 1
        freed = self._freed.pop(host, None)
        if freed is not None:
            freed.set()

    async def _exchange(self, call_id: int, host: str, request: HttpRequest, deliver: Inbox, key: str) -> None:
        content = None if request.body is None else json.dumps(request.body).encode()
        headers = {"content-type": "application/json"} if content is not None else {}
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        url = draft_url(host, request.path)
        async with self._client(host).stream(request.method, url, content=content, headers=headers) as response:
            names = {name.lower(): value for name, value in response.headers.items()}
            if not request.stream or response.status_code >= 300:
                body = await response.aread()
                deliver(Answered(call_id, HttpReply(response.status_code, body, names), time.monotonic()))
                return
            deliver(Opened(call_id, response.status_code, names, time.monotonic()))
            async for chunk in response.aiter_bytes():
                deliver(Received(call_id, chunk, time.monotonic()))
            deliver(Closed(call_id, time.monotonic()))

    def forked(self) -> None:
        """In the child: there is no such thread here, and the parent's connections are the parent's. They are
        kept, since collecting them would close them.
        """
        _inherited.append((self._loop, self._thread, self._clients))
        self._renew()

    def close(self) -> None:
        """End the loop and its connections. A later ``submit`` starts a new one."""
        with self._lock:
            loop, thread, clients = self._loop, self._thread, list(self._clients.values())
            self._renew()
        if loop is None or thread is None:
            return

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in clients:
                with contextlib.suppress(Exception):
                    await client.aclose()
            loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(timeout=2.0)


_inherited: list[object] = []
hosts = LocalHosts()
atexit.register(hosts.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=hosts.forked)
