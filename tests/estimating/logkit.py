"""Lines of logs, as the tests write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def body(question: str = "Where?", **more: Any) -> dict[str, Any]:
    """A request."""
    return {"model": "big", "messages": [{"role": "user", "content": question}], "temperature": 0, **more}


def completion(text: str = "Here.", *, finish: str = "stop", tokens: tuple[int, int] | None = (9, 3)) -> Any:
    """A chat completion. ``tokens``: prompt and completion, ``None``: without usage."""
    message = {"role": "assistant", "content": text}
    usage = None if tokens is None else {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "big", "choices": [choice], "usage": usage}


def asked(name: str, request: Any, url: str = "/v1/chat/completions") -> dict[str, Any]:
    """A line of a batch's input."""
    return {"custom_id": name, "method": "POST", "url": url, "body": request}


def answered(name: str, reply: Any, status: int = 200) -> dict[str, Any]:
    """A line of a batch's output."""
    response = {"status_code": status, "request_id": "req-1", "body": reply}
    return {"id": "batch_req_1", "custom_id": name, "response": response, "error": None}


def write(path: Path, *lines: Any) -> Path:
    """One JSON line each; a text is written as it is."""
    told = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{line}\n" for line in told), "utf-8")
    return path
