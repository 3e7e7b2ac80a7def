"""Names of Ollama hosts and models, in the many forms in which people write them.

Rules
-----
* A host is whatever ``OLLAMA_HOST`` may hold: with or without scheme, port, quotes and spaces. The
  meaning is Ollama's own (``envconfig.Host``, 0.33): no scheme → ``http`` and port 11434; a scheme
  without a port → that scheme's port.
* A listen address is not an address that clients can use everywhere: ``0.0.0.0`` and ``[::]`` become
  loopback.
* A model name is compared without case and with its implied ``:latest``, and never taken apart
  otherwise: ``hf.co/org/m:Q4_K_M`` is one name, ``qwen3.5`` is not ``qwen3.5:1b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from cheapspec.errors import SettingsError

__all__ = ["DEFAULT_HOST", "find_model", "model_key", "normalise_host"]

DEFAULT_HOST = "http://127.0.0.1:11434"
"""Where Ollama listens when nobody says otherwise."""

_SCHEME_PORTS = {"http": 80, "https": 443}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_REGISTRY_PREFIXES = ("registry.ollama.ai/library/", "registry.ollama.ai/", "library/")


def normalise_host(value: str | None, env: Mapping[str, str]) -> str:
    """The root URL of the Ollama host, without a trailing slash and always with its port.

    ``value``: an explicit setting, which beats ``env["OLLAMA_HOST"]``; blank counts as not given. A
    trailing ``/v1`` or ``/api`` (people paste the base URL of either API) is dropped, any other path
    is kept.

    :raises SettingsError: not a host (unknown scheme, a port that is not a number up to 65535).
    """
    text, key = _clean(value), "draft_url"
    if not text:
        text, key = _clean(env.get("OLLAMA_HOST")), "OLLAMA_HOST"
    if not text:
        return DEFAULT_HOST
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest, port = "http", text, 11434
    else:
        scheme = scheme.lower()
        if scheme not in _SCHEME_PORTS:
            raise SettingsError(f"{key}: {text!r} is not an Ollama host: the scheme must be http or https.")
        port = _SCHEME_PORTS[scheme]
    authority, slash, path = rest.partition("/")
    if authority.count(":") > 1 and "[" not in authority:
        authority = f"[{authority}]"  # a bare IPv6 address, which can have no port
    try:
        parts = urlsplit(f"{scheme}://{authority}{slash}{path}")
        host, port = parts.hostname or "", parts.port or port
    except ValueError as wrong:
        raise SettingsError(f"{key}: {text!r} is not an Ollama host ({wrong}).") from wrong
    host = _ANY_ADDRESS.get(host, host)
    if ":" in host:
        host = f"[{host}]"
    userinfo, at, _ = parts.netloc.rpartition("@")
    return f"{scheme}://{userinfo}{at}{host}:{port}{_api_root(parts.path)}"


def _clean(value: str | None) -> str:
    return (value or "").strip().strip("\"'").strip()


def _api_root(path: str) -> str:
    path = path.rstrip("/")
    for api in ("/v1", "/api"):
        path = path.removesuffix(api)
    return path.rstrip("/")


def model_key(name: str) -> str:
    """The form in which two names of one model are equal."""
    key = name.strip().casefold()
    for prefix in _REGISTRY_PREFIXES:
        key = key.removeprefix(prefix)
    return key if ":" in key.rpartition("/")[2] else f"{key}:latest"


def find_model(name: str, installed: Iterable[str]) -> str | None:
    """The installed name that ``name`` means, or ``None``."""
    key = model_key(name)
    return next((candidate for candidate in installed if model_key(candidate) == key), None)
