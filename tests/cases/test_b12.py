"""B12: keep-alive comments are not data."""

from __future__ import annotations

import pytest
from casepair import Pair

from cheapspec.testing.faults import Comments, Gzip
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."


@pytest.mark.parametrize("faults", [[Comments()], [Comments(), Gzip()], [Gzip()]], ids=["comments", "both", "gzip"])
def test_b12_comments_and_compression_in_the_hand_off(faults: list[Action], any_pair: Pair) -> None:
    """Comments, empty data frames, a missing space and compression change nothing of the text."""
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)
    any_pair.target.plan("continue", *faults)
    outcome = any_pair.ask(stream=True)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.finish == "stop"
    assert "continue" in any_pair.purposes()


def test_b12_comments_in_a_direct_stream(pair: Pair) -> None:
    """A direct stream is the server's own bytes: the official client reads through its comments (an empty
    data frame it does not survive by itself either).
    """
    pair.says(REPLY)
    pair.target.plan("direct", Comments(empty=False), Gzip())
    outcome = pair.ask(stream=True, temperature=...)
    assert outcome.text == REPLY
    assert pair.purposes() == ["direct"]
