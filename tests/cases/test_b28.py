"""B28: the join between draft and continuation."""

from __future__ import annotations

import pytest
from casepair import Pair

from cheapspec.testing.toy import ToyModel

SEAMS = [
    pytest.param("see https:", "//example.com in Paris", id="a-scheme"),
    pytest.param("Hello", " world in Paris", id="b-word-then-space"),
    pytest.param("Hello ", "world in Paris", id="b-space-then-word"),
    pytest.param("The number is 12", "34 in Paris", id="c-inside-a-number"),
    pytest.param("def x():\n    ", "    return y", id="d-inside-an-indent"),
    pytest.param("One", "\n\ntwo three", id="e-before-a-blank-line"),
    pytest.param("One\n", "\ntwo three", id="e-inside-a-blank-line"),
    pytest.param("Yes \U0001f469", "\u200d\U0001f4bb is it", id="f-before-a-joiner"),
    pytest.param("Yes \U0001f469\u200d", "\U0001f4bb is it", id="f-after-a-joiner"),
    pytest.param("The ans", "wer is it", id="inside-a-word"),
    pytest.param("caf", "é in Paris", id="before-an-accent"),
]


@pytest.mark.parametrize(("prefix", "rest"), SEAMS)
@pytest.mark.parametrize("stream", [False, True])
def test_b28_joined_text_is_the_targets_own(stream: bool, prefix: str, rest: str, any_pair: Pair) -> None:
    """Whatever the draft ends in, the reply is byte for byte what the target alone writes."""
    any_pair.says(prefix + rest, prefix)
    any_pair.hand_off_after(1)
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == prefix + rest


@pytest.mark.parametrize(("prefix", "rest"), SEAMS)
def test_b28_text_is_cut_at_a_safe_edge_only(prefix: str, rest: str, text_pair: Pair) -> None:
    """By text the target is never asked to go on from inside a word, a number, a run of spaces or an emoji."""
    text_pair.says(prefix + rest, prefix)
    text_pair.hand_off_after(1)
    text_pair.ask()
    for exchange in text_pair.target.of("continue"):
        sent = exchange.body["messages"][-1]["content"]
        follows = (prefix + rest)[len(sent) :]
        assert (prefix + rest).startswith(sent)
        assert sent == sent.rstrip()
        assert not (sent[-1:].isalnum() and follows[:1].isalnum())
        assert follows[:1] not in ("\u200d", "\ufe0f")
        assert sent[-1:] not in ("\u200d", ":")


@pytest.mark.parametrize("words", [["a", "b", " "], [" wor", "Hel", "lo", " in P"]], ids=["bytes", "other-words"])
def test_b28_tokenizers_need_not_agree(words: list[str], any_pair: Pair) -> None:
    """A draft model with another vocabulary drafts text; the target's tokens are the target's own, and count."""
    reply = "Hello world, é in Paris: 1234."
    any_pair.draft.model = ToyModel(9, words=words)
    any_pair.says(reply)
    outcome = any_pair.ask()
    assert outcome.text == reply
    assert outcome.told.accepted_tokens == len(any_pair.target.model.encode(reply))


@pytest.mark.parametrize("reply", ["é in Paris", "Hello 界 world", "One \U0001f642 two", "\U0001f469\u200d\U0001f4bb"])
@pytest.mark.parametrize("stream", [False, True])
def test_b28_characters_of_several_tokens_stay_whole(stream: bool, reply: str, any_pair: Pair) -> None:
    """A character that is several tokens at the target arrives whole, wherever the draft and its pieces end."""
    any_pair.says(reply)
    any_pair.settings["draft_tokens"] = 3
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == reply
    assert all("\ufffd" not in str(chunk) for chunk in outcome.chunks)
