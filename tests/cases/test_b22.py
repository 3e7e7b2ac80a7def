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


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"temperature": 0.2, "top_p": 0.1}, "not_probed"),
        ({"temperature": 0.2}, "top_p_unset"),
        ({"temperature": 1.3, "top_p": 1}, "sampling"),
        ({"temperature": 0.2, "top_p": 1, "extra_body": {"top_k": 40}}, "sampling"),
    ],
    ids=["defaults unknown", "no top_p", "hotter than 1", "top_k"],
)
def test_b22_what_is_not_known_goes_direct_untouched(pair: Pair, fields: dict[str, Any], reason: str) -> None:
    """Above temperature 0 all of the sampling must be known: else the caller's own request goes out as it is."""
    pair.says(REPLY)
    outcome = pair.ask(**fields)
    assert (outcome.told.decision, outcome.told.reason) == ("direct", reason)
    direct = next(call for call in pair.paid if call.body.get("temperature") == fields["temperature"])  # not a probe's
    sent = {**fields, **fields.get("extra_body", {})}
    sent.pop("extra_body", None)
    assert {name: direct.body[name] for name in sent} == sent


PLAIN = {"extra_body": {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}}


@pytest.mark.parametrize("stream", [False, True])
def test_b22_low_temperature_is_followed(stream: bool, pair: Pair) -> None:
    """Temperature 0.2 with top_p 0.1: scored neutrally, with the alternatives that drawing needs, and what the
    target writes itself carries the caller's settings. A server that filters its numbers would filter none here.
    """
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    pair.target.plan("score", ZeroLogprobs(when=filtered))
    outcome = pair.ask(stream=stream, temperature=0.2, top_p=0.1, seed=7, **PLAIN)
    assert outcome.text == REPLY
    assert outcome.told.decision == "speculate" and outcome.told.accepted_tokens > 0
    scored = pair.target.of("score")
    assert scored and all((call.body["temperature"], call.body["prompt_logprobs"]) == (0, 20) for call in scored)
    handed = [call.body for call in pair.target.of("continue") if call.body.get("stream")]
    assert handed and all((body["top_p"], body["seed"], body["temperature"]) == (0.1, 7, 0.2) for body in handed)


def test_b22_what_is_drawn_is_seeded_and_booked(pair: Pair) -> None:
    """Temperature 1 with the whole vocabulary: the same seed gives the same reply, tokens outside the listed ones are
    fetched with those banned, and each call is a row of the ledger.
    """
    pair.says(REPLY, REPLY)
    for seed in range(6):
        replies: set[str] = set()
        for _ in range(2):
            before = len(pair.paid)
            outcome = pair.ask(temperature=1, top_p=1, seed=seed, max_tokens=12, **PLAIN)
            assert outcome.told.decision == "speculate"
            assert outcome.told.target_calls == len(pair.paid) - before
            replies.add(outcome.text)
        assert len(replies) == 1
    drawn = [call.body for call in pair.target.of("continue") if not call.body.get("stream")]
    for body in drawn:
        assert (body["max_tokens"], body["temperature"]) == (1, 1)
        assert len(body["logit_bias"]) >= 10 and set(body["logit_bias"].values()) == {-100}


def test_b22_a_gateway_that_is_sent_text_is_not_followed(text_pair: Pair) -> None:
    """A continuation by text begins at an edge that depends on what was drawn: direct, and nothing is scored."""
    text_pair.says(REPLY, REPLY)
    for _ in range(2):
        outcome = text_pair.ask(temperature=0.2, top_p=0.1, **PLAIN)
        assert (outcome.told.decision, outcome.told.reason, outcome.text) == ("direct", "sampling", REPLY)
    assert not text_pair.target.of("score")
