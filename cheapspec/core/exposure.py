"""The most that a call can cost, before it goes out: what a budget reserves, what a lost call counts as.

Rules
-----
* A token is at least one byte of the request's body, so the body's length bounds the input, templates included
  (their keys and braces in JSON outweigh a template's special tokens); :mod:`cheapspec.core.counting` has a tighter
  bound. All of it is taken as uncached, written to the cache at its surcharge, at the dearest step that it may reach.
* Output is bounded by ``max_completion_tokens`` or ``max_tokens``, else by the model's own limit, times ``n``;
  :data:`OUTPUT_BOUND` is a limit for models of which none is known. A text completion that says nothing gets 16
  (OpenAI API reference, completions, of 2026-11).
* Of the service tiers that may serve, the dearest: the standard one and the one asked for; any that has a price where
  the request leaves it open (``auto``, the default: the project's settings decide; OpenAI API reference of 2026-11).
* What bytes do not bound (pictures and sound by URL or id, earlier responses and items of them, reasoning that the
  server keeps, its own tools) or nobody has a price for is unknown: ``None``. Items of the Responses API are taken
  from a list of those whose text is all in the body; any other kind is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, DecimalException
from typing import Any, cast

from cheapspec.core.money import Prices, known_usd, money_context
from cheapspec.core.untyped import as_list, as_mapping, is_list, is_mapping

__all__ = ["OUTPUT_BOUND", "exposure", "text_only"]

OUTPUT_BOUND = 131_072
"""Tokens of one reply: a stated bound, above what providers let a model write (128,000 for the GPT-5 models, 64,000
for Claude 4: their model pages, of 2026-11)."""

_COMPLETION_TOKENS = 16
_GENERATION = ("max_completion_tokens", "max_tokens", "n_predict")
_LIMITS = {"chat": _GENERATION, "completion": _GENERATION, "responses": ("max_output_tokens",), "embeddings": ()}
_ELSEWHERE = ("previous_response_id", "conversation", "web_search_options")
_ITEMS = (None, "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_MILLION = Decimal(1_000_000)


def exposure(
    body: Mapping[str, Any], size: int, kind: str, prices: Prices | None, limit: int | None = None
) -> Decimal | None:
    """Dollars of the caller's own request at most, ``None`` unknown.

    :param body: the request as it goes out; ``size``: its length in bytes, or a tighter bound on its tokens.
    :param kind: ``chat``, ``completion``, ``responses`` or ``embeddings``; of others nothing is known.
    :param limit: the model's own limit of output tokens, ``None`` unknown.
    """
    if prices is None or kind not in _LIMITS or not text_only(body):
        return None
    if prices.input_only and kind != "embeddings":
        return None
    told = 0 if kind == "embeddings" else next((body[name] for name in _LIMITS[kind] if name in body), None)
    if told is None:
        told = _COMPLETION_TOKENS if kind == "completion" else limit
    choices = max(_count(body.get("n"), 1), _count(body.get("best_of"), 1))
    prompts = _prompts(body.get("prompt"))
    if not isinstance(told, int) or isinstance(told, bool) or told < 0:
        return None
    asked = body.get("service_tier")
    tiers: list[Prices | None] = [prices]
    if asked in (None, "auto"):
        tiers += [row for _, row in prices.tiers]
    else:
        tiers.append(prices.of_tier(asked if isinstance(asked, str) else None))
    try:
        with money_context():
            known = [_bill(tier, size, told * choices * prompts) for tier in tiers if tier is not None]
            return known_usd(max(known)) if len(known) == len(tiers) else None
    except DecimalException:  # beyond all measure
        return None


def _bill(prices: Prices, input_tokens: int, output_tokens: int) -> Decimal:
    rows = [prices, *(row for above, row in prices.steps if input_tokens > above)]
    per_input = max(max(row.input, row.cache_write or row.input) for row in rows)
    per_output = max(row.output for row in rows)
    return (input_tokens * per_input + output_tokens * per_output) / _MILLION + max(row.request for row in rows)


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def _prompts(prompt: object) -> int:
    """How many prompts a text completion has: a list of numbers is one, in tokens."""
    listed = cast("list[object]", prompt) if isinstance(prompt, list) else []
    return max(1, sum(isinstance(one, str | list) for one in listed))


def text_only(body: Mapping[str, Any]) -> bool:
    """Whether all that the model reads is text in this body: of others bytes tell nothing."""
    if any(body.get(name) is not None for name in _ELSEWHERE) or isinstance(body.get("prompt"), Mapping):
        return False
    for tool in as_list(body.get("tools")):
        if as_mapping(tool).get("type") not in ("function", "custom"):
            return False
    modalities = body.get("modalities")
    if body.get("audio") is not None or (modalities is not None and modalities != ["text"]):
        return False
    return all(_listed_text(body.get(name), _item) for name in ("messages", "input"))


def _listed_text(value: object, is_text: Callable[[object], bool]) -> bool:
    return value is None or isinstance(value, str) or (is_list(value) and all(map(is_text, value)))


def _item(item: object) -> bool:
    """A message, or an item of the Responses API whose text is all in it."""
    if not is_mapping(item):
        return True  # a text or tokens to embed; as a message it is the server's to refuse
    if item.get("type") not in _ITEMS or item.get("audio") is not None:
        return False
    return _listed_text(item.get("content"), _part) and _listed_text(item.get("output"), _part)


def _part(part: object) -> bool:
    return as_mapping(part).get("type") in ("text", "refusal", "input_text", "output_text")
