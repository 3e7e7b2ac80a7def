"""What a chat endpoint takes in a verdict's call: which fields it knows, and how small an output limit may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a chat endpoint takes. ``alternatives``: the most alternatives a token that it lists (``top_logprobs``; 20
    at OpenAI and OpenRouter, 5 at Fireworks), 0: it gives no log-probabilities (Groq). ``least_output``: the
    smallest output limit that it takes (16 at OpenAI's Responses API, and at OpenRouter where that serves the
    model). ``limit_field``: the name of that limit. ``temperature``: it may be sent (some reasoning models refuse
    it). ``effort``: the value of ``reasoning_effort`` that switches thinking off, or the least there is, ``None``:
    nothing is sent. ``thinking``: output tokens to allow for hidden thinking that cannot be switched off. ``fields``:
    what else is sent (another way to switch thinking off). ``require_parameters``: a router that drops fields
    silently is told to choose hosts that know all of them where log-probabilities are asked for (OpenRouter).
    ``family``: the kind of host, for people.

    Which hosts and models have which: :mod:`cheapspec.backends.chat_hosts`.
    """

    alternatives: int = 20
    least_output: int = 1
    limit_field: str = "max_tokens"
    temperature: bool = True
    effort: str | None = None
    thinking: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    require_parameters: bool = False
    family: str = ""
