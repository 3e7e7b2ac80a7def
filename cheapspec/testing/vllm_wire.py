"""The JSON of vLLM's replies, as version 0.32.0 writes it (recorded from a running server).

Rules
-----
* Pure: token ids, a model and the request's fields in, JSON out. Field names, nulls and their places are
  those of the recordings, so that a client that reads these replies reads the real ones.
* ``prompt_logprobs[i]`` holds the token that stands at i first, then the ``k`` likeliest; ``rank`` counts
  how many tokens are at least as likely. Position 0 is ``null``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cheapspec.testing.toy import ToyModel

__all__ = [
    "FINGERPRINT",
    "chat_choice",
    "chat_entry",
    "error",
    "legacy_logprobs",
    "model_list",
    "prompt_logprobs",
    "text_choice",
    "usage",
]

FINGERPRINT = "vllm-0.32.0-toy"

Position = dict[str, dict[str, Any]] | None


def error(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """An error object as vLLM sends it."""
    kind = {400: "BadRequestError", 404: "NotFoundError", 401: "AuthenticationError"}.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def usage(prompt: int, completion: int, cached: int | None) -> dict[str, Any]:
    """Token counts; ``cached`` is what ``--enable-prompt-tokens-details`` adds."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        "completion_tokens_details": None,
    }


def _listed(model: ToyModel, values: Sequence[float], token: int, count: int) -> list[int]:
    """The token that stands there, then the ``count`` likeliest, each once."""
    best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count] if count else []
    return list(dict.fromkeys([token, *best]))


def prompt_logprobs(model: ToyModel, ids: Sequence[int], count: int) -> list[Position]:
    """One entry a prompt token."""
    positions: list[Position] = [None]
    pending = _open_bytes(model.vocabulary[ids[0]]) if ids else b""
    for index in range(1, len(ids)):
        values = model.logprobs(ids[:index])
        positions.append(
            {
                str(token): {
                    "logprob": values[token],
                    "rank": sum(value >= values[token] for value in values),
                    "decoded_token": _decoded(model, pending, token),
                }
                for token in _listed(model, values, ids[index], count)
            }
        )
        pending = _open_bytes(pending + model.vocabulary[ids[index]])
    return positions


def _decoded(model: ToyModel, pending: bytes, token: int) -> str:
    """A token's text as vLLM shows it in a prompt: a part of a character is empty, and the token that
    completes the character shows it whole.
    """
    alone = model.decode([token])
    if not alone.endswith("\ufffd"):
        return alone
    whole = (pending + model.vocabulary[token]).decode(errors="replace")
    return "" if "\ufffd" in whole else whole


def _open_bytes(data: bytes) -> bytes:
    """The bytes at the end that are the beginning of a character."""
    for length in range(1, min(3, len(data)) + 1):
        try:
            data[-length:].decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and error.start == 0:
                return data[-length:]
    return b""


def _name(model: ToyModel, token: int, as_id: bool) -> str:
    return f"token_id:{token}" if as_id else model.decode([token])


def chat_entry(model: ToyModel, context: Sequence[int], token: int, count: int, as_id: bool) -> dict[str, Any]:
    """An entry of ``logprobs.content`` for a generated token."""
    values = model.logprobs(context)

    def entry(shown: int) -> dict[str, Any]:
        name = _name(model, shown, as_id)
        return {"token": name, "logprob": values[shown], "bytes": list(model.decode([shown]).encode())}

    best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count]
    return {**entry(token), "top_logprobs": [entry(shown) for shown in best]}


def legacy_logprobs(
    model: ToyModel, ids: Sequence[int], start: int, count: int, as_id: bool, offset: int = 0
) -> dict[str, list[Any]]:
    """The text completion shape for ``ids[start:]``; the very first token of a prompt has nulls."""
    shape: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for index in range(start, len(ids)):
        token = ids[index]
        shape["text_offset"].append(offset)
        shape["tokens"].append(_name(model, token, as_id))
        offset += len(model.decode([token]))
        if index == 0:
            shape["token_logprobs"].append(None)
            shape["top_logprobs"].append(None)
            continue
        values = model.logprobs(ids[:index])
        shape["token_logprobs"].append(max(values[token], -9999.0))
        listed = _listed(model, values, token, count)
        shape["top_logprobs"].append({_name(model, shown, as_id): values[shown] for shown in listed})
    return shape


def chat_choice(
    index: int,
    text: str,
    entries: Sequence[Mapping[str, Any]] | None,
    finish: str,
    stop_reason: str | None,
    ids: Sequence[int] | None,
) -> dict[str, Any]:
    """A choice of an unstreamed chat completion."""
    return {
        "index": index,
        "message": {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": None if entries is None else {"content": list(entries)},
        "finish_reason": finish,
        "stop_reason": stop_reason,
        "token_ids": None if ids is None else list(ids),
        "routed_experts": None,
    }


def text_choice(
    index: int,
    text: str,
    logprobs: Mapping[str, Any] | None,
    finish: str,
    stop_reason: str | None,
    ids: Sequence[int] | None,
    scored: list[Position] | None,
    prompt_ids: Sequence[int] | None,
) -> dict[str, Any]:
    """A choice of an unstreamed text completion."""
    return {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": finish,
        "stop_reason": stop_reason,
        "token_ids": None if ids is None else list(ids),
        "prompt_logprobs": scored,
        "prompt_token_ids": None if prompt_ids is None else list(prompt_ids),
        "routed_experts": None,
    }


def model_list(name: str, created: int, max_model_len: int) -> dict[str, Any]:
    """``GET /v1/models``."""
    card: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [],
    }
    return {"object": "list", "data": [card]}
