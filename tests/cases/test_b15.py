"""B15: whether a stream is whole."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import CutAfter, DoneOnly, FinishOnly

REPLY = "One, two, three in Paris, and four or five."


@pytest.fixture(autouse=True)
def _short_draft(any_pair: Pair) -> None:
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)


@pytest.mark.parametrize("clean", [True, False], ids=["eof", "reset"])
def test_b15a_neither_end_sign_is_an_error(clean: bool, any_pair: Pair) -> None:
    """A stream that always breaks off raises; what came before is the caller's, nothing says stop."""
    any_pair.target.plan("continue", CutAfter(2, clean=clean))
    any_pair.options["max_retries"] = 1
    outcome = any_pair.ask(stream=True)
    assert isinstance(outcome.error, openai.APIError)
    assert REPLY.startswith(outcome.text)
    assert outcome.finish is None
    assert len(any_pair.target.of("continue")) <= 2


def test_b15a_a_broken_hand_off_is_taken_up_again(pair: Pair) -> None:
    """Driven by token ids, a hand-off that broke once goes on where it stopped: nothing twice, nothing lost."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    pair.target.plan("continue", CutAfter(2), times=1)
    outcome = pair.ask(stream=True)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.finish == "stop"


@pytest.mark.parametrize("sign", [DoneOnly(), FinishOnly()], ids=["done-only", "finish-only"])
def test_b15bc_one_end_sign_is_enough(sign: DoneOnly | FinishOnly, any_pair: Pair) -> None:
    """With [DONE] alone, or a finish reason alone, the reply is whole."""
    any_pair.target.plan("continue", sign)
    outcome = any_pair.ask(stream=True)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.finish == "stop"
    assert len(any_pair.target.of("continue")) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_b15d_length_reaches_the_caller(stream: bool, any_pair: Pair) -> None:
    """A reply that the limit ended says so, with exactly as many tokens as were allowed."""
    limit = len(any_pair.target.model.encode("One, two, three in"))
    outcome = any_pair.ask(stream=stream, max_tokens=limit)
    assert outcome.text == "One, two, three in"
    assert outcome.finish == "length"


def test_b15e_a_draft_without_its_last_line_claims_no_end(any_pair: Pair) -> None:
    """A draft that just stops is used as far as it came; that it stopped proves nothing."""
    any_pair.draft.clear()
    any_pair.draft.plan("draft", DoneOnly(), times=1)
    any_pair.hand_off_after(0)
    outcome = any_pair.ask()
    assert outcome.text == REPLY
    assert outcome.told.accepted_tokens > 0


# --- the caller's own stream ---------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False], ids=["eof", "reset"])
def test_b15a_a_direct_stream_that_was_cut_is_booked_as_such(clean: bool, any_pair: Pair) -> None:
    """The caller gets what plain openai gives: the text so far, or an error. No charge is made up for it."""
    any_pair.target.plan("direct", CutAfter(2, clean=clean))
    any_pair.options["max_retries"] = 0
    outcome = any_pair.ask(stream=True, temperature=...)
    assert (outcome.error is None) is clean
    assert outcome.text
    assert REPLY.startswith(outcome.text)
    [call] = any_pair.calls()
    assert (call.status, call.cost_usd) == ("possibly_billed", None)
    assert call.usage is not None
    assert call.usage.estimated
    assert call.usage.output_tokens > 0
    assert any_pair.ledger.totals().unpriced_requests == 1


@pytest.mark.parametrize("sign", [DoneOnly(), FinishOnly()], ids=["done-only", "finish-only"])
def test_b15bc_a_direct_stream_with_one_end_sign_is_whole(sign: DoneOnly | FinishOnly, any_pair: Pair) -> None:
    """It is booked with what it used."""
    any_pair.target.plan("direct", sign)
    assert any_pair.ask(stream=True, temperature=...).text == REPLY
    [call] = any_pair.calls()
    assert (call.status, call.usage is not None and call.usage.estimated) == ("ok", False)
