"""``import cheapspec as openai``: the module itself answers for openai's.

Names that are not ours are openai's. openai's module-level settings (``api_key``, ``base_url``, …) are
read from and written to the openai module. Resources (``cheapspec.chat``) are those of a module-level
client of ours, made at first use from openai's own, with the same settings, as openai makes it.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any, cast

import openai

from cheapspec import pickles
from cheapspec.client import AzureOpenAI, OpenAI
from cheapspec.connections import Connections
from cheapspec.doors import Shared

__all__ = ["install"]

SETTINGS = frozenset(
    {
        "admin_api_key",
        "api_key",
        "api_type",
        "api_version",
        "azure_ad_token",
        "azure_ad_token_provider",
        "azure_endpoint",
        "base_url",
        "default_headers",
        "default_query",
        "http_client",
        "max_retries",
        "organization",
        "project",
        "timeout",
        "webhook_secret",
    }
)

_lock = threading.Lock()
_made: list[tuple[openai.OpenAI, openai.OpenAI]] = []


def _module_client() -> openai.OpenAI:
    """Ours over openai's module-level client; made again when openai's was reset."""
    with _lock:
        theirs: openai.OpenAI = cast(Any, openai)._load_client()
        if _made and _made[0][0] is theirs:
            return _made[0][1]
        twin = AzureOpenAI if isinstance(theirs, openai.AzureOpenAI) else OpenAI
        kind = type("ModuleClient", (twin, type(theirs)), {})
        ours = cast(openai.OpenAI, object.__new__(kind))
        resources = {name for name in vars(theirs) if _is_proxy(getattr(openai, name, None))}
        vars(ours).update({name: value for name, value in vars(theirs).items() if name not in resources})
        cast(Any, ours)._cheapspec = Shared(None)
        cast(Any, ours)._connections = Connections.of(cast(Any, theirs)._client)
        _made[:] = [(theirs, ours)]
        return ours


class _Module(ModuleType):
    """The module's class, so that settings can be assigned and names forwarded."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = getattr(openai, name)
        except AttributeError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
        if _is_proxy(value):
            return getattr(_module_client(), name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SETTINGS:
            setattr(openai, name, value)
        else:
            super().__setattr__(name, value)


def _is_proxy(value: object) -> bool:
    return any(base.__name__ == "LazyProxy" for base in type(value).__mro__)


def install(name: str) -> None:
    """Give the module its class, and openai's errors their way through pickle."""
    pickles.install()
    sys.modules[name].__class__ = _Module
