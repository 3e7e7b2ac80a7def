"""A window: some tokens that a target writes by itself after a context, for whoever compares them with a draft.

Rules
-----
1. The call carries the caller's own sampling fields, as the hand-off does, so that a window is the beginning of what
   the hand-off would write; but no stop strings, which whoever shows the text looks for.
2. It is billed as what it is: generated tokens, purpose ``continue``.
3. A token's place in the text is certain or not said: of tokens that share a character only the last has an end.
4. Alternatives are listed only where they are asked for. A listing by text (vLLM's) names no ids, and holds a text once
   whatever the number of tokens that read so.
5. An API that continues neither by ids nor by text writes the whole reply instead (:func:`whole_reply`), from the
   caller's own body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cheapspec.backends.llamacpp_target import SAMPLING_FIELDS as LLAMACPP_FIELDS
from cheapspec.backends.llamacpp_wire import read_entries, spread, usage_of
from cheapspec.backends.openai_wire import carry, ids_of, refusal
from cheapspec.backends.vllm_ids import SAMPLING_FIELDS as VLLM_FIELDS
from cheapspec.core.acceptance import Alternative, usable
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, Identity, Unusable
from cheapspec.core.received import first_choice, read_identity, read_usage
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["Window", "Word", "llamacpp_window", "vllm_window", "whole_reply"]

_HALF = "\ufffd"


@dataclass(frozen=True, slots=True)
class Word:
    """One token that the target wrote. ``end``: the offset in the window's text (characters) after it, ``None``: it
    ends inside a character. ``others``: what else was listed at its position, the token itself not among them.
    """

    text: str
    end: int | None
    token_id: int | None = None
    logprob: float | None = None
    others: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """What was written. ``ended``: the target ended its turn after it, with the token ``end_id``. ``last``: what was
    listed at the position of the end.
    """

    text: str
    words: tuple[Word, ...]
    usage: Usage
    ended: bool = False
    end_id: int | None = None
    last: tuple[Alternative, ...] = ()
    identity: Identity = field(default_factory=Identity)


def llamacpp_window(request: Request, context: Context, count: int, listed: int) -> Op[Window | Unusable]:
    """``count`` tokens from llama.cpp's ``/completion``, with ``listed`` alternatives a position."""
    body = {
        **carry(request, [name for name in LLAMACPP_FIELDS if name != "stop"]),
        "prompt": list(context.ids or ()),
        "n_predict": count,
        "n_probs": max(1, listed),
        "cache_prompt": True,
        "return_tokens": True,
    }
    reply = yield HttpRequest("continue", "/completion", body, billed=True)
    problem = refusal(reply, "continue")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "continue: no reply", retryable=True)
    told = as_mapping(reply.json())
    ids, entries, text = ids_of(told.get("tokens")), read_entries(told), told.get("content")
    if ids is None or not isinstance(text, str):
        return Unusable("cannot_score", "the reply does not tell the tokens that it is made of")
    ended, end_id = told.get("stop_type") == "eos", None
    last: tuple[Alternative, ...] = ()
    if ended and entries and not entries[-1].data:
        final = entries.pop()
        end_id, last = final.token_id, final.top
        ids = ids[:-1] if ids and ids[-1] == end_id else ids
    placed = spread(entries, ids)
    if placed is None:
        return Unusable("cannot_score", "the reply's tokens do not fit its text")
    words: list[Word] = []
    written = b""
    for token_id, entry, own in placed:
        written += entry.data if own else b""
        end = _offset(written, text) if own else None
        others = tuple(one for one in entry.top if one.token_id != token_id) if own else ()
        shown = entry.data.decode("utf-8", "replace") if own else _HALF
        words.append(Word(shown, end, token_id, entry.logprob if own else None, others))
    model: object = told.get("model")
    identity = Identity(model=model if isinstance(model, str) else None)
    return Window(text, tuple(words), usage_of(told), ended, end_id, last, identity)


def _offset(written: bytes, text: str) -> int | None:
    """Where these bytes end in the text; ``None``: inside a character, or they are not its beginning."""
    try:
        shown = written.decode()
    except UnicodeDecodeError:
        return None
    return len(shown) if text.startswith(shown) else None


def vllm_window(request: Request, context: Context, count: int, listed: int) -> Op[Window | Unusable]:
    """``count`` tokens from vLLM's ``/v1/completions`` with a prompt of ids."""
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": list(context.ids or ()),
        "max_tokens": count,
        "logprobs": listed,
        "return_token_ids": True,
        "add_special_tokens": False,
        **carry(request, [name for name in VLLM_FIELDS if name != "stop"]),
    }
    reply = yield HttpRequest("continue", "completions", body, billed=True)
    problem = refusal(reply, "continue")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "continue: no reply", retryable=True)
    told = as_mapping(reply.json())
    choice = first_choice(told)
    ids, text = ids_of(choice.get("token_ids")), choice.get("text")
    numbers = as_mapping(choice.get("logprobs"))
    shown = [one if isinstance(one, str) else _HALF for one in as_list(numbers.get("tokens"))]
    if ids is None or not isinstance(text, str) or len(shown) != len(ids):
        return Unusable("cannot_score", "the reply does not tell the tokens that it is made of")
    tops = [as_mapping(one) for one in as_list(numbers.get("top_logprobs"))]
    tops += [{}] * (len(ids) - len(tops))
    own = as_list(numbers.get("token_logprobs"))
    own += [None] * (len(ids) - len(own))
    ended = choice.get("finish_reason") == "stop" and not isinstance(choice.get("stop_reason"), str)
    words: list[Word] = []
    for token_id, token, number, top, end in zip(ids, shown, own, tops, _ends(shown, text), strict=True):
        others = tuple(one for one in _alternatives(top) if one.text != token)
        words.append(Word(token, end, token_id, _number(number), others))
    end_id: int | None = None
    last: tuple[Alternative, ...] = ()
    if ended and words:
        final = words.pop()
        end_id, last = final.token_id, final.others
    usage = read_usage(told.get("usage")) or Usage(len(context.ids or ()), len(ids), estimated=True)
    return Window(text, tuple(words), usage, ended, end_id, last, read_identity(told))


def _ends(tokens: Sequence[str], text: str) -> list[int | None]:
    """Where each decoded token ends in the text: what completes a character is decoded as the whole of it, what comes
    before as nothing or U+FFFD. From the first token that does not fit on nothing is known.
    """
    ends: list[int | None] = []
    at, lost = 0, False
    for token in tokens:
        if not token or _HALF in token:
            ends.append(None)
            continue
        lost = lost or not text.startswith(token, at)
        at += 0 if lost else len(token)
        ends.append(None if lost else at)
    return ends


def _alternatives(top: Mapping[str, Any]) -> list[Alternative]:
    return [
        Alternative(text, float(number))
        for text, number in top.items()
        if is_number(number) and usable(number) and text and _HALF not in text
    ]


def _number(value: object) -> float | None:
    return float(value) if is_number(value) and usable(value) else None


def whole_reply(request: Request) -> Op[tuple[str, str, Usage, Identity] | Unusable]:
    """The target's whole reply to the caller's own body: text, finish reason, usage, identity."""
    fields = ("stream", "stream_options", "prediction")
    body = {name: value for name, value in request.body.items() if name not in fields}
    path = "chat/completions" if request.kind == "chat" else "completions"
    reply: HttpReply | None = yield HttpRequest("continue", path, body, billed=True)
    problem = refusal(reply, "continue")
    if problem is not None or reply is None:
        return problem or Unusable("cannot_score", "continue: no reply", retryable=True)
    told = as_mapping(reply.json())
    choice = first_choice(told)
    message = as_mapping(choice.get("message"))
    text: object = message.get("content") if request.kind == "chat" else choice.get("text")
    reason: object = choice.get("finish_reason")
    plain = isinstance(text, str) and not any(message.get(name) for name in ("tool_calls", "refusal", "function_call"))
    if not isinstance(text, str) or not plain or reason not in ("stop", "length"):
        return Unusable("cannot_score", "the target's reply is more than text, and is asked for as it is")
    usage = read_usage(told.get("usage"), told.get("service_tier")) or Usage(estimated=True)
    return text, reason, usage, read_identity(told)
