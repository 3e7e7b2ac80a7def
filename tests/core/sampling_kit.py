"""Exact enumeration of a run: a tiny explicit model, and a source of chance that takes every branch in turn.

A run is played again and again; each time chance takes another path, until every path has been taken. The
probability of a path is the product of the shares that were chosen, so the sum over all paths that end in the same
reply is that reply's probability, computed and not sampled.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cheapspec.core.acceptance import Alternative, DraftToken, TargetLogprob
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Start, Usage
from cheapspec.core.ports import Context, Drawn, NextToken, NoDraft, Score, Streaming, Unusable
from cheapspec.core.ports import DraftPiece as DraftPiece
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law
from cheapspec.testing.scripted import Answer, ScriptedTarget
from cheapspec.testing.toy import ToyModel

PROMPT = "ab cab caab cab caba cab caab cab"
"""Prompt lookup finds its last words again, further up."""
CONTROL = b"<|x|>"
SURFACES = (b"a", b"b", b" c", b"\xc3", b"\xa9", CONTROL, b"<|end|>")
Outcome = tuple[str, str, int]
"""Text, finish reason, tokens of the reply."""


class TinyModel(ToyModel):
    """Seven tokens: two letters, a word, both halves of ``é``, a control token that ends nothing, and the end. The
    distribution after a context depends on its last token, and all of it is explicit.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, words=())
        self.vocabulary = SURFACES
        self.end_id, self.start_id = len(SURFACES) - 1, -1
        self._ids = {surface: index for index, surface in enumerate(SURFACES)}
        self._longest = max(map(len, SURFACES))
        self.rows: list[list[float]] = []
        source = random.Random(seed)
        for last in range(len(SURFACES)):
            weights = [source.random() ** 3 for _ in SURFACES]
            if last == 3:  # after the first half of a character the second one is likely, but not certain
                weights[4] += 2.0
            total = sum(weights)
            self.rows.append([weight / total for weight in weights])

    def probabilities(self, ids: Sequence[int]) -> list[float]:
        return self.rows[ids[-1]]

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        return [math.log(share) for share in self.probabilities(ids)]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        return b"".join(self.vocabulary[one] for one in ids if one not in (5, self.end_id)).decode(errors="replace")


def sampled(shares: Sequence[float], law: Law) -> list[float]:
    """What a server makes of a distribution: temperature and nucleus, in its own order (not the code under test)."""
    hot = [share ** (1 / law.temperature) for share in shares]
    ranked = shares if law.nucleus_first else [weight / sum(hot) for weight in hot]
    order, kept, reached = sorted(range(len(shares)), key=lambda one: -ranked[one]), set[int](), 0.0
    for token in order:
        kept.add(token)
        reached += ranked[token]
        if reached >= law.top_p:
            break
    total = sum(weight for token, weight in enumerate(hot) if token in kept)
    return [weight / total if token in kept else 0.0 for token, weight in enumerate(hot)]


def reference(model: TinyModel, request: Request, law: Law) -> dict[Outcome, float]:
    """The target alone: the probability of every reply."""
    assert request.max_tokens is not None
    prompt = model.encode(request.prompt or "")
    found: dict[Outcome, float] = defaultdict(float)
    waiting: list[tuple[list[int], float]] = [([], 1.0)]
    while waiting:
        written, chance = waiting.pop()
        for token, share in enumerate(sampled(model.probabilities([*prompt, *written]), law)):
            if share == 0.0:
                continue
            now = [*written, token]
            text = model.decode(now).rstrip("\ufffd")
            places = [place for place in map(text.find, request.stops) if place >= 0]
            if token == model.end_id:
                found[text, "stop", len(now)] += chance * share
            elif places:
                found[text[: min(places)], "stop", len(now)] += chance * share
            elif len(now) == request.max_tokens:
                found[text, "length", len(now)] += chance * share
            else:
                waiting.append((now, chance * share))
    return dict(found)


class Pruned(Exception):
    """A path that is too unlikely to follow (rejections without end)."""


@dataclass
class Chance:
    """Takes the choices of ``path``, then the first possible one; remembers what else was possible."""

    path: list[int]
    share: float = 1.0
    least: float = 0.0
    open: list[list[int]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    asked: dict[tuple[int, int], tuple[tuple[float, ...], int]] = field(default_factory=dict)

    def choose(self, weights: Sequence[float]) -> int:
        possible = [index for index, weight in enumerate(weights) if weight > 0]
        at = len(self.taken)
        if at < len(self.path):
            index = self.path[at]
        else:
            index = possible[0]
            self.open += [[*self.taken, other] for other in possible[1:]]
        self.taken.append(index)
        self.share *= weights[index] / math.fsum(weights)
        if self.share < self.least:
            raise Pruned
        return index

    # --- cheapspec.core.sampling.Draws -----------------------------------------------------------

    def pick(self, weights: Sequence[float], position: int, step: int) -> int:
        told = self.asked.get((position, step))
        if told is None:
            told = self.asked[position, step] = (tuple(weights), self.choose(weights))
        assert told[0] == tuple(weights), "one number decides one question"
        return told[1]

    def seed(self, position: int, step: int) -> int | None:
        return None


def every_path(
    play: Callable[[Chance], Mapping[Outcome, float]], least: float = 0.0
) -> tuple[dict[Outcome, float], float]:
    """The probability of every outcome over all paths, and the probability of the paths that were cut off."""
    found: dict[Outcome, float] = defaultdict(float)
    lost, waiting = 0.0, [list[int]()]
    while waiting:
        chance = Chance(waiting.pop(), least=least)
        try:
            outcomes = play(chance)
        except Pruned:
            outcomes = {}
            lost += chance.share
        waiting += chance.open
        for outcome, share in outcomes.items():
            found[outcome] += chance.share * share
    return dict(found), lost


@dataclass
class SampledTarget(ScriptedTarget):
    """A target that lists the likeliest tokens of each position, and samples where it writes itself.

    ``chance`` decides what it writes; ``nucleus_first`` as in :class:`Law`. ``bare``: it does not tell what may
    follow the draft.
    """

    chance: Chance = field(default_factory=lambda: Chance([]))
    alternatives: int = 3
    nucleus_first: bool = False
    bare: bool = False

    def law(self, sampling: Sampling) -> Law | None:
        return Law(sampling.temperature, sampling.top_p or 1.0, self.alternatives, self.nucleus_first)

    def follow(self, alternative: Alternative) -> NextToken | None:
        special = alternative.token_id == 5
        return None if special else super().follow(alternative)

    def _listing(self, ids: Sequence[int], token: int | None) -> TargetLogprob:
        values = self.model.logprobs(ids)
        best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[: self.alternatives]
        named = best if token is None or token in best else [token, *best]
        top = tuple(Alternative(self.model.decode([one]), values[one], one) for one in named)
        return TargetLogprob(
            "" if token is None else self.model.decode([token]),
            None if token is None else values[token],
            token,
            None,
            top,
        )

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        score = yield from super().score(request, context, draft)
        if not isinstance(score, Score):
            return score
        ids, tokens = list(context.ids or ()), list[TargetLogprob]()
        for token in self.model.encode(draft):
            tokens.append(self._listing(ids, token))
            ids.append(token)
        after = None if self.bare else self._listing(ids, None)
        return Score(
            tuple(tokens), score.ends, None, score.usage, score.identity, prompt_tokens=score.prompt_tokens, after=after
        )

    def draw(self, request: Request, context: Context, banned: Sequence[int], seed: int | None) -> Op[Drawn | Unusable]:
        body = {"ids": list(context.ids or ()), "banned": list(banned), "sampling": request.sampling}
        reply = yield HttpRequest("continue", "scripted/draw", body, billed=True)
        if reply is None or reply.status != 200:
            return Unusable("cannot_score", "no draw")
        told = reply.json()
        return Drawn(told["id"], Usage(**told["usage"]), told["logprob"], told["id"] == self.model.end_id)

    def join(self, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
        yield from ()
        whole = (*(context.ids or ()), *ids)
        text = context.text + self.model.decode(ids)
        return Context(context.prompt_tokens, text, context.tokens + len(ids), whole)

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[Any]:
        streaming = super().continue_(request, context, max_tokens)
        assert request.sampling is not None
        body = {**(streaming.request.body or {}), "sampling": request.sampling}
        return Streaming(
            HttpRequest("continue", streaming.request.path, body, stream=True, billed=True),
            streaming.decoder,
            streaming.on_error,
        )

    def _draws(self, ids: Sequence[int], law: Law, banned: Iterable[int] = ()) -> int:
        shares = sampled(self._shares(ids), law)
        return self.chance.choose([0.0 if token in set(banned) else share for token, share in enumerate(shares)])

    def _shares(self, ids: Sequence[int]) -> list[float]:
        return [math.exp(value) for value in self.model.logprobs(ids)]

    def answer(self, start: Start) -> Answer:
        body: Mapping[str, Any] = start.request.body or {}
        if start.request.path == "scripted/draw":
            law = Law(1.0, 1.0) if body["banned"] else self.law(body["sampling"])
            assert law is not None
            token = self._draws(body["ids"], law, body["banned"])
            usage = {"input_tokens": len(body["ids"]), "output_tokens": 1, "cached_tokens": 0}
            told = {"id": token, "logprob": self.model.logprobs(body["ids"])[token], "usage": usage}
            return HttpReply(200, json.dumps(told).encode())
        if start.request.path == "scripted/continue":
            return list(self._writes(body))
        return super().answer(start)

    def _writes(self, body: Mapping[str, Any]) -> Iterator[bytes]:
        law = self.law(body["sampling"])
        assert law is not None
        ids, written, text, end = list(body["ids"]), list[int](), "", "length"
        while len(written) < body["max_tokens"]:
            token = self._draws([*ids, *written], law)
            written.append(token)
            whole = self.model.decode(written)
            shown = whole.rstrip("\ufffd")
            yield json.dumps({"text": shown[len(text) :], "id": token}).encode() + b"\n"
            text = shown
            if token == self.model.end_id or any(stop in text for stop in body["stop"]):
                end = "stop"
                break
        usage = {"input_tokens": len(ids), "output_tokens": len(written), "cached_tokens": 0}
        yield json.dumps({"end": end, "usage": usage}).encode() + b"\n"


@dataclass
class Writer:
    """A draft model of another vocabulary: what it proposes depends on the reply so far, in pieces of its own (of
    two or three target tokens, or, without ``cut``, of one).
    """

    cut: str = "|"
    name: str = "writer"
    base_url: str = ""

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
        text = {"a": "b c|a|b", "b": " ca|é", "c": "ab|é|b"}.get(prefix[-1:], "ab c|a")
        cut = text.split("|") if self.cut else re.findall(" c|.", text.replace("|", ""))
        return tuple(DraftToken(piece) for piece in cut[:max_tokens])

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        raise AssertionError("it proposes at once")
