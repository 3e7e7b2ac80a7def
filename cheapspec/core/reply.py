"""Builds what the caller sees: OpenAI replies and chunks.

Rules
-----
* A speculated reply has what the target alone would have sent: one id, ``created``, model and
  fingerprint throughout, and usage as the target alone would report it. The extra key ``cheapspec``
  says the rest: on content chunks who wrote them, on the last chunk (or the whole reply) the facts.
* The usage chunk goes only to a caller who asked for it.
* What is written is strict JSON: NaN and infinities become ``null``.

Reading replies (:func:`read_completion`, :func:`read_usage`) lives in :mod:`cheapspec.core.received` and
is offered here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from cheapspec.core.effects import Source, Usage
from cheapspec.core.ports import Identity
from cheapspec.core.received import Completion, Problem, as_error, read_completion, read_identity, read_usage
from cheapspec.core.request import Request

__all__ = [
    "DONE",
    "Completion",
    "Problem",
    "ReplyBuilder",
    "encode_event",
    "error_frame",
    "read_completion",
    "read_identity",
    "read_usage",
    "strict_json",
    "usage_object",
]

DONE = b"data: [DONE]\n\n"


def strict_json(value: Any) -> bytes:
    """JSON that every parser takes: no NaN, no infinities, valid UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return strict_json(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast(Sequence[Any], value)]
    return value


def encode_event(value: Mapping[str, Any]) -> bytes:
    """A server-sent event with this JSON as its data."""
    return b"data: " + strict_json(value) + b"\n\n"


def error_frame(error: Mapping[str, Any] | str) -> dict[str, Any]:
    """What a stream that fails after text went out says last; no finish reason and no ``[DONE]`` follow it."""
    told = as_error(error) if isinstance(error, str) else error
    return {"error": {"message": "the reply failed", "type": "api_error", "param": None, "code": None, **told}}


def usage_object(usage: Usage) -> dict[str, Any]:
    """OpenAI's ``usage``. Details appear only where they are known."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens is not None:
        told["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens:
        told["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return told


class ReplyBuilder:
    """Builds one reply, streamed or whole. ``created``: seconds since the epoch; ``reply_id``: the reply's ``id``."""

    def __init__(self, request: Request, identity: Identity, created: int, reply_id: str) -> None:
        self._chat = request.kind == "chat"
        self._asked_usage = request.include_usage
        self._same: dict[str, Any] = {"created": created, "id": reply_id, "model": identity.model or request.model}
        if identity.service_tier is not None:
            self._same["service_tier"] = identity.service_tier
        if identity.system_fingerprint is not None:
            self._same["system_fingerprint"] = identity.system_fingerprint

    def first_chunk(self) -> dict[str, Any] | None:
        """The chunk that names the role; text completions have none."""
        return self._chunk(self._delta({"role": "assistant", "content": "", "refusal": None})) if self._chat else None

    def chunk(self, text: str, source: Source) -> dict[str, Any]:
        """A chunk of text, with who wrote it."""
        told = self._chunk(self._delta({"content": text}) if self._chat else self._text(text))
        return {**told, "cheapspec": {"source": str(source)}}

    def last_chunks(self, finish_reason: str | None, usage: Usage, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The chunk with the finish reason, then the usage chunk if asked for; ``info`` rides on the last one."""
        chunks = [self._chunk(self._delta({}, finish_reason) if self._chat else self._text("", finish_reason))]
        if self._asked_usage:
            chunks.append({**self._chunk(), "usage": usage_object(usage)})
        chunks[-1]["cheapspec"] = dict(info)
        return chunks

    def whole(self, text: str, finish_reason: str | None, usage: Usage, info: Mapping[str, Any]) -> dict[str, Any]:
        """The unstreamed reply."""
        choice = self._text(text, finish_reason)
        if self._chat:
            message = {"role": "assistant", "content": text, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return {
            **self._same,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [choice],
            "usage": usage_object(usage),
            "cheapspec": dict(info),
        }

    def _chunk(self, *choices: Mapping[str, Any]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        told: dict[str, Any] = {**self._same, "object": kind, "choices": list(choices)}
        if self._asked_usage:
            told["usage"] = None
        return told

    @staticmethod
    def _delta(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    @staticmethod
    def _text(text: str, finish_reason: str | None = None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
