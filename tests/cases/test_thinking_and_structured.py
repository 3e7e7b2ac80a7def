"""Thinking and structured requests: honoured, or passed by with a named reason; never half of either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from casepair import QUESTION, Pair

from cheapspec.testing.toy import WORDS, ToyModel

REPLY = "One, two, three in Paris."
USER = {"role": "user", "content": QUESTION}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}}

HONOURED: dict[str, dict[str, Any]] = {
    "effort none": {"reasoning_effort": "none"},
    "template told not to think": {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    "thinking disabled": {"extra_body": {"thinking": {"type": "disabled"}}},
    "plain text format": {"response_format": {"type": "text"}},
    "system role": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "developer role": {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    "parts of text": {"messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]},
    "an earlier turn": {"messages": [USER, {"role": "assistant", "content": "No.", "refusal": None}, USER]},
}
PASSED_BY: dict[str, tuple[dict[str, Any], str]] = {
    "effort high": ({"reasoning_effort": "high"}, "reasoning"),
    "a budget for thoughts": ({"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 100}}}, "reasoning"),
    "template told to think": ({"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}, "reasoning"),
    "OpenRouter's reasoning": ({"extra_body": {"reasoning": {"effort": "low"}}}, "reasoning"),
    "a schema": ({"response_format": SCHEMA}, "response_format"),
    "JSON mode": ({"response_format": {"type": "json_object"}}, "response_format"),
    "a grammar": ({"extra_body": {"structured_outputs": {"regex": "[a-z]+"}}}, "response_format"),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        "images",
    ),
    "a refusal in an earlier turn": (
        {"messages": [USER, {"role": "assistant", "content": None, "refusal": "No."}, USER]},
        "unsupported_field",
    ),
}


@pytest.mark.parametrize("fields", HONOURED.values(), ids=HONOURED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_honoured_is_speculated_with_the_callers_own_words(
    fields: dict[str, Any], stream: bool, pair: Pair
) -> None:
    """The target is shown the messages and template variables of the caller, as sent."""
    pair.says(REPLY)
    outcome = pair.ask(stream=stream, **fields)
    assert outcome.text == REPLY
    assert outcome.told.decision == "speculate" and outcome.told.accepted_tokens > 0
    [rendered] = [call.body for call in pair.target.requests if call.path == "/tokenize" and "messages" in call.body]
    assert rendered["messages"] == fields.get("messages", [USER])
    told = fields.get("extra_body", {}).get("chat_template_kwargs", {})
    assert {name: rendered.get("chat_template_kwargs", {}).get(name) for name in told} == told


@pytest.mark.parametrize(("fields", "reason"), PASSED_BY.values(), ids=PASSED_BY)
def test_what_is_not_honoured_goes_to_the_target_as_it_is(fields: dict[str, Any], reason: str, pair: Pair) -> None:
    """One call, every field as sent, no draft asked for, and the reason in the facts."""
    pair.says(REPLY)
    outcome = pair.ask(**fields)
    assert (outcome.told.decision, outcome.told.reason) == ("bypass", reason)
    [call] = pair.paid
    sent = {**fields, **fields.get("extra_body", {})}
    sent.pop("extra_body", None)
    assert json.loads(json.dumps({name: call.body[name] for name in sent})) == sent
    assert not pair.draft.of("draft")


def test_b29_a_target_of_which_nobody_knows_whether_it_thinks(any_pair: Pair) -> None:
    """Its first token opens a thought: found out by the first score, direct from then on, and scored no more."""
    thinker = ToyModel(3, words=(*WORDS, "<think>", "</think>"))
    any_pair.target.model = thinker
    any_pair.says(f"<think>\nLet me see.\n</think>\n\n{REPLY}", REPLY)
    first, second = any_pair.ask_again(2)
    for outcome in (first, second):
        assert (outcome.told.decision, outcome.told.reason) == ("direct", "reasoning")
        assert outcome.told.accepted_tokens == 0 and REPLY in outcome.text
    assert len(any_pair.target.of("score")) == 1
