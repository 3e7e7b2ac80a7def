"""The recordings of Ollama as data, and what tests need to play them to the dialect."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import DraftPiece, Streaming
from cheapspec.core.request import Request

FOLDER = Path(__file__).parent.parent / "recordings" / "ollama"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
_REPEATED = re.compile(r'\(the text "(.*)", (\d+) times\)')


@dataclass(frozen=True)
class Recording:
    """One exchange. ``lines``: the JSON values of the reply, one for an unstreamed one."""

    name: str
    endpoint: str
    method: str
    request: Any
    status: int
    content_type: str
    response: Any

    @property
    def lines(self) -> list[Any]:
        return self.response if isinstance(self.response, list) else [self.response]

    @property
    def body(self) -> bytes:
        """The reply as it was on the wire (but for the order of keys and white space)."""
        if isinstance(self.response, str):
            return self.response.encode()
        dumped = [json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() for line in self.lines]
        if self.content_type == "text/event-stream":
            return b"".join(b"data: " + line + b"\n\n" for line in dumped) + b"data: [DONE]\n\n"
        return b"".join(line + b"\n" for line in dumped) if isinstance(self.response, list) else dumped[0]

    @property
    def reply(self) -> HttpReply:
        return HttpReply(self.status, self.body, {"content-type": self.content_type})

    @property
    def text(self) -> str:
        """The reply's own text, streamed or not."""
        found = [line.get("response") or line.get("message", {}).get("content") or "" for line in self.lines]
        return "".join(found)


def recording(name: str) -> Recording:
    raw = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return Recording(
        name,
        raw["endpoint"],
        raw["method"],
        expand(raw["request"]),
        raw["status"],
        raw["content_type"],
        raw["response"],
    )


def expand(value: Any) -> Any:
    """Write out the abbreviated prompts."""
    if isinstance(value, dict):
        return {key: expand(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [expand(inner) for inner in value]
    found = _REPEATED.fullmatch(value) if isinstance(value, str) else None
    return found[1] * int(found[2]) if found else value


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
