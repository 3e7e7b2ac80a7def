"""Whose connections a client uses: those of this process and of this event loop, never another's.

A pool that is inherited over ``fork`` would mix two processes' bytes on one socket, and a connection that was
opened in one event loop cannot be used in another. openai's clients do neither notice. So the HTTP client that
a client was born with serves the process and the loop of its first request; every other gets a client of its
own with the same settings, which goes when its loop goes.

A caller's own ``http_client`` is the caller's: it is always used as it is.
"""

from __future__ import annotations

import asyncio
import copy
import os
import threading
import weakref
from typing import Any, TypeVar

import httpx2
import openai

__all__ = ["Connections"]

T = TypeVar("T", openai.OpenAI, openai.AsyncOpenAI)

_OPENAIS_OWN = ("SyncHttpxClientWrapper", "AsyncHttpxClientWrapper")
_inherited: list[object] = []  # the parent's pools: collecting them would close what the parent uses


class Connections:
    """Of one HTTP client, shared by all copies of an openai client that use it (:meth:`of`)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._home: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._forked: httpx2.Client | None = None

    @classmethod
    def of(cls, client: openai.OpenAI | openai.AsyncOpenAI) -> Connections | None:
        """The one of this openai client; ``None``: it sends with the caller's own HTTP client."""
        http = client._client
        if type(http).__name__ not in _OPENAIS_OWN:
            return None
        return _known.setdefault(http, cls())

    def here(self, client: T) -> T:
        """The client itself, or a twin that sends where we are now."""
        if isinstance(client, openai.AsyncOpenAI):
            http: httpx2.Client | httpx2.AsyncClient | None = self._of_loop(client)
        else:
            http = None if self._process == os.getpid() else self._of_child(client)
        if http is None:
            return client
        twin = copy.copy(client)
        setattr(twin, "_client", http)  # noqa: B010 - declared with one of the two types in each class
        return twin

    def _of_child(self, client: openai.OpenAI) -> httpx2.Client:
        with self._lock:
            if self._forked is None:
                self._forked = openai.DefaultHttpxClient(**_settings(client._client))
            return self._forked

    def _of_loop(self, client: openai.AsyncOpenAI) -> httpx2.AsyncClient | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another library's loop
            return None
        if self._home is None:
            self._home = weakref.ref(loop)
        if self._home() is loop and self._process == os.getpid():
            return None
        with self._lock:
            found = self._loops.get(loop)
            if found is None:
                found = self._loops[loop] = openai.DefaultAsyncHttpxClient(**_settings(client._client))
            return found

    def forked(self) -> None:
        """In the child: what was opened is the parent's."""
        self._lock = threading.RLock()
        _inherited.append((self._loops, self._forked))
        self._loops = weakref.WeakKeyDictionary()
        self._forked = None


def _settings(http: httpx2.Client | httpx2.AsyncClient) -> dict[str, Any]:
    return {"base_url": http.base_url, "timeout": http.timeout, "event_hooks": http.event_hooks}


_known: weakref.WeakKeyDictionary[httpx2.Client | httpx2.AsyncClient, Connections] = weakref.WeakKeyDictionary()


def _forked() -> None:
    for connections in list(_known.values()):
        connections.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
