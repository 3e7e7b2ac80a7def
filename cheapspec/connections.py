"""Whose connections a client uses: those of this process and of this event loop, never another's.

A pool that is inherited over ``fork`` would mix two processes' bytes on one socket, and a connection that was
opened in one event loop cannot be used in another. openai's clients notice neither. So:

* When an event loop ends in order (``asyncio.run`` does), the connections that were opened in it are closed with
  it, and the client is free for the next loop.
* While one loop lives, another one's requests (another thread's) go out through an HTTP client of its own with
  the same settings; so do those of a forked child.
* A caller's own ``http_client`` is always used as it is. It is tidied up after a loop, too, if it has httpx2's
  own transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import os
import threading
import weakref
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import httpx2
import openai

__all__ = ["Connections"]

T = TypeVar("T", openai.OpenAI, openai.AsyncOpenAI)

_OPENAIS_OWN = ("SyncHttpxClientWrapper", "AsyncHttpxClientWrapper")
_inherited: list[object] = []  # the parent's pools: collecting them would close what the parent uses


class Connections:
    """Of one HTTP client, shared by all copies of an openai client that use it (:meth:`of`)."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._home: asyncio.AbstractEventLoop | None = None
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._forked: httpx2.Client | None = None

    @classmethod
    def of(cls, http: httpx2.Client | httpx2.AsyncClient) -> Connections:
        """The one of this HTTP client."""
        number = id(http)  # a caller's client need not be hashable
        with _knowing:
            reference, found = _known.get(number, (None, None))
            if reference is None or found is None or reference() is not http:
                found = cls(own=type(http).__name__ not in _OPENAIS_OWN)
                _known[number] = weakref.ref(http, functools.partial(_forget, number)), found
        return found

    def here(self, client: openai.OpenAI, http: httpx2.Client) -> openai.OpenAI:
        """The openai client itself, or a twin that sends where we are now; ``http`` is its HTTP client."""
        if self._own or self._process == os.getpid():
            return client
        with self._lock:
            if self._forked is None:
                self._forked = openai.DefaultHttpxClient(**_settings(http))
        return _twin(client, self._forked)

    async def here_async(self, client: openai.AsyncOpenAI, http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
        """The openai client itself, or a twin that sends where we are now; ``http`` is its HTTP client."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another library's loop
            return client
        if self._home is loop and self._process == os.getpid():
            return client
        with self._lock:
            if self._home is None and self._process == os.getpid():
                self._home = loop
                ours = None
            elif self._own or loop in self._loops:
                return client if self._own else _twin(client, self._loops[loop])
            else:
                ours = http = self._loops[loop] = openai.DefaultAsyncHttpxClient(**_settings(http))
            keeper = self._keepers[loop] = _keep(weakref.ref(http), weakref.ref(self), loop)
        await anext(keeper)
        return client if ours is None else _twin(client, ours)

    def left(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop has ended."""
        with self._lock:
            self._keepers.pop(loop, None)
            self._loops.pop(loop, None)
            if self._home is loop:
                self._home = None

    def forked(self) -> None:
        """In the child: what was opened is the parent's."""
        self._lock = threading.RLock()
        _inherited.append((self._loops, self._forked, self._keepers))
        self._loops = weakref.WeakKeyDictionary()
        self._forked, self._keepers = None, {}


async def _keep(
    http: weakref.ref[httpx2.AsyncClient], connections: weakref.ref[Connections], loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[None]:
    """Ends when the loop shuts its asynchronous generators down, the last moment to close connections."""
    try:
        yield
    finally:
        client, ours = http(), connections()
        if client is not None:
            inside: Any = client
            for transport in (inside._transport, *inside._mounts.values()):
                if isinstance(transport, httpx2.AsyncHTTPTransport):
                    with contextlib.suppress(Exception):
                        await transport.aclose()
        if ours is not None:
            ours.left(loop)


def _twin(client: T, http: httpx2.Client | httpx2.AsyncClient) -> T:
    twin = copy.copy(client)
    setattr(twin, "_client", http)  # noqa: B010 - declared with one of the two types in each class
    return twin


def _settings(http: httpx2.Client | httpx2.AsyncClient) -> dict[str, Any]:
    return {"base_url": http.base_url, "timeout": http.timeout, "event_hooks": http.event_hooks}


_known: dict[int, tuple[weakref.ref[httpx2.Client | httpx2.AsyncClient], Connections]] = {}
_knowing = threading.RLock()  # the collector may call _forget wherever this thread is


def _forget(number: int, reference: weakref.ref[httpx2.Client | httpx2.AsyncClient]) -> None:
    with _knowing:
        if number in _known and _known[number][0] is reference:
            del _known[number]


def _forked() -> None:
    global _knowing
    _knowing = threading.RLock()  # another thread of the parent may have held it
    for _, connections in list(_known.values()):
        connections.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
