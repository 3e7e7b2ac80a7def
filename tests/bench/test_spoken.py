"""Rows along a known reply say at every position what the drafter would have proposed there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cheapspec.bench.spoken import PIECES, Drafted, Spoken, draft_row, spoken, static_row
from cheapspec.core.effects import Usage
from cheapspec.core.lookup import Prediction, PromptLookup
from cheapspec.core.request import Request


def said(*tokens: str | bytes, finish: str = "stop") -> Spoken:
    parts = [token.encode() if isinstance(token, str) else token for token in tokens]
    sizes = [len(part) for part in parts] + ([0] if finish == "stop" else [])
    return Spoken(b"".join(parts).decode(), tuple(sizes), finish)


class Script:
    """A draft model that writes ``tokens``, from any place in them; from elsewhere ``other``."""

    def __init__(self, *tokens: str, window: int = 2, ends: bool = True, other: Sequence[str] = ("??",)) -> None:
        self.tokens, self.window, self.ends, self.other = tokens, window, ends, other
        self.asked: list[str] = []

    def __call__(self, prefix: str) -> list[Drafted]:
        self.asked.append(prefix)
        place = 0
        for index in range(len(self.tokens) + 1):
            if place == len(prefix):
                rest = self.tokens[index : index + self.window]
                out = [Drafted(token.encode(), -0.5) for token in rest]
                full = index + len(rest) == len(self.tokens) and len(rest) < self.window and self.ends
                return [*out, Drafted(b"", None, end=True)] if full else out
            place += len(self.tokens[index]) if index < len(self.tokens) else 0
        return [Drafted(token.encode(), -3.0) for token in self.other]


def test_a_draft_that_says_the_same_agrees_everywhere_and_ends_there() -> None:
    """A draft model that writes the reply agrees at each position, its end of turn included."""
    row = draft_row(Script("a", " b", " c"), said("a", " b", " c"), "d")
    assert row.agreed == (True,) * 4
    assert row.logprobs == (-0.5, -0.5, -0.5, None)
    assert row.ends == {3}


def test_a_reply_cut_by_its_limit_has_no_end() -> None:
    """With finish "length" the last position is text, and what the draft says behind it does not matter."""
    row = draft_row(Script("a", " b", " c", " d", window=8), said("a", " b", " c", finish="length"), "d")
    assert row.agreed == (True,) * 3
    assert row.ends == frozenset()


def test_a_contradiction_counts_once_and_drafting_goes_on_behind_the_correction() -> None:
    """The position of the wrong token disagrees, with the wrong token's probability; the next one is asked anew."""
    ask = Script("a", " x", " c")
    row = draft_row(ask, said("a", " b", " c"), "d")
    assert row.agreed == (True, False, True, True)
    assert row.logprobs[:2] == (-0.5, -0.5)
    assert ask.asked == ["", "a b", "a b c"]  # the script goes on behind any two words of that length


def test_an_early_end_is_a_disagreement_at_its_position() -> None:
    """A draft that ends its turn where the reply goes on is wrong there, and the position is an end."""
    row = draft_row(Script("a", window=4), said("a", " b"), "d")
    assert row.agreed == (True, False, False)
    assert row.ends == {1}
    assert row.logprobs[1] is None


def test_a_draft_that_goes_on_where_the_reply_ends_disagrees_there() -> None:
    """The end of the turn is a position like any other."""
    row = draft_row(Script("a", " b", " c"), said("a", " b"), "d")
    assert row.agreed == (True, True, False)
    assert row.ends == frozenset()


def test_other_token_borders_are_aligned_by_bytes() -> None:
    """Draft tokens that begin inside a target token add up there; one that spans several leaves 0.0 at the rest."""
    row = draft_row(Script("un", "like", "ly so", window=8), said("unlike", "ly", " so"), "d")
    assert row.agreed == (True, True, True, True)
    assert row.logprobs == (-1.0, -0.5, 0.0, None)


def test_a_half_right_draft_token_covers_what_it_covers() -> None:
    """Target tokens wholly inside the right bytes agree; the one in which the difference lies does not."""
    row = draft_row(Script("ab cd ex"), said("ab", " cd", " ef", finish="length"), "d")
    assert row.agreed == (True, True, False)


def test_a_drafter_that_cannot_draft_agrees_nowhere() -> None:
    """No draft is no agreement and no probability."""
    row = draft_row(lambda prefix: (), said("a", " b"), "d")
    assert row.agreed == (False, False, False)
    assert row.logprobs == (None, None, None)


def test_characters_of_several_tokens_belong_to_their_last_token() -> None:
    """Nothing is said of a position inside a character; the character's first position carries the agreement."""
    reply = Spoken("é!", (0, 2, 1, 0), "stop")
    row = draft_row(Script("é", "!"), reply, "d")
    assert row.agreed == (True, True, True, True)
    wrong = draft_row(Script("e", "!"), reply, "d")
    assert wrong.agreed[:2] == (False, None)
    assert wrong.logprobs[1] is None


@pytest.mark.parametrize("count", [1, 3, 8, 60])
def test_any_window_gives_the_same_row(count: int) -> None:
    """How many tokens are asked for at a time changes nothing."""
    words = [f" w{number}" for number in range(23)]
    assert draft_row(Script(*words, window=count), said(*words), "d").agreed == (True,) * 24


def test_lookup_and_prediction_are_counted_in_target_tokens() -> None:
    """``right`` counts whole target tokens from the position on, ``proposed`` those and an estimate of the rest."""
    request = Request("chat", {}, "m", False, ({"role": "user", "content": "hi"},), prediction="one two three four\n")
    reply = said("one", " two", " three", " five")
    row = static_row(Prediction(), request, reply, lambda text: len(text.split()))
    assert row.right[:3] == (3, 2, 1)
    assert row.proposed[:3] == (4, 3, 2)
    nothing = static_row(PromptLookup(), request, reply, len)
    assert nothing.right == (0,) * 5
    assert nothing.proposed == (0,) * 5


def test_a_prediction_claims_the_end_as_it_does_in_production_and_lookup_does_not() -> None:
    """A prediction that is proposed to its end claims the reply's end with it; one too long for a draft does not, and
    neither does what merely occurred in the conversation.
    """
    earlier = {"role": "user", "content": "say one two three four again"}
    request = Request("chat", {}, "m", False, (earlier,), prediction="one two three four\n")
    reply = said("one", " two", " three", " four")
    assert static_row(Prediction(), request, reply, len).whole
    assert not static_row(PromptLookup(), request, reply, len).whole
    long = Request("chat", {}, "m", False, (earlier,), prediction="one two three four" + " five" * PIECES)
    row = static_row(Prediction(), long, reply, lambda text: len(text.split()))
    assert not row.whole
    assert row.proposed[0] == PIECES, "as long as the longest draft of production"
    none = Request("chat", {}, "m", False, (earlier,), prediction="")
    assert not static_row(Prediction(), none, reply, len).whole


def completion(text: str, tokens: list[list[int]] | None, finish: str = "stop") -> Any:
    entries = None if tokens is None else {"content": [{"token": "?", "bytes": item} for item in tokens]}
    choice = {"message": {"content": text}, "logprobs": entries, "finish_reason": finish}
    message = SimpleNamespace(content=text)
    return SimpleNamespace(
        choices=[SimpleNamespace(message=message, finish_reason=finish)], model_dump=lambda: {"choices": [choice]}
    )


def test_tokens_are_read_from_log_probabilities() -> None:
    """The reply's tokens are those whose bytes join to its text; the end of the turn is one more, listed or not."""
    usage = Usage(10, 3, 4)
    plain = spoken(completion("ab", [[97], [98]]), usage)
    assert plain == Spoken("ab", (1, 1, 0), "stop", 10, 4)
    assert spoken(completion("ab", [[97], [98], []]), usage) == plain
    assert spoken(completion("ab", [[97], [98], [60, 47, 115, 62]]), usage) == plain
    assert spoken(completion("ab", [[97], [98]], "length"), None) == Spoken("ab", (1, 1), "length")


@pytest.mark.parametrize("tokens", [None, [], [[97]], [[97], [98], [99], [99]]])
def test_a_reply_whose_tokens_do_not_join_to_its_text_is_unknown(tokens: list[list[int]] | None) -> None:
    """Rather no figure than one of a reply that was misread."""
    assert spoken(completion("ab", tokens), None) is None
