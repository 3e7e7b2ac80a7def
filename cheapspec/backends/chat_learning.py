"""What a reply shows of the fields that a chat endpoint takes, against what was believed of it.

Rules
-----
* A refusal (400, 403, 404, 422) costs nothing. It counts only if its message names a field of ours together with a word
  of refusal: a message that merely quotes the prompt teaches nothing.
* Routers wrap the host's own error as JSON text in ``error.metadata.raw`` (OpenRouter); that is read as well.
* Under status 200, log-probabilities that were asked for and are not there mean: none next time. Thinking that used up
  the output limit means: switch it off, or allow for it.
* Nothing is learned twice from one reply that the endpoint did not say: without a refutation the same value returns,
  so ``learn(endpoint, …) == endpoint`` means that asking again is in vain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cheapspec.backends.chat_models import THINKS
from cheapspec.core.effects import HttpReply
from cheapspec.core.endpoint import Endpoint
from cheapspec.core.received import error_of, first_choice, read_usage
from cheapspec.core.untyped import as_list, as_mapping

__all__ = ["REFUSALS", "learn", "refusal"]

REFUSALS: Final = (400, 403, 404, 422)
"""Statuses of refusals that are free and about the request."""

_LONGEST: Final = 2_000
_MOST_THINKING: Final = 8_192
_NO: Final = (
    r"(?:unsupported|not supported|n[o']t support|not (?:be )?allowed|not enabled|not available|unrecognized|unknown|"
    r"not permitted|only the default|deprecated|cannot be|extra inputs?)"
)
_LEAST: Final = re.compile(r"(?:>=|at least|greater than or equal to|minimum(?: value)?(?: of| is)?)\s*(\d{1,4})\b")
_MOST: Final = re.compile(
    r"top_logprobs\D.*?(?:<=|at most|less than or equal to|between 0 and|max(?:imum)?(?: value| allowed)?(?: of| is)?"
    r":?)\s*(\d{1,3})\b",
    re.DOTALL,
)
_EFFORTS: Final = re.compile(r"\b(none|minimal|low)\b")


def learn(endpoint: Endpoint, reply: HttpReply, sent: Mapping[str, Any] | None = None) -> Endpoint:
    """The endpoint as this reply shows it; equal to ``endpoint`` where it shows nothing new. ``sent``: the body that
    was answered (without it nothing is concluded from a missing log-probability). Never raises.
    """
    told = as_mapping(reply.json())
    if reply.status in REFUSALS:
        return _refused(endpoint, refusal(reply), reply.status)
    if reply.status != 200 or error_of(told) is not None:
        return endpoint
    return _answered(endpoint, told, sent or {})


def refusal(reply: HttpReply) -> str:
    """What an error reply says, in small letters: its message, the name of the field, and the same of the error that a
    router wrapped.
    """
    return "\n".join(_said(reply.json()))[:_LONGEST].lower()


def _said(told: object, depth: int = 0) -> Iterator[str]:
    body = as_mapping(told)
    error = error_of(body) or {}
    for name in ("message", "param", "code"):
        if isinstance(error.get(name), str):
            yield str(error[name])
    for name in ("detail", "message"):
        if isinstance(body.get(name), str) and not error:
            yield str(body[name])
    raw = as_mapping(error.get("metadata")).get("raw")
    if isinstance(raw, str) and depth < 2:
        try:
            inner: object = json.loads(raw)
        except (ValueError, RecursionError):
            yield raw
        else:
            yield from _said(inner, depth + 1)


def _refused(endpoint: Endpoint, text: str, status: int) -> Endpoint:
    found = _limits(endpoint, text)
    if endpoint.temperature and _names(text, "temperature"):
        found = replace(found, temperature=False)
    found = _logprobs(found, text, status)
    return _thinking(found, text)


def _names(text: str, field: str) -> bool:
    """Whether the field is named beside a word of refusal, in one sentence or line."""
    near = rf"(?<![a-z_]){field}(?![a-z_])"
    return bool(re.search(rf"{near}[^\n]{{0,120}}?{_NO}|{_NO}[^\n]{{0,120}}?{near}", text))


def _limits(endpoint: Endpoint, text: str) -> Endpoint:
    if re.search(r"max_(?:output|completion)?_?tokens", text) and (least := _LEAST.search(text)):
        return replace(endpoint, least_output=max(endpoint.least_output, int(least[1])))
    # The one that is named first is refused; the other may be named as what to use instead.
    named = re.search(r"max_completion_tokens|max_tokens", text)
    if named and named[0] == endpoint.limit_field and _names(text, named[0]):
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        return replace(endpoint, limit_field=other[named[0]])
    return endpoint


def _logprobs(endpoint: Endpoint, text: str, status: int) -> Endpoint:
    most = _MOST.search(text)
    if most and int(most[1]):
        return replace(endpoint, alternatives=min(int(most[1]), endpoint.alternatives))
    if _names(text, r"(?:top_)?logprobs"):
        return replace(endpoint, alternatives=0, require_parameters=False)
    # No host of the router's takes all that was sent: without log-probabilities there is less to take.
    if status == 404 and endpoint.require_parameters and "no endpoints found" in text and "parameter" in text:
        return replace(endpoint, alternatives=0, require_parameters=False)
    return endpoint


def _thinking(endpoint: Endpoint, text: str) -> Endpoint:
    if endpoint.fields.get("thinking") and _names(text, "thinking"):
        kept = {name: value for name, value in endpoint.fields.items() if name != "thinking"}
        return replace(endpoint, fields=kept, thinking=max(endpoint.thinking, THINKS))
    mandatory = "reasoning" in text and "mandatory" in text
    if endpoint.effort is None or not (mandatory or _names(text, r"(?:reasoning_effort|reasoningeffort|reasoning)")):
        return endpoint
    listed: list[str] = _EFFORTS.findall(text.partition("supported values")[2])
    least = next((one for one in ("none", "minimal", "low") if one in listed and one != endpoint.effort), None)
    return replace(endpoint, effort=least, thinking=0 if least == "none" else max(endpoint.thinking, THINKS))


def _answered(endpoint: Endpoint, told: Mapping[str, Any], sent: Mapping[str, Any]) -> Endpoint:
    choice = first_choice(told)
    message = as_mapping(choice.get("message"))
    content = message.get("content")
    cut = choice.get("finish_reason") == "length" and not content
    usage = read_usage(told.get("usage"))
    thought = usage.reasoning_tokens if usage is not None else 0
    if cut or (thought and not endpoint.thinking):
        shown = bool(thought or message.get("reasoning") or message.get("reasoning_content"))
        return _thinks(endpoint, thought, cut=cut) if shown else endpoint
    asked = content and sent.get("logprobs") and endpoint.alternatives
    if asked and not as_list(as_mapping(choice.get("logprobs")).get("content")):
        return replace(endpoint, alternatives=0, require_parameters=False)
    return endpoint


def _thinks(endpoint: Endpoint, thought: int, *, cut: bool) -> Endpoint:
    """It thought although nothing, or the least, was asked for: switch it off where that was not tried, else allow for
    twice what it took.
    """
    if endpoint.effort is None and not endpoint.thinking and not endpoint.fields:
        return replace(endpoint, effort="none")
    needed = max(THINKS, 2 * endpoint.thinking) if cut else 2 * thought
    return replace(endpoint, thinking=min(max(endpoint.thinking, needed), _MOST_THINKING))
