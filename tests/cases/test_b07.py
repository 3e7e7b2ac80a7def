"""B07: Ollama leaves counts of the prompt out, or says 0."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from casepair import Pair
from test_b01 import replied

from cheapspec.testing.wire import Action, Connection, Frame

REPLY = "One, two, three in Paris."


@dataclass(frozen=True)
class NoPromptCount(Action):
    """The last line of a draft has no ``prompt_eval_count``."""

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        async for frame in frames:
            if isinstance(frame, dict):
                frame.pop("prompt_eval_count", None)
            yield frame


@pytest.mark.parametrize("stream", [False, True])
def test_b07_a_draft_without_its_prompt_count_is_a_draft(stream: bool, any_pair: Pair) -> None:
    """No crash; the saving is computed from the target's own counts."""
    any_pair.says(REPLY)
    any_pair.draft.plan("draft", NoPromptCount())
    told = any_pair.ask(stream=stream).told
    assert told.decision == "speculate"
    assert told.accepted_tokens > 0
    assert told.paid_usd is not None
    assert told.baseline_usd is not None
    assert told.input_tokens > 0


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 12}, {"completion_tokens": 12}])
def test_b07_a_target_that_says_zero(usage: dict[str, Any], pair: Pair) -> None:
    """The same from Ollama's ``/v1``: what is said is taken, nothing crashes, nothing is negative."""
    pair.target.plan("direct", replied(usage))
    outcome = pair.ask(temperature=...)
    assert outcome.error is None
    assert outcome.told.output_tokens == 12
    assert outcome.told.paid_usd is not None
    assert outcome.told.paid_usd > 0
