"""B33: hosts and model names in the forms in which people write them."""

from __future__ import annotations

import pytest
from ollama_recordings import chat, drafter, loaded, play, reply, show

from cheapspec.backends.ollama_names import find_model, normalise_host
from cheapspec.core.ports import NoDraft, Streaming
from cheapspec.errors import SettingsError


@pytest.mark.parametrize(
    ("written", "usable"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("localhost", "http://localhost:11434"),
        ("http://h:1234/", "http://h:1234"),
        ("https://h", "https://h:443"),
        ("http://h", "http://h:80"),
        ("[::1]:11434", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::]:11434", "http://[::1]:11434"),
        ("::", "http://[::1]:11434"),
        (":11434", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("  localhost:1 ", "http://localhost:1"),
        ("'0.0.0.0'", "http://127.0.0.1:11434"),
        ('" http://h:1234 "', "http://h:1234"),
        ("HTTP://H:1234", "http://h:1234"),
        ("http://localhost:11434/v1", "http://localhost:11434"),
        ("http://localhost:11434/api/", "http://localhost:11434"),
        ("https://h/ollama", "https://h:443/ollama"),
        ("", "http://127.0.0.1:11434"),
        ("   ", "http://127.0.0.1:11434"),
    ],
)
def test_b33_a_host_gives_one_usable_url(written: str, usable: str) -> None:
    """Explicit or from OLLAMA_HOST, every form gives the same URL, which clients can connect to."""
    assert normalise_host(written, {}) == usable
    assert normalise_host(None, {"OLLAMA_HOST": written}) == usable


def test_b33_an_explicit_host_beats_the_environment() -> None:
    """A blank setting is none; anything else wins over OLLAMA_HOST."""
    env = {"OLLAMA_HOST": "http://env:1"}
    assert normalise_host("http://mine:2", env) == "http://mine:2"
    assert normalise_host(" ", env) == "http://env:1"
    assert normalise_host(None, {}) == "http://127.0.0.1:11434"


@pytest.mark.parametrize("written", ["ftp://h", "http://h:99999", "h:port", "http://[::1"])
def test_b33_what_is_no_host_says_where_it_was_written(written: str) -> None:
    """The error names the setting that holds the unusable value."""
    with pytest.raises(SettingsError, match="draft_url"):
        normalise_host(written, {"OLLAMA_HOST": "http://fine:1"})
    with pytest.raises(SettingsError, match="OLLAMA_HOST"):
        normalise_host(None, {"OLLAMA_HOST": written})


@pytest.mark.parametrize(
    ("asked", "installed", "found"),
    [
        ("llama3.2", ["llama3.2:latest"], "llama3.2:latest"),
        ("llama3.2:latest", ["llama3.2:latest"], "llama3.2:latest"),
        ("SmolLM2:135M", ["smollm2:135m"], "smollm2:135m"),
        ("registry.ollama.ai/library/llama3.2", ["llama3.2:latest"], "llama3.2:latest"),
        ("hf.co/org/m:Q4_K_M", ["hf.co/org/m:Q4_K_M"], "hf.co/org/m:Q4_K_M"),
        ("hf.co/org/m", ["hf.co/org/m:Q4_K_M"], None),
        ("qwen3.5", ["qwen3.5:1b"], None),
        ("llama3", ["llama3.2:latest"], None),
        ("m", [], None),
    ],
)
def test_b33_a_name_means_one_installed_model(asked: str, installed: list[str], found: str | None) -> None:
    """``:latest`` is implied, and nothing else is."""
    assert find_model(asked, installed) == found


def test_b33_a_name_that_is_not_installed_says_what_is() -> None:
    """``qwen3.5`` with only ``qwen3.5:1b``: no draft, and the message names what the host has."""
    replies = {
        "/api/ps": loaded(None),
        "/api/show": reply(404, {"error": "model 'qwen3.5' not found"}),
        "/api/tags": reply(200, {"models": [{"name": "qwen3.5:1b"}, {"name": "llama3.2:latest"}]}),
    }
    result, _ = play(drafter("qwen3.5").draft(chat("x"), "", 4), replies)
    assert isinstance(result, NoDraft)
    assert result.reason == "no_draft"
    assert result.broken
    assert "'qwen3.5'" in result.detail
    assert "qwen3.5:1b, llama3.2:latest" in result.detail


def test_b33_a_name_goes_out_whole() -> None:
    """``hf.co/org/m:Q4_K_M`` is sent as it was written, and found among the loaded models in any case."""
    name = "hf.co/org/m:Q4_K_M"
    result, sent = play(
        drafter(name).draft(chat("x"), "", 4), {"/api/ps": loaded(8192, name.lower()), "/api/show": show()}
    )
    assert isinstance(result, Streaming)
    assert result.request.body is not None
    assert result.request.body["model"] == name
    assert result.request.body["options"]["num_ctx"] == 8192
    assert sent[1].body == {"model": name}


def test_b33_a_host_without_model_descriptions_is_used_by_its_list() -> None:
    """An old or foreign host that has no /api/show but lists the model may draft."""
    replies = {
        "/api/ps": reply(404, "404 page not found"),
        "/api/show": reply(404, {"error": "not found"}),
        "/api/tags": reply(200, {"models": [{"name": "llama3.2:latest"}]}),
    }
    result, _ = play(drafter("llama3.2").draft(chat("x"), "", 4), replies)
    assert isinstance(result, Streaming)
    assert result.request.body is not None
    assert result.request.body["think"] is False, "where capabilities are unknown, thinking is switched off"
