"""Every request field that is understood, and what it means for speculation.

Rules
-----
* A field stands in exactly one of the two tables; a field in neither is ``unsupported_field``.
* Reasons are those of the project's one list.
* A value of ``null`` never comes here: it means absent.

Field names: openai-python 3.57 for chat and text completions; the request protocols of vLLM 0.32,
llama.cpp, OpenRouter, Mistral, DeepSeek and Ollama for the others (all read November 2026). Filters that can
drop the argmax (typical-p, tail-free sampling) are not understood on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cheapspec.core.untyped import as_mapping, is_mapping, is_number

__all__ = ["CHECKED", "HARMLESS", "Check", "thinking_switched_off"]

Check = Callable[[Any], bool]

_THOUGHTS = re.compile(r"think|thought|reason", re.IGNORECASE)


def _nothing(value: Any) -> bool:
    """Empty, false, zero."""
    return not value


def _is(*allowed: Any) -> Check:
    def check(value: Any) -> bool:
        return any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed)

    return check


def _kind(key: str, *allowed: Any) -> Check:
    def check(value: Any) -> bool:
        return not value or as_mapping(value).get(key) in allowed

    return check


def _no_thoughts(value: Any) -> bool:
    return not value or as_mapping(value).get("enabled") is False or as_mapping(value).get("effort") == "none"


def _silent_template(value: Any) -> bool:
    """Template variables none of which asks for thoughts. What a variable means is the template's to say, so every
    name that speaks of thinking must be false, empty or zero (an effort: ``"none"``).
    """
    variables = as_mapping(value).items()
    asked = (name for name, setting in variables if setting and not (setting == "none" and name.endswith("effort")))
    return not any(map(_THOUGHTS.search, asked))


def _usage_only(value: Any) -> bool:
    """Stream options that do not change what a chunk is."""
    return is_mapping(value) and not value.get("continuous_usage_stats")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole_from(least: int) -> Check:
    return lambda value: _whole(value) and value >= least


def _share(value: Any) -> bool:
    return is_number(value) and 0 < value <= 1


def _share_or_none(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


HARMLESS = frozenset(
    [
        # shared
        "model",
        "stream",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "user",
        # chat
        "messages",
        "prediction",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
        "parallel_tool_calls",
        # completions
        "prompt",
        # other servers: filters that keep the argmax, scheduling, routing, caching, templates
        "top_a",
        "cache_prompt",
        "cache_salt",
        "prompt_cache_isolation_key",
        "priority",
        "request_id",
        "session_id",
        "provider",
        "keep_alive",
        "usage",
        "safe_prompt",
        "add_special_tokens",
    ]
)
"""Fields that are read, or that have no influence on which tokens a target at temperature 0 writes."""

CHECKED: Mapping[str, tuple[Check, str]] = {
    # without influence at temperature 0, but a value out of range is the server's to refuse
    "seed": (_whole, "unsupported_field"),
    "random_seed": (_whole, "unsupported_field"),
    "top_p": (_share, "unsupported_field"),
    "top_k": (_whole_from(-1), "unsupported_field"),
    "min_p": (_share_or_none, "unsupported_field"),
    "tools": (_nothing, "tools"),
    "functions": (_nothing, "tools"),
    "tool_choice": (_is("none", "auto"), "tools"),
    "function_call": (_is("none", "auto"), "tools"),
    "n": (_is(1), "n"),
    "best_of": (_is(1), "n"),
    "audio": (_nothing, "audio"),
    "modalities": (_is(["text"], []), "audio"),
    "logprobs": (_is(False), "logprobs"),
    "top_logprobs": (_is(0), "logprobs"),
    "prompt_logprobs": (_is(False), "logprobs"),
    "store": (_nothing, "stored"),
    "response_format": (_kind("type", "text"), "response_format"),
    "guided_json": (_nothing, "response_format"),
    "guided_regex": (_nothing, "response_format"),
    "guided_choice": (_nothing, "response_format"),
    "guided_grammar": (_nothing, "response_format"),
    "structured_outputs": (_nothing, "response_format"),
    "grammar": (_nothing, "response_format"),
    "json_schema": (_nothing, "response_format"),
    "format": (_nothing, "response_format"),
    "frequency_penalty": (_is(0), "penalties"),
    "presence_penalty": (_is(0), "penalties"),
    "repetition_penalty": (_is(1), "penalties"),  # 0 is refused (vLLM) or divides by it (llama.cpp)
    "repeat_penalty": (_is(1), "penalties"),
    "dry_multiplier": (_is(0), "penalties"),
    "logit_bias": (_nothing, "logit_bias"),
    "reasoning_effort": (_is("none"), "reasoning"),
    "reasoning": (_no_thoughts, "reasoning"),
    "include_reasoning": (_nothing, "reasoning"),
    "thinking": (_kind("type", "disabled"), "reasoning"),
    "enable_thinking": (_nothing, "reasoning"),
    "think": (_nothing, "reasoning"),
    "chat_template_kwargs": (_silent_template, "reasoning"),
    "stream_options": (_usage_only, "unsupported_field"),
    "verbosity": (_nothing, "unsupported_field"),
    "web_search_options": (lambda value: False, "unsupported_field"),
    "moderation": (_nothing, "unsupported_field"),
    "echo": (_nothing, "unsupported_field"),
    "suffix": (_nothing, "unsupported_field"),
    "min_tokens": (_nothing, "unsupported_field"),
    "ignore_eos": (_nothing, "unsupported_field"),
    "stop_token_ids": (_nothing, "unsupported_field"),
    "bad_words": (_nothing, "unsupported_field"),
    "include_stop_str_in_output": (_nothing, "unsupported_field"),
    "use_beam_search": (_nothing, "unsupported_field"),
    "continue_final_message": (_nothing, "unsupported_field"),
    "add_generation_prompt": (_is(True), "unsupported_field"),
    "skip_special_tokens": (_is(True), "unsupported_field"),
    "return_token_ids": (_nothing, "unsupported_field"),
    "return_tokens_as_token_ids": (_nothing, "unsupported_field"),
}
"""Fields that are harmless with some values only: the test of the value, and the reason for the bypass otherwise."""


def thinking_switched_off(body: Mapping[str, Any]) -> bool:
    """Whether a request says in so many words that a chat template shall not let the target think: the fields
    that reach the template in vLLM 0.32. (A top-level ``enable_thinking`` does not: it is ignored.)
    """
    variables = as_mapping(body.get("chat_template_kwargs"))
    told = variables.get("enable_thinking", variables.get("thinking"))
    return body.get("reasoning_effort") == "none" if told is None else told is False
