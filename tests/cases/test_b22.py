"""B22: sampling settings must not distort the evidence."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from casepair import Pair

from cheapspec.testing.faults import ZeroLogprobs

REPLY = "One, two, three in Paris."


def filtered(body: Mapping[str, Any]) -> bool:
    """A server that shows the numbers after its filters."""
    temperature = body.get("temperature")
    return (
        (body.get("top_p") or 1) < 1
        or (body.get("top_k") or 0) > 0
        or (temperature is not None and 0 < temperature < 1)
    )


def test_b22_scoring_is_neutral_and_the_hand_off_the_callers_own(any_pair: Pair) -> None:
    """The scoring call carries neutral sampling whatever the caller asked; what the target writes itself
    carries the caller's settings.
    """
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)
    any_pair.target.plan("score", ZeroLogprobs(when=filtered))
    outcome = any_pair.ask(top_p=0.1, seed=7)
    assert outcome.text == REPLY
    assert outcome.told.decision == "speculate"
    assert outcome.told.accepted_tokens > 0
    for scored in any_pair.target.of("score"):
        assert not filtered(scored.body)
        assert scored.body["temperature"] == 0
        assert scored.body.get("presence_penalty", 0) == scored.body.get("frequency_penalty", 0) == 0
        assert scored.body.get("repetition_penalty", 1) == 1
    for written in any_pair.target.of("continue"):
        assert (written.body["top_p"], written.body["seed"], written.body["temperature"]) == (0.1, 7, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_b22_zeros_everywhere_are_no_evidence(stream: bool, any_pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """A server that returns 0.0 for everything would accept any draft: unverified, with a warning, not 100 %."""
    any_pair.says(REPLY, "One, two, four in Rome.")
    any_pair.target.plan("score", ZeroLogprobs())
    with caplog.at_level(logging.WARNING, "cheapspec"):
        outcome = any_pair.ask(stream=stream)
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.accepted_tokens) == ("direct", 0)
    assert outcome.told.unverified_tokens > 0
    assert any("cheapspec" in record.name for record in caplog.records)


def test_b22_low_temperature_goes_direct_untouched(pair: Pair) -> None:
    """Temperature 0.2 with top_p 0.1 is not greedy: the caller's own request goes out as it is."""
    pair.says(REPLY)
    outcome = pair.ask(temperature=0.2, top_p=0.1)
    assert outcome.told.reason == "sampling"
    [direct] = pair.paid
    assert (direct.purpose, direct.body["temperature"], direct.body["top_p"]) == ("direct", 0.2, 0.1)
