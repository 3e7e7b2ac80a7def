"""The cassettes of Ollama as data, and what tests need to play them to the dialect."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import DraftPiece, Streaming
from cheapspec.core.request import Request

FOLDER = Path(__file__).parents[2] / "cassettes" / "ollama"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Recording:
    """One exchange. ``body``: the reply as it was on the wire (but for the order of keys and white space);
    ``version``: of the server.
    """

    name: str
    endpoint: str
    method: str
    request: Any
    status: int
    content_type: str
    body: bytes
    version: str

    @functools.cached_property
    def response(self) -> Any:
        """The JSON value of the reply, a plain one's text, or the list of the values of a streamed one."""
        if self.content_type.startswith("application/json"):
            return json.loads(self.body)
        if self.content_type == "text/event-stream":
            events = (line.removeprefix(b"data: ") for line in self.body.splitlines() if line)
            return [json.loads(event) for event in events if event != b"[DONE]"]
        if self.content_type == "application/x-ndjson":
            return [json.loads(line) for line in self.body.splitlines()]
        return self.body.decode()

    @property
    def lines(self) -> list[Any]:
        """The JSON values of the reply, one for an unstreamed one."""
        return self.response if isinstance(self.response, list) else [self.response]

    @property
    def reply(self) -> HttpReply:
        return HttpReply(self.status, self.body, {"content-type": self.content_type})

    @property
    def text(self) -> str:
        """The reply's own text, streamed or not."""
        found = [line.get("response") or line.get("message", {}).get("content") or "" for line in self.lines]
        return "".join(found)


@functools.cache
def recording(name: str) -> Recording:
    cassette = yaml.load((FOLDER / f"{name}.yaml").read_text("utf-8"), Loader=_LOADER)
    [exchange] = cassette["interactions"]
    request, answer = exchange["request"], exchange["response"]
    return Recording(
        name,
        urlsplit(request["uri"]).path,
        request["method"],
        None if request["body"] is None else json.loads(request["body"]),
        answer["status"]["code"],
        answer["headers"]["content-type"][0],
        answer["body"]["string"].encode(),
        cassette["metadata"]["version"],
    )


def reply(status: int, value: Any) -> HttpReply:
    return HttpReply(status, json.dumps(value).encode())


def play(op: Op[Any], replies: dict[str, HttpReply | list[HttpReply | None] | None]) -> tuple[Any, list[HttpRequest]]:
    """Run an operation; a path is answered by its reply, or by the next one of a list."""
    sent: list[HttpRequest] = []
    answer: HttpReply | None = None
    try:
        request = next(op)
        while True:
            sent.append(request)
            value = replies[request.path]
            answer = value.pop(0) if isinstance(value, list) else value
            request = op.send(answer)
    except StopIteration as stop:
        return stop.value, sent


def read(streaming: Streaming[DraftPiece], body: bytes, step: int | None = None) -> list[DraftPiece]:
    """Decode a whole body, at most ``step`` bytes at a time."""
    step = step or len(body) or 1
    pieces = [piece for at in range(0, len(body), step) for piece in streaming.decoder.feed(body[at : at + step])]
    return [*pieces, *streaming.decoder.close()]


def text_of(pieces: list[DraftPiece]) -> str:
    return "".join(token.text for piece in pieces for token in piece.tokens)


def chat(*contents: str, stops: tuple[str, ...] = (), **body: Any) -> Request:
    """A chat request: user and assistant in turns."""
    messages = tuple({"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(contents))
    return Request("chat", {"model": "gpt", "messages": list(messages), **body}, "gpt", False, messages, stops=stops)


def completion(prompt: str, **body: Any) -> Request:
    return Request("completion", {"model": "gpt", "prompt": prompt, **body}, "gpt", False, prompt=prompt)


def show(**changes: Any) -> HttpReply:
    """What ``/api/show`` says about SmolLM2 on 0.33, with changes."""
    return reply(200, {**recording("ollama33_show").response, **changes})


def loaded(context: int | None, name: str = "smollm2:135m") -> HttpReply:
    """``/api/ps`` with the model loaded with this window, or empty."""
    return reply(200, {"models": [] if context is None else [{"name": name, "model": name, "context_length": context}]})


def drafter(model: str = "smollm2:135m", **options: Any) -> OllamaDrafter:
    return OllamaDrafter(model, "http://127.0.0.1:11434", **options)


def open_draft(
    request: Request,
    prefix: str = "",
    max_tokens: int = 16,
    *,
    replies: dict[str, Any] | None = None,
    model: str = "smollm2:135m",
) -> Streaming[DraftPiece]:
    """The streamed call of a first draft against a host where all is well."""
    known = {"/api/ps": loaded(4096, model), "/api/show": show(), "/api/chat": RENDERED, **(replies or {})}
    result, _ = play(drafter(model).draft(request, prefix, max_tokens), known)
    assert isinstance(result, Streaming), result
    return result


RENDERED = reply(
    200,
    {
        "model": "smollm2:135m",
        "message": {"role": "", "content": ""},
        "done": False,
        "_debug_info": {"rendered_template": "<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\n"},
    },
)
