"""Where calls go, and what must not travel with them.

Rules
-----
* Calls of ours go beside the caller's own route: same scheme, host, query (``extra_query``), headers,
  time-outs. A path with a leading slash hangs on the server's root, which is the API base without its ``/v1``.
* What names an endpoint has no secret in it: no query, no user name, no password.
* Keys of ours (``x-cheapspec-*`` headers, the body's ``cheapspec``) reach no upstream. A request that carries
  none goes out as the very object it came in.
* Some hosts are known not to score text that they are sent; they are not asked (and paid) to find out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import httpx2

from cheapspec.core.effects import HttpRequest

__all__ = [
    "api_base",
    "cannot_score",
    "credentials",
    "draft_url",
    "masked",
    "model_name",
    "our_headers",
    "paid_route",
    "retried",
    "shown_url",
    "streams",
    "target_request",
    "tier_name",
    "unmarked",
    "with_max_tokens",
    "without_our_keys",
    "written",
]

_SHORTEST_SECRET = 6  # a shorter one is no secret, and would mask half a sentence

_SECRET_NAME = re.compile(r"key|token|secret|signature|^sig$|password", re.IGNORECASE)

_PREFIX = b"x-cheapspec-"
_RETRIES = b"x-stainless-retry-count"
_MODEL = re.compile(rb'"model"\s*:\s*"((?:[^"\\]|\\.)*)"')
_TIER = re.compile(rb'"service_tier"\s*:\s*"([A-Za-z0-9_-]+)"')
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_CANNOT_SCORE = frozenset(
    {
        "api.openai.com",
        "openai.azure.com",
        "services.ai.azure.com",
        "cognitiveservices.azure.com",
        "openrouter.ai",
        "api.groq.com",
        "api.anthropic.com",
        "api.x.ai",
        "api.perplexity.ai",
        "api.cerebras.ai",
        "generativelanguage.googleapis.com",
    }
)
"""Hosts (and everything below them) without log-probabilities of given text: providers' references, 2026-11.
OpenAI switched its last such models off on 2026-09-28; OpenRouter drops the parameters silently."""


def cannot_score(host: str) -> bool:
    """Whether this host is known to return no log-probabilities of text that it is sent."""
    parts = host.lower().rstrip(".").split(".")
    return any(".".join(parts[start:]) in _CANNOT_SCORE for start in range(len(parts) - 1))


def api_base(url: httpx2.URL) -> str:
    """The URL of the folder in which ``chat/completions`` (or ``completions``) lives, without query, user name and
    password: it names the endpoint in logs, reports and the ledger.
    """
    plain = url.copy_with(userinfo=b"") if url.userinfo else url
    return _folder(str(plain).partition("?")[0])


def _folder(path: str) -> str:
    return path.rstrip("/").removesuffix("/completions").removesuffix("/chat")


def shown_url(url: str) -> str:
    """A URL without the user name and password that may stand in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def draft_url(host: str, path: str) -> httpx2.URL:
    """A call's URL on a draft host; a host without a folder has its OpenAI API under ``/v1``."""
    base = httpx2.URL(host)
    return base.copy_with(path=_join(base.path.rstrip("/") or "/v1", path))


def _join(folder: str, path: str) -> str:
    folder = folder.rstrip("/")
    return folder.removesuffix("/v1") + path if path.startswith("/") else f"{folder}/{path}"


def target_request(template: httpx2.Request, request: HttpRequest, idempotency_key: str) -> httpx2.Request:
    """The caller's own request with another path and body: same headers, query, time-outs, auth."""
    headers = template.headers.copy()
    for name in ("content-length", "content-type", "transfer-encoding"):
        headers.pop(name, None)
    headers["idempotency-key"] = idempotency_key
    content = None
    if request.body is not None:
        content = json.dumps(request.body, separators=(",", ":")).encode()
        headers["content-type"] = "application/json"
    url = template.url.copy_with(path=_join(_folder(template.url.path), request.path))
    return httpx2.Request(request.method, url, headers=headers, content=content, extensions=dict(template.extensions))


def credentials(request: httpx2.Request) -> str:
    """Whose prompt cache a request meets, as a digest: its key and project, never kept themselves."""
    headed = [request.headers.get(name, "") for name in ("authorization", "api-key", "openai-project")]
    told = "|".join([*headed, request.url.userinfo.decode()])
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


def masked(text: str, request: httpx2.Request) -> str:
    """What a server or a library said, without the request's own secrets: some repeat the key that they refuse, or the
    URL with all that it carries.
    """
    found = _url_secrets(request.url)
    for name in ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"):
        told = request.headers.get(name, "")
        found += [told, told.partition(" ")[2]]
    for secret in sorted(found, key=len, reverse=True):  # the whole before its part
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def _url_secrets(url: httpx2.URL) -> list[str]:
    """User name and password as a URL writes them, as they are, and as the header that httpx2 makes of them; values of
    a query that are named like a key.
    """
    found = [value for name, value in url.params.multi_items() if _SECRET_NAME.search(name)] if url.query else []
    if url.userinfo:
        basic = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
        found += [url.userinfo.decode(), url.userinfo.decode().partition(":")[2], url.password, basic]
    return found


def our_headers(request: httpx2.Request) -> dict[str, str]:
    """The request's ``x-cheapspec-*`` headers, names in lower case without that prefix."""
    found: dict[str, str] = {}
    for name, value in request.headers.raw:
        if name[: len(_PREFIX)].lower() == _PREFIX:
            found[name[len(_PREFIX) :].decode("ascii", "replace").lower()] = value.decode("latin-1")
    return found


def retried(request: httpx2.Request) -> bool:
    """Whether the sender has sent this before (openai's clients count, from 0)."""
    for name, value in request.headers.raw:  # looked up by name, a header takes ten times as long
        if name.lower() == _RETRIES:
            return value != b"0"
    return False


def unmarked(request: httpx2.Request) -> httpx2.Request:
    """The request without anything of ours in it."""
    try:
        body: bytes | None = request.content
    except httpx2.RequestNotRead:
        body = None
    return without_our_keys(request, headed=bool(our_headers(request)), body=body)


def without_our_keys(request: httpx2.Request, *, headed: bool, body: bytes | None) -> httpx2.Request:
    """The request as an upstream may see it. ``headed``: it has headers of ours; ``body``: ``None`` when it is
    streamed and cannot be looked into.
    """
    content = None if body is None else _without_our_key(body)
    if not headed and content is None:
        return request
    kept = [(name, value) for name, value in request.headers.raw if name[: len(_PREFIX)].lower() != _PREFIX]
    extensions = dict(request.extensions)
    if content is None:
        return httpx2.Request(request.method, request.url, headers=kept, stream=request.stream, extensions=extensions)
    headers = httpx2.Headers([pair for pair in kept if pair[0].lower() != b"content-length"])
    return httpx2.Request(request.method, request.url, headers=headers, content=content, extensions=extensions)


def _without_our_key(body: bytes) -> bytes | None:
    """The body without its key ``cheapspec``, written as the openai client writes it; ``None``: it has none."""
    if b'"cheapspec"' not in body:
        return None
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict) or "cheapspec" not in parsed:
        return None
    told = cast(dict[str, Any], parsed)
    del told["cheapspec"]
    return written(told)


def with_max_tokens(request: httpx2.Request, limit: int) -> httpx2.Request:
    """The request, whose body is a JSON object, with ``max_tokens`` in it as well."""
    kept = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    content = written({**json.loads(request.content), "max_tokens": limit})
    return httpx2.Request(
        request.method, request.url, headers=kept, content=content, extensions=dict(request.extensions)
    )


def written(parsed: dict[str, Any]) -> bytes:
    """JSON as the openai client writes it."""
    try:
        return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(parsed, separators=(",", ":")).encode()


def streams(request: httpx2.Request) -> bool:
    """Whether a completion's body asks for a stream, read without parsing it all; yes when it cannot be read."""
    try:
        return _STREAM.search(request.content) is not None
    except httpx2.RequestNotRead:
        return True


_PAID_ROUTES = {
    "/responses": "responses",
    "/embeddings": "embeddings",
    "/images/generations": "images",
    "/images/edits": "images",
    "/images/variations": "images",
    "/audio/speech": "audio",
    "/audio/transcriptions": "audio",
    "/audio/translations": "audio",
}
"""What OpenAI bills a call besides chat and text completions (its API reference, of 2026-11)."""


def paid_route(request: httpx2.Request, kind: str) -> str:
    """``kind`` (``chat``, ``completion``), or of another route that a provider charges for what it is; empty for
    every other.
    """
    if kind or request.method != "POST":
        return kind
    path = request.url.path.rstrip("/")
    return next((name for tail, name in _PAID_ROUTES.items() if path.endswith(tail)), "")


def tier_name(body: bytes) -> str | None:
    """The service tier that a body asks for, read without parsing it all."""
    found = _TIER.search(body)
    return found[1].decode() if found else None


def model_name(body: bytes) -> str:
    """The model that a body names, read without parsing it all (an image may be megabytes); for labels only."""
    found = _MODEL.search(body)
    return found[1].decode("utf-8", "replace") if found else ""
