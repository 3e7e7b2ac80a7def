"""A drafter and a target without HTTP, for tests that hold the engine in hand (:func:`cheapspec.testing.play.play`).

Rules
-----
* :class:`ScriptedDrafter` and :class:`ScriptedTarget` are dialects like any other: they turn questions
  into :class:`~cheapspec.core.effects.HttpRequest` values. Their wire is their own (JSON lines), and
  their ``answer`` method is the server that speaks it, over a toy model.
* :func:`answers` lets each side answer its own calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cheapspec.core.acceptance import Alternative, DraftToken, TargetLogprob
from cheapspec.core.effects import (
    Broke,
    HttpReply,
    HttpRequest,
    Op,
    Side,
    Start,
    Usage,
)
from cheapspec.core.ports import (
    Context,
    DraftPiece,
    Identity,
    NextToken,
    NoDraft,
    Score,
    Streaming,
    TargetPiece,
    Unusable,
)
from cheapspec.core.request import Request
from cheapspec.testing.generation import Sampling, generate
from cheapspec.testing.play import Answer, Played, play
from cheapspec.testing.toy import ToyModel
from cheapspec.testing.wire import mapping

__all__ = ["Answer", "Played", "ScriptedDrafter", "ScriptedTarget", "answers", "play"]

P = TypeVar("P")


# --- the wire: JSON lines ----------------------------------------------------------------------------


class _Lines(Generic[P]):
    """Decodes JSON lines, any split; ``unfinished`` is the piece for a body without a last line."""

    def __init__(self, read: Callable[[dict[str, Any]], P], unfinished: P) -> None:
        self._read = read
        self._unfinished = unfinished
        self._held = b""
        self._ended = False

    def feed(self, data: bytes) -> list[P]:
        *lines, self._held = (self._held + data).split(b"\n")
        pieces: list[P] = []
        for line in filter(None, lines):
            told: dict[str, Any] = json.loads(line)
            self._ended = self._ended or "end" in told
            pieces.append(self._read(told))
        return pieces

    def close(self) -> list[P]:
        return [] if self._ended else [self._unfinished]


def _line(**told: Any) -> bytes:
    return json.dumps(told).encode() + b"\n"


def _prompt(model: ToyModel, request: Request) -> list[int]:
    return model.encode(model.render(request.messages) if request.kind == "chat" else request.prompt or "")


# --- the drafter -------------------------------------------------------------------------------------


@dataclass
class ScriptedDrafter:
    """A drafter over a toy model. ``at_once``: it proposes without a call, as prompt lookup does."""

    model: ToyModel
    name: str = "scripted"
    base_url: str = "http://draft.test"
    at_once: bool = False

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...] | None:
        if not self.at_once:
            return None
        return tuple(token for piece in map(_read_draft, self._lines(request, prefix, max_tokens)) for token in piece)

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        yield from ()
        body = {"ids": _prompt(self.model, request), "prefix": prefix, "max_tokens": max_tokens}
        asked = HttpRequest("draft", "/scripted/draft", body, stream=True)

        def read(told: dict[str, Any]) -> DraftPiece:
            return DraftPiece(_read_draft(told), told.get("end"))

        def refused(reply: HttpReply) -> NoDraft:
            return NoDraft("draft_busy" if reply.status == 503 else "no_draft", f"status {reply.status}", broken=True)

        return Streaming(asked, _Lines(read, DraftPiece(end="cut")), refused)

    def _lines(self, request: Request, prefix: str, max_tokens: int) -> Iterable[dict[str, Any]]:
        return self._write(_prompt(self.model, request), prefix, max_tokens)

    def _write(self, prompt: list[int], prefix: str, max_tokens: int) -> list[dict[str, Any]]:
        context = prompt + self.model.encode(prefix)
        told: list[dict[str, Any]] = []
        end = "length"
        spanned = 0
        for step in generate(self.model, context, Sampling(max_tokens), None):
            spanned += 1
            if step.text:  # an entry that spans several tokens has no probability of its own
                value = self.model.logprobs(context)[step.token] if spanned == 1 else None
                told.append({"text": step.text, "logprob": value})
                spanned = 0
            context.append(step.token)
            end = step.finish or end
        return [*told, {"end": end}]

    def answer(self, start: Start) -> Answer:
        """The host: answers this drafter's calls."""
        body: Mapping[str, Any] = start.request.body or {}
        return [_line(**told) for told in self._write(body["ids"], body["prefix"], body["max_tokens"])]


def _read_draft(told: Mapping[str, Any]) -> tuple[DraftToken, ...]:
    return (DraftToken(told["text"], told["logprob"]),) if "text" in told else ()


# --- the target --------------------------------------------------------------------------------------


@dataclass
class ScriptedTarget:
    """A target over a toy model, working by token ids. It counts 16-token blocks of no cache: every input
    token is full price unless ``cached_tokens`` says otherwise.
    """

    model: ToyModel
    name: str = "scripted"
    can_score: bool = True
    can_force: bool = False
    cached_tokens: int | None = 0
    kinds: frozenset[str] = frozenset({"chat", "completion"})
    scores_from_cache: bool = False

    def open(self, request: Request) -> Op[Context | Unusable]:
        body = {"messages": list(request.messages), "prompt": request.prompt}
        reply = yield HttpRequest("tokenize", "/scripted/tokenize", body)
        told = reply.json() if reply is not None and reply.status == 200 else None
        if told is None:
            return Unusable("cannot_score", "the prompt could not be tokenized")
        ids = tuple(told["ids"])
        return Context(prompt_tokens=len(ids), ids=ids)

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        body = {"ids": list(context.ids or ()), "draft": draft}
        purpose = "score" if self.can_score else "force"
        reply = yield HttpRequest(purpose, "scripted/score", body, billed=True)
        if reply is None:
            return Unusable("cannot_score", "no answer", retryable=True)
        told = mapping(reply.json())
        if reply.status != 200 or not told:
            retryable = reply.status in (429, 500, 502, 503, 504)
            return Unusable("cannot_score", f"status {reply.status}", status=reply.status, retryable=retryable)
        return self._read_score(told, draft, len(context.ids or ()) - context.tokens)

    def _read_score(self, told: Mapping[str, Any], draft: str, prompt_tokens: int) -> Score:
        tokens: list[TargetLogprob] = []
        ends: list[int | None] = []
        data = b""
        for entry in told["tokens"]:
            top = tuple(Alternative(self.model.decode([one]), value, one) for one, value in entry["top"])
            token: int = entry["id"]
            tokens.append(TargetLogprob(self.model.decode([token]), entry["logprob"], token, entry["rank"], top))
            data += self.model.vocabulary[token]
            ends.append(_length(data))
        numbers = [entry["logprob"] for entry in told["tokens"]]
        return Score(
            tokens=tuple(tokens),
            ends=tuple(ends),
            next=self._next(told["next"]),
            usage=Usage(**told["usage"]),
            identity=Identity(told["id"], "scripted"),
            trusted=any(numbers) or not numbers,
            prompt_tokens=prompt_tokens,
        )

    def _next(self, token: int) -> NextToken:
        ends = token == self.model.end_id
        whole = _length(self.model.vocabulary[token]) is not None
        return NextToken(self.model.decode([token]) if whole and not ends else None, token, ends)

    def follow(self, alternative: Alternative) -> NextToken | None:
        assert alternative.token_id is not None
        found = self._next(alternative.token_id)
        return found if found.ends_turn or found.text is not None else None

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        yield from ()
        ids = [*(context.ids or ()), *(token.token_id or 0 for token in score.tokens[:accepted])]
        if follow is not None and follow.token_id is not None:
            ids.append(follow.token_id)
        prompt = context.prompt_tokens or 0
        while len(ids) > prompt and _length(self.model.decode_bytes(ids[prompt:])) is None:
            ids.pop()
        return Context(prompt, self.model.decode(ids[prompt:]), len(ids) - prompt, tuple(ids))

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        body = {"ids": list(context.ids or ()), "max_tokens": max_tokens, "stop": list(request.stops)}
        asked = HttpRequest("continue", "scripted/continue", body, stream=True, billed=True)

        def read(told: dict[str, Any]) -> TargetPiece:
            if "error" in told:
                return TargetPiece(error=told["error"])
            if "end" in told:
                return TargetPiece(finish_reason=told["end"], usage=Usage(**told["usage"]), complete=True)
            return TargetPiece(told["text"], tokens=1, ids=(told["id"],))

        def refused(reply: HttpReply) -> Unusable:
            return Unusable("cannot_score", f"status {reply.status}", status=reply.status)

        return Streaming(asked, _Lines(read, TargetPiece()), refused)

    def answer(self, start: Start) -> Answer:
        """The server: answers this target's calls."""
        body: Mapping[str, Any] = start.request.body or {}
        match start.request.purpose:
            case "tokenize":
                rendered = self.model.render(body["messages"]) if body["messages"] else body["prompt"]
                return _json(ids=self.model.encode(rendered))
            case "score" | "force":
                return self._answer_score(body)
            case _:
                return self._answer_continue(body)

    def _answer_score(self, body: Mapping[str, Any]) -> HttpReply:
        ids: list[int] = list(body["ids"])
        prompt = len(ids)
        tokens: list[dict[str, Any]] = []
        for token in self.model.encode(body["draft"]):
            values = self.model.logprobs(ids)
            best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:2]
            rank = sum(value >= values[token] for value in values)
            top = [(one, values[one]) for one in best]
            tokens.append({"id": token, "logprob": values[token], "rank": rank, "top": top})
            ids.append(token)
        usage = {"input_tokens": len(ids), "output_tokens": 1, "cached_tokens": self.cached_tokens}
        if not self.can_score:
            usage = {**usage, "input_tokens": prompt, "output_tokens": len(tokens) + 1}
        return _json(id="scripted-1", tokens=tokens, next=self.model.next(ids), usage=usage)

    def _answer_continue(self, body: Mapping[str, Any]) -> Iterable[bytes]:
        ids: list[int] = list(body["ids"])
        limit: int = body["max_tokens"] if body["max_tokens"] is not None else 512
        lines: list[bytes] = []
        end = "length"
        for step in generate(self.model, ids, Sampling(limit, stops=tuple(body["stop"])), None):
            lines.append(_line(text=step.text, id=step.token))
            end = step.finish or end
        usage = {"input_tokens": len(ids), "output_tokens": len(lines), "cached_tokens": self.cached_tokens}
        return [*lines, _line(end=end, usage=usage)]


def answers(drafter: ScriptedDrafter | None, target: ScriptedTarget) -> Callable[[Start], Answer]:
    """A function for :func:`play` that lets each side answer its own calls."""

    def answer(start: Start) -> Answer:
        if start.side is Side.DRAFT:
            return drafter.answer(start) if drafter is not None else Broke(start.call_id, "connect")
        return target.answer(start)

    return answer


def _json(**told: Any) -> HttpReply:
    return HttpReply(200, json.dumps(told).encode(), {"content-type": "application/json"})


def _length(data: bytes) -> int | None:
    """The length in characters, ``None`` when the bytes end inside one."""
    try:
        return len(data.decode())
    except UnicodeDecodeError:
        return None
