"""Reads what a target says: whole replies, usage, identity, errors.

Rules
-----
* Status 200 proves nothing. An error object, ``choices`` that are null or empty, an HTML page and an
  empty body are all a :class:`Problem`, with the status that fits what is inside.
* What is read may be anything. A count that makes no sense is brought into its bounds, never trusted
  and never a crash; nothing here raises. Of a call with more tokens than any has (:data:`MOST_TOKENS`) nothing is
  known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from cheapspec.core.effects import HttpReply, Usage
from cheapspec.core.money import MOST_USD, money_context
from cheapspec.core.ports import Identity
from cheapspec.core.untyped import as_list, as_mapping, is_mapping, is_number

__all__ = [
    "MOST_TOKENS",
    "Completion",
    "Problem",
    "as_error",
    "content_text",
    "error_of",
    "first_choice",
    "read_completion",
    "read_identity",
    "read_usage",
    "token_ids",
]

MOST_TOKENS = 10**12
"""A count above this is no count: sums of a million such calls still fit 64 bits."""

_LONGEST_NAME = 64
_MEDIA = ("audio_tokens", "image_tokens", "video_tokens")
_PLACES = 18
_STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole unstreamed reply. ``ids``: the generated token ids where the server sends them."""

    text: str
    finish_reason: str | None
    usage: Usage | None
    identity: Identity = field(default_factory=Identity)
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A reply without an answer. ``status``: the one that fits, never 2xx; ``error``: an OpenAI error object."""

    status: int
    error: Mapping[str, Any]

    @property
    def retryable(self) -> bool:
        """As openai-python decides it (3.57): 408, 409, 429 and 5xx."""
        return self.status in (408, 409, 429) or self.status >= 500


def read_completion(reply: HttpReply, kind: str) -> Completion | Problem:
    """A whole reply to a ``"chat"`` or ``"completion"`` request. Never raises."""
    body = reply.json()
    if not is_mapping(body):
        page = reply.body[:200].decode("utf-8", "replace")
        return _problem(reply.status, as_error(f"the reply is not a JSON object: {page!r}"))
    error = error_of(body)
    if error is not None or reply.status >= 300:
        return _problem(reply.status, error or as_error("the server gave no reason"))
    choice = first_choice(body)
    message = as_mapping(choice.get("message"))
    if not (message if kind == "chat" else isinstance(choice.get("text"), str)):
        return _problem(reply.status, as_error("the reply holds no choice"))
    reason = choice.get("finish_reason")
    return Completion(
        text=content_text(message.get("content") if kind == "chat" else choice.get("text")),
        finish_reason=reason if isinstance(reason, str) else None,
        usage=read_usage(body.get("usage"), body.get("service_tier")),
        identity=read_identity(body),
        ids=token_ids(choice),
    )


def _problem(status: int, error: Mapping[str, Any]) -> Problem:
    if status >= 400:
        return Problem(status, error)
    for key in ("code", "status", "type"):
        inner = error.get(key)
        if isinstance(inner, str):
            inner = int(inner) if inner.isdecimal() else _STATUS_OF_CODE.get(inner)
        if isinstance(inner, int) and 400 <= inner <= 599:
            return Problem(inner, error)
    return Problem(502, error)


def read_usage(told: Any, service_tier: Any = None) -> Usage | None:
    """A ``usage`` object as OpenAI, OpenRouter, DeepSeek or Moonshot write it; ``None`` if it has no counts.

    Cached and cache-write tokens are inside the input, reasoning tokens inside the output; counts that
    say otherwise are clamped.
    """
    usage = as_mapping(told)
    given = _count(usage, "prompt_tokens", "input_tokens")
    output = _count(usage, "completion_tokens", "output_tokens")
    total = _count(usage, "total_tokens")
    if given is None and output is None:
        return None
    if output is None:
        output = max((total or 0) - (given or 0), 0)
    given = given or 0
    if max(given, output) > MOST_TOKENS:
        return None
    details = as_mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    outputs = as_mapping(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    cached = _count(details, "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens", "cached_tokens")
    cached = None if cached is None else min(cached, given)
    written = _count(details, "cache_write_tokens") or _count(usage, "cache_write_tokens") or 0
    return Usage(
        input_tokens=given,
        output_tokens=output,
        cached_tokens=cached,
        cache_write_tokens=min(written, given - (cached or 0)),
        reasoning_tokens=min(_count(outputs, "reasoning_tokens") or 0, output),
        cost_usd=_cost(usage),
        service_tier=_name(service_tier),
        media_tokens=sum(_count(told, name) or 0 for told in (details, outputs) if told for name in _MEDIA),
    )


def _name(value: Any) -> str | None:
    """A name that every database takes: printable and short."""
    if not isinstance(value, str):
        return None
    return "".join(letter if letter.isprintable() else "?" for letter in value[:_LONGEST_NAME])


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a number, at least 0 and at most one more than :data:`MOST_TOKENS`."""
    for name in names:
        value = usage.get(name)
        if value is None:
            continue
        if type(value) is int or is_number(value):  # an integer may be longer than a float can hold
            return int(min(max(value, 0), MOST_TOKENS + 1))
    return None


def _cost(usage: Mapping[str, Any]) -> str | None:
    """The provider's own figure. OpenRouter's is its fee alone where the caller brought a key of the model's maker
    (``is_byok``; API reference, usage accounting, of 2026-11): the maker's share is added, and without it there is no
    figure.
    """
    told = _dollars(usage.get("cost"))
    if told is None or usage.get("is_byok") is not True:
        return told
    upstream = _dollars(as_mapping(usage.get("cost_details")).get("upstream_inference_cost"))
    if upstream is None:
        return None
    with money_context():
        return _dollars(str(Decimal(told) + Decimal(upstream)))


def _dollars(cost: Any) -> str | None:
    if type(cost) is not int and not is_number(cost) and not isinstance(cost, str):
        return None
    try:
        amount = Decimal(cost if type(cost) is int else str(cost))
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount < 0:
        return None
    if amount > MOST_USD:
        return str(amount)  # no amount that counts, but not to be priced by a table either
    with money_context():
        return format(amount if amount == round(amount, _PLACES) else round(amount, _PLACES), "f")


def read_identity(told: Mapping[str, Any]) -> Identity:
    """How a reply or chunk names itself."""
    created = told.get("created")
    return Identity(
        id=_string(told.get("id")),
        model=_string(told.get("model")),
        system_fingerprint=_string(told.get("system_fingerprint")),
        created=int(created) if is_number(created) and math.isfinite(created) else None,
        service_tier=_string(told.get("service_tier")),
    )


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def first_choice(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choice with index 0 of a reply or chunk, an empty mapping when there is none."""
    for choice in map(as_mapping, as_list(told.get("choices"))):
        if choice and choice.get("index") in (0, None):
            return choice
    return {}


def as_error(message: str) -> dict[str, Any]:
    """An OpenAI error object with this message."""
    return {"message": message, "type": "api_error", "param": None, "code": None}


def error_of(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error inside a reply: an object, a plain string, or vLLM's older flat form."""
    error = told.get("error")
    if as_mapping(error):
        return as_mapping(error)
    if error:
        return as_error(str(error))
    return told if told.get("object") == "error" else None


def content_text(content: Any) -> str:
    """Text of a ``content``: a string, or the text parts of a list (Mistral sends thoughts as other parts)."""
    if isinstance(content, str):
        return content
    parts = [as_mapping(part) for part in as_list(content)]
    return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")


def token_ids(choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The generated token ids of a choice (vLLM's ``return_token_ids``), ``None`` if it has none."""
    ids = as_list(choice.get("token_ids"))
    return tuple(ids) if ids and all(type(token) is int for token in ids) else None
