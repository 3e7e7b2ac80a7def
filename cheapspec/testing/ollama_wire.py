"""Ollama's requests and replies on the wire, native and ``/v1``, for the stand-in.

Facts from recordings of 0.24.0 and 0.33.0-rc2 (2026-11-29): error texts, keys and their order, what
is left out when zero, and which fields ``/v1`` ignores (``max_completion_tokens``, ``n``, ``echo``).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from starlette.responses import JSONResponse, Response

from cheapspec.testing.ollama_engine import Chunk, End
from cheapspec.testing.ollama_models import StandInModel

__all__ = ["Job", "Refusal", "Wire", "read_job", "refuse_overflow"]

_CREATED = "2026-11-29T20:00:00.000000001Z"
_V1_TYPES = {400: "invalid_request_error", 404: "not_found_error"}
_GO_KINDS = ((list, "array"), (str, "string"), (dict, "object"), (bool, "bool"), (int, "number"), (float, "number"))
_ROLE = {"role": "assistant"}  # 0.24 names the role in every chunk, 0.33 in the first
_FLOATS = ("temperature", "top_p", "min_p", "repeat_penalty")


class Refusal(Exception):
    """An error reply."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message

    def response(self, wire: Wire | None = None) -> Response:
        """In the shape of the route that was called."""
        if wire is not None and wire.v1:
            kind = _V1_TYPES.get(self.status, "api_error")
            error = {"message": self.message, "type": kind, "param": None, "code": None}
            return JSONResponse({"error": error}, self.status)
        return JSONResponse({"error": self.message}, self.status, media_type="application/json; charset=utf-8")


def refuse_overflow(tokens: int, window: int, *, modern: bool) -> Refusal:
    """The 400 of a prompt that does not fit."""
    if not modern:
        return Refusal(400, "the input length exceeds the context length")
    sentence = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
    kind = "exceed_context_size_error"
    error = {"code": 400, "message": sentence, "type": kind, "n_prompt_tokens": tokens, "n_ctx": window}
    return Refusal(400, json.dumps({"error": error}, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class Job:
    """A generating request, read. ``prompt``: rendered. ``limit``: reply tokens, -1 for none. ``echo``:
    what a native chat template makes the reply begin with. ``top``: alternatives a token.
    """

    model: StandInModel
    asked_name: str
    prompt: str
    options: Mapping[str, Any]
    stops: tuple[str, ...]
    limit: int
    stream: bool
    logprobs: bool
    top: int
    truncate: bool
    shift: bool
    schema: Mapping[str, Any] | None = None
    echo: str = ""
    render_only: bool = False
    only_load: bool = False
    unload: bool = False
    wants_context: bool = False
    include_usage: bool = False


def read_job(wire: Wire, body: Any, find: Callable[[str], StandInModel]) -> Job:
    """Check and read a request in the order in which Ollama does.

    :raises Refusal: what Ollama refuses.
    """
    name = "ChatRequest" if wire.chat else "GenerateRequest"
    if not _is_object(body):
        raise Refusal(400, f"json: cannot unmarshal {_kind(body)} into Go value of type api.{name}")
    request = body
    field = "messages.content" if wire.chat else "prompt"
    messages: list[dict[str, Any]] = list(request.get("messages") or [])
    texts: list[Any] = [m.get("content", "") for m in messages] if wire.chat else [request.get("prompt", "")]
    for text in texts:
        if not isinstance(text, str) and not wire.v1:
            raise Refusal(
                400, f"json: cannot unmarshal {_kind(text)} into Go struct field {name}.{field} of type string"
            )
    top = int(request.get("top_logprobs") or 0)
    if not 0 <= top <= 20:
        raise Refusal(400, "top_logprobs must be between 0 and 20")
    model = find(str(request.get("model", "")))
    raw = bool(request.get("raw"))
    full_name = f"registry.ollama.ai/library/{model.name}"
    if raw and any(request.get(key) for key in ("template", "system", "context")):
        raise Refusal(400, "raw mode does not support template, system, or context")
    for key, capability in (("suffix", "insert"), ("tools", "tools")):
        if request.get(key) and capability not in model.capabilities:
            raise Refusal(400, f"{full_name} does not support {capability}")
    if request.get("think") not in (None, False) and "thinking" not in model.capabilities:
        raise Refusal(400, f'"{request["model"]}" does not support thinking')
    options = wire.options(request)
    for key in _FLOATS:
        if not isinstance(options.get(key, 0.0), int | float):
            raise Refusal(500, f'option "{key}" must be of type float32')
    empty = not messages if wire.chat else not request.get("prompt")
    if not wire.chat:
        system = [{"role": "system", "content": request["system"]}] if request.get("system") else []
        messages = [*system, {"role": "user", "content": str(request.get("prompt") or "")}]
    echoed = wire.chat and model.template == "native" and not empty and messages[-1].get("role") == "assistant"
    shape = request.get("format")
    stream_options: dict[str, Any] = request.get("stream_options") or {}
    limit = int(options.get("num_predict", -1))
    logprobs = bool(request.get("logprobs"))
    return Job(
        model=model,
        asked_name=str(request["model"]),
        prompt=str(request.get("prompt")) if raw else model.render(messages),
        options=options,
        stops=tuple(options.get("stop") or (() if model.template == "native" else model.stops)),
        limit=limit if limit > 0 else -1,
        stream=bool(request.get("stream", not wire.v1)),
        logprobs=logprobs,
        top=top if logprobs else 0,
        truncate=request.get("truncate") is not False,
        shift=request.get("shift") is not False,
        schema={"type": "object"} if shape == "json" else shape,
        echo=str(messages[-1]["content"]) if echoed else "",
        render_only=bool(request.get("_debug_render_only")),
        only_load=empty,
        unload=empty and request.get("keep_alive") == 0,
        wants_context=not wire.chat and not raw,
        include_usage=bool(stream_options.get("include_usage")),
    )


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _kind(value: Any) -> str:
    """Go's name of a JSON type."""
    return next((name for kind, name in _GO_KINDS if isinstance(value, kind)), "null")


class Wire:
    """How one route writes its replies: ``/api/chat``, ``/api/generate`` or ``/v1/chat/completions``.

    One per request.
    """

    def __init__(self, path: str, *, modern: bool) -> None:
        self._begun, self._modern = False, modern
        self.v1 = path.startswith("/v1/")
        self.chat = path != "/api/generate"
        self.media_type = "text/event-stream" if self.v1 else "application/x-ndjson"
        self.plain_type = "application/json" if self.v1 else "application/json; charset=utf-8"

    def options(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling options with Ollama's defaults; ``/v1`` has its own names and defaults."""
        defaults: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_last_n": 64}
        defaults["repeat_penalty"] = 1.0 if self._modern else 1.1
        if not self.v1:
            return {**defaults, **(request.get("options") or {})}
        options = {**defaults, "temperature": request.get("temperature", 1.0), "top_p": request.get("top_p", 1.0)}
        for theirs, ours in (("max_tokens", "num_predict"), ("seed", "seed"), ("stop", "stop")):
            if request.get(theirs) is not None:
                options[ours] = request[theirs]
        if isinstance(options.get("stop"), str):
            options["stop"] = [options["stop"]]
        return options

    # --- values -------------------------------------------------------------------------------

    def _native(self, job: Job, text: str, role: str = "assistant") -> dict[str, Any]:
        content = {"message": {"role": role, "content": text}} if self.chat else {"response": text}
        return {"model": job.asked_name, "created_at": _CREATED, **content}

    def idle(self, job: Job, reason: str) -> dict[str, Any]:
        """The answer to an empty prompt: ``reason`` is ``load`` or ``unload``."""
        return {**self._native(job, ""), "done": True, "done_reason": reason}

    def rendered(self, job: Job) -> dict[str, Any]:
        """The answer to ``_debug_render_only``."""
        return {**self._native(job, "", ""), "done": False, "_debug_info": {"rendered_template": job.prompt}}

    def piece(self, job: Job, chunk: Chunk) -> dict[str, Any]:
        """One chunk of text."""
        if self.v1:
            named = not (self._begun and self._modern)
            delta = {**_ROLE, "content": chunk.text} if named else {"content": chunk.text}
            self._begun = True
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
            if job.logprobs:
                choice["logprobs"] = {"content": chunk.entries}
            return self._completion(job, "chat.completion.chunk", [choice])
        line = {**self._native(job, chunk.text), "done": False}
        return {**line, "logprobs": chunk.entries} if job.logprobs and chunk.entries else line

    def final(self, job: Job, end: End, prompt: int, context: Sequence[int] | None) -> dict[str, Any]:
        """The line that ends a reply. Counts of zero are left out."""
        if self.v1:
            delta = {} if self._modern else {**_ROLE, "content": ""}
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": end.reason}
            usage = {"prompt_tokens": prompt, "completion_tokens": end.tokens, "total_tokens": prompt + end.tokens}
            return {**self._completion(job, "chat.completion.chunk", [choice]), "usage": usage}
        line: dict[str, Any] = {**self._native(job, ""), "done": True, "done_reason": end.reason}
        if context is not None:
            line["context"] = list(context)
        line |= {"total_duration": 3, "load_duration": 1, "prompt_eval_count": prompt, "prompt_eval_duration": 1}
        line |= {"eval_count": end.tokens, "eval_duration": 1} if end.tokens else {}
        return line

    def _completion(self, job: Job, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": "chatcmpl-1", "object": kind, "created": 1795981331, "model": job.asked_name}
        return {**head, "system_fingerprint": "fp_ollama", "choices": choices}

    # --- bodies -------------------------------------------------------------------------------

    async def encode(self, job: Job, replies: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
        """A streamed body. ``/v1`` sends usage in a chunk of its own, and only if asked."""
        try:
            async for reply in replies:
                if not self.v1:
                    yield json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
                    continue
                usage = reply.pop("usage", None)
                yield _event(reply)
                if usage is not None:
                    tail: dict[str, Any] = {**reply, "choices": [], "usage": usage}
                    yield (_event(tail) if job.include_usage else b"") + b"data: [DONE]\n\n"
        finally:
            await replies.aclose()

    async def join(self, replies: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
        """An unstreamed body: the lines of the streamed one, put together."""
        text = ""
        entries: list[dict[str, Any]] = []
        last: dict[str, Any] = {}
        async for reply in replies:
            if "error" in reply:
                return reply
            last = reply
            shown: dict[str, Any] = reply["choices"][0] if self.v1 else reply
            message: dict[str, Any] = shown.get("delta" if self.v1 else "message") or {}
            text += message.get("content") or shown.get("response") or ""
            said: Any = shown.get("logprobs") or []
            entries += said["content"] if self.v1 and said else said
        if self.v1:
            choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}}
            choice["finish_reason"] = last["choices"][0]["finish_reason"]
            if entries:
                choice["logprobs"] = {"content": entries}
            return {**last, "object": "chat.completion", "choices": [choice]}
        if self.chat:
            last["message"]["content"] = text
        else:
            last["response"] = text
        return {**last, "logprobs": entries} if entries else last


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
