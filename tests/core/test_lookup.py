"""Drafts out of the conversation: what is proposed stood there, after the same words."""

from __future__ import annotations

from typing import Any

import pytest

from cheapspec.core.lookup import Prediction, PromptLookup, realign
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Request


def ask(*contents: str, prediction: str | None = None) -> Request:
    messages = tuple({"role": "user", "content": content} for content in contents)
    return Request("chat", {}, "m", False, messages=messages, prediction=prediction)


def proposed(drafter: Drafter, request: Request, prefix: str, max_tokens: int = 50) -> str:
    tokens = drafter.propose(request, prefix, max_tokens)
    assert tokens is not None and len(tokens) <= max(max_tokens, 0)
    assert all(token.logprob is None for token in tokens)
    return "".join(token.text for token in tokens)


@pytest.mark.parametrize(("drafter", "name"), [(PromptLookup(), "lookup"), (Prediction(), "prediction")])
def test_local_drafters_have_no_host_and_make_no_call(drafter: Drafter, name: str) -> None:
    """They are drafters by the protocol; whoever asks them by a call gets none."""
    assert (drafter.name, drafter.base_url) == (name, "")
    with pytest.raises(StopIteration) as ended:
        next(drafter.draft(ask("Hi"), "", 8))
    assert isinstance(ended.value.value, NoDraft) and ended.value.value.reason == "no_draft"


# --- prompt lookup -----------------------------------------------------------------------------

STORY = "Once upon a time the small red fox ran over the hill. It slept."


def test_what_followed_the_same_words_is_proposed() -> None:
    """The reply's last words stand in a message: what follows them there is the draft."""
    assert proposed(PromptLookup(), ask(STORY), "You wrote: the small red fox") == " ran over the hill. It slept."
    assert proposed(PromptLookup(), ask(STORY), "You wrote: the small red fox", 2) == " ran over"
    assert proposed(PromptLookup(), ask(STORY), "You wrote: the small red fox", 0) == ""


def test_the_reply_itself_is_searched() -> None:
    """Lists and code repeat themselves."""
    prefix = "value one is 17 apples, and value two is 18\nvalue one is"
    assert proposed(PromptLookup(), ask("Hi"), prefix, 2) == " 17 apples"


def test_the_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    """More shared words before the place mean more likely the same words after it."""
    request = ask("we saw the big blue bird sing", "they saw the big blue bird fly")
    assert proposed(PromptLookup(), request, "and we saw the big blue bird") == " sing"
    assert proposed(PromptLookup(), request, "but who saw the big blue bird") == " fly"
    assert proposed(PromptLookup(), ask("the big blue bird 1, the big blue bird 2"), "see the big blue bird") == " 2"


@pytest.mark.parametrize("prefix", ["the", "a b c", "no such words here", "ed fox", "over the hill. It slept."])
def test_nothing_is_proposed_without_a_real_match(prefix: str) -> None:
    """Too short, not there, or nothing after it."""
    assert proposed(PromptLookup(), ask(STORY), prefix) == ""


def test_a_match_may_end_inside_a_word() -> None:
    """The prefix may stop in the middle of a word; the match begins at one."""
    assert proposed(PromptLookup(), ask(STORY), "the small red f", 2) == "ox ran"


def test_a_text_completion_is_continued_from_its_own_prompt() -> None:
    """Prompt and reply are one text there."""
    prompt = "red green blue yellow pink\nred green blue"
    request = Request("completion", {}, "m", False, prompt=prompt)
    assert proposed(PromptLookup(), request, "", 2) == " yellow pink"
    assert proposed(PromptLookup(), request, " yellow", 1) == " pink"


CODE = "Rename x:\n```python\nx = 1\nprint(x)\n```\nand explain. Short: ```a```\n~~~\ny\n~~~"


def test_an_empty_reply_begins_with_the_code_that_was_given() -> None:
    """The longest fenced block of the last user message, with its fences; without one nothing."""
    assert proposed(PromptLookup(), ask(CODE), "") == "```python\nx = 1\nprint(x)\n```"
    assert proposed(PromptLookup(), ask(CODE, "Thanks"), "") == ""
    assert proposed(PromptLookup(), ask("```\nnot closed"), "") == ""
    assert proposed(PromptLookup(), Request("chat", {}, "m", False), "") == ""


def test_repetitive_text_is_searched_in_bounded_time() -> None:
    """Thousands of equal places: only the last ones are compared."""
    text = "all work and no play " * 5000
    assert proposed(PromptLookup(), ask(text), "all work and no play all work and", 2) == " no play"


# --- prediction --------------------------------------------------------------------------------

WANTED = "def area(width, height):\n    return width * height  # in square metres\n"


def test_a_prediction_is_followed() -> None:
    """From the beginning, and after any prefix of it."""
    assert proposed(Prediction(), ask("Hi", prediction=WANTED), "") == WANTED
    assert proposed(Prediction(), ask("Hi", prediction=WANTED), WANTED[:20], 1) == WANTED[20:].split(")")[0]
    assert proposed(Prediction(), ask("Hi", prediction=WANTED), WANTED) == ""
    assert proposed(Prediction(), ask("Hi"), "") == ""


@pytest.mark.parametrize(
    ("prefix", "rest"),
    [
        ("def surface(width, height):\n    return width", " * height  # in square metres\n"),  # deviated long ago
        ("def area(width, height):\n    return depth", " * height  # in square metres\n"),  # a word replaced
        ("def area(width, height):\n    return depth *", " height  # in square metres\n"),  # two of them
        ("def area(width, height):\n    return height", "  # in square metres\n"),  # words left out
        ("Something else entirely, at length", ""),
        ("no", ""),
    ],
)
def test_a_prediction_is_picked_up_after_a_deviation(prefix: str, rest: str) -> None:
    """The end of the reply is found in the prediction, directly or before the words that deviate."""
    assert proposed(Prediction(), ask("Hi", prediction=WANTED), prefix) == rest


def test_of_several_places_the_nearest_counts() -> None:
    """A line that occurs twice is followed from where the reply stands."""
    line = "    print(value, file=output)\n"
    text = f"first\n{line}middle\n{line}last\n"
    assert proposed(Prediction(), ask("Hi", prediction=text), f"FIRST\n{line}") == f"middle\n{line}last\n"
    assert proposed(Prediction(), ask("Hi", prediction=text), f"FIRST\n{line}MIDDLE\n{line}") == "last\n"


# --- realign -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("correction", "remaining", "rest"),
    [
        (" large", " big house on the hill", " house on the hill"),  # a word replaced
        (" house", " big red house on the hill", " on the hill"),  # words left out
        (" on", " big old red house on the hill", " old red house on the hill"),  # too short to be sure so far away
        (" on", " big on the hill", " the hill"),
        (" red barn", " big old red barn there", " there"),  # several words
        (" red barn", " big house there", " there"),
        ("or", "our of", " of"),  # the rest of a word
        ("\n\n", " and so on.\n\nNext", "Next"),
        ("\n\n", " and so on", ""),
        ("", " and so on", ""),
        (" x", "", ""),
        (" two words", " one", ""),
    ],
)
def test_a_corrected_draft_goes_on_after_the_correction(correction: str, remaining: str, rest: str) -> None:
    """After the correction where it stands nearby, else after the word that it replaced."""
    assert realign(correction, remaining) == rest


def test_what_is_left_is_always_the_end_of_the_draft() -> None:
    """Realigning only ever drops a beginning, also of long drafts."""
    remaining = "".join(f" word{index}," for index in range(500))
    for correction in (" word3", " nothing", ",", " word499", "\n"):
        assert remaining.endswith(realign(correction, remaining))
    assert realign(" word3", remaining).startswith(", word4,")


def test_tokens_join_to_the_text() -> None:
    """Word-like pieces, none empty."""
    tokens: Any = Prediction().propose(ask("Hi", prediction=WANTED), "", 100)
    assert "".join(token.text for token in tokens) == WANTED
    assert all(token.text for token in tokens)
