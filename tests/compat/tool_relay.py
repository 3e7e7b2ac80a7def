"""Gives the embedded engine what SmolLM2 cannot do by itself: it calls the tool that it is offered.

SmolLM2's chat template knows no tools, and llama.cpp (build 11549) then ignores them, ``tool_choice`` included. This
relay stands before it on ``/v1/chat/completions``:

* A request that offers tools and does not yet end with a tool's result is asked of the engine with the schema of the
  first tool's parameters as its grammar; what comes back are that call's arguments, in OpenAI's shape.
* One that ends with a result is asked with that result as a user's message; the text comes back.

Every body it received is kept, so that a test can say that it arrived untouched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cheapspec.testing.server import serve

__all__ = ["ToolRelay", "tool_relay"]


@dataclass
class ToolRelay:
    """``base_url`` ends in ``/v1``; ``bodies``: what was asked, in order."""

    engine_url: str
    base_url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def answer(self, request: Request) -> Response:
        """One chat completion."""
        body: dict[str, Any] = await request.json()
        self.bodies.append(body)
        last = body["messages"][-1]
        if last["role"] == "tool":
            content = await self._ask([{"role": "user", "content": f"Say this again: {last['content']}"}], body, {})
            return _reply(body, {"content": content}, "stop")
        tool = body["tools"][0]["function"]
        wanted = {
            "type": "json_schema",
            "json_schema": {"name": tool["name"], "schema": _bounded(tool["parameters"]), "strict": True},
        }
        arguments = await self._ask(body["messages"], body, {"response_format": wanted})
        call = {"id": "call_1", "type": "function", "function": {"name": tool["name"], "arguments": arguments}}
        return _reply(body, {"tool_calls": [call]}, "tool_calls")

    async def _ask(self, messages: list[Any], body: dict[str, Any], more: dict[str, Any]) -> str:
        asked = {"model": body["model"], "messages": messages, "temperature": 0, "max_tokens": 60, **more}
        async with httpx2.AsyncClient(timeout=120) as client:
            got = await client.post(f"{self.engine_url}/v1/chat/completions", json=asked)
        assert got.status_code == 200, got.text
        text: str = got.json()["choices"][0]["message"]["content"]
        return text


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """So that a small model closes its strings."""
    bounded = {
        name: {**(inner if isinstance(inner, dict) else {}), "maxLength": 12}
        if isinstance(inner, dict) and inner.get("type") == "string"
        else inner
        for name, inner in schema.get("properties", {}).items()
    }
    return {**schema, "properties": bounded}


def _reply(body: dict[str, Any], said: dict[str, Any], finish: str) -> Response:
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    head = {"id": "chatcmpl-tool", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        message = {"role": "assistant", "content": None, **said}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def lines() -> Iterator[bytes]:
        for delta, end in [({"role": "assistant"}, None), *((delta, None) for delta in _deltas(said)), ({}, finish)]:
            choices = [{"index": 0, "delta": delta, "finish_reason": end}]
            yield _event({**head, "object": "chat.completion.chunk", "choices": choices})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def _deltas(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In pieces, as servers do: a call's name first, then its arguments in two parts."""
    for call in said.get("tool_calls", []):
        arguments: str = call["function"]["arguments"]
        half = len(arguments) // 2
        named = {**call["function"], "arguments": arguments[:half]}
        yield {"tool_calls": [{"index": 0, **call, "function": named}]}
        yield {"tool_calls": [{"index": 0, "function": {"arguments": arguments[half:]}}]}
    if "content" in said:
        half = len(said["content"]) // 2
        yield {"content": said["content"][:half]}
        yield {"content": said["content"][half:]}


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


@contextlib.contextmanager
def tool_relay(engine_url: str) -> Iterator[ToolRelay]:
    """Before the engine at this root URL."""
    relay = ToolRelay(engine_url)
    app = Starlette(routes=[Route("/v1/chat/completions", relay.answer, methods=["POST"])])
    with serve(app) as server:
        relay.base_url = f"{server.url}/v1"
        yield relay
