"""B18: stop strings over every edge."""

from __future__ import annotations

import pytest
from casepair import Pair

from cheapspec.testing.faults import Chunks

STOP = ["\nUser:"]


@pytest.mark.parametrize("stream", [False, True])
def test_b18a_over_a_chunk_edge(stream: bool, any_pair: Pair) -> None:
    """A server that does not stop by itself sends the stop string in two chunks; the caller sees none of it."""
    any_pair.says("Yes, ok\nUser: hi", "Yes,")
    any_pair.hand_off_after(1)
    # Driven by ids the target has written its bonus token, the space, already; by text it goes on from a word's end.
    space = "" if any_pair.target.capabilities == "vllm" else " "
    any_pair.target.plan("continue", Chunks(f"{space}ok\nUs", "er: hi"))
    outcome = any_pair.ask(stream=stream, stop=STOP)
    assert (outcome.text, outcome.finish) == ("Yes, ok", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_b18b_over_the_seam(stream: bool, any_pair: Pair) -> None:
    """The draft ends inside the stop string, the target writes the rest of it."""
    any_pair.says("ok\nUser: hi", "ok\nUs")
    any_pair.hand_off_after(1)
    outcome = any_pair.ask(stream=stream, stop=STOP)
    assert (outcome.text, outcome.finish) == ("ok", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_b18c_inside_the_accepted_draft(stream: bool, any_pair: Pair) -> None:
    """The accepted draft goes on after the stop string: nothing after it is shown."""
    any_pair.says("ok\nUser: hi there")
    outcome = any_pair.ask(stream=stream, stop=STOP)
    assert (outcome.text, outcome.finish) == ("ok", "stop")
    assert outcome.told.decision == "speculate"


@pytest.mark.parametrize("text", ["ok\nUs and them", "ok\nUser", "\nUse"])
def test_b18_harmless_beginnings_are_released(text: str, any_pair: Pair) -> None:
    """What only looked like a stop string reaches the caller in the end."""
    any_pair.says(text, text[:4])
    any_pair.hand_off_after(1)
    outcome = any_pair.ask(stream=True, stop=STOP)
    assert (outcome.text, outcome.finish) == (text, "stop")
