"""Text match: the target writes by itself at temperature 0, and a draft holds as far as it says the same.

Rules
-----
1. :class:`TextMatchTarget` stands in the place of a target that continues from token ids (vLLM, llama.cpp): its
   *score* is a window that the target writes (:mod:`cheapspec.backends.windows`). At temperature 0 what a target writes
   is all of its distribution, so a token that it wrote counts as certain (log-probability 0) and any other as
   impossible; the first that differs is the correction, the one after the whole draft the bonus token.
2. With a stated probability a draft token that differs holds as well if the target lists it as at least that likely.
   That is lossy, and ends the window: what the target wrote after it follows another text.
3. :class:`WholeReplyTarget` is for APIs that only answer: the window is the whole reply, one generation, as the target
   alone would give it. What agrees with the draft is recorded; nothing of it is saved.
4. Every compared token is generated, and billed so: this proves agreement, and never costs less than the target alone
   (:func:`cheapspec.core.rules.text_match_cost`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from cheapspec.backends.llamacpp_target import LlamaCppTarget
from cheapspec.backends.openai_wire import ids_of
from cheapspec.backends.vllm import VllmTarget
from cheapspec.backends.vllm_sampling import tokenize_text
from cheapspec.backends.windows import Window, llamacpp_window, vllm_window, whole_reply
from cheapspec.core.acceptance import Alternative, TargetLogprob
from cheapspec.core.alignment import pieces
from cheapspec.core.effects import HttpRequest, Op
from cheapspec.core.ports import Context, NextToken, Score, Streaming, Target, TargetPiece, Unusable
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_mapping

__all__ = ["TextMatchTarget", "WholeReplyTarget", "text_matching"]

LISTED = 20
"""Alternatives asked for where a probability decides: vLLM lists no more (0.32, ``--max-logprobs``)."""

_CERTAIN = 0.0
_NEVER = -8999.0  # a usable number below which nothing is a log-probability
_NONE = -1  # no token's id
_END = -2  # stands for the end of a whole reply

_Write = Callable[[Request, Context, int, int], Op[Window | Unusable]]


def text_matching(target: Target | None, probability: float | None = None) -> Target:
    """The target to match texts with, in the place of ``target`` (``None``: an API that only answers).
    ``probability``: of a listed token, from which it holds; ``None``: only what the target wrote itself.
    """
    if isinstance(target, VllmTarget | LlamaCppTarget):
        return TextMatchTarget(target, probability)
    return WholeReplyTarget()


class TextMatchTarget:
    """Compares drafts with what a target writes (:class:`cheapspec.core.ports.Target`)."""

    can_score = False
    can_force = True
    scores_from_cache = True  # a window is generated, and generation reads the cache

    def __init__(self, inner: VllmTarget | LlamaCppTarget, probability: float | None = None) -> None:
        self._inner: VllmTarget | LlamaCppTarget = inner
        self._probability = probability
        self._write: _Write = vllm_window if isinstance(inner, VllmTarget) else llamacpp_window
        self.name = inner.name
        self.kinds = inner.kinds

    def open(self, request: Request) -> Op[Context | Unusable]:
        """As the target does, whose route must be by token ids."""
        context = yield from self._inner.open(request)
        if isinstance(context, Context) and context.ids is None:
            return Unusable("cannot_score", "text match needs a target that is sent token ids, not text")
        return context

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """One billed call: as many tokens as the draft has, and one."""
        count = (yield from self._count(request, draft)) + 1
        if request.max_tokens is not None:
            count = min(count, request.max_tokens - context.tokens)
        listed = LISTED if self._probability is not None else 0
        window = yield from self._write(request, context, count, listed)
        if isinstance(window, Unusable):
            return window
        if window.ended:
            self._learn_end(window.end_id)
        likely = None if self._probability is None else (yield from self._likely(request, window, draft))
        tokens, ends, following = _compared(window, draft, likely)
        if not tokens:
            return Unusable("cannot_score", "the target wrote nothing that could be compared", continues=True)
        return Score(tokens, ends, following, window.usage, window.identity)

    def _count(self, request: Request, draft: str) -> Op[int]:
        """Tokens of the draft, as the target counts; else an estimate. Unbilled."""
        body = {"content": draft, "add_special": False, "parse_special": False}
        by_vllm = isinstance(self._inner, VllmTarget)
        asked = tokenize_text(request, draft) if by_vllm else HttpRequest("tokenize", "/tokenize", body)
        reply = yield asked
        ids = None if reply is None else ids_of(as_mapping(reply.json()).get("tokens"))
        return len(ids) if ids else len(pieces(draft))

    def _likely(self, request: Request, window: Window, draft: str) -> Op[Alternative | None]:
        """What of the draft may stand where it first differs: the longest listed token that is likely enough and whose
        id is known.
        """
        at, count = _agreed(window, draft)
        ended = count == len(window.words)
        listed = window.last if ended else window.words[count].others
        least = math.log(self._probability or 1.0)
        usable = [one for one in listed if one.text and least <= one.logprob < 0 and draft.startswith(one.text, at)]
        for one in sorted(usable, key=lambda one: len(one.text), reverse=True):
            if one.token_id is not None:
                return one
            reply = yield tokenize_text(request, one.text)
            ids = None if reply is None else ids_of(as_mapping(reply.json()).get("tokens"))
            if ids is not None and len(ids) == 1:
                return Alternative(one.text, one.logprob, ids[0])
        return None

    def _learn_end(self, end_id: int | None) -> None:
        if isinstance(self._inner, VllmTarget):
            self._inner.memory.learn_end(end_id)
        elif end_id is not None:
            self._inner.end_ids.add(end_id)

    def follow(self, alternative: Alternative) -> NextToken | None:
        return self._inner.follow(alternative)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        return (yield from self._inner.advance(request, context, draft, score, accepted, follow))

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        return self._inner.continue_(request, context, max_tokens)


def _common(one: str, other: str) -> int:
    """Characters of the longest common prefix."""
    differs = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differs, min(len(one), len(other)))


def _agreed(window: Window, draft: str) -> tuple[int, int]:
    """How far the draft agrees in whole tokens: characters, and words of the window."""
    common = _common(window.text, draft)
    held = [(word.end, count) for count, word in enumerate(window.words, 1) if word.end is not None]
    return max(((end, count) for end, count in held if end <= common), default=(0, 0))


def _compared(
    window: Window, draft: str, likely: Alternative | None
) -> tuple[tuple[TargetLogprob, ...], tuple[int | None, ...], NextToken | None]:
    """The window as evidence about the draft: its tokens that agree, then the first that does not, if there is one."""
    at, count = _agreed(window, draft)
    words = window.words[:count]
    tokens = [TargetLogprob(word.text, _CERTAIN, word.token_id, 1) for word in words]
    ends = [word.end for word in words]
    following: NextToken | None = None
    own: Alternative | None = None
    if count < len(window.words):
        word = window.words[count]
        own = Alternative(word.text, _CERTAIN, word.token_id)
        following = NextToken(None if word.end is None else word.text, word.token_id)
    elif window.ended:
        own = Alternative("", _CERTAIN, window.end_id)
        following = NextToken(None, window.end_id, ends_turn=True)
    if at == len(draft):
        return tuple(tokens), tuple(ends), following
    if own is not None and likely is not None:
        tokens.append(TargetLogprob(likely.text, likely.logprob, likely.token_id, None, (own,)))
        ends.append(at + len(likely.text))
    elif own is not None:
        tokens.append(TargetLogprob(draft[at:], _NEVER, _NONE, None, (own,)))
        ends.append(None)
    return tuple(tokens), tuple(ends), None


class WholeReplyTarget:
    """Compares a draft with the whole reply of an API that only answers (:class:`cheapspec.core.ports.Target`).

    The reply is the target's own; tokens that agree are counted in proportion to the text.
    """

    name = "generic"
    can_score = False
    can_force = True
    kinds = frozenset({"chat", "completion"})
    scores_from_cache = True

    def open(self, request: Request) -> Op[Context | Unusable]:
        yield from ()
        return Context()

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """One billed call, the caller's own request."""
        found = yield from whole_reply(request)
        if isinstance(found, Unusable):
            return found
        text, reason, usage, identity = found
        stop = reason == "stop"
        if not stop and (request.max_tokens is None or usage.output_tokens < request.max_tokens):
            return Unusable("cannot_score", "the reply was cut by a limit that is not the request's")
        total = max(1, usage.output_tokens - stop)
        if request.max_tokens is not None and stop:
            total = min(total, max(1, request.max_tokens - 1))
        common = _common(text, draft)
        entries, ends = _slices(text[:common], min(total, round(total * common / max(1, len(text)))))
        own = Alternative("", _CERTAIN, _END if stop else None)
        if common == len(draft) == len(text):
            following = NextToken(None, ends_turn=True) if stop else None
        else:
            entries.append(TargetLogprob(draft[common:], _NEVER, _NONE, None, (own,)))
            ends.append(None)
            following = None
        extra = (text, total if stop else usage.output_tokens)
        return Score(
            tuple(entries), tuple(ends), following, usage, identity, prompt_tokens=usage.input_tokens, extra=extra
        )

    def follow(self, alternative: Alternative) -> NextToken | None:
        """The rest of the reply comes with the verified text (:meth:`advance`), so what follows is its end."""
        return NextToken(None, ends_turn=True) if alternative.token_id == _END else None

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        """The whole reply."""
        yield from ()
        text, tokens = score.extra
        return Context(context.prompt_tokens, text, tokens)

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        raise AssertionError("a whole reply is never gone on from")


def _slices(text: str, count: int) -> tuple[list[TargetLogprob], list[int | None]]:
    """The agreeing text as so many tokens."""
    count = min(len(text), max(count, int(bool(text))))
    cuts = [round(len(text) * number / count) for number in range(count + 1)] if count else [0]
    return [TargetLogprob(text[begin:end], _CERTAIN, None, 1) for begin, end in pairwise(cuts)], [*cuts[1:]]
