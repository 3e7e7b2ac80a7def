"""``FakeDraft``: an Ollama server over a toy model, for faults and speed.

Rules
-----
* The wire is Ollama 0.33's native API, as far as a draft needs it: ``/api/version``, ``/api/tags``,
  ``/api/ps``, ``/api/show``, ``/api/chat`` and ``/api/generate`` (raw or not, rendered only, streamed as
  NDJSON), with log-probabilities, which the end of the turn has none of.
* A last assistant message is not continued but closed (the commonest of Ollama's behaviours): whoever
  wants a continuation asks for the rendered prompt and generates raw.
* ``cold``: the model takes so many seconds to load. When the last client that waits for it leaves, the
  load is given up and starts from zero next time, as Ollama does; :attr:`load_starts` counts. Another
  ``num_ctx`` than the loaded one loads again.
* The faithful stand-in, over a real llama.cpp, is :mod:`cheapspec.testing.ollama`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cheapspec.testing.fake_server import FakeServer
from cheapspec.testing.generation import Sampling, Step, generate
from cheapspec.testing.toy import ToyModel
from cheapspec.testing.wire import ClientGone, Connection, Exchange, Frame, Replied

__all__ = ["FakeDraft"]

_AT = "2026-11-29T19:54:00.000000000Z"
_DETAILS = {"parent_model": "", "format": "gguf", "family": "toy", "families": ["toy"], "parameter_size": "1K"}
_DEFAULT_CONTEXT = 4096


@dataclass
class FakeDraft(FakeServer):
    """The server. ``name``: the one installed model, with its tag. ``cold``: seconds to load it.

    ``features``: what ``/api/show`` lists as capabilities (``"thinking"`` among them for a model that
    thinks). ``train_context``: the largest window the model can have, in tokens.
    """

    model: ToyModel = field(default_factory=ToyModel)
    name: str = "toy:latest"
    version: str = "0.33.0-rc2"
    cold: float = 0.0
    loaded: bool = True
    features: tuple[str, ...] = ("completion",)
    train_context: int = 8192
    load_starts: int = field(default=0, init=False)
    _context: int = field(default=_DEFAULT_CONTEXT, init=False, repr=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _loading: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    _waiting: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.cold:
            self.loaded = False
        if self.loaded:
            self._ready.set()

    def purpose(self, exchange: Exchange) -> str:
        name = exchange.path.removeprefix("/api/")
        if name not in ("chat", "generate"):
            return name
        if exchange.body.get("_debug_render_only"):
            return "render"
        empty = not exchange.body.get("messages") and not exchange.body.get("prompt")
        return "load" if empty else "draft"

    async def handle(self, connection: Connection) -> None:
        exchange = connection.exchange
        known = {"name": self.name, "model": self.name, "size": 1, "digest": "0" * 64}
        match (exchange.method, exchange.path):
            case ("GET", "/"):
                await connection.answer(200, b"Ollama is running", {"content-type": "text/plain"})
            case ("GET", "/api/version"):
                await connection.answer(200, {"version": self.version})
            case ("GET", "/api/tags"):
                details = {**_DETAILS, "context_length": self.train_context}
                tag = {**known, "modified_at": _AT, "details": details, "capabilities": list(self.features)}
                await connection.answer(200, {"models": [tag]})
            case ("GET", "/api/ps"):
                running = {**known, "details": _DETAILS, "expires_at": _AT, "context_length": self._context}
                await connection.answer(200, {"models": [running] if self._ready.is_set() else []})
            case ("POST", "/api/show"):
                await self._known(connection)
                info = {"general.architecture": "toy", "toy.context_length": self.train_context}
                shown = {"template": "{{ .Messages }}", "details": _DETAILS, "model_info": info}
                await connection.answer(200, {**shown, "capabilities": list(self.features)})
            case ("POST", "/api/chat" | "/api/generate"):
                await self._known(connection)
                await self._write(connection)
            case _:
                await connection.answer(404, b"404 page not found", {"content-type": "text/plain"})

    async def _known(self, connection: Connection) -> None:
        asked = str(connection.exchange.body.get("model", ""))
        full = asked if ":" in asked.rpartition("/")[2] else f"{asked}:latest"
        if full.lower() != self.name.lower():
            await connection.answer(404, {"error": f"model '{asked}' not found"})
            raise Replied

    async def _load(self, connection: Connection, context: int) -> None:
        """Wait until the model is loaded with this window; give a load up when nobody waits for it."""
        if context != self._context:
            self._context = context
            self._ready.clear()
        if self._ready.is_set():
            return
        if self._loading is None:
            self.load_starts += 1
            self._loading = asyncio.create_task(self._become_ready())
        self._waiting += 1
        try:
            await connection.wait(until=self._ready)
        except ClientGone:
            if self._waiting == 1 and not self._ready.is_set():
                self._loading.cancel()
                self._loading = None
            raise
        finally:
            self._waiting -= 1

    async def _become_ready(self) -> None:
        await asyncio.sleep(self.cold)
        self._ready.set()
        self._loading = None

    async def _write(self, connection: Connection) -> None:
        body = connection.exchange.body
        chat = connection.exchange.path == "/api/chat"
        messages: list[Any] = body.get("messages") or []
        prompt = str(body.get("prompt") or "")
        head: dict[str, Any] = {"model": body["model"], "created_at": _AT}
        rendered = self._render(chat, messages, prompt, body)
        if body.get("_debug_render_only"):
            empty: dict[str, Any] = {"message": {"role": "", "content": ""}} if chat else {"response": ""}
            shown = {**head, **empty, "done": False, "_debug_info": {"rendered_template": rendered}}
            await connection.answer(200, shown)
            return
        options: Mapping[str, Any] = body.get("options") or {}
        window = min(int(options.get("num_ctx") or self._context), self.train_context)
        await self._load(connection, window)
        if not messages and not prompt:
            reason = "unload" if body.get("keep_alive") == 0 else "load"
            await connection.answer(200, {**head, **_said(chat, ""), "done": True, "done_reason": reason})
            return
        ids = self.model.encode(rendered)
        if len(ids) > window:
            if body.get("truncate") is False:
                await connection.answer(400, {"error": _overflow(len(ids), window)})
                return
            ids = ids[-window:]
        frames = self._frames(connection, chat, ids, options, head)
        if body.get("stream", True):
            await connection.stream(frames, ndjson=True, headers={"content-type": "application/x-ndjson"})
            return
        await connection.answer_json(await _join(frames, chat))

    def _render(self, chat: bool, messages: list[Any], prompt: str, body: Mapping[str, Any]) -> str:
        if chat:
            return self.model.render(messages)
        if body.get("raw"):
            return prompt
        system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        return self.model.render([*system, {"role": "user", "content": prompt}])

    async def _frames(
        self, connection: Connection, chat: bool, ids: list[int], options: Mapping[str, Any], head: dict[str, Any]
    ) -> AsyncIterator[Frame]:
        said = next((text for action in connection.actions if (text := action.text(options)) is not None), None)
        limit = int(options.get("num_predict") or -1)  # 0 means no limit, as -1 does
        sampling = Sampling.read(options, limit if limit > 0 else 10 * self._context, 0.8)
        with_logprobs = bool(connection.exchange.body.get("logprobs"))
        context, count = list(ids), 0
        await connection.wait(self.latency)
        last = Step("", self.model.end_id, "length")
        for step in generate(self.model, ids, sampling, said):
            await connection.wait(self.token_seconds)
            last = step
            count += 1
            connection.exchange.tokens = count
            if step.text:
                frame: dict[str, Any] = {**head, **_said(chat, step.text), "done": False}
                if with_logprobs:
                    value = self.model.logprobs(context)[step.token]
                    entry = {"token": step.text, "logprob": value, "bytes": list(step.text.encode())}
                    frame["logprobs"] = [entry]
                yield frame
            context.append(step.token)
        durations = {"total_duration": 1, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1}
        counts = {"prompt_eval_count": len(ids), "eval_count": count}
        yield {**head, **_said(chat, ""), "done": True, "done_reason": last.finish or "length", **durations, **counts}


def _said(chat: bool, text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}} if chat else {"response": text}


def _overflow(prompt: int, window: int) -> str:
    """The JSON text that 0.33 puts inside ``error``."""
    message = f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return json.dumps({"error": {**error, "n_prompt_tokens": prompt, "n_ctx": window}})


async def _join(frames: AsyncIterator[Frame], chat: bool) -> dict[str, Any]:
    """The unstreamed reply: the last line with all text and all entries."""
    text = ""
    entries: list[Any] = []
    whole: dict[str, Any] = {}
    async for frame in frames:
        if isinstance(frame, dict):
            text += frame["message"]["content"] if chat else frame["response"]
            entries += frame.pop("logprobs", [])
            whole = frame
    whole |= _said(chat, text)
    return {**whole, "logprobs": entries} if entries else whole
