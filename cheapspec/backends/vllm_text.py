"""vLLM by text: where ``/tokenize`` is out of reach (gateways forward ``/v1`` only). Rules beyond
:mod:`cheapspec.backends.vllm`:

1. Chat: the reply so far and the draft travel as a trailing assistant message with
   ``continue_final_message: true, add_generation_prompt: false``. Without the flags vLLM silently closes
   the turn. A completion: they are appended to the prompt.
2. Reading the reply is :mod:`cheapspec.backends.text_route`'s.
3. A continuation starts at an edge that the engine chose (:func:`cheapspec.core.text.safe_cut`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cheapspec.backends.openai_wire import (
    NEUTRAL_SAMPLING,
    Listed,
    continuing,
    ids_of,
    listed,
    refusal,
    target_logprob,
)
from cheapspec.backends.text_route import Position, advance, left_of, part_to_score, read_score, seam, with_reply
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.backends.vllm_ids import read_next
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.received import first_choice, read_identity, read_usage
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping

__all__ = ["advance", "continue_", "score", "seam", "start"]

_FLAGS = {"continue_final_message": True, "add_generation_prompt": False}
_NOT_FOR_SCORING = frozenset(
    {
        "stream",
        "stream_options",
        "stop",
        "stop_token_ids",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "ignore_eos",
        "seed",
        "logit_bias",
        "prediction",
        "bad_words",
        "allowed_token_ids",
        "length_penalty",
        "include_stop_str_in_output",
        "echo",
        "logprobs",
        "top_logprobs",
        "response_format",
    }
)


def start(request: Request) -> Context:
    """Nothing is known before the first scoring call."""
    return Context()


def score(memory: TokenMemory, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
    """One billed call; trailing whitespace of the draft stays unscored."""
    part = part_to_score(request, context, draft)
    if not part.strip():
        return Unusable("cannot_score", "only whitespace to score", continues=True)
    sent = with_reply(request, context.text + part, _FLAGS)
    body = {key: value for key, value in sent.items() if key not in _NOT_FOR_SCORING}
    body |= {**NEUTRAL_SAMPLING, "max_tokens": 1, "prompt_logprobs": 1, "return_token_ids": True}
    path = "chat/completions" if request.kind == "chat" else "completions"
    reply = yield HttpRequest("score", path, body, billed=True)
    return _read(memory, request, reply, context, part, whole=part == draft)


def _read(
    memory: TokenMemory, request: Request, reply: HttpReply | None, context: Context, draft: str, *, whole: bool
) -> Score | Unusable:
    problem = refusal(reply, "score")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "score: no reply", retryable=True)
    body = as_mapping(reply.json())
    choice = first_choice(body)
    entries = as_list(body.get("prompt_logprobs") or choice.get("prompt_logprobs"))
    if len(entries) < 2:
        return Unusable("cannot_score", "the reply has no log-probabilities of the prompt", lasting=True)
    rows = [listed(entry) for entry in entries]
    prompt = _given(rows, ids_of(body.get("prompt_token_ids") or choice.get("prompt_token_ids")))
    if prompt is None:
        return Unusable("cannot_score", "the log-probabilities are of other tokens than the prompt's", lasting=True)
    positions = [
        Position("�")
        if given is None
        else Position(given.text, target_logprob(row, given.token_id, given.text), given.token_id)
        for row, given in zip(rows, prompt, strict=True)
    ]
    generated: Mapping[str, Any] = choice
    if request.kind == "chat":
        generated = {**choice, "text": as_mapping(choice.get("message")).get("content")}
    usage = read_usage(body.get("usage")) or Usage(len(rows), 1, estimated=True)
    following = read_next(memory, generated) if whole else None
    return read_score(request, context, draft, positions, usage, read_identity(body), following)


def _given(rows: Sequence[tuple[Listed, ...]], ids: tuple[int, ...] | None) -> list[Listed | None] | None:
    """The token that stands at each position: by id where the reply says the ids, else the first that is
    listed (vLLM's own order; the texts are checked against what was sent). The first position of a
    prompt has no entry.
    """
    if ids is None:
        return [row[0] if row else None for row in rows]
    if len(ids) != len(rows):
        return None
    out: list[Listed | None] = []
    for row, token_id in zip(rows, ids, strict=True):
        given = next((entry for entry in row if entry.token_id == token_id), None)
        if given is None and row:
            return None
        out.append(given)
    return out


def continue_(request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
    """The hand-off by text, with the caller's own fields; only the token limit is what is left of it."""
    chat = request.kind == "chat"
    body = with_reply(request, context.text.rstrip() if chat else context.text, _FLAGS)
    options = as_mapping(body.get("stream_options"))
    body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    body.pop("prediction", None)
    limit = left_of(request, context, max_tokens)
    if limit is not None:
        name = "max_completion_tokens" if "max_completion_tokens" in request.body else "max_tokens"
        body[name] = limit
    path = "chat/completions" if chat else "completions"
    return continuing(path, body, "chat" if chat else "completion")
