"""B29: thinking models."""

from __future__ import annotations

import pytest
from casepair import Pair

from cheapspec.testing.faults import Reasoning, Say

REPLY = "One, two, three in Paris."


@pytest.mark.parametrize("stream", [False, True])
def test_b29a_nothing_but_thoughts_is_no_draft(stream: bool, pair: Pair) -> None:
    """A draft whose output is all thought is empty, and an empty draft is not accepted: the target answers."""
    pair.says(REPLY)
    pair.draft.plan("draft", Say(""), Reasoning("Let me see", "thinking"))
    outcome = pair.ask(stream=stream)
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.reason) == ("direct", "no_draft")
    assert pair.purposes() == ["direct"]


@pytest.mark.parametrize("thought", ["<think>a</think>", "<think>\nOne\n</think>\n\n"])
def test_b29b_thoughts_in_the_content_never_reach_the_target(thought: str, pair: Pair) -> None:
    """Thoughts inside a draft's content are not scored, not sent as a prefill, not shown."""
    pair.says(REPLY)
    pair.draft.plan("draft", Say(thought + REPLY))
    outcome = pair.ask()
    assert outcome.text == REPLY
    for exchange in pair.target.requests:
        assert b"think" not in exchange.content


def test_b29c_a_thought_that_never_ends_is_no_draft(pair: Pair) -> None:
    """An opened thought that is never closed leaves nothing to use."""
    pair.says(REPLY)
    pair.draft.plan("draft", Say("<think>One, two, three in Paris."))
    outcome = pair.ask()
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.reason) == ("direct", "no_draft")


def test_b29_thinking_is_switched_off_for_drafts(pair: Pair) -> None:
    """A draft model that can think is told not to."""
    pair.says(REPLY)
    pair.draft.features = ("completion", "thinking")
    outcome = pair.ask()
    assert outcome.text == REPLY
    drafts = pair.draft.of("draft")
    assert drafts
    assert all(draft.body.get("think") is False or draft.body.get("raw") for draft in drafts)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [False, True])
def test_b29d_the_targets_own_thoughts_reach_the_caller(stream: bool, name: str, pair: Pair) -> None:
    """On a direct reply the target's reasoning fields are what they were."""
    pair.says(REPLY)
    pair.target.plan("direct", Reasoning("hm", name))
    outcome = pair.ask(stream=stream, temperature=...)
    assert outcome.text == REPLY
    if stream:
        seen = [getattr(chunk.choices[0].delta, name, None) for chunk in outcome.chunks if chunk.choices]
        assert "hm" in seen
    else:
        assert getattr(outcome.reply.choices[0].message, name) == "hm"
