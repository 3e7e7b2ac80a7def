"""vLLM above temperature 0: what it lists, and single tokens that it draws. Rules in :mod:`cheapspec.backends.vllm`.

Facts (vLLM 0.32, read in its source and run, November 2026): the sampler divides the logits by the temperature, then
cuts to top_k and top_p, so the nucleus is one of the hot distribution; ``prompt_logprobs`` and ``logprobs`` are of the
raw logits (``--logprobs-mode raw_logprobs``, the default), before temperature and ``logit_bias``; at most 20 tokens
are listed a position (``--max-logprobs``, default 20), the token that stands there besides; ``logit_bias`` of −100
multiplies a token's weight by e^−100. A seed is a 64-bit integer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING, carry, error_message, ids_of, refusal
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.core.acceptance import usable
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, Drawn, Unusable
from cheapspec.core.received import first_choice, read_usage
from cheapspec.core.request import Request
from cheapspec.core.text import looks_special
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["ask_exact", "draw", "fewer", "join", "tokenize_text"]

_MOST = re.compile(r"greater than max allowed: (\d+)")
_SHAPING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_COMMON = ("cache_salt", "priority", "user")


def fewer(reply: HttpReply | None) -> int | None:
    """How many tokens this server lists at most, where it refused to list more."""
    if reply is None or reply.status != 400:
        return None
    found = _MOST.search(error_message(reply.json()))
    return int(found[1]) if found else None


def draw(
    memory: TokenMemory, request: Request, context: Context, banned: Sequence[int], seed: int | None
) -> Op[Drawn | Unusable]:
    """See :meth:`cheapspec.core.ports.SamplingTarget.draw`."""
    ids = list(context.ids or ())
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": ids,
        "max_tokens": 1,
        "logprobs": 1,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "add_special_tokens": False,
        **carry(request, _COMMON),
    }
    if banned:
        body |= {**NEUTRAL_SAMPLING, "temperature": 1, "logit_bias": {str(token): -100 for token in banned}}
    else:
        body |= carry(request, _SHAPING)
    if seed is not None:
        body["seed"] = seed
    reply = yield HttpRequest("continue", "completions", body, billed=True)
    problem = refusal(reply, "continue")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "continue: no reply", retryable=True)
    told = as_mapping(reply.json())
    choice = first_choice(told)
    generated = ids_of(choice.get("token_ids"))
    if not generated or len(generated) != 1 or choice.get("finish_reason") not in ("stop", "length"):
        return Unusable("cannot_score", "continue: one token was asked for, and the reply does not say which")
    ends = choice.get("finish_reason") == "stop" and not isinstance(choice.get("stop_reason"), str)
    if ends:
        memory.learn_end(generated[0])
    numbers = as_list(as_mapping(choice.get("logprobs")).get("token_logprobs"))
    number: object = numbers[0] if len(numbers) == 1 else None
    logprob = float(number) if is_number(number) and usable(number) else None
    usage = read_usage(told.get("usage")) or Usage(len(ids), 1, estimated=True)
    return Drawn(generated[0], usage, logprob, ends)


def join(memory: TokenMemory, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
    """See :meth:`cheapspec.core.ports.SamplingTarget.join`."""
    reply = yield HttpRequest("detokenize", "/detokenize", {"model": request.model, "tokens": list(ids)})
    problem = refusal(reply, "detokenize")
    text: object = as_mapping(reply.json()).get("prompt") if reply is not None else None
    if problem is not None or not isinstance(text, str):
        return problem or Unusable("cannot_score", "detokenize: the reply has no text")
    if len(ids) == 1:
        if looks_special(text):
            text = ""  # as in the text of a reply: vLLM leaves special tokens out
        elif text and "\ufffd" not in text:
            exact = memory.exact(ids[0], text)
            text = exact or (yield from ask_exact(memory, request, ids[0], text)) or text
    whole = (*(context.ids or ()), *ids)
    return Context(context.prompt_tokens, context.text + text, context.tokens + len(ids), whole, context.extra)


def tokenize_text(request: Request, text: str) -> HttpRequest:
    """The unbilled call that tokenizes a piece of a reply."""
    body = {"model": request.model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
    return HttpRequest("tokenize", "/tokenize", body)


def ask_exact(memory: TokenMemory, request: Request, token_id: int, text: str) -> Op[str | None]:
    """The text, with or without a space before it, that tokenizes to exactly this id."""
    for candidate in (text, " " + text):
        reply = yield tokenize_text(request, candidate)
        if reply is not None and reply.status < 300 and ids_of(as_mapping(reply.json()).get("tokens")) == (token_id,):
            memory.learn_text(token_id, candidate)
            return candidate
    return None
