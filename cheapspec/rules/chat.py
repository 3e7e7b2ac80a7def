"""The layout of a verdict's call on a chat endpoint, and what its reply says.

Rules
-----
* The target judges its own conversation: the caller's messages byte for byte, with the question appended to the last
  message if that is the user's (to its last text, or as one more content part), else as a user message at the end
  (system-only conversations, prefilled replies). So the host's cached prefix serves this call and the direct one.
* Of the body only fields stay that decide who answers and what the prompt is; no ``response_format`` (a grammar would
  forbid the verdict), no sampling, stop strings, streaming or penalties. Tools stay, since they are part of the
  prompt, and may not be called.
* Temperature 0, thinking off where it can be, an output limit as small as the endpoint takes.
* A reply is evidence only if it is a whole, visible text: a refusal, a tool call, an error, thinking without text
  are no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping, is_list, is_mapping, is_number
from cheapspec.rules.verdict import Endpoint

__all__ = ["Listed", "Said", "Token", "ask", "body", "conversation", "read"]

# What a host may hash into its cache key or route by: documentation of OpenAI, OpenRouter, vLLM and LiteLLM, 2026-11.
# fmt: off
_KEPT: Final = frozenset([
    "chat_template", "chat_template_kwargs", "metadata", "model", "models", "plugins", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "provider", "route", "safety_identifier", "service_tier",
    "session_id", "store", "tools", "transforms", "user",
])
# fmt: on


@dataclass(frozen=True, slots=True)
class Listed:
    """One alternative of a token. ``text``: from its bytes where they are given (U+FFFD: part of a character)."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a reply: the one that was generated, and what could have been."""

    text: str
    logprob: float
    top: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A reply read. ``problem``: why it is no evidence, ``None``: it is. ``cut``: its output limit ended it.
    ``tokens``: empty where the endpoint gave no log-probabilities of just this text.
    """

    text: str
    cut: bool = False
    problem: str | None = None
    tokens: tuple[Token, ...] = ()


def conversation(request: Request) -> list[dict[str, Any]]:
    """The caller's messages as they came.

    :raises ValueError: the request is no chat (text completions have nobody to ask).
    """
    messages = [dict(as_mapping(one)) for one in as_list(request.body.get("messages"))]
    if request.kind != "chat" or not messages:
        raise ValueError("only a chat can be asked about a draft")
    return messages


def ask(request: Request, question: str) -> list[dict[str, Any]]:
    """The caller's messages with the question.

    :raises ValueError: the request is no chat.
    """
    messages = conversation(request)
    last = messages[-1]
    content: object = last.get("content")
    if last.get("role") == "user" and isinstance(content, str):
        messages[-1] = {**last, "content": content + question}
    elif last.get("role") == "user" and is_list(content):
        messages[-1] = {**last, "content": [*content, {"type": "text", "text": question}]}
    else:
        messages.append({"role": "user", "content": question.lstrip()})
    return messages


def body(
    request: Request,
    messages: list[dict[str, Any]],
    endpoint: Endpoint,
    tokens: int | None,
    *,
    logprobs: bool = False,
    model: str | None = None,
) -> dict[str, Any]:
    """The whole body of a verdict's call. ``tokens``: the output that it needs, ``None``: as many as the caller
    allows. ``logprobs``: ask for as many alternatives as the endpoint lists. ``model``: one that is not the target;
    nothing of what the caller sends to the target for its own host is meant for it.
    """
    told: dict[str, Any] = {"model": model}
    if model is None:
        told = {name: value for name, value in request.body.items() if name in _KEPT}
    told["messages"] = messages
    if told.get("tools"):
        told["tool_choice"] = "none"
    told |= endpoint.fields
    if endpoint.temperature:
        told["temperature"] = 0
    if endpoint.effort is not None:
        told["reasoning_effort"] = endpoint.effort
    limit = request.max_tokens if tokens is None else max(tokens, endpoint.least_output) + endpoint.thinking
    if limit is not None:
        told[endpoint.limit_field] = limit
    if logprobs and endpoint.alternatives:
        told |= {"logprobs": True, "top_logprobs": endpoint.alternatives}
        if endpoint.require_parameters:
            told |= _required(told.get("provider"))
    return told


def _required(provider: object) -> dict[str, Any]:
    """OpenRouter drops ``logprobs`` silently where the host that it chose has none, unless it is told not to choose
    such a host. A caller who has settled that, or the host, is not overruled.
    """
    own = as_mapping(provider)
    if "require_parameters" in own or own.get("allow_fallbacks") is False or own.get("only"):
        return {}
    return {"provider": {**own, "require_parameters": True}}


def read(reply: object) -> Said:
    """A chat completion (the JSON of HTTP 200), of whatever shape it came in. Never raises."""
    told = as_mapping(reply)
    choice = as_mapping(next(iter(as_list(told.get("choices"))), None))
    message = as_mapping(choice.get("message"))
    text, finish = _text(message.get("content")), choice.get("finish_reason")
    if told.get("error") or choice.get("error") or finish == "error":  # the last two: OpenRouter, once text was begun
        return Said("", problem="the endpoint answered with an error")
    if message.get("refusal") or finish == "content_filter":
        return Said(text, problem="the target refused")
    if message.get("tool_calls") or message.get("function_call"):
        return Said(text, problem="the target called a tool instead of answering")
    if not text.strip():
        thought = message.get("reasoning_content") or message.get("reasoning") or finish == "length"
        return Said("", finish == "length", "the output limit went into thinking" if thought else "the reply is empty")
    if finish not in ("stop", "length", "eos", "end_turn", None):
        return Said(text, problem=f"the reply ended with {finish!r}")
    return Said(text, finish == "length", None, _tokens(as_mapping(choice.get("logprobs")).get("content"), text))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in as_list(content) if is_mapping(part))


def _tokens(listed: object, text: str) -> tuple[Token, ...]:
    """The tokens that spell the text (an end mark after it is left out); none if they spell something else, as a list
    does that begins with hidden thinking.
    """
    wanted, raw = text.strip(), b""
    tokens: list[Token] = []
    for one in map(as_mapping, as_list(listed)):
        raw += _bytes(one)
        tokens.append(_token(one))
        spelled = raw.decode("utf-8", "replace").lstrip()
        if spelled.startswith(wanted):
            return tuple(tokens)
        if not wanted.startswith(spelled.rstrip("\ufffd")):
            break
    return ()


def _token(told: Mapping[str, Any]) -> Token:
    top = [as_mapping(one) for one in as_list(told.get("top_logprobs"))]
    return Token(_spelled(told), _logprob(told), tuple(Listed(_spelled(one), _logprob(one)) for one in top))


def _logprob(told: Mapping[str, Any]) -> float:
    logprob = told.get("logprob")
    return float(logprob) if is_number(logprob) else math.nan


def _bytes(told: Mapping[str, Any]) -> bytes:
    given = told.get("bytes")
    if is_list(given) and given and all(isinstance(one, int) and 0 <= one < 256 for one in given):
        return bytes(given)
    return str(told.get("token") or "").encode("utf-8", "replace")


def _spelled(told: Mapping[str, Any]) -> str:
    return _bytes(told).decode("utf-8", "replace")
