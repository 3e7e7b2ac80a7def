"""SGLang as target: it scores given ids with the prompt cache in use, and goes on from any token id.

Facts, read in the source of ``sglang`` 0.5.23 (PyPI, 2026-10-30); not yet seen in replies of a running server:

* ``POST /generate`` with ``input_ids``, ``return_logprob``, ``logprob_start_len: P - 1``, ``top_logprobs_num`` and
  ``return_text_in_logprobs`` gives ``meta_info.input_token_logprobs``: one ``[logprob | null, id, text]`` a token from
  position P - 1 on, the first of them null, and ``meta_info.input_top_logprobs``: ``[null, [[logprob, id, text], …]]``.
* The prompt cache is read up to ``logprob_start_len``: only the draft is computed anew (``schedule_batch.py``:
  ``max_prefix_len = min(input_len - 1, logprob_start_len)``). ``meta_info.cached_tokens`` counts it.
* ``finish_reason`` is ``{"type": "stop", "matched": id}`` or ``{"type": "length"}``; ``output_ids`` are what it wrote.
* ``POST /tokenize`` takes ``messages`` and, without ``add_generation_prompt``, renders them as a chat completion would;
  ``POST /detokenize`` takes ``tokens`` (one list or several) and answers ``{"text"}`` (one text or several).
* ``/v1/completions`` takes an id prompt and ``return_token_ids``, also in streams. Its ``max_tokens`` is 16 by default.
* On chat, without ``continue_final_message``, a last assistant message is rewritten to one of the *user's*: not used.
* ``GET /model_info`` (before: ``/get_model_info``) answers ``{"model_path", "is_generation", …}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cheapspec.backends import vllm_ids
from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING, carry, ids_of, refusal
from cheapspec.backends.text_target import LISTED
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.core.acceptance import Alternative, TargetLogprob, shows_distribution, usable
from cheapspec.core.alignment import align
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, Identity, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request
from cheapspec.core.text import opens_thoughts
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["SglangTarget"]

_NEUTRAL: Mapping[str, Any] = {**NEUTRAL_SAMPLING, "max_new_tokens": 1}
_SAMPLING_FIELDS = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "logit_bias", "stop_token_ids", "stop_regex", "no_stop_trim", "ignore_eos", "min_tokens"),
    *("skip_special_tokens", "lora_path", "custom_logit_processor", "custom_params", "cache_salt", "extra_key"),
    *("priority", "user"),
)
"""Fields that mean the same on the chat and the completion route of 0.5.23 (its two protocol classes)."""
_TAIL = 12  # tokens of a context's end that are looked at
_LONGEST = 128  # the prefixes of a longer draft would be too much to send


class SglangTarget:
    """An SGLang server as target (:class:`cheapspec.core.ports.Target`)."""

    name = "sglang"
    can_score = True
    can_force = False
    kinds = frozenset({"chat", "completion"})
    scores_from_cache = True

    def __init__(self, *, end_ids: tuple[int, ...] = ()) -> None:
        self.memory = TokenMemory(end_ids)
        self._thoughtful: dict[tuple[int, ...], bool] = {}

    def open(self, request: Request) -> Op[Context | Unusable]:
        """The prompt's ids; once for each way in which prompts end, whether it opens a block of thoughts."""
        reply = yield HttpRequest("tokenize", "/tokenize", _prompt_of(request))
        problem = refusal(reply, "tokenize")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "tokenize: no reply", retryable=True)
        told = as_mapping(reply.json())
        ids = ids_of(told.get("tokens"))
        if not ids:
            return Unusable("cannot_score", "tokenize: the reply has no token ids")
        if request.kind == "chat":
            thinks = yield from self._opens_thoughts(request, ids[-_TAIL:])
            if isinstance(thinks, Unusable):
                return thinks
            if thinks:
                return Unusable("reasoning", "the chat template makes the target think first")
        window: object = told.get("max_model_len")
        if isinstance(window, int) and len(ids) + (request.max_tokens or 1) > window:
            # SGLang refuses such a request; that is for it to say, and before anything is paid.
            return Unusable("unsupported_field", f"prompt and max_tokens do not fit the window of {window} tokens")
        return Context(prompt_tokens=len(ids), ids=ids, extra=window if isinstance(window, int) else None)

    def _opens_thoughts(self, request: Request, tail: tuple[int, ...]) -> Op[bool | Unusable]:
        known = self._thoughtful.get(tail)
        if known is not None:
            return known
        texts = yield from _detokenize(request, [tail])
        if texts is None:
            return Unusable("cannot_score", "detokenize: the reply has no text")
        shown = texts[0]
        if len(self._thoughtful) < 1000:
            self._thoughtful[tail] = opens_thoughts(shown)
        return opens_thoughts(shown)

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """Tokenize the draft by itself, see that its ids read as the draft where they stand, then one billed call."""
        reply = yield HttpRequest(
            "tokenize", "/tokenize", {"model": request.model, "prompt": draft, "add_special_tokens": False}
        )
        problem = refusal(reply, "tokenize")
        ids = ids_of(as_mapping(reply.json()).get("tokens")) if reply is not None else None
        if problem is not None or not ids:
            return problem or Unusable("cannot_score", "tokenize: the reply has no token ids")
        before = context.ids or ()
        if isinstance(context.extra, int) and len(before) + len(ids) >= context.extra:
            return Unusable("draft_context", f"the draft does not fit the window of {context.extra} tokens")
        surfaces = yield from _surfaces(request, before[-_TAIL:], ids, draft)
        ends = align(surfaces, draft) if surfaces is not None else None
        if surfaces is None or ends is None:
            return Unusable("cannot_score", "the target's tokens do not give the draft's text back")
        for token_id, text in zip(ids, surfaces, strict=True):
            if text and "�" not in text:
                self.memory.learn_text(token_id, text)
        body: dict[str, Any] = {
            "input_ids": [*before, *ids],
            "sampling_params": dict(_NEUTRAL),
            "return_logprob": True,
            "logprob_start_len": len(before) - 1,
            "top_logprobs_num": LISTED,
            "return_text_in_logprobs": True,
            **carry(request, ("lora_path", "extra_key", "priority")),
        }
        reply = yield HttpRequest("score", "/generate", body, billed=True)
        return self._read(request, reply, before, ids, tuple(surfaces), ends)

    def _read(
        self,
        request: Request,
        reply: HttpReply | None,
        before: tuple[int, ...],
        ids: tuple[int, ...],
        surfaces: tuple[str, ...],
        ends: tuple[int | None, ...],
    ) -> Score | Unusable:
        problem = refusal(reply, "score")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "score: no reply", retryable=True)
        body = as_mapping(reply.json())
        meta = as_mapping(body.get("meta_info"))
        given = [_entry(one) for one in as_list(meta.get("input_token_logprobs"))]
        listed = as_list(meta.get("input_top_logprobs"))
        if len(given) != len(ids) + 1 or len(listed) != len(given):
            return Unusable("cannot_score", "the reply has no log-probabilities of the draft", lasting=True)
        if tuple(one[1] for one in given) != (before[-1] if before else None, *ids):
            return Unusable("cannot_score", "the reply scores other token ids than were sent", lasting=True)
        tokens = [
            TargetLogprob(text, number, token_id, None, _alternatives(row))
            for (number, token_id, _), text, row in zip(given[1:], surfaces, listed[1:], strict=True)
        ]
        return Score(
            tuple(tokens),
            ends,
            self._following(body, meta),
            _usage(meta, len(before) + len(ids)),
            Identity(_string(meta.get("id")), request.model),
            trusted=shows_distribution(token.logprob for token in tokens),
        )

    def _following(self, body: Mapping[str, Any], meta: Mapping[str, Any]) -> NextToken | None:
        generated = ids_of(body.get("output_ids"))
        finish = as_mapping(meta.get("finish_reason"))
        text: object = body.get("text")
        if finish.get("type") == "stop" and not isinstance(finish.get("matched"), str):
            matched: object = finish.get("matched")
            token_id = matched if isinstance(matched, int) else generated[0] if generated else None
            self.memory.learn_end(token_id)
            return NextToken(None, token_id, ends_turn=True)
        if finish.get("type") != "length" or not generated:
            return None
        shown = isinstance(text, str) and text and "�" not in text
        return NextToken(text if shown and isinstance(text, str) else None, generated[0])

    def follow(self, alternative: Alternative) -> NextToken | None:
        """The correction as a token to go on with; ``None`` when it cannot be text by itself."""
        return self.memory.follow(alternative)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        return (yield from vllm_ids.advance(self.memory, request, context, draft, score, accepted, follow))

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        """The hand-off from exactly these ids, with the caller's own sampling."""
        return vllm_ids.continue_(request, context, max_tokens, _SAMPLING_FIELDS)


def _prompt_of(request: Request) -> dict[str, Any]:
    if request.kind != "chat":
        special = request.body.get("add_special_tokens", True)
        return {"model": request.model, "prompt": request.prompt, "add_special_tokens": special}
    own = carry(request, ("reasoning_effort", "chat_template_kwargs"))
    return {"model": request.model, "messages": request.body.get("messages", []), **own}


def _detokenize(request: Request, lists: Sequence[Sequence[int]]) -> Op[list[str] | None]:
    body = {"model": request.model, "tokens": [list(ids) for ids in lists], "skip_special_tokens": False}
    reply = yield HttpRequest("detokenize", "/detokenize", body)
    told = as_list(as_mapping(reply.json()).get("text")) if reply is not None and reply.status < 300 else []
    texts = [text for text in told if isinstance(text, str)]
    return texts if len(texts) == len(lists) else None


def _surfaces(request: Request, tail: tuple[int, ...], ids: tuple[int, ...], draft: str) -> Op[list[str] | None]:
    """The text of each of the draft's tokens where it stands; ``None``: they do not read as the draft.

    Alone, a token of SentencePiece's loses its leading space and one of a tokenizer that cleans up may change: then
    the texts are differences of ever longer prefixes.
    """
    texts = yield from _detokenize(request, [tail or ids[:1], (*tail, *ids), *([one] for one in ids)])
    if texts is None or texts[1] != (texts[0] if tail else "") + draft:
        return None
    alone = texts[2:]
    if align(alone, draft) is not None:
        return alone
    if len(ids) > _LONGEST:
        return None
    grown = yield from _detokenize(request, [(*tail, *ids[: count + 1]) for count in range(len(ids))])
    if grown is None:
        return None
    whole = [(texts[0] if tail else "").rstrip("�"), *(text.rstrip("�") for text in grown)]
    return [after[len(before) :] for before, after in pairwise(whole)]


def _entry(told: object) -> tuple[float | None, int | None, str]:
    """``[logprob | null, id, text | null]``."""
    parts = as_list(told)
    if len(parts) < 2:
        return None, None, "�"
    number, token_id, text = parts[0], parts[1], parts[2] if len(parts) > 2 else None
    good = is_number(number) and usable(number)
    known = token_id if isinstance(token_id, int) and not isinstance(token_id, bool) else None
    return float(number) if good else None, known, text if isinstance(text, str) else "�"


def _alternatives(row: object) -> tuple[Alternative, ...]:
    entries = [_entry(one) for one in as_list(row)]
    return tuple(Alternative(text, number, token_id) for number, token_id, text in entries if number is not None)


def _usage(meta: Mapping[str, Any], sent: int) -> Usage:
    counts = [meta.get(name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")]
    prompt, written, cached = (max(0, int(one)) if is_number(one) else None for one in counts)
    if prompt is None or written is None:
        return Usage(sent, 1, estimated=True)
    return Usage(prompt, written, None if cached is None else min(cached, prompt))


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
