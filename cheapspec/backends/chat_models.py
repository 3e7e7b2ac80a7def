"""Kinds of chat models that think before they answer, by name: what a verdict's call must say to them.

Rules
-----
* A name is read without its maker (``openai/``), its router's suffix (``:free``, ``:nitro``, ``:floor``, ``:exacto``)
  and letter case. The name that is sent is never changed.
* A kind says what the model *itself* refuses, whoever hosts it. An unknown name is a plain chat model.
* What a name cannot tell (a deployment at Azure, an alias of a gateway) is learned from replies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "PLAIN", "Kind", "bare", "kind_of"]

THINKS: Final = 1024
"""Output tokens to allow for thinking that cannot be switched off, before any reply told how many it takes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``effort``: what switches thinking off, or the least there is; ``None``: no such field. ``thinking``: tokens to
    allow for what remains of it. ``logprobs`` and ``temperature``: whether they may be sent at that effort.
    ``source``: whose word it is. ``unverified``: nobody could look.
    """

    name: str
    pattern: str
    effort: str | None = None
    thinking: int = 0
    logprobs: bool = True
    temperature: bool = True
    source: str = ""
    unverified: bool = False

    @property
    def reasons(self) -> bool:
        """Whether the model thinks unless told not to."""
        return self.effort is not None or self.thinking > 0

    @property
    def off(self) -> bool:
        """Whether thinking can be switched off."""
        return self.thinking == 0


PLAIN: Final = Kind("any other", "", source="OpenAI's API reference, chat completions, 2026-11")

_OPENAI: Final = "OpenAI's guide to reasoning models, 2026-11"
KINDS: Final = (
    Kind(
        "OpenAI o1, o3, o4",
        r"o[134](-.*)?",
        effort="low",
        thinking=THINKS,
        logprobs=False,
        temperature=False,
        source=f"{_OPENAI}; 403 for `logprobs`: confident-ai/deepeval#2184",
    ),
    Kind(
        "OpenAI GPT-5 and later, -pro and -codex",
        r"gpt-([5-9]|\d\d)(\.\d+)?-(.*-)?(pro|codex)(-.*)?",
        thinking=THINKS,
        logprobs=False,
        temperature=False,
        source=_OPENAI,
        unverified=True,
    ),
    Kind("OpenAI GPT-5 and later, -chat", r"gpt-([5-9]|\d\d)(\.\d+)?-chat(-.*)?", source=_OPENAI, unverified=True),
    Kind(
        "OpenAI GPT-5, GPT-5 mini and nano",
        r"gpt-5(-(mini|nano))?(-\d.*)?",
        effort="minimal",
        thinking=256,
        logprobs=False,
        temperature=False,
        source=f"{_OPENAI}; gabrii/Cursor-Azure-GPT-5#33",
    ),
    Kind(
        "OpenAI GPT-5.1 and later",
        r"gpt-([5-9]|\d\d)(\.\d+)?(-.*)?",
        effort="none",
        source="vercel/ai#10932: log-probabilities and temperature only at effort `none`; "
        "confident-ai/deepeval#2805 lists 5.1 and 5.2 as without",
        unverified=True,
    ),
    Kind(
        "gpt-oss",
        r"gpt-oss(-.*)?",
        effort="low",
        thinking=512,
        source="its model card: effort low, medium or high, no off",
    ),
    Kind(
        "xAI Grok, -non-reasoning, Grok 3",
        r"grok-(.*non-reasoning.*|[123](?!-mini)(-.*)?)",
        source="xAI's model pages, 2026-11",
    ),
    Kind("xAI Grok 4.3", r"grok-4\.3(-.*)?", effort="none", source="@ai-sdk/xai 4.0.0-canary.61: `none` disables it"),
    Kind(
        "xAI Grok 4.7 and later, Grok 3 mini",
        r"grok-(4\.[7-9]|[5-9]|3-mini)(\.\d+)?(-.*)?",
        effort="low",
        thinking=THINKS,
        source="xAI's list of models as read by mindfork 0.17.0 (2026-10-01): low to xhigh, no `none`",
    ),
    Kind(
        "xAI Grok, other reasoning models",
        r"grok-.*",
        thinking=THINKS,
        logprobs=False,
        source="mindfork 0.17.0: 400 for `reasoning_effort` of any value; log-probabilities not looked at",
        unverified=True,
    ),
    Kind(
        "open models that think or not",
        r"(qwen-?3(?!.*(instruct|thinking))|glm-[45]|kimi-k3|deepseek-(v3\.[12]|v4|chat-v3)).*",
        effort="none",
        source="OpenRouter's page on reasoning tokens, 2026-11: effort `none` where the model allows it",
    ),
    Kind(
        "open models that always think",
        r"(deepseek-r1|kimi-k2-thinking|magistral|qwq|qwen-?3.*thinking|.*-reasoner).*",
        thinking=THINKS,
        source="their model cards",
        unverified=True,
    ),
)
"""In this order; the first whose whole name matches."""


def bare(model: str) -> str:
    """The name without maker and suffix, in small letters."""
    return model.rpartition("/")[2].partition(":")[0].lower()


def kind_of(model: str) -> Kind:
    """What kind of model a name says it is."""
    name = bare(model)
    return next((kind for kind in KINDS if re.fullmatch(kind.pattern, name)), PLAIN)
