"""B24: log-probabilities asked for and silently not given."""

from __future__ import annotations

import logging

import pytest
from casepair import Pair

from cheapspec.testing.faults import MissingLogprobs, Refuse
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."
SHAPES: dict[str, Action] = {
    "a-null": MissingLogprobs("null"),
    "b-absent": MissingLogprobs("absent"),
    "c-content-null": MissingLogprobs("content_null"),
    "d-content-empty": MissingLogprobs("content_empty"),
    "e-400": Refuse(
        "Unsupported parameter: logprobs", lambda body: body.get("prompt_logprobs") is not None, "logprobs"
    ),
    "short": MissingLogprobs("short"),
}


@pytest.mark.parametrize("fault", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("stream", [False, True])
def test_b24_missing_is_unverified(stream: bool, fault: Action, any_pair: Pair) -> None:
    """However the numbers are missing, nothing is accepted and the answer is the target's own."""
    any_pair.says(REPLY, "One, two, four in Rome.")
    any_pair.target.plan("score", fault)
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.accepted_tokens) == ("direct", 0)


@pytest.mark.parametrize("name", ["a-null", "b-absent", "e-400"])
def test_b24_is_paid_for_once(name: str, any_pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """An endpoint that does not score is not asked, and not paid, for scores on every later call; one warning."""
    any_pair.says(REPLY)
    any_pair.target.plan("score", SHAPES[name])
    with caplog.at_level(logging.WARNING, "cheapspec"):
        outcomes = any_pair.ask_again(3)
    assert [outcome.text for outcome in outcomes] == [REPLY] * 3
    assert len(any_pair.target.of("score")) == 1
    assert outcomes[-1].told.reason == "cannot_score"
    assert len([record for record in caplog.records if record.name.startswith("cheapspec")]) == 1


def test_b24f_present_once_then_missing(pair: Pair) -> None:
    """Numbers on one call and none on the next (routed elsewhere): what was proven stays, the rest is the target's."""
    pair.says(REPLY)
    pair.settings["draft_tokens"] = 4
    pair.target.plan("score", MissingLogprobs("absent"), after=1)
    outcome = pair.ask(stream=True)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.told.accepted_tokens == 4
    assert outcome.told.unverified_tokens > 0
    assert pair.purposes() == ["score", "score", "continue"]
