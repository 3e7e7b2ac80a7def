"""What the tests of rules share: a request, drafts, and chat completions as endpoints write them."""

from __future__ import annotations

import math
from typing import Any

from cheapspec.core.request import Request
from cheapspec.rules import Draft


def request(messages: list[dict[str, Any]] | None = None, **fields: Any) -> Request:
    body: dict[str, Any] = {
        "model": "m",
        "temperature": 0,
        "messages": messages or [{"role": "user", "content": "What is 6 × 7?"}],
    }
    body |= fields
    return Request("chat", body, "m", bool(body.get("stream")), max_tokens=fields.get("max_tokens"))


def draft(text: str, **more: Any) -> Draft:
    return Draft(text, **more)


def reply(text: str | None, finish: str | None = "stop", tokens: list[Any] | None = None, **message: Any) -> Any:
    told: dict[str, Any] = {"role": "assistant", "content": text, **message}
    choice: dict[str, Any] = {"index": 0, "message": told, "finish_reason": finish}
    if tokens is not None:
        choice["logprobs"] = {"content": tokens}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}


def token(text: str, top: dict[str, float] | list[tuple[str, float]], *, logprob: float | None = None) -> Any:
    """``top``: probabilities. The token's own is looked up there, if it is not given."""
    pairs = list(top.items()) if isinstance(top, dict) else top
    own = math.log(dict(pairs)[text]) if logprob is None else logprob
    listed = [{"token": one, "logprob": math.log(share), "bytes": list(one.encode())} for one, share in pairs]
    return {"token": text, "logprob": own, "bytes": list(text.encode()), "top_logprobs": listed}


def letter(text: str, top: dict[str, float] | list[tuple[str, float]], finish: str = "length") -> Any:
    """The reply of an endpoint that was asked for one letter and wrote one token."""
    return reply(text, finish, [token(text, top)])
