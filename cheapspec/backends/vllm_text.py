"""vLLM by text: where ``/tokenize`` is out of reach (gateways forward ``/v1`` only). Rules beyond
:mod:`cheapspec.backends.vllm`:

1. Chat: the reply so far and the draft travel as a trailing assistant message with
   ``continue_final_message: true, add_generation_prompt: false``. Without the flags vLLM silently closes
   the turn. A completion: they are appended to the prompt.
2. Where the draft begins among the scored tokens is found from the end: the decoded tokens must give
   draft and reply back character by character. A token that straddles the seam proves nothing about
   either side, a tail that does not match (a closed turn, a trimming template, thoughts put in between)
   proves nothing at all.
3. The tokens before the reply must stay the same from round to round, and so must those of the reply: text
   is tokenized anew each time, and a target that wrote two line ends as one token goes on otherwise when it
   is shown two (vLLM 0.32 with SmolLM2, November 2026). Where they change, the target goes on by itself.
4. Whitespace at the end is never sent: templates and providers trim or refuse it.
5. Thoughts are no part of a reply: where a template opens a block of them before it, or closes one although
   nobody switched thinking off, the scored text is not what the target would write.
6. A continuation starts at an edge that the engine chose (:func:`cheapspec.core.text.safe_cut`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cheapspec.backends.openai_wire import (
    NEUTRAL_SAMPLING,
    Listed,
    ids_of,
    listed,
    refusal,
    target_logprob,
)
from cheapspec.backends.vllm_ids import continuing, read_next
from cheapspec.backends.vllm_tokens import TokenMemory
from cheapspec.core.acceptance import TargetLogprob, shows_distribution
from cheapspec.core.alignment import align
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.fields import thinking_switched_off
from cheapspec.core.ports import Context, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.received import first_choice, read_identity, read_usage
from cheapspec.core.request import Request
from cheapspec.core.text import closes_thoughts, opens_thoughts, special_cut
from cheapspec.core.untyped import as_list, as_mapping

__all__ = ["advance", "continue_", "score", "seam", "start"]

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


@dataclass(frozen=True, slots=True)
class _Shown:
    """What earlier replies showed: the ids before the reply's first token, the offsets in the reply at which
    its tokens end (those that end inside a character with the end of that character), and its ids
    (``None``: not known).
    """

    prompt: tuple[int, ...]
    ends: tuple[int, ...] = ()
    reply: tuple[int | None, ...] = ()

    def stands(self, found: Sequence[Listed | None]) -> bool:
        """Whether the reply's tokens, as they stand in a scored prompt, are the verified ones."""
        if not self.reply:
            return True
        pairs = zip(self.reply, found, strict=False)
        return len(found) == len(self.reply) and all(
            known is None or (given is not None and given.token_id == known) for known, given in pairs
        )

    def tokens_until(self, offset: int) -> int | None:
        """How many reply tokens lie before an offset; ``None`` where that is not known."""
        return None if not self.ends or offset > self.ends[-1] else sum(end <= offset for end in self.ends)


def start(request: Request) -> Context:
    """Nothing is known before the first scoring call."""
    return Context()


def _with_reply(request: Request, text: str) -> dict[str, Any]:
    """The caller's body with the reply so far in place."""
    body = dict(request.body)
    if request.kind != "chat":
        return body | {"prompt": (request.prompt or "") + text}
    if not text.strip():
        return body
    messages: list[Any] = [*request.body.get("messages", []), {"role": "assistant", "content": text}]
    return body | {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}


def score(memory: TokenMemory, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
    """One billed call; trailing whitespace of the draft stays unscored."""
    sent = context.text + draft
    if request.kind == "chat":
        sent = sent.rstrip()
    part = sent[len(context.text) :]
    if not part.strip():
        return Unusable("cannot_score", "only whitespace to score", continues=True)
    body = {key: value for key, value in _with_reply(request, sent).items() if key not in _NOT_FOR_SCORING}
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
    surfaces = [given.text if given is not None else "�" for given in prompt]
    found = seam(surfaces, context.text, draft)
    if found is None:
        closed = _closed("".join(surfaces), context.text + draft, request)
        detail = "the server closed the turn" if closed else "the scored tokens do not end in the reply and the draft"
        return Unusable("cannot_score", detail, lasting=closed, continues=not closed)
    reply_at, draft_at = found
    if request.kind == "chat" and _thinks("".join(surfaces[:reply_at]), request):
        return Unusable("reasoning", "the chat template makes the target think first", lasting=True)
    ids_before = tuple(given.token_id if given is not None else -1 for given in prompt[1:reply_at])
    if isinstance(context.extra, _Shown) and context.extra.prompt != ids_before:
        return Unusable("cannot_score", "the prompt's tokens changed between two rounds")
    if isinstance(context.extra, _Shown) and not context.extra.stands(prompt[reply_at:draft_at]):
        return Unusable("cannot_score", "the reply's text tokenizes otherwise than it was written", continues=True)
    tail = surfaces[draft_at:]
    ends = align(tail, draft)
    if ends is None:
        return Unusable("cannot_score", "the scored tokens do not join to the draft")
    tokens: list[TargetLogprob] = []
    for row, given in zip(rows[draft_at:], prompt[draft_at:], strict=True):
        judged = target_logprob(row, given.token_id, given.text) if given is not None else None
        tokens.append(judged or TargetLogprob("�", None))
    numbers = [given.logprob for given in prompt if given is not None]
    generated: Mapping[str, Any] = choice
    if request.kind == "chat":
        generated = {**choice, "text": as_mapping(choice.get("message")).get("content")}
    usage = read_usage(body.get("usage")) or Usage(len(rows), 1, estimated=True)
    return Score(
        tuple(tokens),
        ends,
        read_next(memory, generated) if whole else None,
        usage,
        read_identity(body),
        trusted=shows_distribution(numbers),
        prompt_tokens=reply_at,
        extra=_Shown(ids_before),
    )


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


def _closed(shown: str, sent: str, request: Request) -> bool:
    """The text stands in the prompt, a control token after it: the turn was closed. Text that the
    caller's own messages contain as well proves nothing.
    """
    at = shown.rfind(sent)
    mine = any(sent in str(message.get("content")) for message in request.messages)
    return at >= 0 and not mine and special_cut(shown[at + len(sent) :]) < len(shown) - at - len(sent)


def _thinks(prompt: str, request: Request) -> bool:
    """Whether the target, asked by itself, would write thoughts first, to judge by what a template put before the
    reply. A closed block may stand there because thinking is off (then the target is shown one as well), or
    because it belongs to every turn that is over (then the target writes its own): only the caller's word tells.
    """
    return opens_thoughts(prompt) or (closes_thoughts(prompt) and not thinking_switched_off(request.body))


def seam(surfaces: Sequence[str], reply: str, draft: str) -> tuple[int, int] | None:
    """Indexes of the first token of ``reply`` and of the first token of ``draft``, when the last tokens
    read ``reply + draft`` and one of them begins exactly where the draft begins; else ``None``.

    Tokens inside a character read "": vLLM gives the whole character to the token that completes it,
    so an empty token belongs to the one after it. Where an older server shows U+FFFD instead, nothing
    is certain and the answer is ``None``.
    """
    text = reply + draft
    position, begins = len(text), dict[int, int]()
    for index in range(len(surfaces) - 1, -1, -1):
        surface = surfaces[index]
        if not text.endswith(surface, 0, position) or len(surface) > position:
            break
        position -= len(surface)
        if position < len(text):
            begins[position] = index
    if 0 not in begins or len(reply) not in begins:
        return None
    return begins[0], begins[len(reply)]


def advance(
    context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
) -> Op[Context | Unusable]:
    """Text and token count after the accepted tokens; whole characters only. Makes no call."""
    yield from ()
    whole = next((n for n in range(accepted, 0, -1) if score.ends[n - 1] is not None), 0)
    offset = (score.ends[whole - 1] or 0) if whole else 0
    text, tokens = context.text + draft[:offset], context.tokens + whole
    if follow is not None and follow.text and not follow.ends_turn:
        text, tokens = text + follow.text, context.tokens + accepted + 1
    known = context.prompt_tokens if context.prompt_tokens is not None else score.prompt_tokens
    shown = score.extra if isinstance(score.extra, _Shown) else _Shown(())
    earlier = context.extra if isinstance(context.extra, _Shown) else _Shown((), (), (None,) * context.tokens)
    written = [*(token.token_id for token in score.tokens[:accepted]), follow.token_id if follow else None]
    ids = (*earlier.reply, *written[: tokens - context.tokens])
    base, last, ends = len(context.text), len(text), list(earlier.ends)
    for index in range(tokens - context.tokens):
        end = score.ends[index] if index < accepted else None
        ends.append(last if end is None else base + end)
    for index in range(len(ends) - 2, -1, -1):
        ends[index] = min(ends[index], ends[index + 1])
    return Context(known, text, tokens, None, replace(shown, ends=tuple(ends), reply=ids))


def continue_(request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
    """The hand-off by text, with the caller's own fields; only the token limit is what is left of it."""
    chat = request.kind == "chat"
    body = _with_reply(request, context.text.rstrip() if chat else context.text)
    options = as_mapping(body.get("stream_options"))
    body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    body.pop("prediction", None)
    if max_tokens is not None:
        done = context.extra.tokens_until(len(context.text)) if isinstance(context.extra, _Shown) else None
        if done is not None and request.max_tokens is not None:
            max_tokens = max(1, request.max_tokens - done)
        name = "max_completion_tokens" if "max_completion_tokens" in request.body else "max_tokens"
        body[name] = max_tokens
    path = "chat/completions" if chat else "completions"
    return continuing(path, body, "chat" if chat else "completion")
