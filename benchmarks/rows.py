"""Rows of a trace: what each drafter would propose at every position of a recorded reply.

* ``model_row``: a draft model with the target's vocabulary. It is made to write the target's reply (a grammar
  that allows nothing else); at each position llama.cpp tells the model's own choice and its log-probability. Where
  the model splits the text otherwise than the target, so that it was not asked at a position, it is asked there.
* ``text_row``: a draft model with another tokenizer, through the drafter that is used in production
  (:func:`cheapspec.bench.spoken.draft_row`).
* ``static_rows``: prompt lookup and prediction, by :mod:`cheapspec.core.lookup`, counted in the target's tokens.

What is recorded is said in :mod:`cheapspec.core.traces`.
"""

from __future__ import annotations

from benchmarks.replies import Engine, Reply
from cheapspec.backends.llamacpp import LlamaCppDrafter
from cheapspec.bench.asking import DraftAsker
from cheapspec.bench.spoken import Spoken, draft_row, static_row
from cheapspec.core.lookup import Prediction, PromptLookup
from cheapspec.core.request import Request
from cheapspec.core.traces import DraftRow, StaticRow

__all__ = ["model_row", "static_rows", "text_row"]


def model_row(engine: Engine, reply: Reply, name: str) -> DraftRow:
    """One row for a draft model whose token ids are the target's."""
    said = _spoken(reply)
    texts = said.texts
    owners = {said.offsets[at]: at for at in range(texts) if said.sizes[at]}
    chosen: list[tuple[int | None, float | None] | None] = [None] * len(reply.ids)
    place = 0
    for entry in engine.follow(reply.prompt, reply.text):
        at = owners.get(place) if entry.data else (texts if texts < len(reply.ids) else None)
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
        agreed.append(at >= texts if at in ends else pair[0] == own)
        logprobs.append(None if at in ends else pair[1])
    return DraftRow(name, tuple(logprobs), tuple(agreed), frozenset(ends))


def text_row(engine: Engine, reply: Reply, name: str) -> DraftRow:
    """One row for a draft model with a tokenizer of its own, aligned by bytes."""
    asker = DraftAsker(LlamaCppDrafter(engine.url), _request(reply))
    try:
        return draft_row(asker, _spoken(reply), name)
    finally:
        asker.close()


def static_rows(engine: Engine, reply: Reply) -> tuple[StaticRow, ...]:
    """Lookup, and prediction where the prompt has one. ``engine`` counts tokens: the target's, or one with its
    vocabulary.
    """
    drafters = (PromptLookup(), *((Prediction(),) if reply.prediction is not None else ()))

    def count(text: str) -> int:
        return len(engine.tokenize(text))

    return tuple(static_row(drafter, _request(reply), _spoken(reply), count) for drafter in drafters)


def _spoken(reply: Reply) -> Spoken:
    return Spoken(reply.text, tuple(reply.sizes), reply.finish, len(reply.prompt), reply.shared)


def _request(reply: Reply) -> Request:
    """The request that a client would have sent for this reply."""
    messages = tuple(reply.messages)
    return Request("chat", {"messages": list(messages)}, "recorded", False, messages, prediction=reply.prediction)
