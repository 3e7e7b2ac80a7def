"""Drives a dialect's operations by hand: recorded or made replies in, requests out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import Decoder
from cheapspec.core.request import Request

RECORDINGS = Path(__file__).parent.parent / "recordings"
T = TypeVar("T")
P = TypeVar("P")


def recording(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return found


def recorded(name: str) -> HttpReply:
    """The reply of a recording (``vllm/tokenize``)."""
    told = recording(name)
    body = told["response"]
    return HttpReply(told["status"], (body if isinstance(body, str) else json.dumps(body)).encode())


def reply(body: object, status: int = 200) -> HttpReply:
    """A made reply; a string is the body itself."""
    return HttpReply(status, body.encode() if isinstance(body, str) else json.dumps(body).encode())


def run(op: Op[T], *replies: HttpReply | None) -> tuple[T, list[HttpRequest]]:
    """The operation's result and its requests; every given reply must be asked for."""
    waiting, sent = list(replies), list[HttpRequest]()
    try:
        call = next(op)
        while True:
            sent.append(call)
            assert waiting, f"an unexpected call: {call}"
            call = op.send(waiting.pop(0))
    except StopIteration as done:
        assert not waiting, f"calls that were not made: {len(waiting)}"
        result: T = done.value
        return result, sent


def decode(decoder: Decoder[P], body: str, size: int = 7) -> list[P]:
    """All pieces of a body fed in small bites."""
    data = body.encode()
    pieces: list[P] = []
    for start in range(0, len(data), size):
        pieces += decoder.feed(data[start : start + size])
    return pieces + decoder.close()


def chat(*texts: str, **fields: Any) -> Request:
    """A chat at temperature 0, user and assistant in turn."""
    roles: Iterable[str] = ("user", "assistant") * len(texts)
    messages = tuple({"role": role, "content": text} for role, text in zip(roles, texts, strict=False))
    body = {"model": "smol", "messages": list(messages), "temperature": 0, **fields}
    limit = fields.get("max_tokens", fields.get("max_completion_tokens"))
    stops = (fields["stop"],) if isinstance(fields.get("stop"), str) else tuple(fields.get("stop", ()))
    return Request("chat", body, "smol", False, messages, stops=stops, max_tokens=limit)


def completion(prompt: str, **fields: Any) -> Request:
    body = {"model": "smol", "prompt": prompt, "temperature": 0, **fields}
    return Request("completion", body, "smol", False, prompt=prompt, max_tokens=fields.get("max_tokens"))
