"""Where calls go, and what does not travel with them."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from cheapspec.core.effects import HttpRequest
from cheapspec.drive.urls import (
    api_base,
    cannot_score,
    draft_url,
    model_name,
    our_headers,
    streams,
    target_request,
    unmarked,
)

BASES = [
    ("https://openrouter.ai/api/v1/chat/completions", "completions", "https://openrouter.ai/api/v1/completions"),
    ("https://openrouter.ai/api/v1/chat/completions", "/tokenize", "https://openrouter.ai/api/tokenize"),
    ("http://localhost:11434/v1/completions", "chat/completions", "http://localhost:11434/v1/chat/completions"),
    ("http://localhost:11434/chat/completions", "completions", "http://localhost:11434/completions"),
    ("http://localhost:11434/chat/completions", "/tokenize", "http://localhost:11434/tokenize"),
    ("https://x/api/paas/v4/chat/completions", "completions", "https://x/api/paas/v4/completions"),
    ("https://x/v1/chat/completions?key=1&b=%20", "/version", "https://x/version?key=1&b=%20"),
    ("https://x/v1/chat/completions/", "completions", "https://x/v1/completions"),
    (
        "https://a.openai.azure.com/openai/deployments/my%20d/chat/completions?api-version=1",
        "completions",
        "https://a.openai.azure.com/openai/deployments/my%20d/completions?api-version=1",
    ),
]


@pytest.mark.parametrize(("url", "path", "expected"), BASES)
def test_b46_target_calls(url: str, path: str, expected: str) -> None:
    """Exactly one correct path for each base; the caller's query stays."""
    template = httpx2.Request("POST", url, json={"a": 1}, headers={"x-mine": "1"}, extensions={"timeout": {"read": 3}})
    made = target_request(template, HttpRequest("score", path, {"é": 1}), "key-1")
    assert str(made.url) == expected
    assert json.loads(made.content) == {"é": 1}
    assert made.headers["x-mine"] == "1"
    assert made.headers["idempotency-key"] == "key-1"
    assert made.headers["content-length"] == str(len(made.content))
    assert made.extensions["timeout"] == {"read": 3}


def test_a_get_has_no_body() -> None:
    """A question without a body carries neither content nor its headers."""
    template = httpx2.Request("POST", "http://h/v1/completions", json={"a": 1})
    made = target_request(template, HttpRequest("probe", "/version", method="GET"), "k")
    assert (made.method, made.content) == ("GET", b"")
    assert "content-type" not in made.headers


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("http://127.0.0.1:11434", "/api/chat", "http://127.0.0.1:11434/api/chat"),
        ("http://127.0.0.1:11434/", "/api/chat", "http://127.0.0.1:11434/api/chat"),
        ("http://h:1", "chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "/version", "http://h:1/version"),
        ("https://x/api/paas/v4", "completions", "https://x/api/paas/v4/completions"),
        ("http://h/v1?k=2", "completions", "http://h/v1/completions?k=2"),
        ("http://h/ollama", "/api/ps", "http://h/ollama/api/ps"),
    ],
)
def test_b46_draft_calls(host: str, path: str, expected: str) -> None:
    """Draft hosts are named in every way; the path is joined once."""
    assert str(draft_url(host, path)) == expected


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("api.openai.com", True),
        ("eu.api.openai.com", True),
        ("my-team.openai.azure.com", True),
        ("OpenRouter.ai", True),
        ("api.groq.com.", True),
        ("api.anthropic.com", True),
        ("notapi.openai.com", False),
        ("openai.com", False),
        ("api.fireworks.ai", False),
        ("127.0.0.1", False),
        ("localhost", False),
    ],
)
def test_hosts_that_are_known_not_to_score(host: str, known: bool) -> None:
    """The list names hosts and what is below them, nothing that only looks like them."""
    assert cannot_score(host) is known


def test_unmarked_requests_are_the_same_object() -> None:
    """A request without keys of ours is not rebuilt, though its text may speak of us."""
    request = httpx2.Request("POST", "http://h/v1/chat/completions", json={"messages": 'the key "cheapspec"'})
    assert unmarked(request) is request
    assert unmarked(httpx2.Request("GET", "http://h/v1/models")).url.path == "/v1/models"


@pytest.mark.parametrize("text", ["plain", "é 🙂", "half \ud83d of a pair"])
def test_marked_requests_lose_the_marks_only(text: str) -> None:
    """Headers and body key of ours go; everything else is as it was, odd text included."""
    body: dict[str, Any] = {"messages": text, "cheapspec": {"a": 1}, "x": 1.5}
    content = json.dumps(body).encode()
    headers = {"X-CheapSpec-Session": "s", "authorization": "Bearer k", "content-type": "application/json"}
    request = httpx2.Request("POST", "http://h/v1/chat/completions", content=content, headers=headers)
    assert our_headers(request) == {"session": "s"}
    made = unmarked(request)
    assert json.loads(made.content) == {"messages": text, "x": 1.5}
    assert made.headers["content-length"] == str(len(made.content))
    assert made.headers["authorization"] == "Bearer k"
    assert our_headers(made) == {}


def test_what_is_read_without_parsing() -> None:
    """The model's name and the wish for a stream are found in the bytes; a quoted mention does not count."""
    told = json.dumps({"messages": [{"content": '"model": "no", "stream": true'}], "model": "gpt-é", "stream": False})
    request = httpx2.Request("POST", "http://h/v1/chat/completions", content=told.encode())
    assert json.loads(f'"{model_name(request.content)}"') == "gpt-é"
    assert model_name(b"[]") == ""
    assert not streams(request)
    assert streams(httpx2.Request("POST", "http://h", content=b'{"stream": true}'))
    assert api_base(request.url) == "http://h/v1"
