"""B39: an error, or nothing, under status 200."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import EmptyBody, Html200, NullChoices
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."
NOTHING: dict[str, Action] = {
    "a-error": NullChoices({"message": "Provider returned error", "code": 429}),
    "b-empty": NullChoices(choices=[]),
    "c-null": NullChoices(),
    "d-html": Html200(),
    "e-nothing": EmptyBody(),
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("stream", [False, True])
def test_b39_as_a_score(stream: bool, name: str, any_pair: Pair) -> None:
    """A scoring reply without content proves nothing and costs nothing; the target's own answer is the reply."""
    any_pair.says(REPLY, "One, two, four in Rome.")
    any_pair.target.plan("score", NOTHING[name])
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.accepted_tokens) == ("direct", 0)
    scored = any_pair.calls()[0]
    assert scored.row.purpose == "score"
    assert not scored.cost_usd


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("stream", [False, True])
def test_b39_as_a_hand_off(stream: bool, name: str, any_pair: Pair) -> None:
    """A hand-off that is no stream never passes for the end of the reply: the whole text, or an API error."""
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)
    any_pair.target.plan("continue", NOTHING[name])
    outcome = any_pair.ask(stream=stream)
    if outcome.error is None:
        assert outcome.text == REPLY
    else:
        assert stream, "nothing had been shown: the request could have gone direct"
        assert isinstance(outcome.error, openai.APIError)
        assert REPLY.startswith(outcome.text)
        assert outcome.finish is None


@pytest.mark.parametrize("name", NOTHING)
def test_b39_as_a_direct_reply(name: str, pair: Pair) -> None:
    """The caller gets a typed openai error that fits the inner code, never a TypeError of his own making."""
    pair.says(REPLY)
    pair.options["max_retries"] = 1
    pair.target.plan("direct", NOTHING[name])
    outcome = pair.ask(temperature=...)
    assert isinstance(outcome.error, openai.APIError)
    if name == "a-error":
        assert isinstance(outcome.error, openai.RateLimitError)
        assert len(pair.paid) == 2, "429 is a code that is repeated"


@pytest.mark.parametrize("name", NOTHING)
def test_b39_as_a_direct_stream(name: str, pair: Pair) -> None:
    """The caller gets what plain openai gives; the books know that it was no answer, and charge nothing."""
    pair.says(REPLY)
    pair.options["max_retries"] = 0
    pair.target.plan("direct", NOTHING[name])
    outcome = pair.ask(stream=True, temperature=...)
    options = {**pair.client_options(), "http_client": openai.DefaultHttpxClient(verify=False)}
    with openai.OpenAI(**options) as plain:
        expected = list(plain.chat.completions.create(**pair.body(stream=True, temperature=...)))
    assert outcome.error is None
    assert len(outcome.chunks) == len(expected)
    [call] = pair.calls()
    assert (call.status, call.cost_usd, call.usage) == ("failed", None, None)
