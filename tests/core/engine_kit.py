"""What the engine's tests share: jobs over a toy model, a reference without the engine, books of what was billed."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.effects import Broke, HttpReply, Op, Start, Usage
from cheapspec.core.engine import Job, Policy, run
from cheapspec.core.ports import (
    Context,
    Decoder,
    Drafter,
    DraftPiece,
    Identity,
    NextToken,
    NoDraft,
    Score,
    Streaming,
    Target,
    TargetPiece,
    Unusable,
)
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.testing.scripted import Answer, Played, ScriptedDrafter, ScriptedTarget, answers, play
from cheapspec.testing.toy import ToyModel

PROMPT = "Say something"


def asked(
    *, prompt: str = PROMPT, stream: bool = True, stops: Sequence[str] = (), max_tokens: int | None = 40
) -> Request:
    """A chat request at temperature 0."""
    messages = ({"role": "user", "content": prompt},)
    body = {"model": "toy", "messages": list(messages), "temperature": 0}
    return Request("chat", body, "toy", stream, messages=messages, stops=tuple(stops), max_tokens=max_tokens)


@dataclass(frozen=True)
class Alone:
    """What the target alone gives: text, why it ended, and how many tokens it bills."""

    text: str
    reason: str
    tokens: int


def alone(model: ToyModel, request: Request, limit: int = 200) -> Alone:
    """The reference: greedy decoding token by token, stop strings looked for after every token."""
    limit = limit if request.max_tokens is None else request.max_tokens
    ids = model.encode(model.render(request.messages))
    decoder, text = codecs.getincrementaldecoder("utf-8")("replace"), ""
    written = model.greedy(ids, limit)
    for count, token in enumerate(written, 1):
        if token == model.end_id:
            return Alone(text, "stop", count)
        text += decoder.decode(model.vocabulary[token])
        places = [place for place in map(text.find, request.stops) if place >= 0]
        if places:
            return Alone(text[: min(places)], "stop", count)
    return Alone(text + decoder.decode(b"", final=True), "length", len(written))


@dataclass
class Proposing:
    """A drafter that proposes given texts in turn, cut into pieces of so many characters, then nothing."""

    texts: list[str]
    size: int = 4
    name: str = "proposing"
    base_url: str = ""
    asked: int = 0

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
        text = self.texts[self.asked] if self.asked < len(self.texts) else ""
        self.asked += 1
        cut = [text[at : at + self.size] for at in range(0, len(text), self.size)]
        return tuple(DraftToken(piece) for piece in cut[:max_tokens])

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        raise AssertionError("it proposes at once")


@dataclass
class Books:
    """Lets both sides answer and keeps what the target billed for each call, by id.

    ``fault``: may answer instead (given the call and the count of earlier calls with that purpose).
    ``split``: cuts every streamed body into parts of so many bytes; 0: as it came.
    """

    answer: Callable[[Start], Answer]
    fault: Callable[[Start, int], Any] | None = None
    split: int = 0
    billed: dict[int, Usage] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def __call__(self, start: Start) -> Answer:
        purpose = start.request.purpose
        earlier = self.seen.get(purpose, 0)
        self.seen[purpose] = earlier + 1
        reply = self.fault(start, earlier) if self.fault is not None else None
        if reply is None:
            reply = self.answer(start)
        if callable(reply):
            reply = reply(self.answer(start))
        assert reply is not None
        if not isinstance(reply, HttpReply | Broke):
            reply = list(reply)
        if start.request.billed:
            self._bill(start, reply)
        if self.split and isinstance(reply, list):
            body = b"".join(reply)
            return [body[at : at + self.split] for at in range(0, len(body), self.split)]
        return reply

    def _bill(self, start: Start, reply: HttpReply | Broke | list[bytes]) -> None:
        if isinstance(reply, HttpReply):
            if reply.status < 300:
                self.billed[start.call_id] = Usage(**reply.json()["usage"])
        elif isinstance(reply, list):
            lines = [json.loads(line) for line in b"".join(reply).splitlines()]
            told = [line["usage"] for line in lines if "usage" in line]
            assert start.request.body is not None
            shown = len(start.request.body["ids"])
            tokens = sum("text" in line for line in lines)
            self.billed[start.call_id] = Usage(**told[0]) if told else Usage(shown, tokens, estimated=True)
        elif reply.kind in ("timeout", "cut"):
            raise AssertionError("what such a call costs is not known; test it by hand")


@dataclass
class Ran:
    """A run, its counts and its books."""

    played: Played
    tally: Tally
    books: Books

    @property
    def text(self) -> str:
        return self.played.text

    @property
    def end(self) -> Alone:
        """The end in the terms of :func:`alone`."""
        finish = self.played.finish
        assert finish is not None and finish.finish_reason is not None and finish.error is None
        return Alone(self.text, finish.finish_reason, finish.usage.output_tokens)


def job(request: Request, target: Target, drafters: Sequence[Drafter], **more: Any) -> Job:
    """A job with a fresh tally; three tokens a round unless said otherwise."""
    policy = more.pop("policy", Policy(draft_tokens=3))
    return Job(request, target, drafters, Tally(), policy, **more)


def ran(
    request: Request,
    model: ToyModel,
    drafters: Sequence[Drafter] | None = None,
    *,
    target: ScriptedTarget | None = None,
    fault: Callable[[Start, int], Any] | None = None,
    split: int = 0,
    leave_after: int | None = None,
    **more: Any,
) -> Ran:
    """Play one request to its end."""
    target = target or ScriptedTarget(model)
    drafters = [ScriptedDrafter(model)] if drafters is None else drafters
    asking = next((one for one in drafters if isinstance(one, ScriptedDrafter) and not one.at_once), None)
    books = Books(answers(asking, target), fault, split)
    given = job(request, target, drafters, **more)
    return Ran(play(run(given), books, leave_after=leave_after, permit=given.permit), given.tally, books)


def pinned(reply: str, **more: Any) -> ToyModel:
    """A target that answers :data:`PROMPT` with ``reply`` and ends its turn."""
    return ToyModel(replies={PROMPT: reply}, **more)


def cut_stream(lines: int, *, error: object = None) -> Callable[[Iterable[bytes]], list[bytes]]:
    """For ``Books.fault``: only the first lines of a stream, and then perhaps an error object."""

    def cut(whole: Iterable[bytes]) -> list[bytes]:
        kept = list(whole)[:lines]
        return kept if error is None else [*kept, json.dumps({"error": error}).encode() + b"\n"]

    return cut


@dataclass
class TextTarget(ScriptedTarget):
    """A scripted target without token ids: it is shown text, and goes on from text.

    ``echo``: what it says before it goes on (``"prefix"``, ``"sentence"`` or nothing); ``swallows``: it drops
    the white space at the beginning of its continuation, as templates that trim do.
    """

    echo: str = ""
    swallows: bool = False

    def open(self, request: Request) -> Op[Context | Unusable]:
        opened = yield from super().open(request)
        return replace(opened, ids=None, extra=opened.ids) if isinstance(opened, Context) else opened

    def _with_ids(self, context: Context) -> Context:
        ids = (*context.extra, *self.model.encode(context.text))
        return replace(context, ids=ids, tokens=len(ids) - len(context.extra))

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        return super().score(request, self._with_ids(context), draft)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        found = yield from super().advance(request, self._with_ids(context), draft, score, accepted, follow)
        return replace(found, ids=None, extra=context.extra) if isinstance(found, Context) else found

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        streaming = super().continue_(request, self._with_ids(context), max_tokens)
        said = {"prefix": context.text, "sentence": context.text.rpartition(". ")[2]}.get(self.echo, "")
        body = {**(streaming.request.body or {}), "said": said}
        asked = replace(streaming.request, body=body)
        return Streaming(asked, _WithoutIds(streaming.decoder), streaming.on_error)

    def answer(self, start: Start) -> Answer:
        reply = super().answer(start)
        if start.request.purpose != "continue":
            return reply
        assert start.request.body is not None and not isinstance(reply, HttpReply | Broke | None)
        lines = [json.loads(line) for line in reply]
        if self.swallows:
            lines[0]["text"] = lines[0]["text"].lstrip()
        said = start.request.body["said"]
        told = [{"text": said[at : at + 3], "id": 0} for at in range(0, len(said), 3)]
        return [json.dumps(line).encode() + b"\n" for line in [*told, *lines]]


@dataclass
class _WithoutIds:
    inner: Decoder[TargetPiece]

    def feed(self, data: bytes) -> list[TargetPiece]:
        return [replace(piece, ids=None, identity=Identity("another-id", "toy")) for piece in self.inner.feed(data)]

    def close(self) -> list[TargetPiece]:
        return self.inner.close()
