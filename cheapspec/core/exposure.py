"""The most that a call can cost, before it goes out: what a budget reserves, what a lost call counts as.

Rules
-----
* A token is at least one byte of the request's body, so the body's length bounds the input, templates included
  (their keys and braces in JSON outweigh a template's special tokens); :mod:`cheapspec.core.counting` has a tighter
  bound. All of it is taken as uncached, written to the cache at its surcharge, at the dearest step that it may reach.
* Output is bounded by ``max_completion_tokens`` or ``max_tokens``, else by the model's own limit, times ``n``;
  :data:`OUTPUT_BOUND` is a limit for models of which none is known. A text completion that says nothing gets 16
  (OpenAI API reference, completions, of 2026-11).
* Of two service tiers that may serve, the dearer. What bytes do not bound (pictures and sound by URL, earlier
  responses, the server's own tools) or nobody has a price for is unknown: ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, cast

from cheapspec.core.money import Prices, known_usd, money_context

__all__ = ["OUTPUT_BOUND", "exposure", "text_only"]

OUTPUT_BOUND = 131_072
"""Tokens of one reply: a stated bound, above what providers let a model write (128,000 for the GPT-5 models, 64,000
for Claude 4: their model pages, of 2026-11)."""

_COMPLETION_TOKENS = 16
_GENERATION = ("max_completion_tokens", "max_tokens", "n_predict")
_LIMITS = {"chat": _GENERATION, "completion": _GENERATION, "responses": ("max_output_tokens",), "embeddings": ()}
_ELSEWHERE = ("previous_response_id", "conversation", "web_search_options")
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
    told = 0 if kind == "embeddings" else next((body[name] for name in _LIMITS[kind] if name in body), None)
    if told is None:
        told = _COMPLETION_TOKENS if kind == "completion" else limit
    choices = max(_count(body.get("n"), 1), _count(body.get("best_of"), 1))
    prompts = _prompts(body.get("prompt"))
    if not isinstance(told, int) or isinstance(told, bool) or told < 0:
        return None
    tiers = [prices, prices.of_tier(_tier(body))]
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


def _tier(body: Mapping[str, Any]) -> str | None:
    tier = body.get("service_tier")
    return tier if isinstance(tier, str) and tier != "auto" else None


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
    for tool in cast("list[object]", body.get("tools") if isinstance(body.get("tools"), list) else []):
        if not isinstance(tool, Mapping) or cast("Mapping[str, Any]", tool).get("type") not in ("function", "custom"):
            return False
    if body.get("audio") is not None or "audio" in (body.get("modalities") or ()):
        return False
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, list):
        return True
    for message in cast("list[object]", messages):
        content = cast("Mapping[str, Any]", message).get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list):
            for part in cast("list[object]", content):
                kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
                if kind not in ("text", "refusal", "input_text", "output_text"):
                    return False
    return True
