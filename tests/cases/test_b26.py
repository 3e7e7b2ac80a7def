"""B26: prefills must not end in white space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from casepair import Pair

from cheapspec.testing.faults import RefuseTrailingSpace
from cheapspec.testing.wire import Action

SPACED = [
    ("The answer is: ", "42 in Paris."),
    ("Steps:\n\n", "One, two, three."),
    ("Steps:\n\n    ", "One"),
]


class WithoutSpace(Action):
    """A server that drops the white space its continuation begins with."""

    def __init__(self, whole: str) -> None:
        self.whole = whole

    def text(self, body: Mapping[str, Any]) -> str | None:
        last = body["messages"][-1]
        return self.whole.removeprefix(last["content"]).lstrip() if last["role"] == "assistant" else None


@pytest.mark.parametrize(("prefix", "rest"), SPACED)
@pytest.mark.parametrize("repeats_space", [True, False], ids=["a-with-space", "b-without"])
@pytest.mark.parametrize("stream", [False, True])
def test_b26_separator_stands_exactly_once(
    stream: bool, repeats_space: bool, prefix: str, rest: str, text_pair: Pair
) -> None:
    """The prefill is trimmed for the wire and the text has its separator once, whether or not the server
    writes it again; no 400 is provoked.
    """
    text_pair.says(prefix + rest, prefix)
    text_pair.hand_off_after(1)
    text_pair.target.plan("continue", RefuseTrailingSpace(), *([] if repeats_space else [WithoutSpace(prefix + rest)]))
    outcome = text_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == prefix + rest
    assert all(exchange.status == 200 for exchange in text_pair.paid)
    for exchange in text_pair.target.of("continue"):
        last = exchange.body["messages"][-1]
        assert last["role"] != "assistant" or last["content"] == last["content"].rstrip()


@pytest.mark.parametrize("stream", [False, True])
def test_b26_white_space_alone_is_no_prefill(stream: bool, text_pair: Pair) -> None:
    """A verified prefix of nothing but white space is not sent as an assistant message."""
    text_pair.says("\n\n One, two.", "\n\n ")
    text_pair.hand_off_after(1)
    outcome = text_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == "\n\n One, two."
    for exchange in (*text_pair.target.of("continue"), *text_pair.target.of("direct")):
        last = exchange.body["messages"][-1]
        assert last["role"] == "user" or last["content"].strip()
