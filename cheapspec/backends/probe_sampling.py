"""What a server does to the distribution where a request says nothing: needed above temperature 0.

Rules
-----
* llama.cpp tells its defaults (``GET /props``); build 11549 has top_k 40, top_p .95 and min_p .05 of its own.
* vLLM takes them from a model's ``generation_config.json`` and does not tell (0.32). So it is asked to write a few
  tokens at temperature 2 with nothing else said, and then how those rank: a token far beyond any top_k and
  far below any min_p in use shows that neither is applied. (Its default temperature and top_p stay unknown; a
  request must say those.) Tokens that all rank high show nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cheapspec.backends.facts import Facts
from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING, ids_of, listed
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.received import first_choice
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["ask_defaults"]

_HOT_TOKENS = 16
_FAR = 1000
"""No model card sets a top_k above some hundred, nor a min_p below .01; so far down neither is at work."""

_NEUTRAL: Mapping[str, tuple[float, float]] = {
    "top_k": (-1, 0),
    "top_p": (1, 1),
    "min_p": (0, 0),
    "typical_p": (1, 1),
    "repeat_penalty": (1, 1),
    "presence_penalty": (0, 0),
    "frequency_penalty": (0, 0),
    "dry_multiplier": (0, 0),
    "xtc_probability": (0, 0),
    "mirostat": (0, 0),
}
"""llama.cpp's parameters, and between which values they change nothing."""


def ask_defaults(model: str, facts: Facts) -> Op[Facts]:
    """The facts with ``plain_sampling``, where it can be found out (at most two short billed calls)."""
    if facts.backend == "llamacpp" and facts.can_force:
        return (yield from _props(facts))
    if facts.backend == "vllm" and facts.can_score and facts.route == "ids":
        return (yield from _hot(model, facts))
    return facts


def _props(facts: Facts) -> Op[Facts]:
    reply = yield HttpRequest("probe", "/props", method="GET")
    told = as_mapping(reply.json() if reply is not None and reply.status < 300 else None)
    settings = as_mapping(as_mapping(told.get("default_generation_settings")).get("params"))
    if not settings:
        return facts
    changed = [name for name, span in _NEUTRAL.items() if not _within(settings.get(name), span)]
    what = f"its defaults change the distribution ({', '.join(changed)})" if changed else "its defaults change nothing"
    return _found(facts, not changed, what)


def _within(value: object, span: tuple[float, float]) -> bool:
    return value is None or (is_number(value) and span[0] <= value <= span[1])


def _hot(model: str, facts: Facts) -> Op[Facts]:
    prompt = "Once upon a time"
    body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": _HOT_TOKENS, "temperature": 2}
    reply = yield HttpRequest("probe", "completions", {**body, "return_token_ids": True}, billed=True)
    choice = _choice(reply)
    before, written = ids_of(choice.get("prompt_token_ids")), ids_of(choice.get("token_ids"))
    if not before or not written:
        return facts
    scoring = {"model": model, "prompt": [*before, *written], "max_tokens": 1, "prompt_logprobs": 0}
    reply = yield HttpRequest("probe", "completions", {**scoring, **NEUTRAL_SAMPLING}, billed=True)
    rows = as_list(_choice(reply).get("prompt_logprobs"))[len(before) :]
    if len(rows) != len(written):
        return facts
    ranks = [
        one.rank or 0 for row, token in zip(rows, written, strict=True) for one in listed(row) if one.token_id == token
    ]
    farthest = max(ranks, default=0)
    return _found(facts, farthest > _FAR, f"at temperature 2, with nothing else said, it went down to rank {farthest}")


def _choice(reply: HttpReply | None) -> Mapping[str, Any]:
    return first_choice(as_mapping(reply.json())) if reply is not None and reply.status < 300 else {}


def _found(facts: Facts, plain: bool, what: str) -> Facts:
    return replace(facts, plain_sampling=plain, evidence=(*facts.evidence, what))
