"""Tokens without a tokenizer: the estimate, and the bound that budgets rest on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.counting import estimate, input_bound, input_estimate, token_bound

# Token counts of two real vocabularies: SmolLM2-135M, Qwen2.5-Coder-0.5B (llama.cpp's /tokenize, no specials, 2026-11).
COUNTED = {
    "The quick brown fox jumps over the lazy dog.": (10, 10),
    "def f(x: int) -> int:\n    return x ** 2 + 1\n": (20, 19),
    '{"id": 1042, "total": 3.14159, "ok": true}': (26, 26),
    "Hän juoksi nopeasti metsän läpi kohti vanhaa taloa.": (26, 21),
    "8,415,093,277": (13, 13),
    "ba di gu ko ne": (5, 5),
    "人工智能正在改变世界": (19, 4),
    "<|endoftext|> and <|im_start|>": (15, 13),
}


@pytest.mark.parametrize("text", COUNTED)
def test_the_bound_holds_for_real_tokenizers(text: str) -> None:
    """No more tokens than that come out, and no more than bytes are allowed for."""
    assert max(COUNTED[text]) <= token_bound(text) <= len(text.encode())


def test_b43_text_that_looks_like_a_control_token_is_text() -> None:
    """It is counted by its bytes; a vocabulary that would raise is not asked."""
    asked = {"messages": [{"role": "user", "content": "Explain <|endoftext|> and <|im_start|>"}]}
    assert input_estimate(asked) == 4 + estimate(len(asked["messages"][0]["content"]))
    assert input_bound(asked, 100) <= 100


@given(st.text(st.characters(codec=None)))
def test_any_text_has_a_bound(text: str) -> None:
    """Half a surrogate pair too; never negative, never more than its bytes."""
    assert 0 <= token_bound(text) <= len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (400, 100)])
def test_four_bytes_are_about_a_token(size: int, tokens: int) -> None:
    """Rounded up: something is never nothing."""
    assert estimate(size) == tokens


TEXT = "The quick brown fox jumps over the lazy dog. " * 4


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": TEXT}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}, 7]}, "x"]},
        {"prompt": TEXT},
        {"prompt": ["", TEXT]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}], "instructions": ""},
    ],
)
def test_all_texts_of_a_request_are_counted(body: dict[str, Any]) -> None:
    """In every shape that a body may have; what is not text counts a token a byte."""
    assert input_bound(body, 1000) == 1000 - len(TEXT) + token_bound(TEXT)
    assert input_estimate(body) - 4 * len(body.get("messages", ())) == estimate(len(TEXT))


def test_token_ids_are_counted_one_by_one() -> None:
    """A prompt of ids is as many tokens as ids, however many digits they have."""
    body = {"prompt": [15, 151_643, 7]}
    assert input_bound(body, 100) == 100 - len("[15,151643,7]") + 3
    assert input_bound({"prompt": [[15, 16]]}, 100) == 100
