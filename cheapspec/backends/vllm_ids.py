"""vLLM by token ids: ``/tokenize``, then ``/v1/completions`` with an id prompt. Rules in
:mod:`cheapspec.backends.vllm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cheapspec.backends.openai_wire import (
    NEUTRAL_SAMPLING,
    Listed,
    carry,
    continuing,
    ids_of,
    listed,
    refusal,
    target_logprob,
)
from cheapspec.backends.pieces import pieces_to_bytes
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.backends.vllm_sampling import ask_exact, fewer, tokenize_text
from cheapspec.core.acceptance import TargetLogprob, shows_distribution
from cheapspec.core.alignment import align
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.received import first_choice, read_identity, read_usage
from cheapspec.core.request import Request
from cheapspec.core.text import opens_thoughts
from cheapspec.core.untyped import as_list, as_mapping

__all__ = [
    "SAMPLING_FIELDS",
    "advance",
    "continue_",
    "read_next",
    "read_prompt",
    "read_score",
    "score",
    "tokenize_prompt",
]

SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "length_penalty",
    "logit_bias",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "priority",
    "cache_salt",
    "user",
    "vllm_xargs",
)
"""Fields that mean the same on the chat and the completion route of vLLM 0.32 (its two protocol classes)."""

_TAIL = 12  # vocabulary pieces of the prompt's end that are looked at


def tokenize_prompt(request: Request) -> HttpRequest:
    """The unbilled call that renders and tokenizes the prompt."""
    if request.kind != "chat":
        special = request.body.get("add_special_tokens", True)
        body: dict[str, Any] = {"model": request.model, "prompt": request.prompt, "add_special_tokens": special}
        return HttpRequest("tokenize", "/tokenize", body)
    body = {"model": request.model, "messages": request.body.get("messages", []), "add_generation_prompt": True}
    body["return_token_strs"] = True  # the end of the rendered prompt tells whether the model is to think first
    body |= carry(request, ("add_special_tokens",))
    # What the chat route adds to the template's variables by itself, /tokenize must be told.
    variables: dict[str, Any] = carry(request, ("reasoning_effort",))
    if "reasoning_effort" in variables:
        variables["enable_thinking"] = variables["reasoning_effort"] != "none"
    variables |= as_mapping(request.body.get("chat_template_kwargs"))
    if variables:
        body["chat_template_kwargs"] = variables
    return HttpRequest("tokenize", "/tokenize", body)


def read_prompt(reply: HttpReply) -> Context | Unusable:
    """The prompt's ids; ``extra`` is the model's window in tokens."""
    body = as_mapping(reply.json())
    ids = ids_of(body.get("tokens"))
    if not ids:
        return Unusable("cannot_score", "tokenize: the reply has no token ids")
    if _opens_thoughts([str(piece) for piece in as_list(body.get("token_strs"))[-_TAIL:]]):
        return Unusable("reasoning", "the chat template makes the target think first")
    window: object = body.get("max_model_len")
    return Context(prompt_tokens=len(ids), ids=ids, extra=window if isinstance(window, int) else None)


def _opens_thoughts(pieces: list[str]) -> bool:
    """A prompt that ends in an opened block of thoughts: the reply's first tokens would be thoughts, which
    the chat route may keep out of the text and the completions route does not.
    """
    return opens_thoughts("".join(pieces).rstrip("\nĊĠ▁ "))


def score(memory: TokenMemory, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
    """Tokenize the draft by itself (the context ends in a token, so nothing can merge over the seam),
    then one billed call.
    """
    reply = yield tokenize_text(request, draft)
    problem = refusal(reply, "tokenize")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "tokenize: no reply", retryable=True)
    found = as_mapping(reply.json())
    ids = ids_of(found.get("tokens"))
    pieces = as_list(found.get("token_strs"))
    if not ids:
        return Unusable("cannot_score", "tokenize: the reply has no token ids")
    surfaces: tuple[bytes, ...] | None = None
    if len(pieces) == len(ids):
        surfaces = pieces_to_bytes([str(piece) for piece in pieces], draft)
    if surfaces is None:
        # Before anything is paid: do these ids stand for this text at all?
        reply = yield HttpRequest("detokenize", "/detokenize", {"model": request.model, "tokens": list(ids)})
        if reply is None or as_mapping(reply.json()).get("prompt") != draft:
            return Unusable("cannot_score", "the target's tokens do not give the draft's text back")
    else:
        for token_id, data in zip(ids, surfaces, strict=True):
            memory.learn_text(token_id, data)
    before = context.ids or ()
    # Where the target samples, one position more is listed: what may follow. Some token must stand there.
    after = (min(memory.end_ids, default=ids[-1]),) if request.samples else ()
    if isinstance(context.extra, int) and len(before) + len(ids) + len(after) >= context.extra:
        return Unusable("draft_context", f"the draft does not fit the window of {context.extra} tokens")
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": [*before, *ids, *after],
        "max_tokens": 1,
        "prompt_logprobs": memory.alternatives if request.samples else 1,
        "logprobs": 1,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "add_special_tokens": False,
        **NEUTRAL_SAMPLING,
        **carry(request, ("cache_salt", "priority", "user")),
    }
    reply = yield HttpRequest("score", "completions", body, billed=True)
    most = fewer(reply) if request.samples else None
    if most is not None:
        memory.alternatives = most
        return Unusable("sampling", f"the server lists at most {most} tokens a position", status=400)
    return read_score(memory, reply, before, ids, surfaces, draft, after)


def read_score(
    memory: TokenMemory,
    reply: HttpReply | None,
    before: tuple[int, ...],
    ids: tuple[int, ...],
    surfaces: tuple[bytes, ...] | None,
    draft: str,
    after: tuple[int, ...] = (),
) -> Score | Unusable:
    """The scoring call's reply as evidence about ``ids`` after ``before``, and about what follows where a token was put
    there (``after``).
    """
    problem = refusal(reply, "score")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "score: no reply", retryable=True)
    body = as_mapping(reply.json())
    choice = first_choice(body)
    entries = as_list(choice.get("prompt_logprobs"))
    prompt = (*before, *ids, *after)
    if len(entries) != len(prompt):
        return Unusable("cannot_score", "the reply has no log-probabilities of the prompt", lasting=True)
    echoed = ids_of(choice.get("prompt_token_ids", body.get("prompt_token_ids")))
    if echoed is not None and echoed != prompt:
        return Unusable("cannot_score", "the reply scores other token ids than were sent", lasting=True)
    rows = [listed(entry) for entry in entries]
    drafted = list(zip(rows[len(before) : len(before) + len(ids)], ids, strict=True))
    texts: tuple[bytes | str, ...] = surfaces or tuple(_given_text(row, token_id) for row, token_id in drafted)
    ends = align(texts, draft)
    if ends is None:
        return Unusable("cannot_score", "the scored tokens do not join to the draft")
    tokens: list[TargetLogprob] = []
    for (row, token_id), text in zip(drafted, texts, strict=True):
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        judged = target_logprob(row, token_id, shown)
        if judged is None and row:
            return Unusable("cannot_score", "the log-probabilities are of other tokens than were sent", lasting=True)
        tokens.append(judged or TargetLogprob(shown, None, token_id))
    numbers = [
        entry.logprob for row, token_id in zip(rows, prompt, strict=True) for entry in row if entry.token_id == token_id
    ]
    usage = read_usage(body.get("usage")) or Usage(len(prompt), 1, estimated=True)
    return Score(
        tuple(tokens),
        ends,
        None if after else read_next(memory, choice),
        usage,
        read_identity(body),
        trusted=shows_distribution(numbers),
        prompt_tokens=None,
        after=target_logprob(rows[-1], after[0], "") if after else None,
    )


def _given_text(row: tuple[Listed, ...], token_id: int) -> str:
    return next((entry.text for entry in row if entry.token_id == token_id), "�")


def read_next(memory: TokenMemory, choice: Any) -> NextToken | None:
    """The one generated token. Without stop strings in the call, ``stop`` is the model's own end of
    turn: ``stop_reason`` is ``null``, or the id where the model has several end tokens.
    """
    generated = ids_of(choice.get("token_ids"))
    token_id = generated[0] if generated else None
    text: object = choice.get("text")
    if choice.get("finish_reason") == "stop" and not isinstance(choice.get("stop_reason"), str):
        memory.learn_end(token_id)
        return NextToken(None, token_id, ends_turn=True)
    if choice.get("finish_reason") != "length" or not isinstance(text, str):
        return None
    if text and "�" not in text:
        if token_id is not None:
            memory.learn_text(token_id, text)
        return NextToken(text, token_id)
    return NextToken(None, token_id)


def advance(
    memory: TokenMemory,
    request: Request,
    context: Context,
    draft: str,
    score: Score,
    accepted: int,
    follow: NextToken | None,
) -> Op[Context | Unusable]:
    """Ids and text after the accepted tokens and ``follow``; whole characters only (rule 5)."""
    ids = tuple(token.token_id for token in score.tokens[:accepted])
    known = [token_id for token_id in ids if token_id is not None]
    if len(known) != accepted:
        return Unusable("cannot_score", "a scored token has no id")
    whole = next((n for n in range(accepted, 0, -1) if score.ends[n - 1] is not None), 0)
    offset = (score.ends[whole - 1] or 0) if whole else 0
    text, kept = context.text + draft[:offset], known[:whole]
    if follow is not None and follow.text and follow.token_id is not None and not follow.ends_turn:
        exact = memory.exact(follow.token_id, follow.text)
        if exact is None:
            exact = yield from ask_exact(memory, request, follow.token_id, follow.text)
        if exact is None and request.samples:
            exact = follow.text  # what was drawn is kept, whatever its spelling
        if exact is not None:
            # vLLM decodes a token that completes a character as the whole character, so tokens of an
            # open character that were accepted count together with it.
            text, kept = text + exact, [*known, follow.token_id]
    return replace(
        context, text=text, tokens=context.tokens + len(kept), ids=(*(context.ids or ()), *kept), extra=context.extra
    )


def continue_(
    request: Request, context: Context, max_tokens: int | None, fields: Sequence[str] = SAMPLING_FIELDS
) -> Streaming[TargetPiece]:
    """The hand-off from exactly these ids, with those of the caller's own sampling fields that the server knows."""
    ids = context.ids or ()
    if max_tokens is None and isinstance(context.extra, int):
        max_tokens = max(1, context.extra - len(ids))  # as the chat route does; a completion always says its limit
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": list(ids),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **carry(request, fields),
    }
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    return continuing("completions", body, "completion")
