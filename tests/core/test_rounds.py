"""Rounds: what a score says about the target beyond the draft, and what a request learns from its own rounds."""

from __future__ import annotations

import pytest
from engine_kit import PROMPT, Proposing, TextTarget, asked, ran

from cheapspec.core.engine import Policy
from cheapspec.testing.scripted import ScriptedTarget
from cheapspec.testing.toy import WORDS, ToyModel

ANSWER = "The capital of France is Paris and it is big."
LONG = Policy(draft_tokens=100)


def thinking(mark: str, before: str = "") -> ToyModel:
    """A target that has a token for opening thoughts, and writes it after ``before``."""
    return ToyModel(words=(*WORDS, mark), replies={PROMPT: f"{before}{mark}\nWell."})


@pytest.mark.parametrize("mark", ["<think>", "<|channel|>", "[THINK]"])
@pytest.mark.parametrize("route", [ScriptedTarget, TextTarget])
def test_b29_a_target_that_thinks_first_is_found_out(mark: str, route: type[ScriptedTarget]) -> None:
    """The first correction opens a thought: direct with reason ``reasoning``, told as lasting, so it is paid once."""
    model = thinking(mark)
    outcome = ran(asked(), model, [Proposing([ANSWER])], target=route(model), policy=LONG)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "reasoning"
    told = [note.data for note in outcome.played.notes if note.kind == "unusable"]
    assert [(data["reason"], data["lasting"]) for data in told] == [("reasoning", True)]
    assert not outcome.text and len(outcome.tally.usages) == 1 and outcome.tally.accepted_tokens == 0


def test_a_thought_further_on_is_the_hand_offs_business() -> None:
    """A mark after verified text says nothing about how the target begins its replies."""
    model = thinking("<think>", before="The capital")
    outcome = ran(asked(), model, [Proposing([ANSWER])], policy=LONG)
    assert outcome.played.purposes()[-1] == "continue" and outcome.text.startswith("The capital<think>")
    assert not [note for note in outcome.played.notes if note.kind == "unusable" and note.data["lasting"]]
