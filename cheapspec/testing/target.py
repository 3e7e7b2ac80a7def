"""``FakeTarget``: a paid model's server over a toy model, with vLLM's behaviour and OpenAI's wire.

Rules
-----
* Over HTTP it is vLLM 0.32 (``capabilities="vllm"``): scoring by ``prompt_logprobs`` or echo, token-id
  prompts, ``/tokenize``, continuing a final message only with the flags (without them the assistant's
  turn is closed), 400 for what vLLM refuses. ``"no_tokenize"`` is the same behind a gateway that
  passes ``/v1`` only; ``"plain"`` is a hosted chat endpoint that ignores what it does not know.
* Azure's paths (``/openai/deployments/{name}/chat/completions``) answer in every mode.
* The prefix cache is counted in full blocks of 16 tokens. A scoring call does not read it but writes it,
  as vLLM does, so ``cached_tokens`` of the next call tells the truth about what scoring costs.
* Every generated token counts for :attr:`Exchange.tokens` at the moment it is made, so a test can see
  whether a server wrote on after its client had left.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cheapspec.testing import vllm_wire as wire
from cheapspec.testing.fake_server import FakeServer
from cheapspec.testing.generation import Sampling, Step, generate
from cheapspec.testing.toy import ToyModel, plain
from cheapspec.testing.wire import Connection, Exchange, Frame, Replied, items, mapping

__all__ = ["FakeTarget"]

_BLOCK = 16
_API = ("chat/completions", "completions", "models", "responses", "embeddings")


@dataclass
class FakeTarget(FakeServer):
    """The server. ``base``: the folder of its API (``"/v1"``; ``"/api/paas/v4"``; …).

    ``api_key``: refuse calls that do not carry it (401). ``default_temperature``: what an unset
    temperature means here. ``reports_cached_tokens``: ``--enable-prompt-tokens-details``.
    """

    model: ToyModel = field(default_factory=ToyModel)
    name: str = "toy"
    base: str = "/v1"
    capabilities: Literal["vllm", "no_tokenize", "plain"] = "vllm"
    api_key: str | None = None
    max_model_len: int = 2048
    default_temperature: float = 0.0
    reports_cached_tokens: bool = True
    _blocks: set[bytes] = field(default_factory=set[bytes], init=False, repr=False)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1), init=False, repr=False)

    @property
    def base_url(self) -> str:
        """What a client is given as ``base_url``."""
        return self.url + self.base

    # --- routing -----------------------------------------------------------------------------

    def _route(self, exchange: Exchange) -> str:
        path = exchange.path
        if path.startswith(self.base + "/") and (self.base or path[1:] in _API):
            return path[len(self.base) + 1 :]
        if path.startswith("/openai/"):
            parts = path.split("/")
            return "/".join(parts[4:] if parts[2] == "deployments" else parts[2:])
        return path

    def purpose(self, exchange: Exchange) -> str:
        route, body = self._route(exchange), exchange.body
        if route not in ("chat/completions", "completions"):
            return route.strip("/")
        if body.get("prompt_logprobs") is not None or (body.get("echo") and body.get("logprobs") is not None):
            return "score"
        last = mapping((items(body.get("messages")) or [{}])[-1])
        prompt: Any = body.get("prompt")
        if body.get("continue_final_message") or last.get("role") == "assistant" or isinstance(prompt, list):
            return "continue"
        return "direct"

    async def handle(self, connection: Connection) -> None:
        exchange = connection.exchange
        route = self._route(exchange)
        await self._authorize(connection)
        vllm = self.capabilities == "vllm"
        if route == "chat/completions":
            await self._chat(connection)
        elif route == "completions":
            await self._completion(connection)
        elif route == "models":
            await connection.answer(200, wire.model_list(self.name, int(time.time()), self.max_model_len))
        elif route == "responses":
            await self._responses(connection)
        elif route == "embeddings":
            await self._embeddings(connection)
        elif route == "/version" and vllm:
            await connection.answer(200, {"version": "0.32.0"})
        elif route == "/health" and vllm:
            await connection.answer(200, b"")
        elif route == "/tokenize" and vllm:
            await self._tokenize(connection)
        elif route == "/detokenize" and vllm:
            await connection.answer(200, {"prompt": self.model.decode(exchange.body.get("tokens") or [])})
        else:
            await connection.answer(404, {"detail": "Not Found"})

    async def _authorize(self, connection: Connection) -> None:
        headers = connection.exchange.headers
        given = headers.get("api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and given != self.api_key:
            await self._refuse(connection, 401, "Incorrect API key provided")

    async def _refuse(self, connection: Connection, status: int, message: str, param: str | None = None) -> None:
        await connection.answer(status, wire.error(status, message, param))
        raise Replied

    # --- prompts -----------------------------------------------------------------------------

    async def _chat_ids(self, connection: Connection) -> list[int]:
        body = connection.exchange.body
        messages = items(body.get("messages"))
        if not messages:
            await self._refuse(connection, 400, "messages must be a non-empty list", "messages")
        if self.capabilities == "plain":
            return self.model.encode(self.model.render(messages))
        go_on = bool(body.get("continue_final_message"))
        opens = bool(body.get("add_generation_prompt", True))
        if go_on and opens:
            text = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            await self._refuse(connection, 400, text)
        return self.model.encode(self.model.render(messages, generate=opens, go_on=go_on))

    async def _tokenize(self, connection: Connection) -> None:
        body = connection.exchange.body
        ids = await self._chat_ids(connection) if "messages" in body else self.model.encode(str(body.get("prompt", "")))
        strings = [self.model.decode([token]).replace(" ", "Ġ").replace("\n", "Ċ") for token in ids]
        shown = strings if body.get("return_token_strs") else None
        found = {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids, "token_strs": shown}
        await connection.answer(200, found)

    # --- the prefix cache ----------------------------------------------------------------------

    def _cached(self, ids: Sequence[int], *, read: bool) -> int | None:
        """Tokens of a prompt found in the cache (full blocks; the last token is always computed)."""
        if not self.reports_cached_tokens:
            return None
        blocks = self._block_keys(ids)[: (len(ids) - 1) // _BLOCK]
        hits = len(list(itertools.takewhile(lambda key: key in self._blocks, blocks)))
        return hits * _BLOCK if read else 0

    def _remember(self, ids: Sequence[int]) -> None:
        self._blocks.update(self._block_keys(ids))

    @staticmethod
    def _block_keys(ids: Sequence[int]) -> list[bytes]:
        keys: list[bytes] = []
        state = hashlib.blake2b(digest_size=16)
        for start in range(0, len(ids) - _BLOCK + 1, _BLOCK):
            state.update(",".join(map(str, ids[start : start + _BLOCK])).encode() + b"|")
            keys.append(state.copy().digest())
        return keys

    # --- writing -------------------------------------------------------------------------------

    async def _steps(self, connection: Connection, ids: list[int], limit: int) -> AsyncIterator[Step]:
        """Generate, counting tokens as they are made and filling the cache."""
        body = connection.exchange.body
        said = next((text for action in connection.actions if (text := action.text(body)) is not None), None)
        sampling = Sampling.read(body, limit, self.default_temperature)
        written: list[int] = []
        await connection.wait(self.latency)
        for step in generate(self.model, ids, sampling, said):
            await connection.wait(self.token_seconds)
            connection.exchange.tokens += 1
            written.append(step.token)
            yield step
        self._remember([*ids, *written])

    async def _limit(self, connection: Connection, ids: Sequence[int], default: int | None) -> int:
        """The token limit of a reply; 400 as vLLM when the prompt leaves no room or the limit is wrong."""
        body = connection.exchange.body
        room = self.max_model_len - len(ids)
        if room < 1:
            text = f"This model's maximum context length is {self.max_model_len} tokens. However, your request has "
            await self._refuse(connection, 400, text + f"{len(ids)} input tokens.", "input_tokens")
        asked: int | None = body.get("max_completion_tokens")
        if asked is None:
            asked = body.get("max_tokens")
        if asked is None:
            return room if default is None else default
        if asked < 1 and not (asked == 0 and body.get("echo")):
            text = f"max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})"
            await self._refuse(connection, 400, text, "max_tokens")
        return min(asked, room)

    def _headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req-{number}", "x-ratelimit-remaining-requests": str(10_000 - number)}

    async def _checked(self, connection: Connection) -> bool:
        """Whether this is a scoring call; 400 for what vLLM refuses about log-probabilities."""
        body = connection.exchange.body
        if self.capabilities == "plain":
            return False
        scored = body.get("prompt_logprobs") is not None
        if scored and body.get("stream"):
            text = "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)"
            await self._refuse(connection, 400, text, "prompt_logprobs")
        legacy = body.get("logprobs")
        for name, count in (("logprobs", body.get("top_logprobs") or legacy), ("prompt", body.get("prompt_logprobs"))):
            if count is not None and int(count) > 20:
                text = f"Requested {name} logprobs of {count}, which is greater than max allowed: 20"
                await self._refuse(connection, 400, text, "logprobs")
        return scored or bool(body.get("echo") and legacy is not None and not isinstance(legacy, bool))

    async def _chat(self, connection: Connection) -> None:
        body, plainly = connection.exchange.body, self.capabilities == "plain"
        scoring = await self._checked(connection)
        ids = await self._chat_ids(connection)
        limit = await self._limit(connection, ids, None)
        number = next(self._numbers)
        head = self._head(f"chatcmpl-{number:016x}", "chat.completion")
        cached = self._cached(ids, read=not scoring)
        self._remember(ids)
        if body.get("stream"):
            frames = self._chat_frames(connection, ids, limit, head, cached)
            await self._stream(connection, frames, number)
            return
        count = int(body.get("top_logprobs") or 0)
        as_id, shown_ids = bool(body.get("return_tokens_as_token_ids")), bool(body.get("return_token_ids"))
        choices: list[dict[str, Any]] = []
        total = 0
        for index in range(int(body.get("n") or 1)):
            steps = [step async for step in self._steps(connection, ids, limit)]
            written = [step.token for step in steps]
            total += len(written)
            entries = [
                wire.chat_entry(self.model, ids + written[:at], token, count, as_id) for at, token in enumerate(written)
            ]
            choice = wire.chat_choice(
                index,
                "".join(step.text for step in steps),
                entries if body.get("logprobs") else None,
                steps[-1].finish or "length",
                steps[-1].stop_reason,
                written if shown_ids else None,
            )
            choices.append(_plain_choice(choice) if plainly else choice)
        usage = self._count(connection, len(ids), total, cached)
        reply = {**head, "choices": choices, "service_tier": "default" if plainly else None, "usage": usage}
        reply["system_fingerprint"] = wire.FINGERPRINT
        if not plainly:
            asked = body.get("prompt_logprobs")
            reply["prompt_logprobs"] = None if asked is None else wire.prompt_logprobs(self.model, ids, int(asked))
            reply |= {"prompt_token_ids": ids if shown_ids else None, "prompt_text": None, "kv_transfer_params": None}
        await connection.answer_json(reply, self._headers(number))

    async def _completion(self, connection: Connection) -> None:
        body = connection.exchange.body
        scoring = await self._checked(connection)
        prompt: Any = body.get("prompt")
        ids: list[Any] = items(prompt) or self.model.encode(prompt if isinstance(prompt, str) else "")
        if not ids or not all(isinstance(token, int) for token in ids):
            await self._refuse(connection, 400, "prompt must be a text or one list of token ids", "prompt")
        limit = await self._limit(connection, ids, 16)
        number = next(self._numbers)
        head = self._head(f"cmpl-{number:016x}", "text_completion")
        cached = self._cached(ids, read=not scoring)
        self._remember(ids)
        if body.get("stream"):
            await self._stream(connection, self._text_frames(connection, ids, limit, head, cached), number)
            return
        echo = bool(body.get("echo")) and self.capabilities != "plain"
        steps = [step async for step in self._steps(connection, ids, max(limit, 1))]
        written = [step.token for step in steps]
        shown = written if limit else []
        text = "".join(step.text for step in steps) if limit else ""
        shown_ids = bool(body.get("return_token_ids"))
        if echo and not shown_ids:
            text = self.model.decode(ids) + text
        count, as_id = body.get("logprobs"), bool(body.get("return_tokens_as_token_ids"))
        legacy = None
        if count is not None:
            start = 0 if echo else len(ids)
            legacy = wire.legacy_logprobs(self.model, ids + shown, start, int(count), as_id)
        asked = body.get("prompt_logprobs")
        if asked is None and echo:
            asked = count
        scored = None
        if asked is not None and self.capabilities != "plain":
            scored = wire.prompt_logprobs(self.model, ids, int(asked))
        last = steps[-1]
        choice = wire.text_choice(
            0,
            text,
            legacy,
            (last.finish or "length") if limit else "length",
            last.stop_reason,
            shown if shown_ids else None,
            scored,
            ids if shown_ids else None,
        )
        usage = self._count(connection, len(ids), len(written), cached)
        reply = {**head, "choices": [choice], "service_tier": None, "system_fingerprint": wire.FINGERPRINT}
        await connection.answer_json({**reply, "usage": usage, "kv_transfer_params": None}, self._headers(number))

    # --- streams -------------------------------------------------------------------------------

    async def _stream(self, connection: Connection, frames: AsyncIterator[Frame], number: int) -> None:
        headers = {**self._headers(number), "content-type": "text/event-stream; charset=utf-8"}
        await connection.stream(frames, ndjson=False, headers=headers)

    async def _chat_frames(
        self, connection: Connection, ids: list[int], limit: int, head: dict[str, Any], cached: int | None
    ) -> AsyncIterator[Frame]:
        body = connection.exchange.body
        head = {**head, "object": "chat.completion.chunk"}
        if self.capabilities == "plain":
            head["system_fingerprint"] = wire.FINGERPRINT
        count, as_id = int(body.get("top_logprobs") or 0), bool(body.get("return_tokens_as_token_ids"))
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        shown_ids = bool(body.get("return_token_ids")) and self.capabilities != "plain"
        opening: dict[str, Any] = {**head, "choices": [first]}
        if self.capabilities != "plain":
            opening["prompt_token_ids"] = ids if shown_ids else None
        yield opening
        written: list[int] = []
        async for step in self._steps(connection, ids, limit):
            entry = None
            if body.get("logprobs"):
                entry = {"content": [wire.chat_entry(self.model, ids + written, step.token, count, as_id)]}
            written.append(step.token)
            choice: dict[str, Any] = {"index": 0, "delta": {"content": step.text}, "logprobs": entry}
            choice["finish_reason"] = step.finish
            if step.finish:
                choice["stop_reason"] = step.stop_reason
            if self.capabilities != "plain":
                choice["token_ids"] = [step.token] if shown_ids else None
            yield {**head, "choices": [choice]}
        async for frame in self._tail(connection, head, len(ids), len(written), cached):
            yield frame

    async def _text_frames(
        self, connection: Connection, ids: list[int], limit: int, head: dict[str, Any], cached: int | None
    ) -> AsyncIterator[Frame]:
        body = connection.exchange.body
        count, as_id = body.get("logprobs"), bool(body.get("return_tokens_as_token_ids"))
        shown_ids = bool(body.get("return_token_ids"))
        written: list[int] = []
        async for step in self._steps(connection, ids, limit):
            written.append(step.token)
            legacy = None
            if count is not None:
                at = len(ids) + len(written) - 1
                legacy = wire.legacy_logprobs(self.model, ids + written, at, int(count), as_id)
            choice: dict[str, Any] = {"index": 0, "text": step.text, "logprobs": legacy, "finish_reason": step.finish}
            choice["stop_reason"] = step.stop_reason
            choice["prompt_token_ids"] = ids if shown_ids and len(written) == 1 else None
            choice["token_ids"] = [step.token] if shown_ids else None
            chunk: dict[str, Any] = {**head, "choices": [choice]}
            last = step.finish and not mapping(body.get("stream_options")).get("include_usage")
            yield {**chunk, "system_fingerprint": wire.FINGERPRINT} if last else chunk
        async for frame in self._tail(connection, head, len(ids), len(written), cached):
            yield frame

    async def _tail(
        self, connection: Connection, head: dict[str, Any], prompt: int, written: int, cached: int | None
    ) -> AsyncIterator[Frame]:
        usage = self._count(connection, prompt, written, cached)
        options: Any = connection.exchange.body.get("stream_options") or {}
        if options.get("include_usage"):
            told = {name: value for name, value in usage.items() if value is not None}
            yield {**head, "choices": [], "usage": told, "system_fingerprint": wire.FINGERPRINT}
        yield "[DONE]"

    def _count(self, connection: Connection, prompt: int, written: int, cached: int | None) -> dict[str, Any]:
        connection.exchange.usage = wire.usage(prompt, written, cached)
        return connection.exchange.usage

    def _head(self, identifier: str, kind: str) -> dict[str, Any]:
        return {"id": identifier, "object": kind, "created": int(time.time()), "model": self.name}

    # --- other routes ----------------------------------------------------------------------------

    async def _responses(self, connection: Connection) -> None:
        body = connection.exchange.body
        messages = items(body.get("input")) or [{"role": "user", "content": body.get("input")}]
        ids = self.model.encode(self.model.render(messages))
        limit = int(body.get("max_output_tokens") or self.max_model_len - len(ids))
        steps = [step async for step in self._steps(connection, ids, limit)]
        text: dict[str, Any] = {"type": "output_text", "text": "".join(step.text for step in steps), "annotations": []}
        number = next(self._numbers)
        message = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        counts = {"input_tokens": len(ids), "output_tokens": len(steps), "total_tokens": len(ids) + len(steps)}
        reply: dict[str, Any] = {
            "id": f"resp_{number:016x}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": self.name,
            "output": [{**message, "content": [text]}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {**counts, **details},
        }
        await connection.answer_json(reply, self._headers(number))

    async def _embeddings(self, connection: Connection) -> None:
        body = connection.exchange.body
        texts = items(body.get("input")) or [body.get("input")]
        data: list[dict[str, Any]] = []
        for index, text in enumerate(texts):
            noise = hashlib.blake2b(plain(text).encode(), digest_size=8).digest()
            vector = [byte / 255 for byte in noise]
            packed: Any = vector
            if body.get("encoding_format") == "base64":
                packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
            data.append({"object": "embedding", "index": index, "embedding": packed})
        count = sum(len(self.model.encode(plain(text))) for text in texts)
        counts = {"prompt_tokens": count, "total_tokens": count}
        await connection.answer_json({"object": "list", "data": data, "model": self.name, "usage": counts})


def _plain_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice as OpenAI sends it: without vLLM's additions."""
    message = {name: choice["message"][name] for name in ("role", "content", "refusal")}
    kept = {name: choice[name] for name in ("index", "logprobs", "finish_reason")}
    return {**kept, "message": {**message, "annotations": []}}
