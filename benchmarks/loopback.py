"""Servers on the loopback interface, each in a process of its own.

``chat``: a chat endpoint that answers at once, or after as many milliseconds as the model's name says
(``after-100``), with one kilobyte of text or a stream of as many chunks as it says (``chunks-1000``). ``target``: the
stand-in for a paid target with vLLM's API (:mod:`cheapspec.testing.target`), whose replies never end by themselves.

``python -m benchmarks.loopback chat`` prints its URL and serves until standard input ends, so that a server
never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from cheapspec.testing.server import serve
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

__all__ = ["REPLY_BYTES", "server", "toy"]

_TEXT = ("A reply of about one kilobyte, as a chat model might write it. " * 14)[:820]
_NUMBER = b"%012d"  # each reply has an id of its own, as everywhere
_HEAD = {"id": f"chatcmpl-{_NUMBER.decode()}", "created": 1_764_000_000, "model": "bench"}
_USAGE = {"prompt_tokens": 20, "completion_tokens": 200, "total_tokens": 220}
_WINDOW = 400_000  # tokens: room for the longest stream


def toy() -> ToyModel:
    """The model behind ``target``: it never ends a reply by itself."""
    return ToyModel(ends=-30.0)


def _whole() -> bytes:
    message = {"role": "assistant", "content": _TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply = {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    return json.dumps(reply).encode()


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


_REPLY = _whole()
_OPENING = _chunk({"role": "assistant", "content": ""})
_CONTENT = _chunk({"content": " word"})
_CLOSING = _chunk({}, "stop")
_numbers = itertools.count()
REPLY_BYTES = len(_REPLY % 0)
"""Length of an unstreamed reply's body."""


async def _chat(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI app. Streams send one chunk at a time, as a model does, but without pauses."""
    if scope["type"] != "http":  # uvicorn's lifespan: nothing to prepare
        raise NotImplementedError(scope["type"])
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    asked = json.loads(body)

    async def start(kind: bytes, *more: tuple[bytes, bytes]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind), *more]})

    if not asked.get("stream"):
        if asked["model"].startswith("after-"):
            await asyncio.sleep(int(asked["model"].removeprefix("after-")) / 1000)
        await start(b"application/json", (b"content-length", str(REPLY_BYTES).encode()))
        await send({"type": "http.response.body", "body": _REPLY % next(_numbers)})
        return
    await start(b"text/event-stream")
    number = next(_numbers)
    content = _CONTENT % number
    await send({"type": "http.response.body", "body": _OPENING % number, "more_body": True})
    for _ in range(int(asked["model"].removeprefix("chunks-"))):
        await send({"type": "http.response.body", "body": content, "more_body": True})
    await send({"type": "http.response.body", "body": _CLOSING % number + b"data: [DONE]\n\n"})


@contextmanager
def server(kind: str) -> Generator[str]:
    """Start a server process (``chat`` or ``target``), yield its root URL, end it."""
    command = [sys.executable, "-m", "benchmarks.loopback", kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the {kind} server did not come up")
        try:
            yield url
        finally:
            process.stdin.close()


def main(kind: str) -> None:
    """Serve until standard input ends."""
    if kind == "chat":
        with serve(_chat) as running:
            _wait(running.url)
    else:
        with FakeTarget(model=toy(), max_model_len=_WINDOW) as target:
            _wait(target.url)


def _wait(url: str) -> None:
    print(url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
