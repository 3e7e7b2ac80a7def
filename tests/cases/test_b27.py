"""B27: models that take no prefill, or start over."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import Refuse, Say

REPLY = "One, two, three. The answer is in Paris, for one world."
PREFIX = "One, two, three. The answer is in Paris,"


def refuse() -> Refuse:
    text = "This model does not support assistant message prefill. The conversation must end with a user message."
    return Refuse(text, lambda body: body["messages"][-1]["role"] == "assistant")


def test_b27a_refused_prefill_becomes_a_plain_call(text_pair: Pair) -> None:
    """A 400 to the prefill: the plain request serves the caller, and the failed call is in the ledger."""
    text_pair.says(REPLY, PREFIX)
    text_pair.hand_off_after(1)
    text_pair.target.plan("continue", refuse())
    outcome = text_pair.ask()
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.told.decision == "direct"
    assert [(call.row.purpose, call.status) for call in text_pair.calls()][-2:] == [
        ("continue", "failed"),
        ("direct", "ok"),
    ]


def test_b27a_refused_prefill_is_remembered(text_pair: Pair) -> None:
    """The same endpoint is not asked for a continuation again with the next request."""
    text_pair.says(REPLY, PREFIX)
    text_pair.settings["draft_tokens"] = 4
    text_pair.hand_off_after(1)
    text_pair.target.plan("any", refuse())
    outcomes = text_pair.ask_again(3)
    assert [outcome.text for outcome in outcomes] == [REPLY] * 3
    refused = [exchange for exchange in text_pair.paid if exchange.status == 400]
    assert len(refused) == 1


def test_b27a_refused_in_a_stream(text_pair: Pair) -> None:
    """Once text is out, the caller gets an API error with that text, never a second beginning."""
    text_pair.says(REPLY, PREFIX)
    text_pair.hand_off_after(1)
    text_pair.target.plan("continue", refuse())
    outcome = text_pair.ask(stream=True)
    if outcome.error is None:
        assert outcome.text == REPLY
    else:
        assert isinstance(outcome.error, openai.APIError)
        assert outcome.text
        assert REPLY.startswith(outcome.text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "said",
    [REPLY, "The answer is in Paris, for one world."],
    ids=["b-whole-prefix", "c-last-sentence"],
)
def test_b27bc_repeated_text_is_said_once(said: str, stream: bool, text_pair: Pair) -> None:
    """A server that says the prefix, or its last sentence, again: the reply says it once."""
    text_pair.says(REPLY, PREFIX)
    text_pair.hand_off_after(1)
    text_pair.target.plan("continue", Say(said))
    outcome = text_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prefix", "reply"), [("4", "442 is it"), ("a", "aardvark"), ("Yes,", "Yes,Yes, Yes, in Paris")]
)
def test_b27d_a_genuine_repeat_stays(prefix: str, reply: str, stream: bool, any_pair: Pair) -> None:
    """A continuation that only looks like a repeat is kept whole."""
    any_pair.says(reply, prefix)
    any_pair.hand_off_after(1)
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == reply
