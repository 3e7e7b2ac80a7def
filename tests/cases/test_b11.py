"""B11: a stream's chunk may have no choices."""

from __future__ import annotations

from casepair import Pair

from cheapspec.testing.faults import Preamble

REPLY = "The answer is 42, in Paris."


def test_b11_preamble_in_the_hand_off(pair: Pair) -> None:
    """Chunks without a choice in the target's continuation cost neither text nor usage."""
    pair.says(REPLY, "The answer")
    pair.hand_off_after(1)
    pair.target.plan("continue", Preamble())
    outcome = pair.ask(stream=True, stream_options={"include_usage": True})
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.finish == "stop"
    assert outcome.told.handoff_tokens > 0
    usage = pair.calls()[-1].usage
    assert usage is not None
    assert not usage.estimated


def test_b11_first_visible_chunk_has_the_role(pair: Pair) -> None:
    """The first chunk that the caller sees says who speaks, whatever the target's first chunk was."""
    pair.says(REPLY, "The answer")
    pair.hand_off_after(1)
    pair.target.plan("continue", Preamble())
    outcome = pair.ask(stream=True)
    assert outcome.chunks[0].choices[0].delta.role == "assistant"


def test_b11_preamble_goes_through_untouched(pair: Pair) -> None:
    """A direct stream is passed on as it came, preamble included, and the client reads it."""
    pair.says(REPLY)
    pair.target.plan("direct", Preamble())
    outcome = pair.ask(stream=True, temperature=...)
    assert outcome.text == REPLY
    assert outcome.chunks[0].choices == []
    assert outcome.told.reason == "temperature_unset"
