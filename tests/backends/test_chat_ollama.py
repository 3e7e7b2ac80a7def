"""Ollama as a target of rules about whole drafts, on what its servers really answered."""

from __future__ import annotations

import pytest
from ollama_recordings import recording

from cheapspec.backends.chat_hosts import endpoint_for
from cheapspec.backends.chat_learning import learn
from cheapspec.rules.chat import read
from cheapspec.rules.letters import read_letter

OLLAMA = endpoint_for("http://127.0.0.1:11434/v1", "smollm2:135m", {})
VERSIONS = ["ollama24", "ollama33"]


@pytest.mark.parametrize("version", VERSIONS)
def test_its_log_probabilities_are_read(version: str) -> None:
    """Six tokens of numbers, two alternatives each; digits where a letter was to stand are no verdict."""
    made = recording(f"{version}_v1_chat_logprobs")
    said = read(made.response)
    assert said.problem is None and said.cut and len(said.tokens) == 6
    assert all(len(token.top) == 2 for token in said.tokens)
    assert "".join(token.text for token in said.tokens) == said.text
    assert read_letter(said, 0.5).outcome == "none"
    assert learn(OLLAMA, made.reply, made.request) == OLLAMA


@pytest.mark.parametrize("version", VERSIONS)
def test_b50i_only_max_tokens_limits_it(version: str) -> None:
    """``max_completion_tokens: 4`` was ignored; what is sent is the field that it reads."""
    ignored = recording(f"{version}_v1_chat_max_completion_tokens").response
    limited = recording(f"{version}_v1_chat_n2").response
    assert ignored["usage"]["completion_tokens"] > 4 == limited["usage"]["completion_tokens"]
    assert OLLAMA.limit_field == "max_tokens"


@pytest.mark.parametrize("name", ["ollama24_v1_chat_missing", "ollama33_v1_chat_missing", "ollama33_v1_chat_busy"])
def test_its_errors_are_no_verdict_and_teach_nothing(name: str) -> None:
    """A model that it does not have and a full queue are not about our fields."""
    made = recording(name)
    assert read(made.response).problem == "the endpoint answered with an error"
    assert learn(OLLAMA, made.reply, {"logprobs": True}) == OLLAMA
