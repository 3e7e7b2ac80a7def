"""Log-probabilities of the tokens that a server itself has written, in either shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cheapspec.core.acceptance import shows_distribution, usable
from cheapspec.core.untyped import as_list, as_mapping, is_mapping, is_number

__all__ = ["can_judge"]


def can_judge(choice: Mapping[str, Any], text: str) -> bool:
    """Whether a choice tells of the tokens of its ``text``, with other tokens beside them: then one word that it
    writes is a verdict with a probability. Entries that do not join to the text (thoughts, placeholders) are none.
    """
    told = as_mapping(choice.get("logprobs"))
    chat = [as_mapping(one) for one in as_list(told.get("content"))]
    if chat:
        tokens = [one.get("token") for one in chat]
        numbers = [one.get("logprob") for one in chat]
        listed = [len(as_list(one.get("top_logprobs"))) for one in chat]
    else:
        tokens, numbers = as_list(told.get("tokens")), as_list(told.get("token_logprobs"))
        listed = [len(as_mapping(one)) for one in as_list(told.get("top_logprobs")) if is_mapping(one)]
    joined = "".join(token for token in tokens if isinstance(token, str))
    whole = bool(text) and joined.startswith(text[:-1])  # the last character may be one of several tokens
    real = shows_distribution(number if is_number(number) and usable(number) else None for number in numbers)
    return whole and real and bool(listed) and max(listed) >= 2
