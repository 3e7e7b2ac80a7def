"""What the tests of other people's clients share: a target, a draft host, and the books of what was asked.

The target is SmolLM2-135M in F16 on the embedded llama.cpp, the draft its 4-bit twin behind the stand-in for
Ollama. A fixed draft length, so that neither planner nor allowance decides. Every expectation is held against the
ledger, since some clients hand back objects of their own, and against what the plain openai client gets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
from tool_relay import ToolRelay

import cheapspec
from cheapspec.embedded import EmbeddedServer
from cheapspec.ledger.memory import MemoryLedger

QUESTION = "Count from one to ten in words."
SYSTEM = "You are a helpful assistant."
CITY = "Paris is the capital of France. Answer with its name and its country."
CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "country": {"type": "string", "maxLength": 20}},
    "required": ["name", "country"],
    "additionalProperties": False,
}
LIMIT = 24
PRICES = {"input": "0.30", "cached_input": "0.006", "output": "1.20"}


@dataclass
class Pair:
    """Both servers, a relay before the target that calls tools, and one ledger."""

    target: EmbeddedServer
    draft_url: str
    relay: ToolRelay
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    @property
    def base_url(self) -> str:
        """As clients want it."""
        return f"{self.target.url}/v1"

    @property
    def model(self) -> str:
        """The target's name for its model."""
        return self.target.model

    @property
    def options(self) -> dict[str, Any]:
        """For any openai client."""
        return {"base_url": self.base_url, "api_key": "none", "timeout": 120.0, "max_retries": 0}

    def speculation(self, **more: Any) -> cheapspec.Speculation:
        """llama.cpp cannot score: it is forced, and the bill is that of a target that can."""
        given: dict[str, Any] = {
            "draft": "ollama:smollm2:135m",
            "draft_url": self.draft_url,
            "target_backend": "llamacpp",
            "simulate_scoring": True,
            "draft_tokens": 8,
            "draft_timeout": 120,
            "prices": PRICES,
            "ledger": self.ledger,
        }
        return cheapspec.Speculation(**{**given, **more})

    def client(self, **more: Any) -> cheapspec.OpenAI:
        """The client door."""
        return cheapspec.OpenAI(**{**self.options, **more}, speculation=self.speculation())

    def async_client(self, **more: Any) -> cheapspec.AsyncOpenAI:
        """Its twin."""
        return cheapspec.AsyncOpenAI(**{**self.options, **more}, speculation=self.speculation())

    def http_client(self) -> httpx2.Client:
        """The transport door, for what takes an ``http_client``."""
        return httpx2.Client(transport=cheapspec.Transport(speculation=self.speculation()), timeout=120)

    def async_http_client(self) -> httpx2.AsyncClient:
        """Its twin."""
        return httpx2.AsyncClient(transport=cheapspec.AsyncTransport(speculation=self.speculation()), timeout=120)

    @functools.cache  # noqa: B019 - one pair a session, few questions
    def alone(self, question: str = QUESTION, system: str | None = None) -> str:
        """The target's own reply, through plain openai."""
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        with openai.OpenAI(**self.options) as client:
            reply = client.chat.completions.create(
                model=self.model,
                messages=[*messages, {"role": "user", "content": question}],
                temperature=0,
                max_tokens=LIMIT,
            )
        text = reply.choices[0].message.content
        assert text, "a target that says nothing proves nothing"
        return text

    def asked(self) -> list[Mapping[str, Any]]:
        """The facts of every request since the last call, in order, from the ledger."""
        records = self.ledger.requests()[self._seen :]
        self._seen += len(records)
        assert all(record.info is not None for record in records), "a request was left open"
        return [record.info for record in records if record.info is not None]

    _seen: int = 0

    def __hash__(self) -> int:
        return id(self)

    def must_have_speculated(self) -> Mapping[str, Any]:
        """The one request since the last call was drafted, and some of its draft was accepted and paid for."""
        [told] = self.asked()
        assert told["decision"] == "speculate", told
        assert told["drafter"] == "ollama:smollm2:135m"
        assert 0 < told["accepted_tokens"] <= told["drafted_tokens"]
        assert told["paid_usd"] is not None
        return told

    def must_have_passed(self, reason: str, *, requests: int = 1) -> None:
        """So many requests since the last call, all handed on untouched for this reason and booked."""
        told = self.asked()
        assert [(one["decision"], one["reason"]) for one in told] == [("bypass", reason)] * requests, told
