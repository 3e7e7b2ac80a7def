"""The options of openai's constructors and ``copy`` methods, for type checkers (a test holds them to the real
signatures), and for whoever asks a method at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict, TypeVar, get_type_hints

import httpx2
import openai

__all__ = [
    "AsyncAzureCopyOptions",
    "AsyncAzureOptions",
    "AsyncCopyOptions",
    "AsyncOptions",
    "AzureCopyOptions",
    "AzureOptions",
    "CopyOptions",
    "Options",
    "with_options_of",
]

F = TypeVar("F", bound=Callable[..., Any])


class _Common(TypedDict, total=False):
    admin_api_key: str | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    websocket_base_url: str | httpx2.URL | None
    workload_identity: Any
    timeout: float | openai.Timeout | openai.NotGiven | None
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None


class _Made(_Common, total=False):
    max_retries: int
    _strict_response_validation: bool
    _enforce_credentials: bool


class _Plain(_Made, total=False):
    base_url: str | httpx2.URL | openai.NotGiven | None
    data_residency: openai.DataResidency | None
    provider: Any


class Options(_Plain, total=False):
    """Of ``openai.OpenAI``."""

    api_key: str | Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncOptions(_Plain, total=False):
    """Of ``openai.AsyncOpenAI``."""

    api_key: str | Callable[[], Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class _Azure(_Made, total=False):
    azure_endpoint: str | None
    azure_deployment: str | None
    api_version: str | None
    azure_ad_token: str | None
    base_url: str | None


class AzureOptions(_Azure, total=False):
    """Of ``openai.AzureOpenAI``."""

    api_key: str | Callable[[], str] | None
    azure_ad_token_provider: Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncAzureOptions(_Azure, total=False):
    """Of ``openai.AsyncAzureOpenAI``."""

    api_key: str | Callable[[], Awaitable[str]] | None
    azure_ad_token_provider: Callable[[], Awaitable[str] | str] | None
    http_client: httpx2.AsyncClient | None


class _Copy(_Common, total=False):
    base_url: str | httpx2.URL | openai.NotGiven | None
    data_residency: openai.DataResidency | None
    max_retries: int | openai.NotGiven
    provider: Any
    set_default_headers: Mapping[str, str] | None
    set_default_query: Mapping[str, object] | None
    _enforce_credentials: bool | None
    _extra_kwargs: Mapping[str, Any]


class CopyOptions(_Copy, total=False):
    """Of ``openai.OpenAI.copy``."""

    api_key: str | Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncCopyOptions(_Copy, total=False):
    """Of ``openai.AsyncOpenAI.copy``."""

    api_key: str | Callable[[], Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class AzureCopyOptions(CopyOptions, total=False):
    """Of ``openai.AzureOpenAI.copy``."""

    api_version: str | None
    azure_ad_token: str | None
    azure_ad_token_provider: Callable[[], str] | None


class AsyncAzureCopyOptions(AsyncCopyOptions, total=False):
    """Of ``openai.AsyncAzureOpenAI.copy``."""

    api_version: str | None
    azure_ad_token: str | None
    azure_ad_token_provider: Callable[[], Awaitable[str] | str] | None


def with_options_of(theirs: Callable[..., Any]) -> Callable[[F], F]:
    """A decorator: ``inspect.signature`` and ``typing.get_type_hints`` of a method that takes ``**kwargs`` name each
    option of openai's method, so that ``help`` and frameworks see what they see of openai's client.
    """

    def told(ours: F) -> F:
        mine = inspect.signature(ours)
        own = [one for one in mine.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = [one for one in inspect.signature(theirs).parameters.values() if one.name not in mine.parameters]
        vars(ours)["__signature__"] = mine.replace(parameters=[*own, *more])
        hints = {
            name: hint for name, hint in ours.__annotations__.items() if name in {"return", *(p.name for p in own)}
        }
        ours.__annotations__ = {**get_type_hints(theirs), **hints}
        return ours

    return told
