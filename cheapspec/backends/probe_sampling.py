"""What a server does to the distribution where a request says nothing: needed above temperature 0, and at 0 where it
moves the argmax.

Rules
-----
* llama.cpp tells its defaults (``GET /props``); build 11549 has top_k 40, top_p .95 and min_p .05 of its own.
* vLLM takes them from a model's ``generation_config.json`` and does not tell (0.32: repetition_penalty, temperature,
  top_k, top_p, min_p). So it is asked to write a few tokens at temperature 2 with nothing else said, and then how
  those rank: a token far beyond any top_k and far below any min_p in use shows that neither is applied. (Its default
  temperature and top_p stay unknown; a request must say those.) Tokens that all rank high show nothing.
* A repetition penalty shows in no ranks and no log-probabilities (both are of the raw logits), and rarely in a short
  reply. So a token of the prompt is lifted by ``logit_bias`` just above the best one that is not in the prompt: without
  a penalty it is written, with one it is not. Two controls say the penalty is 1 in so many words: one writes the lifted
  token, one with the bias lowered writes the other, else nothing is shown.
* What was not found out is unknown, never "none".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cheapspec.backends.facts import Facts
from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING, ids_of, listed
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.received import first_choice
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["DEFAULTS_CALLS", "ask_defaults"]

DEFAULTS_CALLS = 6
"""Billed calls at most: four about a repetition penalty, two about top_k and min_p."""

_HOT_TOKENS = 16
_FAR = 1000
"""No model card sets a top_k above some hundred, nor a min_p below .01; so far down neither is at work."""

_NEUTRAL: Mapping[str, tuple[float, float]] = {
    "top_k": (-1, 0),
    "top_p": (1, 1),
    "min_p": (0, 0),
    "top_n_sigma": (-math.inf, 0),
    "dynatemp_range": (0, 0),
    "typical_p": (1, 1),
    "repeat_penalty": (1, 1),
    "presence_penalty": (0, 0),
    "frequency_penalty": (0, 0),
    "dry_multiplier": (0, 0),
    "xtc_probability": (0, 0),
    "mirostat": (0, 0),
}
"""llama.cpp's parameters, and between which values they change nothing."""

_REPEATED = "red blue red blue red blue red blue red"
_LISTED = 20  # vLLM's most, where nothing else was set (--max-logprobs)
_LEAD = 0.25
"""Nats. Well above what two runs of one kernel differ by; a penalty of 1.05 takes a twenty-first of the likeliest
token's logit, which is some 15 to 30."""


def ask_defaults(model: str, facts: Facts) -> Op[Facts]:
    """The facts with ``plain_sampling`` and ``hidden_defaults``, where they can be found out (at most
    :data:`DEFAULTS_CALLS` short billed calls).
    """
    if facts.backend == "llamacpp" and facts.can_force:
        return (yield from _props(facts))
    if facts.backend == "vllm" and facts.can_score:
        penalised = yield from _penalised(model)
        if penalised is not None:
            told = "lowers what was there before" if penalised else "does not lower what was there before"
            facts = replace(facts, evidence=(*facts.evidence, f"with nothing said of a repetition penalty it {told}"))
        hidden = ("repetition_penalty",) if penalised else ()
        facts = replace(facts, hidden_defaults=hidden, plain_sampling=False if penalised else None)
        return (yield from _hot(model, facts, penalised)) if facts.route == "ids" else facts
    return facts


def _props(facts: Facts) -> Op[Facts]:
    reply = yield HttpRequest("probe", "/props", method="GET")
    told = as_mapping(reply.json() if reply is not None and reply.status < 300 else None)
    settings = as_mapping(as_mapping(told.get("default_generation_settings")).get("params"))
    if not settings:
        return facts
    changed = [name for name, span in _NEUTRAL.items() if not _within(settings.get(name), span)]
    what = f"its defaults change the distribution ({', '.join(changed)})" if changed else "its defaults change nothing"
    return _found(facts, not changed, tuple(changed), what)


def _within(value: object, span: tuple[float, float]) -> bool:
    return value is None or (is_number(value) and span[0] <= value <= span[1])


def _hot(model: str, facts: Facts, penalised: bool | None) -> Op[Facts]:
    prompt = "Once upon a time"
    body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": _HOT_TOKENS, "temperature": 2}
    reply = yield _billed({**body, "return_token_ids": True})
    choice = _choice(reply)
    before, written = ids_of(choice.get("prompt_token_ids")), ids_of(choice.get("token_ids"))
    if not before or not written:
        return facts
    scoring = {"model": model, "prompt": [*before, *written], "max_tokens": 1, "prompt_logprobs": 0}
    reply = yield _billed({**scoring, **NEUTRAL_SAMPLING})
    rows = as_list(_choice(reply).get("prompt_logprobs"))[len(before) :]
    if len(rows) != len(written):
        return facts
    ranks = [
        one.rank or 0 for row, token in zip(rows, written, strict=True) for one in listed(row) if one.token_id == token
    ]
    farthest = max(ranks, default=0)
    what = f"at temperature 2, with nothing else said, it went down to rank {farthest}"
    if farthest > _FAR:
        return _found(facts, None if penalised is None else not penalised, facts.hidden_defaults, what)
    if penalised is None:
        return _found(facts, False, (), what)
    return _found(facts, False, (*facts.hidden_defaults, "top_k", "min_p"), what)


def _penalised(model: str) -> Op[bool | None]:
    """Whether it lowers tokens of the prompt by itself; ``None``: not shown."""
    body: dict[str, Any] = {"model": model, "max_tokens": 1, "return_token_ids": True}
    scoring = {**body, "prompt": _REPEATED, "prompt_logprobs": _LISTED, **NEUTRAL_SAMPLING}
    choice = _choice((yield _billed(scoring)))
    *before, repeated = ids_of(choice.get("prompt_token_ids")) or (0,)
    rows = as_list(choice.get("prompt_logprobs"))
    shown = listed(rows[-1]) if rows else ()
    known = {one.token_id: one.logprob for one in shown if one.logprob is not None}
    others = [token for token in known if token not in before]
    if repeated not in before or repeated not in known or not others:
        return None
    other = max(others, key=known.__getitem__)
    even = known[other] - known[repeated]
    lifted, lowered = ({"logit_bias": {str(repeated): even + lead}} for lead in (_LEAD, -_LEAD))
    body["prompt"] = before
    for control, expected in ((lifted, repeated), (lowered, other)):
        written = yield from _written({**body, **NEUTRAL_SAMPLING, **control})
        if written != expected:
            return None
    written = yield from _written({**body, "temperature": 0, **lifted})
    return written == other if written in (repeated, other) else None


def _written(body: dict[str, Any]) -> Op[int | None]:
    ids = ids_of(_choice((yield _billed(body))).get("token_ids"))
    return ids[0] if ids else None


def _billed(body: dict[str, Any]) -> HttpRequest:
    return HttpRequest("probe", "completions", body, billed=True)


def _choice(reply: HttpReply | None) -> Mapping[str, Any]:
    return first_choice(as_mapping(reply.json())) if reply is not None and reply.status < 300 else {}


def _found(facts: Facts, plain: bool | None, hidden: tuple[str, ...], what: str) -> Facts:
    return replace(facts, plain_sampling=plain, hidden_defaults=hidden, evidence=(*facts.evidence, what))
