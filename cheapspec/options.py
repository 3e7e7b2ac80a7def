"""The constructor options of openai's clients, for type checkers (a test holds them to the real signatures)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

import httpx2
import openai

__all__ = ["AsyncAzureOptions", "AsyncOptions", "AzureOptions", "Options"]


class _Common(TypedDict, total=False):
    organization: str | None
    project: str | None
    webhook_secret: str | None
    websocket_base_url: str | httpx2.URL | None
    timeout: float | openai.Timeout | openai.NotGiven | None
    max_retries: int
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    _strict_response_validation: bool


class _Plain(_Common, total=False):
    admin_api_key: str | None
    workload_identity: Any
    provider: Any
    base_url: str | httpx2.URL | openai.NotGiven | None
    data_residency: Any
    _enforce_credentials: bool


class Options(_Plain, total=False):
    """Of ``openai.OpenAI``."""

    api_key: str | Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncOptions(_Plain, total=False):
    """Of ``openai.AsyncOpenAI``."""

    api_key: str | Callable[[], Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class _Azure(_Common, total=False):
    azure_endpoint: str | None
    azure_deployment: str | None
    api_version: str | None
    azure_ad_token: str | None
    base_url: str | None
    _enforce_credentials: bool


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
