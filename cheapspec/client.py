"""The drop-in clients: openai's own, with one method overridden.

``_send_request`` is where every request of the openai client passes on its way out and every response on
its way back, after auth and before retries. Overriding it (and nothing else) keeps resources, parsing,
streaming helpers, raw responses, Azure and retries the SDK's own. The name is private to openai: a test
guards its signature, and where it is missing the clients put :class:`cheapspec.Transport`, the door that
does without it, under themselves.

A client may be used in a forked child and in several event loops: connections belong to the process and the
loop that opened them (:mod:`cheapspec.connections`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Mapping
from typing import Any, Self, Unpack, cast

import httpx2
import openai

from cheapspec.connections import Connections
from cheapspec.core.alternatives import Plan
from cheapspec.core.rules import Lenient
from cheapspec.doors import Session, Shared
from cheapspec.drive import aio, sync
from cheapspec.drive.explaining import explain
from cheapspec.drive.outcome import TargetFailed
from cheapspec.drive.verdicts import refuse_scoring
from cheapspec.ledger.budgets import Budget
from cheapspec.options import (
    AsyncAzureCopyOptions,
    AsyncAzureOptions,
    AsyncCopyOptions,
    AsyncOptions,
    AzureCopyOptions,
    AzureOptions,
    CopyOptions,
    Options,
    with_options_of,
)
from cheapspec.report import Report
from cheapspec.settings import Speculation, disabled
from cheapspec.settings.accepts import scoring_rule, verdict_rules
from cheapspec.transport import AsyncTransport, Transport
from cheapspec.unsent import Unsent, hold, unsent

__all__ = ["AsyncAzureOpenAI", "AsyncOpenAI", "AzureOpenAI", "OpenAI", "OpenAIError"]

OpenAIError = openai.OpenAIError
"""What a request may raise, for the other doors (only this one knows openai)."""


def _hooked() -> bool:
    """Whether this openai has the method, with the parameters that are passed to it."""
    for kind in (openai.OpenAI, openai.AsyncOpenAI):
        method = getattr(kind, "_send_request", None)
        if method is None:
            return False
        parameters = inspect.signature(method).parameters
        if list(parameters)[:3] != ["self", "request", "stream"]:
            return False
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return False
    return True


HOOKED = _hooked()


def _ours(request: object) -> bool:
    """Not if the transport does the work, nor from an ``http_client`` of httpx's older generation."""
    return HOOKED and isinstance(request, httpx2.Request)


def _as_openai(failed: TargetFailed, request: httpx2.Request) -> openai.APIConnectionError:
    """The SDK lets its own errors through and repeats any other, which would be paid twice."""
    if failed.kind == "timeout":
        return openai.APITimeoutError(request=request)
    return openai.APIConnectionError(message=f"Connection error: {failed}", request=request)


def _refuse_unservable(client: openai.OpenAI | openai.AsyncOpenAI, shared: Shared) -> None:
    """A rule that was asked for in so many words, at a host that is known not to serve it.

    :raises CapabilityError: naming what the host lacks, and what it does serve.
    """
    given = shared.speculation
    scoring = scoring_rule(given.accept)
    asked = given.enabled and "accept" in given.model_fields_set and not verdict_rules(given.accept)
    if asked and not disabled() and (scoring == "exact" or isinstance(scoring, Lenient)):
        refuse_scoring(str(client.base_url), "exact" if scoring == "exact" else "lenient")


def _copied(shared: Shared, speculation: Speculation | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """What openai's ``copy`` is given: its options, and what it hands on to the new client's constructor."""
    ours = shared if speculation is None else Shared(speculation)
    more: Mapping[str, Any] = options.get("_extra_kwargs") or {}
    return {**options, "_extra_kwargs": {**more, "_cheapspec": ours}}


class OpenAI(openai.OpenAI):
    """``openai.OpenAI`` that drafts locally and lets the target verify.

    Takes what ``openai.OpenAI`` takes, and ``speculation``.

    :raises SettingsError: a setting is unusable (keyword, environment or ``cheapspec.toml``).
    :raises CapabilityError: ``accept`` names a rule that the host of ``base_url`` is known not to serve.
    """

    _cheapspec: Shared
    _connections: Connections

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[Options]) -> None:
        told = cast(dict[str, Any], kwargs)
        self._cheapspec = told.pop("_cheapspec", None) or Shared(speculation)
        if not HOOKED:
            transport = Transport.under(told.get("http_client"), self._cheapspec, kwargs.get("max_retries", 2))
            told["http_client"] = openai.DefaultHttpxClient(transport=transport)
        super().__init__(**kwargs)
        _refuse_unservable(self, self._cheapspec)
        self._connections = Connections.of(self._client)

    def _send_request(self, request: httpx2.Request, *, stream: bool, **kwargs: Any) -> httpx2.Response:
        hold(request)
        here = self._connections.here(self, self._client)
        send = functools.partial(cast(Any, super(OpenAI, cast(OpenAI, here)))._send_request, **kwargs)
        if not _ours(request):
            return cast(httpx2.Response, send(request, stream=stream))
        shared = self._cheapspec
        try:
            return sync.handle(shared.runtime, request, send, stream=stream, max_retries=self.max_retries)
        except TargetFailed as failed:
            raise _as_openai(failed, request) from failed.__cause__

    @with_options_of(openai.OpenAI.copy)
    def copy(self, *, speculation: Speculation | None = None, **kwargs: Unpack[CopyOptions]) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        return super().copy(**_copied(self._cheapspec, speculation, kwargs))

    with_options = copy

    def session(self, name: str, budget: Budget | None = None) -> Session:
        """``with client.session("nightly", budget=Budget(usd=5)):`` – what is asked inside belongs together
        (:mod:`cheapspec.ledger.sessions`).

        :raises SettingsError: the name is unusable, or the ledger keeps no budgets.
        """
        return self._cheapspec.session(name, budget)

    def report(self) -> Report:
        """What all requests in this client's ledger add up to (:mod:`cheapspec.report`).

        :raises LedgerError: the ledger is off, or cannot be read.
        """
        return self._cheapspec.report()

    def explain(self, *, draft: bool = False, reply_tokens: int | None = None, **create: Any) -> Plan:
        """What would become of ``chat.completions.create(**create)`` (with ``prompt``: of ``completions.create``), with
        every alternative's expected and worst cost. Nothing is sent to the target and nothing is spent.

        ``draft``: ask the draft hosts for a draft each (locally, on your own machine); without it drafts are assumed to
        be as such drafts have been. ``reply_tokens``: how long the reply will be, as far as you know; else as long as
        the longest draft, or 200 tokens.

        :raises SettingsError: ``extra_body`` or headers ask for something unusable.
        :raises TypeError: ``create`` would raise it too.
        """
        resource: Any = self.completions if "prompt" in create else self.chat.completions
        try:
            with unsent():
                resource.create(**create)
        except Unsent as held:
            return explain(self._cheapspec.runtime, held.request, draft=draft, reply_tokens=reply_tokens)
        raise AssertionError("a request was sent that should have been held back")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Locks and connections cannot be copied: a deep copy is a :meth:`copy`."""
        return self.copy()


class AsyncOpenAI(openai.AsyncOpenAI):
    """``openai.AsyncOpenAI`` that drafts locally and lets the target verify; see :class:`OpenAI`."""

    _cheapspec: Shared
    _connections: Connections

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncOptions]) -> None:
        told = cast(dict[str, Any], kwargs)
        self._cheapspec = told.pop("_cheapspec", None) or Shared(speculation)
        if not HOOKED:
            transport = AsyncTransport.under(told.get("http_client"), self._cheapspec, kwargs.get("max_retries", 2))
            told["http_client"] = openai.DefaultAsyncHttpxClient(transport=transport)
        super().__init__(**kwargs)
        _refuse_unservable(self, self._cheapspec)
        self._connections = Connections.of(self._client)

    async def _send_request(self, request: httpx2.Request, *, stream: bool, **kwargs: Any) -> httpx2.Response:
        hold(request)
        here = await self._connections.here_async(self, self._client)
        send = functools.partial(cast(Any, super(AsyncOpenAI, cast(AsyncOpenAI, here)))._send_request, **kwargs)
        if not _ours(request):
            return cast(httpx2.Response, await send(request, stream=stream))
        shared = self._cheapspec
        try:
            return await aio.handle(shared.runtime, request, send, stream=stream, max_retries=self.max_retries)
        except TargetFailed as failed:
            raise _as_openai(failed, request) from failed.__cause__

    @with_options_of(openai.AsyncOpenAI.copy)
    def copy(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncCopyOptions]) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        return super().copy(**_copied(self._cheapspec, speculation, kwargs))

    with_options = copy

    def session(self, name: str, budget: Budget | None = None) -> Session:
        """``with client.session("nightly", budget=Budget(usd=5)):`` – what is asked inside belongs together
        (:mod:`cheapspec.ledger.sessions`).

        :raises SettingsError: the name is unusable, or the ledger keeps no budgets.
        """
        return self._cheapspec.session(name, budget)

    def report(self) -> Report:
        """What all requests in this client's ledger add up to (:mod:`cheapspec.report`).

        :raises LedgerError: the ledger is off, or cannot be read.
        """
        return self._cheapspec.report()

    async def explain(self, *, draft: bool = False, reply_tokens: int | None = None, **create: Any) -> Plan:
        """What would become of ``chat.completions.create(**create)`` (with ``prompt``: of ``completions.create``), with
        every alternative's expected and worst cost. Nothing is sent to the target and nothing is spent.

        ``draft``: ask the draft hosts for a draft each (locally, on your own machine); without it drafts are assumed to
        be as such drafts have been. ``reply_tokens``: how long the reply will be, as far as you know; else as long as
        the longest draft, or 200 tokens.

        :raises SettingsError: ``extra_body`` or headers ask for something unusable.
        :raises TypeError: ``create`` would raise it too.
        """
        resource: Any = self.completions if "prompt" in create else self.chat.completions
        try:
            with unsent():
                await resource.create(**create)
        except Unsent as held:
            made = functools.partial(explain, draft=draft, reply_tokens=reply_tokens)
            return await asyncio.to_thread(made, self._cheapspec.runtime, held.request)
        raise AssertionError("a request was sent that should have been held back")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Locks and connections cannot be copied: a deep copy is a :meth:`copy`."""
        return self.copy()


class AzureOpenAI(OpenAI, openai.AzureOpenAI):
    """``openai.AzureOpenAI`` with speculation; see :class:`OpenAI`."""

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AzureOptions]) -> None:
        super().__init__(speculation=speculation, **cast(Options, kwargs))  # on to openai.AzureOpenAI

    # pyright compares unpacked options key by key with those of the parent, as if more keys were fewer
    @with_options_of(openai.AzureOpenAI.copy)
    def copy(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, speculation: Speculation | None = None, **kwargs: Unpack[AzureCopyOptions]
    ) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        return super().copy(speculation=speculation, **cast(CopyOptions, kwargs))

    with_options = copy


class AsyncAzureOpenAI(AsyncOpenAI, openai.AsyncAzureOpenAI):
    """``openai.AsyncAzureOpenAI`` with speculation; see :class:`OpenAI`."""

    def __init__(self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncAzureOptions]) -> None:
        super().__init__(speculation=speculation, **cast(AsyncOptions, kwargs))  # on to openai.AsyncAzureOpenAI

    # pyright compares unpacked options key by key with those of the parent, as if more keys were fewer
    @with_options_of(openai.AsyncAzureOpenAI.copy)
    def copy(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, speculation: Speculation | None = None, **kwargs: Unpack[AsyncAzureCopyOptions]
    ) -> Self:
        """A client with some options replaced, ``speculation`` among them; the rest is shared."""
        return super().copy(speculation=speculation, **cast(AsyncCopyOptions, kwargs))

    with_options = copy
