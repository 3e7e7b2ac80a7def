"""B50 (i): an Ollama as target ignores ``max_completion_tokens`` and ``n``."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import yaml

import cheapspec
from cheapspec.ledger.memory import MemoryLedger

CASSETTES = Path(__file__).parents[2] / "cassettes" / "ollama"
ASKED: dict[str, Any] = {
    "model": "smollm2:135m",
    "messages": [{"role": "user", "content": "Count from one to ten in words."}],
    "temperature": 0,
}


def recorded(name: str) -> Any:
    [exchange] = yaml.safe_load((CASSETTES / f"{name}.yaml").read_text("utf-8"))["interactions"]
    return json.loads(exchange["response"]["body"]["string"])


class Ollama:
    """Answers as the recorded one did: in full unless ``max_tokens`` is there, and with one choice."""

    def __init__(self, *, named: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self.named = named

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/chat/completions"):
            return httpx2.Response(404, text="404 page not found")
        body = json.loads(request.content)
        assert request.headers["content-length"] == str(len(request.content))
        if body["messages"] == ASKED["messages"]:  # else it is the probe's own question
            self.asked.append(body)
        reply = recorded("ollama33_v1_chat_n2" if "max_tokens" in body else "ollama24_v1_chat_max_completion_tokens")
        return httpx2.Response(200, json=reply if self.named else {**reply, "system_fingerprint": "fp_1"})


def ask(ollama: Ollama, door: str, base_url: str, *requests: dict[str, Any], **settings: Any) -> list[Any]:
    """The replies to these requests, one client, each after the probe of the one before has ended."""
    given: dict[str, Any] = {"draft": "lookup", "prices": {"input": 1, "output": 10}, "ledger": MemoryLedger()}
    speculation = cheapspec.Speculation(**{**given, **settings})
    options: dict[str, Any] = {"base_url": base_url, "api_key": "k", "max_retries": 0, "speculation": speculation}
    transport = httpx2.MockTransport(ollama)

    async def ask_async() -> list[Any]:
        replies: list[Any] = []
        http = openai.DefaultAsyncHttpxClient(transport=transport)
        async with cheapspec.AsyncOpenAI(**options, http_client=http) as client:
            for request in requests:
                replies.append(await client.chat.completions.create(**{**ASKED, **request}))
                others = asyncio.all_tasks() - {asyncio.current_task()}
                await asyncio.gather(*others)
        return replies

    if door == "async":
        return asyncio.run(ask_async())
    replies: list[Any] = []
    with cheapspec.OpenAI(**options, http_client=openai.DefaultHttpxClient(transport=transport)) as client:
        for request in requests:
            replies.append(client.chat.completions.create(**{**ASKED, **request}))
            for thread in threading.enumerate():
                if thread.name == "cheapspec-probe":
                    thread.join()
    return replies


def test_b50i_the_limit_reaches_an_ollama_on_its_own_port(door: str) -> None:
    """From the first request on it is told ``max_tokens`` as well, and keeps to it."""
    ollama = Ollama()
    [reply] = ask(ollama, door, "http://127.0.0.1:11434/v1", {"max_completion_tokens": 4})
    assert reply.usage.completion_tokens == 4
    assert reply.choices[0].finish_reason == "length"
    assert ollama.asked == [{**ASKED, "max_completion_tokens": 4, "max_tokens": 4}]


def test_b50i_the_limit_reaches_an_ollama_that_a_probe_found(door: str) -> None:
    """On another port it is known by how its replies name themselves; nothing is scored to find out."""
    ollama = Ollama()
    limit = {"max_completion_tokens": 4}
    first, second = ask(ollama, door, "http://127.0.0.1:8080/v1", limit, limit)
    assert first.usage.completion_tokens == 66
    assert second.usage.completion_tokens == 4
    told = cheapspec.info(second)
    assert told is not None
    assert (told.decision, told.reason) == ("direct", "cannot_score")


@pytest.mark.parametrize(
    ("port", "named", "fields", "settings"),
    [
        (8080, False, {"max_completion_tokens": 4}, {}),
        (11434, True, {"max_completion_tokens": 4, "max_tokens": 6}, {}),
        (11434, True, {"max_tokens": 6}, {}),
        (11434, True, {}, {}),
        (11434, True, {"max_completion_tokens": 4}, {"enabled": False}),
        (11434, True, {"max_completion_tokens": 4, "n": 2}, {}),
    ],
    ids=["another-server", "both-given", "max-tokens", "no-limit", "disabled", "bypass"],
)
def test_b50i_nothing_else_is_altered(
    port: int, named: bool, fields: dict[str, Any], settings: dict[str, Any], door: str
) -> None:
    """Other servers, other fields, and requests that are none of ours get what the caller wrote."""
    ollama = Ollama(named=named)
    ask(ollama, door, f"http://127.0.0.1:{port}/v1", fields, fields, **settings)
    assert ollama.asked == [{**ASKED, **fields}] * 2


def test_b50i_fewer_choices_than_asked_are_passed_on(door: str) -> None:
    """Two choices are none of ours; the one that came is the reply, as it came."""
    ollama = Ollama()
    [reply] = ask(ollama, door, "http://127.0.0.1:11434/v1", {"max_tokens": 4, "n": 2})
    told = cheapspec.info(reply)
    assert told is not None
    assert (told.decision, told.reason) == ("bypass", "n")
    assert reply.model_dump(exclude_unset=True) == recorded("ollama33_v1_chat_n2")
