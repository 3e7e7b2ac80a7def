"""A verdict is read from one token's alternatives, and only where they are evidence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from rules_kit import letter, reply, token

from cheapspec.rules.chat import read
from cheapspec.rules.letters import read_digit, read_letter
from cheapspec.rules.verdict import Verdict


def judged(told: Any, threshold: float = 0.5) -> Verdict:
    return read_letter(read(told), threshold)


def test_spellings_of_a_letter_are_summed() -> None:
    """`` Y``, ``y``, ``Y`` and ``**Y`` are one letter."""
    got = judged(letter("Y", {"Y": 0.4, " Y": 0.1, "y": 0.1, "**Y": 0.1, "N": 0.1, " n\n": 0.1, "Sure": 0.1}))
    assert got.outcome == "accept"
    assert got.score == pytest.approx(0.7 / 0.9)


def test_the_threshold_decides() -> None:
    """A score below the threshold rejects, though Y is the likelier letter."""
    told = letter("Y", {"Y": 0.8, "N": 0.2})
    assert judged(told, 0.8).outcome == "accept"
    assert judged(told, 0.81).outcome == "reject"


def test_the_less_likely_letter_never_accepts() -> None:
    """However low the threshold, N above Y rejects."""
    assert judged(letter("N", {"N": 0.6, "Y": 0.4}), 0.1).outcome == "reject"


@pytest.mark.parametrize(
    "tokens",
    [
        [token("\n", {"\n": 1.0}, logprob=-0.01), token("Y", {"Y": 0.9, "N": 0.1})],
        [token("**", {"**": 0.9, "Y": 0.1}), token("Y", {"Y": 0.9, "N": 0.1}), token("**", {"**": 0.99})],
        [token(" ", {" ": 0.9}), token("y", {"y": 0.9, "n": 0.1}), token(".", {".": 0.9})],
    ],
)
def test_a_verdict_split_over_tokens_is_read_at_its_letter(tokens: list[Any]) -> None:
    """Blank tokens and marks before the letter, and marks after it, do not count."""
    got = judged(reply("".join(one["token"] for one in tokens), "stop", tokens))
    assert got.outcome == "accept"
    assert got.score == pytest.approx(0.9)


def test_an_unlisted_letter_counts_the_most_that_it_can_be() -> None:
    """min(lowest listed, remaining mass): a short list of alternatives makes no verdict look certain."""
    assert judged(letter("Y", {"Y": 0.6})).score == pytest.approx(0.6)  # N could have the other .4
    assert judged(letter("Y", {"Y": 0.6, "OK": 0.3})).score == pytest.approx(0.6 / 0.7)  # … of which .1 is left
    assert judged(letter("Y", {"Y": 0.9, "OK": 0.05})).score == pytest.approx(0.9 / 0.95)


def test_an_unlisted_y_never_accepts() -> None:
    """What is only assumed cannot accept a draft."""
    got = judged(letter("N", {"N": 0.45}), 0.4)
    assert got.outcome == "reject"


def test_duplicate_texts_in_a_list_are_not_counted_twice() -> None:
    """The same token listed twice is one; two tokens of one text are summed."""
    same_token = judged(letter("Y", [("Y", 0.5), ("Y", 0.5), ("N", 0.4)]))
    assert same_token.score == pytest.approx(0.5 / 0.9)
    two_tokens = judged(letter("Y", [("Y", 0.5), ("Y", 0.1), ("N", 0.4)]))
    assert two_tokens.score == pytest.approx(0.6)


def test_alternatives_are_told_apart_by_bytes() -> None:
    """A text of placeholders means nothing where bytes say otherwise."""
    odd = token("Y", {"Y": 0.6, "N": 0.4})
    odd["token"] = "\ufffd"
    for one in odd["top_logprobs"]:
        one["token"] = "bytes:59"
    assert judged(reply("Y", "length", [odd])).score == pytest.approx(0.6)


def numbers_of(*pairs: tuple[str, Any]) -> Any:
    listed = [{"token": text, "logprob": number, "bytes": None} for text, number in pairs]
    return reply("Y", "length", [{**listed[0], "top_logprobs": listed}])


@pytest.mark.parametrize(
    ("told", "lasting"),
    [
        (numbers_of(("Y", 0.0), ("N", 0.0)), True),
        (numbers_of(("Y", -9999.0), ("N", -9999.0)), True),
        (numbers_of(("Y", math.nan), ("N", -1.0)), True),
        (numbers_of(("Y", -0.1), ("N", math.nan)), True),
        (numbers_of(("Y", None), ("N", -1.0)), True),
        (numbers_of(("Y", "-0.1"), ("N", -1.0)), True),
        (numbers_of(("Y", -0.1), ("N", -0.1)), True),
        (reply("Y", "length"), True),
        (reply("Y", "length", []), True),
        (letter("You", {"You": 0.9, "Y": 0.05, "N": 0.05}), False),
        (letter("The", {"The": 0.9, "A": 0.1}), False),
        (letter("\n", {"\n": 0.9, "Y": 0.1}), False),
        (reply("Yes, but", "stop", [token("Y", {"Y": 0.9}), token("es, but", {"es, but": 0.9})]), False),
        (reply("**", "length", [token("**", {"**": 0.9, "Y": 0.1})]), False),
        (reply("Y", "stop", [token("<think>", {"<think>": 0.9}), token("Y", {"Y": 0.9})]), True),
        (reply("<think>", "length", [token("<think>", {"<think>": 0.9, "Y": 0.1})]), False),
        (reply("", "length", reasoning="Let me see"), False),
        (reply(None, "length"), False),
        (reply("", "stop"), False),
        (reply(None, "stop", refusal="I cannot help with that"), False),
        (reply("Y", "content_filter", [token("Y", {"Y": 0.9})]), False),
        (reply("Y", "error", [token("Y", {"Y": 0.9})]), False),
        (reply(None, "tool_calls", tool_calls=[{"id": "1"}]), False),
        ({"error": {"code": 502, "message": "upstream"}}, False),
        ({"choices": []}, False),
        ({"choices": [7]}, False),
        ([], False),
        (None, False),
        ("Y", False),
    ],
)
def test_what_is_no_evidence_is_no_verdict(told: Any, lasting: bool) -> None:
    """Unusable numbers, prose, thinking, refusals, tool calls and odd replies: no verdict, never an acceptance."""
    got = judged(told, 0.01)
    assert (got.outcome, got.lasting) == ("none", lasting)
    assert got.why


def test_a_token_that_its_own_list_leaves_out_counts() -> None:
    """Some servers list other tokens only."""
    got = judged(reply("Y", "length", [token("Y", {"N": 0.1, "OK": 0.1}, logprob=math.log(0.8))]))
    assert got.score == pytest.approx(0.8 / 0.9)


def test_an_end_mark_after_the_letter_is_not_prose() -> None:
    """Servers that list the end token do not spoil the verdict."""
    tokens = [token("Y", {"Y": 0.9, "N": 0.1}), token("<|im_end|>", {"<|im_end|>": 0.9})]
    assert judged(reply("Y", "stop", tokens)).outcome == "accept"


@pytest.mark.parametrize(("text", "score"), [("9", 1.0), (" 7\n", 7 / 9), ("**0**", 0.0)])
def test_a_digit_stands_in_for_log_probabilities(text: str, score: float) -> None:
    """Without log-probabilities one digit gives ten operating points."""
    got = read_digit(read(reply(text)), 0.7)
    assert got.score == pytest.approx(score)
    assert got.outcome == ("accept" if score >= 0.7 else "reject")


@pytest.mark.parametrize("text", ["10", "9/10", "Y", "nine", "-", "8 or 9", "٩"])
def test_what_is_not_one_digit_is_no_verdict(text: str) -> None:
    """Prose, two digits and digits of other scripts are no verdict."""
    assert read_digit(read(reply(text)), 0.1).outcome == "none"


def test_a_digit_after_a_refusal_is_no_verdict() -> None:
    """A refused verdict is none, whatever stands beside it."""
    assert read_digit(read(reply("9", refusal="no")), 0.1).outcome == "none"
