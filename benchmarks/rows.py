"""Rows of a trace: what each drafter would propose at every position of a recorded reply.

* ``model_row``: a draft model with the target's vocabulary. It is made to write the target's reply (a grammar
  that allows nothing else); at each position llama.cpp tells the model's own choice and its log-probability. Where
  the model splits the text otherwise than the target, so that it was not asked at a position, it is asked there.
* ``text_row``: a draft model with another tokenizer. It drafts freely from a position in the text until it
  contradicts the reply, then again from behind the target token that corrected it: as in use.
* ``static_row``: prompt lookup and prediction, by :mod:`cheapspec.core.lookup`, counted in the target's tokens.

What is recorded is said in :mod:`cheapspec.core.traces`. A character of several target tokens has one owner, its
last token; what cannot be said of the others is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.replies import Engine, Reply
from cheapspec.core.lookup import Prediction, PromptLookup
from cheapspec.core.request import Request
from cheapspec.core.traces import DraftRow, StaticRow

__all__ = ["as_request", "model_row", "static_row", "text_row"]

_PIECES = 64  # word-like pieces that a drafter of given text is asked for
_WINDOW = 8  # tokens that a draft with another tokenizer is asked for at a time


def model_row(engine: Engine, reply: Reply, name: str) -> DraftRow:
    """One row for a draft model whose token ids are the target's."""
    offsets = reply.offsets
    owners = {offsets[at]: at for at in range(reply.texts) if reply.sizes[at]}
    chosen: list[tuple[int | None, float | None] | None] = [None] * len(reply.ids)
    place = 0
    for entry in engine.follow(reply.prompt, reply.text):
        at = owners.get(place) if entry.data else (reply.texts if reply.texts < len(reply.ids) else None)
        if at is not None and entry.top:
            chosen[at] = (entry.top[0].token_id, entry.top[0].logprob)
        place += len(entry.data)
    for at, found in enumerate(chosen):
        if found is None:
            token = engine.generate([*reply.prompt, *reply.ids[:at]], 1)[0]
            chosen[at] = (token.id, token.logprob)
    agreed: list[bool] = []
    logprobs: list[float | None] = []
    ends: set[int] = set()
    for at, (pair, own) in enumerate(zip(chosen, reply.ids, strict=True)):
        assert pair is not None
        ends |= {at} if pair[0] in engine.end_ids else set()
        agreed.append(at >= reply.texts if at in ends else pair[0] == own)
        logprobs.append(None if at in ends else pair[1])
    return DraftRow(name, tuple(logprobs), tuple(agreed), frozenset(ends))


def text_row(engine: Engine, reply: Reply, name: str) -> DraftRow:
    """One row for a draft model with a tokenizer of its own, aligned by bytes."""
    data, offsets, length = reply.text.encode(), reply.offsets, len(reply.ids)
    logprobs: list[float | None] = [0.0] * length
    agreed: list[bool | None] = [None] * length
    ends: set[int] = set()
    rendered = engine.render(reply.messages)
    at = 0
    while at < length:
        if at and at < reply.texts and not reply.sizes[at - 1]:  # inside a character
            logprobs[at] = None
            at += 1
            continue
        sent = data[: offsets[at]].decode().rstrip(" ")
        tokens = engine.generate(rendered + sent, _WINDOW)
        place, first, wrong = len(sent.encode()), at, False
        for token in tokens:
            if place == len(data) and reply.finish == "length":
                break
            owner = _owner(reply, max(place, offsets[first]))
            if token.end:
                ends.add(owner)
                logprobs[owner], wrong = None, owner < reply.texts or reply.finish != "stop"
                agreed[owner] = not wrong
                break
            before = logprobs[owner]
            logprobs[owner] = None if before is None or token.logprob is None else before + token.logprob
            same = _common(data[place:], token.data)
            place, wrong = place + same, same < len(token.data)
            if wrong:
                break
        at = _covered(reply, first, place)
        agreed[first:at] = [True] * (at - first)
        if at < length and (wrong or at == first):  # contradicted, ended, or without room for the first token
            if agreed[at] is None:
                agreed[at] = False
            at += 1
        logprobs[at:] = [0.0] * (length - at)
    return DraftRow(name, tuple(logprobs), tuple(agreed), frozenset(ends))


def static_row(engine: Engine, reply: Reply, drafter: PromptLookup | Prediction) -> StaticRow:
    """One row for a drafter of given text. ``engine`` counts tokens: the target's, or one with its vocabulary."""
    request, data, offsets = as_request(reply), reply.text.encode(), reply.offsets
    proposed: list[int | None] = []
    right: list[int | None] = []
    for at in range(len(reply.ids)):
        if at and at < reply.texts and not reply.sizes[at - 1]:  # inside a character
            proposed.append(None)
            right.append(None)
            continue
        tokens = drafter.propose(request, data[: offsets[at]].decode(), _PIECES)
        text = "".join(token.text for token in tokens).encode()
        good = _covered(reply, at, offsets[at] + _common(data[offsets[at] :], text)) - at
        rest = text[offsets[at + good] - offsets[at] :].decode("utf-8", "replace")
        proposed.append(good + (len(engine.tokenize(rest)) if rest else 0))
        right.append(good)
    return StaticRow(drafter.name, tuple(proposed), tuple(right))


def as_request(reply: Reply) -> Request:
    """The request that a client would have sent for this reply."""
    body: Mapping[str, Any] = {"messages": reply.messages}
    return Request("chat", body, "recorded", False, tuple(reply.messages), prediction=reply.prediction)


def _owner(reply: Reply, place: int) -> int:
    """The token that byte ``place`` of the reply belongs to; behind the text, the last position."""
    offsets = reply.offsets
    return next((at for at in range(reply.texts) if offsets[at] <= place < offsets[at + 1]), len(reply.ids) - 1)


def _covered(reply: Reply, first: int, place: int) -> int:
    """The first position from ``first`` on whose text is not wholly before ``place``."""
    at, offsets = first, reply.offsets
    while at < reply.texts and offsets[at + 1] <= place:
        at += 1
    while at > first and not reply.sizes[at - 1]:  # these begin a character that is not covered
        at -= 1
    return at


def _common(one: bytes, other: bytes) -> int:
    """How many leading bytes agree."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
