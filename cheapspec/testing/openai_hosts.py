"""Stand-ins for chat APIs that speak OpenAI's language with an accent: OpenAI, Groq, DeepSeek, xAI, LiteLLM's proxy.

Rules
-----
* Each refuses what the real one refuses, in its own words, so that a client has to read them (reports that quote them
  are named in ``tests/backends/test_chat_learning.py``).
* A refused call costs nothing. Fields that a host drops silently are gone from the body that is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cheapspec.testing.chat_host import FakeChatHost, Said
from cheapspec.testing.wire import Connection, Replied, mapping

__all__ = ["FakeDeepSeek", "FakeGroq", "FakeLiteLLM", "FakeOpenAI", "FakeXai"]


@dataclass
class FakeOpenAI(FakeChatHost):
    """OpenAI. ``thinks="optional"``: as GPT-5.1 and later; ``"always"``: as o4-mini. ``bills_writes``: as GPT-5.6 and
    later, what is written to the prompt cache is counted apart.
    """

    name: str = "gpt-4.1-mini"
    cached_from: int = 1024
    bills_writes: bool = False

    async def check(self, connection: Connection) -> None:
        body = connection.exchange.body
        if self.thinks == "no":
            return
        if "max_tokens" in body:
            text = "Unsupported parameter: 'max_tokens' is not supported with this model. "
            text += "Use 'max_completion_tokens' instead."
            await self._no(connection, text, "max_tokens", "unsupported_parameter")
        if self.thinks == "always" and body.get("reasoning_effort") in ("none", "minimal"):
            text = (
                f"Unsupported value: 'reasoning_effort' does not support '{body['reasoning_effort']}' with this model. "
            )
            text += "Supported values are: 'low', 'medium', and 'high'."
            await self._no(connection, text, "reasoning_effort", "unsupported_value")
        if not self.thinking(body):
            return
        if body.get("temperature") not in (None, 1):
            text = f"Unsupported value: 'temperature' does not support {body['temperature']} with this model. "
            text += "Only the default (1) value is supported."
            await self._no(connection, text, "temperature", "unsupported_value")
        if body.get("logprobs"):
            error = {"message": "You are not allowed to request logprobs from this model"}
            await self.refuse(connection, 403, {**error, "type": "invalid_request_error", "param": None, "code": None})

    async def _no(self, connection: Connection, message: str, param: str, code: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        await self.refuse(connection, 400, error)

    def usage(self, said: Said, connection: Connection) -> dict[str, Any]:
        usage = super().usage(said, connection)
        details = {"cached_tokens": said.cached or 0, "audio_tokens": 0}
        if self.bills_writes:
            details["cache_write_tokens"] = said.prompt - (said.cached or 0) if said.prompt >= self.cached_from else 0
        written = {"reasoning_tokens": said.reasoning, "audio_tokens": 0}
        predicted = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        return {**usage, "prompt_tokens_details": details, "completion_tokens_details": {**written, **predicted}}


@dataclass
class FakeGroq(FakeChatHost):
    """Groq: no log-probabilities at all."""

    name: str = "llama-3.3-70b-versatile"
    base: str = "/openai/v1"

    async def check(self, connection: Connection) -> None:
        for field in ("logprobs", "top_logprobs"):
            if connection.exchange.body.get(field):
                error = {"message": f"`{field}` is not supported with this model", "type": "invalid_request_error"}
                await self.refuse(connection, 400, error)

    def usage(self, said: Said, connection: Connection) -> dict[str, Any]:
        times = {"queue_time": 0.02, "prompt_time": 0.001, "completion_time": 0.01, "total_time": 0.011}
        return {**super().usage(said, connection), **times}


@dataclass
class FakeDeepSeek(FakeChatHost):
    """DeepSeek: thinks unless ``thinking`` says otherwise, and takes no ``reasoning_effort`` of ``none``."""

    name: str = "deepseek-v4-flash"
    base: str = ""
    keep_alive: ClassVar[str | None] = "keep-alive"

    def thinking(self, body: Mapping[str, Any]) -> bool:
        return mapping(body.get("thinking")).get("type") != "disabled"

    def usage(self, said: Said, connection: Connection) -> dict[str, Any]:
        hit = said.cached or 0
        return {
            **super().usage(said, connection),
            "prompt_cache_hit_tokens": hit,
            "prompt_cache_miss_tokens": said.prompt - hit,
        }


@dataclass
class FakeXai(FakeChatHost):
    """xAI: errors are plain strings; ``efforts``: what ``reasoning_effort`` may be, empty: the field is refused."""

    name: str = "grok-4.3"
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")

    async def check(self, connection: Connection) -> None:
        given = connection.exchange.body.get("reasoning_effort")
        if given is None or given in self.efforts:
            return
        text = f"Model {self.name} does not support parameter reasoningEffort"
        text += "." if not self.efforts else f" {given!r}. Supported values: {', '.join(map(repr, self.efforts))}."
        await connection.answer(400, {"code": "invalid-argument", "error": text})
        raise Replied


@dataclass
class FakeLiteLLM(FakeChatHost):
    """LiteLLM's proxy in front of a model without log-probabilities: with ``drop_params`` they are gone, and nothing
    says so; text completions are turned into chats, ``echo`` and all (``litellm`` 1.110.2).
    """

    name: str = "team-model"
    base: str = ""

    def lacks(self, connection: Connection) -> frozenset[str]:
        return frozenset({"logprobs", "top_logprobs"})

    async def _completion(self, connection: Connection) -> None:
        body = connection.exchange.body
        body["messages"] = [{"role": "user", "content": body.get("prompt", "")}]
        said = await self._said(connection, body)
        reply = self.told(said, connection)
        choice = {"index": 0, "text": said.text, "logprobs": None, "finish_reason": said.finish}
        await connection.answer_json({**reply, "object": "text_completion", "choices": [choice]}, self._headers(0))

    def _headers(self, number: int) -> dict[str, str]:
        return {"x-litellm-response-cost": "0.000123", "x-litellm-model-id": "m-1", "llm_provider-x-request-id": "r"}
