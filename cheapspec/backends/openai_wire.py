"""What the OpenAI-compatible dialects share: reading refusals, numbers and token listings, and the call of a hand-off.

Rules
-----
* Nothing here raises on what a server sent: an odd shape is read as "not said".
* A refusal is *lasting* only when the server's own words blame the parameter that we need. A full
  context, a busy server or a broken line say nothing about the next request.
* A number counts only if :func:`cheapspec.core.acceptance.usable` says so; the rest becomes ``None``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cheapspec.core.acceptance import Alternative, TargetLogprob, usable
from cheapspec.core.effects import HttpReply, HttpRequest
from cheapspec.core.ports import Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request
from cheapspec.core.sse import ChatStreamReader
from cheapspec.core.untyped import as_mapping, is_list, is_mapping, is_number

__all__ = [
    "NEUTRAL_SAMPLING",
    "Listed",
    "carry",
    "continuing",
    "error_message",
    "id_of",
    "ids_of",
    "listed",
    "names_missing_model",
    "refusal",
    "route_missing",
    "target_logprob",
]

NEUTRAL_SAMPLING: Mapping[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "n": 1,
}
"""Sampling fields of every scoring call. Sent although they look like defaults: vLLM takes a model's
``generation_config.json`` (a repetition penalty, a top_p) as default even at temperature 0."""

_LASTING = re.compile(
    r"logprobs|not supported|unsupported|unexpected keyword|unrecognized|unknown (field|parameter)"
    r"|extra (inputs|fields)"
    r"|unmapped prompt format|user message|continue_final_message|add_generation_prompt",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context length|maximum (model|context) len|max_model_len|exceed_context_size|too long", re.IGNORECASE
)
_NOT_JSON = re.compile(r"out of range float|not json compliant", re.IGNORECASE)


def error_message(body: object) -> str:
    """The human part of an error reply: OpenAI's ``{"error": {"message"}}``, older flat objects,
    FastAPI's ``{"detail"}``, plain strings; empty when there is none.
    """
    found: object = as_mapping(body).get("error", as_mapping(body).get("message", as_mapping(body).get("detail", "")))
    if is_mapping(found):
        found = as_mapping(found).get("message", "")
    return found if isinstance(found, str) else ""


def refusal(reply: HttpReply | None, what: str) -> Unusable | None:
    """Why a reply is no use, or ``None`` for one below status 300 that is JSON.

    ``what`` names the call for the detail. Status 429 and 5xx are ``retryable``, except vLLM's 500
    for numbers that JSON cannot carry: the same request would meet the same numbers.
    """
    if reply is None:
        return Unusable("cannot_score", f"{what}: no reply", retryable=True)
    body = reply.json()
    if reply.status < 300:
        return (
            None
            if isinstance(body, dict)
            else Unusable("cannot_score", f"{what}: the reply is not JSON", status=reply.status)
        )
    message = error_message(body)
    detail = f"{what}: HTTP {reply.status} {message[:200]}".rstrip()
    if reply.status == 429 or reply.status >= 500:
        lasting = bool(re.search("unmapped prompt format", message, re.IGNORECASE))
        retryable = not lasting and not _NOT_JSON.search(message)
        return Unusable("cannot_score", detail, lasting=lasting, status=reply.status, retryable=retryable)
    lasting = reply.status in (400, 422) and bool(_LASTING.search(message)) and not _CONTEXT.search(message)
    return Unusable("cannot_score", detail, lasting=lasting, status=reply.status)


def names_missing_model(reply: HttpReply) -> bool:
    """A 404 that speaks of the model, not of the route."""
    return reply.status == 404 and "model" in error_message(reply.json()).lower()


def route_missing(reply: HttpReply | None) -> bool:
    """The server (or a gateway before it) does not have, or does not open, this route."""
    return reply is not None and reply.status in (401, 403, 404, 405, 501) and not names_missing_model(reply)


def id_of(entry: Mapping[str, Any]) -> int | None:
    """The ``token_id`` of a listed token, if it has one."""
    told: object = entry.get("token_id")
    return told if type(told) is int else None


def ids_of(value: object) -> tuple[int, ...] | None:
    """A list of token ids, or ``None`` when it is anything else."""
    if not is_list(value):
        return None
    items: list[object] = value
    found = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return found if len(found) == len(items) else None


@dataclass(frozen=True, slots=True)
class Listed:
    """One token of a position of ``prompt_logprobs``."""

    token_id: int
    text: str
    logprob: float | None
    rank: int | None


def listed(entry: object) -> tuple[Listed, ...]:
    """The tokens of one position of vLLM's ``prompt_logprobs``: ``{"<id>": {"logprob", "rank",
    "decoded_token"}}``, in the order sent (the given token first). Empty for ``null``.
    """
    found: list[Listed] = []
    for key, value in as_mapping(entry).items():
        fields = as_mapping(value)
        number: object = fields.get("logprob")
        text: object = fields.get("decoded_token")
        rank: object = fields.get("rank")
        if key.lstrip("-").isdigit():
            found.append(
                Listed(
                    int(key),
                    text if isinstance(text, str) else "",
                    float(number) if is_number(number) and usable(number) else None,
                    rank if type(rank) is int and rank >= 1 else None,
                )
            )
    return tuple(found)


def target_logprob(entries: Sequence[Listed], token_id: int, text: str) -> TargetLogprob | None:
    """The judgement of the token ``token_id`` (which reads ``text``); ``None`` if it is not listed."""
    given = next((entry for entry in entries if entry.token_id == token_id), None)
    if given is None:
        return None
    top = tuple(Alternative(e.text, e.logprob, e.token_id) for e in entries if e.logprob is not None)
    return TargetLogprob(text, given.logprob, token_id, given.rank if given.logprob is not None else None, top)


def carry(request: Request, names: Iterable[str]) -> dict[str, Any]:
    """The caller's own fields of these names, as sent."""
    return {name: request.body[name] for name in names if request.body.get(name) is not None}


def continuing(path: str, body: Mapping[str, Any], kind: str) -> Streaming[TargetPiece]:
    """The streamed call of a hand-off. Some gateways refuse ``stream_options``: asked once more without, they
    tell no usage, and what the call costs is estimated.
    """

    def refused(reply: HttpReply) -> Streaming[TargetPiece] | Unusable:
        if reply.status != 400 or b"stream_options" not in reply.body:
            return _no_stream(reply)
        bare = {name: value for name, value in body.items() if name != "stream_options"}
        call = HttpRequest("continue", path, bare, stream=True, billed=True)
        return Streaming(call, ChatStreamReader(kind), _no_stream)

    call = HttpRequest("continue", path, body, stream=True, billed=True)
    return Streaming(call, ChatStreamReader(kind), refused)


def _no_stream(reply: HttpReply) -> Unusable:
    """A refused continuation."""
    return refusal(reply, "continue") or Unusable("cannot_score", "continue: no stream", status=reply.status)
