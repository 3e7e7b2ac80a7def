"""What the text-scoring dialects of hosted APIs have in common (Fireworks, Together, Mistral).

Rules
-----
1. Reply so far and draft travel as the beginning of the assistant's message (a completion: after the prompt). A
   dialect says how its API is told to go on from there, how it is asked for the prompt's log-probabilities,
   and where it puts them; finding the draft among them is :mod:`cheapspec.backends.text_route`'s.
2. None of these APIs is known to go on from a message without a probe having seen it; the scored tokens show a
   closed turn in any case.
3. The scoring call carries neutral sampling in the names that the API knows, generates one token, and no field of
   the caller's that concerns generated text; the hand-off carries the caller's own fields.
4. Where an API says the beginning of the message again, it is taken off the continuation: exactly that text, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cheapspec.backends.openai_wire import continuing, refusal
from cheapspec.backends.said_again import strip_prefix
from cheapspec.backends.text_route import Position, advance, left_of, part_to_score, read_score, with_reply
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.core.acceptance import Alternative, TargetLogprob, usable
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.received import read_identity, read_usage
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["LISTED", "Scored", "TextTarget", "items", "judged"]

_OF_GENERATED_TEXT = frozenset(
    {
        *("stream", "stream_options", "stop", "max_tokens", "max_completion_tokens", "min_tokens", "seed"),
        *("random_seed", "logit_bias", "prediction", "echo", "logprobs", "top_logprobs", "response_format"),
        *("ignore_eos", "typical_p", "mirostat_target", "mirostat_lr", "perf_metrics_in_response", "speculation"),
    }
)
"""Fields of the caller's that say how a reply is written or shown; scoring writes none."""


LISTED = 2
"""Alternatives asked for at each position. With one, a likely text would list nothing but itself, which a server that
repeats what it is given does as well; the second best shows that there is a distribution."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A scoring reply as its dialect reads it. ``positions``: of the prompt, or of its end; ``following``: the
    token that was generated after it.
    """

    positions: Sequence[Position]
    following: NextToken | None = None


class TextTarget(ABC):
    """A hosted API that scores text (:class:`cheapspec.core.ports.Target`).

    ``end_ids``: token ids known to end a turn. ``says_again``: the API begins a continuation with the beginning
    that it was shown (``None``: not known; then only what cannot be chance is taken off).
    """

    name: ClassVar[str]
    can_score = True
    can_force = False
    scores_from_cache = False
    flags: ClassVar[Mapping[str, Any]] = {}
    """In the body, so that the last message is gone on from."""
    message: ClassVar[Mapping[str, Any]] = {}
    """In that message."""
    neutral: ClassVar[Mapping[str, Any]] = {}
    """Sampling fields of the scoring call."""
    always: ClassVar[Mapping[str, Any]] = {}
    """In every call of ours."""
    kinds = frozenset({"chat", "completion"})

    def __init__(self, *, end_ids: tuple[int, ...] = (), says_again: bool | None = None) -> None:
        self.memory = TokenMemory(end_ids)
        self.says_again = says_again

    @abstractmethod
    def question(self, request: Request, context: Context, sent: str) -> Mapping[str, Any]:
        """The fields that ask for the prompt's log-probabilities; ``sent``: reply so far and draft."""

    @abstractmethod
    def scored(self, body: Mapping[str, Any], asked: Mapping[str, Any], sent: str, usage: Usage) -> Scored | str:
        """The prompt's tokens out of a reply to ``asked``, or why there are none. ``sent``: the text that the
        prompt ends in (of a completion: the whole prompt).
        """

    def open(self, request: Request) -> Op[Context | Unusable]:
        """Nothing is known before the first scoring call."""
        yield from ()
        if request.kind not in self.kinds:
            return Unusable("cannot_score", f"{self.name} does not score a {request.kind}")
        return Context()

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """One billed call; trailing whitespace of the draft stays unscored on the chat route."""
        part = part_to_score(request, context, draft)
        if not part.strip():
            return Unusable("cannot_score", "only whitespace to score", continues=True)
        sent = context.text + part
        asked = self.question(request, context, sent)
        told = with_reply(request, sent, self.flags, self.message)
        body = {key: value for key, value in told.items() if key not in _OF_GENERATED_TEXT}
        body |= {**self.neutral, **self.always, "max_tokens": 1, **asked}
        reply = yield HttpRequest("score", _path(request), body, billed=True)
        return self._read(request, reply, context, part, asked, whole=part == draft)

    def _read(
        self,
        request: Request,
        reply: HttpReply | None,
        context: Context,
        draft: str,
        asked: Mapping[str, Any],
        *,
        whole: bool,
    ) -> Score | Unusable:
        problem = refusal(reply, "score")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "score: no reply", retryable=True)
        body = as_mapping(reply.json())
        told = read_usage(body.get("usage"), body.get("service_tier"))
        sent = (request.prompt or "") + context.text + draft
        found = self.scored(body, asked, sent, told or Usage())
        if isinstance(found, str):
            return Unusable("cannot_score", found, lasting=True)
        usage = told or Usage(len(found.positions), 1, estimated=True)
        following = found.following
        if following is not None and following.ends_turn:
            self.memory.learn_end(following.token_id)
        before = max(0, usage.input_tokens - len(found.positions))
        identity = read_identity(body)
        return read_score(
            request, context, draft, found.positions, usage, identity, following if whole else None, before
        )

    def follow(self, alternative: Alternative) -> NextToken | None:
        """The correction as a token to go on with; ``None`` when it cannot be text by itself."""
        return self.memory.follow(alternative)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        return (yield from advance(context, draft, score, accepted, follow))

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        """The hand-off by text, with the caller's own fields; only the token limit is what is left of it."""
        chat = request.kind == "chat"
        sent = context.text.rstrip() if chat else context.text
        body = {**with_reply(request, sent, self.flags, self.message), **self.always}
        body |= {"stream": True, **self.usage_in_stream(request)}
        body.pop("prediction", None)
        limit = left_of(request, context, max_tokens)
        if limit is not None:
            body["max_completion_tokens" if "max_completion_tokens" in request.body else "max_tokens"] = limit
        call = continuing(_path(request), body, "chat" if chat else "completion")
        return strip_prefix(call, sent) if self.says_again and sent.strip() else call

    def usage_in_stream(self, request: Request) -> Mapping[str, Any]:
        """How the API is asked to report a stream's usage."""
        return {"stream_options": {**as_mapping(request.body.get("stream_options")), "include_usage": True}}


def _path(request: Request) -> str:
    return "chat/completions" if request.kind == "chat" else "completions"


def judged(
    text: str, token_id: int | None, logprob: object, listed: Sequence[tuple[str, int | None, object]]
) -> TargetLogprob:
    """The judgement of a token out of a listing of (text, id, log-probability)."""
    number = float(logprob) if is_number(logprob) and usable(logprob) else None
    top = tuple(
        Alternative(name, float(value), one) for name, one, value in listed if is_number(value) and usable(value)
    )
    return TargetLogprob(text, number, token_id, None, top)


def items(value: object) -> list[Mapping[str, Any]]:
    """A list of objects."""
    return [as_mapping(one) for one in as_list(value)]
