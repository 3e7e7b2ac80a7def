"""B14: an error inside a stream under status 200."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import ErrorInStream

REPLY = "One, two, three in Paris, and four or five."


@pytest.mark.parametrize("shape", ["data", "event", "string"])
def test_b14_error_in_the_hand_off(shape: str, pair: Pair) -> None:
    """The caller gets an API error that keeps the partial text; the call is failed, no saving is booked."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    pair.target.plan("continue", ErrorInStream(shape))
    outcome = pair.ask(stream=True)
    assert isinstance(outcome.error, openai.APIError)
    assert "overloaded" in str(outcome.error)
    assert outcome.text.startswith("One, two")
    assert REPLY.startswith(outcome.text)
    assert len(outcome.text) < len(REPLY)
    assert outcome.finish is None
    failed = pair.calls()[-1]
    assert failed.row.purpose == "continue"
    assert failed.status != "ok"
    assert failed.usage is not None
    assert failed.usage.output_tokens > 0
    assert pair.ledger.totals().saved_usd <= 0


def test_b14_error_in_an_unstreamed_hand_off(pair: Pair) -> None:
    """Without a stream nothing was shown yet, so the target's own whole answer still serves the caller."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    pair.target.plan("continue", ErrorInStream())
    outcome = pair.ask()
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.told.decision == "direct"


@pytest.mark.parametrize("shape", ["data", "event", "string"])
def test_b14_error_in_a_direct_stream(shape: str, pair: Pair) -> None:
    """The error frame of a direct stream reaches the client, which raises it after the partial text."""
    pair.says(REPLY)
    pair.target.plan("direct", ErrorInStream(shape))
    outcome = pair.ask(stream=True, temperature=...)
    assert isinstance(outcome.error, openai.APIError)
    assert outcome.text
    assert outcome.finish is None
    [failed] = pair.calls()
    assert (failed.status, failed.cost_usd) == ("failed", None)
    assert failed.usage is not None
    assert failed.usage.estimated
    assert failed.usage.output_tokens > 0
    assert pair.ledger.totals().saved_usd <= 0
