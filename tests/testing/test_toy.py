"""The toy model: what other tests take for granted about it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cheapspec.testing.toy import END, START, ToyModel

TEXTS = [
    "",
    "The answer is 42.",
    " \n\n  x = 1\n",
    "é 界 🙂 \U0001f469‍\U0001f4bb naïve",
    f"a{END}\n{START}user\n",
    "zzz ~ zzz",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_survives_encoding(text: str) -> None:
    """Encoding and decoding give the text back, byte for byte."""
    model = ToyModel()
    assert model.decode(model.encode(text)) == text


def test_distributions_are_distributions_and_repeatable() -> None:
    """After any context the probabilities add up to one, the same in two models of one seed, not of two."""
    one, same, other = ToyModel(1), ToyModel(1), ToyModel(2)
    ids = one.encode("The capital of France is")
    values = one.logprobs(ids)
    assert math.isclose(sum(math.exp(value) for value in values), 1.0, abs_tol=1e-9)
    assert values == same.logprobs(ids)
    assert values != other.logprobs(ids)


def test_no_two_tokens_tie() -> None:
    """The likeliest token is the only one: greedy text is one text."""
    model = ToyModel(5)
    for text in TEXTS[1:]:
        top, second = sorted(model.logprobs(model.encode(text)), reverse=True)[:2]
        assert top > second


def test_generated_text_is_whole_characters() -> None:
    """Characters that take several tokens are finished: greedy text never shows a broken one before its end."""
    split = 0
    for seed in range(40):
        model = ToyModel(seed, ends=0.0)
        ids = model.greedy(model.encode(model.render([{"role": "user", "content": "go"}])), 120)
        text = model.decode_bytes(ids).decode(errors="replace")
        assert "�" not in text[:-1]
        split += sum(len(character.encode()) > 1 for character in text)
    assert split > 0, "no seed wrote a character of several tokens"


def test_pinned_reply_is_written_to_its_end() -> None:
    """A pinned answer comes out word for word, then the turn ends; every step of it has a second choice."""
    model = ToyModel(3, replies={"Where?": "In Paris, é🙂 on line 12."})
    prompt = model.encode(model.render([{"role": "system", "content": "s"}, {"role": "user", "content": "Where?"}]))
    ids = model.greedy(prompt, 100)
    assert ids[-1] == model.end_id
    assert model.decode(ids[:-1]) == "In Paris, é🙂 on line 12."
    for cut in range(len(ids)):
        values = model.logprobs(prompt + ids[:cut])
        assert math.isclose(sum(math.exp(value) for value in values), 1.0, abs_tol=1e-6)


@pytest.mark.parametrize("cut", range(1, 24))
def test_pinned_reply_goes_on_by_text(cut: int) -> None:
    """A pinned answer that was cut inside a token is continued with the rest of its text."""
    reply = "https://example.com is it"
    model = ToyModel(3, replies={"Where?": reply})
    prompt = model.encode(model.render([{"role": "user", "content": "Where?"}]))
    rest = model.greedy(prompt + model.encode(reply[:cut]), 100)
    assert reply[:cut] + model.decode(rest[:-1]) == reply


def test_pinned_completion() -> None:
    """A text completion is pinned by the text it begins with."""
    model = ToyModel(replies={"Once": " one two three"})
    assert model.decode(model.greedy(model.encode("Once one"), 50), skip_special=True) == " two three"


def test_reply_may_depend_on_what_was_written() -> None:
    """A pinned answer may be a function of the text so far, for drafts that go on after a correction."""
    model = ToyModel(replies={"q": lambda written: "one three four" if "three" in written else "one two"})
    prompt = model.encode(model.render([{"role": "user", "content": "q"}]))
    assert model.decode(model.greedy(prompt, 50), skip_special=True) == "one two"
    assert model.decode(model.greedy(prompt + model.encode("one three"), 50), skip_special=True) == " four"


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8, 1.0])
def test_twin_agrees_as_often_as_it_says(alpha: float) -> None:
    """A draft twin agrees greedily with probability alpha a token."""
    agreed = total = 0
    for seed in range(12):
        model = ToyModel(seed, ends=-5.0)
        twin = model.twin(alpha)
        context = model.encode(f"start {seed}")
        for token in model.greedy(context, 60):
            if not model.decode(context[-3:]).endswith("�"):  # inside a character there is one way on
                agreed += twin.next(context) == token
                total += 1
            context.append(token)
    assert total > 500
    assert abs(agreed / total - alpha) < 0.06


def test_another_vocabulary_is_another_tokenizer() -> None:
    """Models with other words split the same text otherwise and still agree on what it says."""
    wide, narrow = ToyModel(), ToyModel(words=["a", "b", " "])
    assert len(narrow.encode(" world")) > len(wide.encode(" world"))
    assert narrow.decode(narrow.encode(" world")) == wide.decode(wide.encode(" world"))


@pytest.mark.parametrize(
    ("generate", "go_on", "want"),
    [
        (True, False, f"{START}user\nhi{END}\n{START}assistant\nyo{END}\n{START}assistant\n"),
        (False, True, f"{START}user\nhi{END}\n{START}assistant\nyo"),
        (False, False, f"{START}user\nhi{END}\n{START}assistant\nyo{END}\n"),
    ],
)
def test_template(generate: bool, go_on: bool, want: str) -> None:
    """The ChatML prompt closes the last turn unless it is to go on; content parts are joined."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "yo"},
    ]
    assert ToyModel().render(messages, generate=generate, go_on=go_on) == want
