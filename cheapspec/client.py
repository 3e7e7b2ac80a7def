"""The drop-in clients: openai's own, with one method overridden.

``_send_request`` is where every request of the openai client passes on its way out and every response on
its way back, after auth and before retries. Overriding it (and nothing else) keeps resources, parsing,
streaming helpers, raw responses, Azure and retries the SDK's own. The name is private to openai: a test
guards its signature, and :class:`cheapspec.Transport` is the door that does without it.
"""

from __future__ import annotations

import functools
from typing import Any, Self, Unpack

import httpx2
import openai

from cheapspec.doors import Shared
from cheapspec.drive import aio, sync
from cheapspec.drive.outcome import TargetFailed
from cheapspec.options import AsyncAzureOptions, AsyncOptions, AzureOptions, Options
from cheapspec.settings import Speculation

__all__ = ["AsyncAzureOpenAI", "AsyncOpenAI", "AzureOpenAI", "OpenAI"]


def _as_openai(failed: TargetFailed, request: httpx2.Request) -> openai.APIConnectionError:
    """The SDK lets its own errors through and repeats any other, which would be paid twice."""
    if failed.kind == "timeout":
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(message=f"Connection error: {failed}", request=request)


class OpenAI(openai.OpenAI):
    """``openai.OpenAI`` that drafts locally and lets the target verify.

    Takes what ``openai.OpenAI`` takes, and ``speculation``.

    :raises SettingsError: a setting is unusable (keyword, environment or ``cheapspec.toml``).
    """

    _cheapspec: Shared

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[Options]) -> None:
        self._cheapspec = Shared(speculation)
        super().__init__(**kwargs)

    def _send_request(self, request: httpx2.Request, *, stream: bool, **kwargs: Any) -> httpx2.Response:
        shared = self._cheapspec
        send = functools.partial(super()._send_request, **kwargs)
        settings = shared.for_request(request)
        try:
            return sync.handle(
                shared.runtime, request, send, stream=stream, max_retries=self.max_retries, settings=settings
            )
        except TargetFailed as failed:
            raise _as_openai(failed, request) from failed.__cause__

    def copy(self, *, speculation: Speculation | None = None, **kwargs: Any) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        made = super().copy(**kwargs)
        made._cheapspec = self._cheapspec if speculation is None else Shared(speculation)
        return made

    with_options = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Locks and connections cannot be copied: a deep copy is a :meth:`copy`."""
        return self.copy()


class AsyncOpenAI(openai.AsyncOpenAI):
    """``openai.AsyncOpenAI`` that drafts locally and lets the target verify; see :class:`OpenAI`."""

    _cheapspec: Shared

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncOptions]) -> None:
        self._cheapspec = Shared(speculation)
        super().__init__(**kwargs)

    async def _send_request(self, request: httpx2.Request, *, stream: bool, **kwargs: Any) -> httpx2.Response:
        shared = self._cheapspec
        send = functools.partial(super()._send_request, **kwargs)
        settings = shared.for_request(request)
        try:
            return await aio.handle(
                shared.runtime, request, send, stream=stream, max_retries=self.max_retries, settings=settings
            )
        except TargetFailed as failed:
            raise _as_openai(failed, request) from failed.__cause__

    def copy(self, *, speculation: Speculation | None = None, **kwargs: Any) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        made = super().copy(**kwargs)
        made._cheapspec = self._cheapspec if speculation is None else Shared(speculation)
        return made

    with_options = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Locks and connections cannot be copied: a deep copy is a :meth:`copy`."""
        return self.copy()


class AzureOpenAI(OpenAI, openai.AzureOpenAI):
    """``openai.AzureOpenAI`` with speculation; see :class:`OpenAI`."""

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AzureOptions]) -> None:
        super().__init__(speculation=speculation, **kwargs)  # type: ignore[misc]  # on to openai.AzureOpenAI


class AsyncAzureOpenAI(AsyncOpenAI, openai.AsyncAzureOpenAI):
    """``openai.AsyncAzureOpenAI`` with speculation; see :class:`OpenAI`."""

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncAzureOptions]) -> None:
        super().__init__(speculation=speculation, **kwargs)  # type: ignore[misc]  # on to openai.AsyncAzureOpenAI
