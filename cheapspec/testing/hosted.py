"""Stand-ins for APIs that score text, each in its own shape, over a toy model.

Rules
-----
* Field names and places are those of the vendors' SDKs (named in the dialects, :mod:`cheapspec.backends`). A field
  that an API does not have is refused with status 422, so that a wrong name fails a test.
* What nobody could look at without a key follows the likeliest reading and can be switched: ``goes_on`` (a last
  assistant message is gone on from), ``says_again`` (a continuation begins with it).
* Where nothing is scored they are :class:`~cheapspec.testing.target.FakeTarget` in its plain form.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cheapspec.testing.generation import Step
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.wire import Connection, Exchange, Frame, items, mapping

__all__ = ["FakeFireworks", "FakeLlamaCppPython", "FakeMistral", "FakeTogether"]

_COMMON = frozenset(
    {
        *("model", "messages", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "stop", "stream"),
        *("frequency_penalty", "presence_penalty", "logprobs", "response_format", "logit_bias", "seed"),
        *("tools", "tool_choice", "repetition_penalty", "reasoning_effort", "stream_options"),
    }
)


def best(values: Sequence[float], count: int) -> list[int]:
    """The ids of the ``count`` likeliest tokens."""
    return sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count]


@dataclass
class _Hosted(FakeTarget):
    capabilities: Literal["vllm", "no_tokenize", "plain"] = "plain"
    goes_on: bool = True
    fields: ClassVar[frozenset[str]] = _COMMON

    def purpose(self, exchange: Exchange) -> str:
        asks = ("prompt_logprobs", "echo", "echo_last")
        if super().purpose(exchange) in ("direct", "continue") and any(exchange.body.get(name) for name in asks):
            return "score"
        return super().purpose(exchange)

    async def handle(self, connection: Connection) -> None:
        unknown = sorted(connection.exchange.body.keys() - self.fields)
        if unknown and connection.exchange.method == "POST":
            await self._refuse(connection, 422, f"Extra inputs are not permitted: {', '.join(unknown)}")
        await super().handle(connection)

    async def _chat_ids(self, connection: Connection) -> list[int]:
        messages = items(connection.exchange.body.get("messages"))
        go_on = self._open(messages)
        return self.model.encode(self.model.render(messages, generate=not go_on, go_on=go_on))

    def _open(self, messages: list[Any]) -> bool:
        """Whether the last message's turn stays open."""
        return self.goes_on and bool(messages) and mapping(messages[-1]).get("role") == "assistant"

    async def _written(
        self, connection: Connection, ids: list[int], default: int | None = 16
    ) -> tuple[list[Step], dict[str, Any]]:
        """What is generated after ``ids`` (``default``: how much unasked, ``None``: to the end), and the counts."""
        limit = await self._limit(connection, ids, default)
        cached = self._cached(ids, read=True)
        self._remember(ids)
        steps = [step async for step in self._steps(connection, ids, limit)]
        return steps, self._count(connection, len(ids), len(steps), cached)

    def _entry(self, context: Sequence[int], token: int, count: int) -> dict[str, Any]:
        """An entry in chat shape, with ids and bytes."""
        values = self.model.logprobs(context)

        def shown(one: int) -> dict[str, Any]:
            data = list(self.model.vocabulary[one])
            return {"token": self.model.decode([one]), "token_id": one, "logprob": values[one], "bytes": data}

        return {**shown(token), "top_logprobs": [shown(one) for one in best(values, count)]}

    def _reply(self, kind: str, choice: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        head = self._head(f"{kind}-{number}", "chat.completion" if kind == "chat" else "text_completion")
        return {**head, "choices": [{"index": 0, **choice}], "usage": usage}


def _said(chat: bool, text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}} if chat else {"text": text}


class FakeFireworks(_Hosted):
    """Fireworks AI: ``echo_last`` and ``logprobs: true``."""

    fields = _COMMON | {
        *("echo", "echo_last", "top_logprobs", "context_length_exceeded_behavior", "max_completion_tokens", "user"),
        *("prompt_cache_key", "prompt_truncate_len", "return_token_ids", "raw_output", "ignore_eos", "prediction"),
    }

    async def _chat(self, connection: Connection) -> None:
        await self._answer(connection, chat=True)

    async def _completion(self, connection: Connection) -> None:
        await self._answer(connection, chat=False)

    async def _answer(self, connection: Connection, *, chat: bool) -> None:
        body = connection.exchange.body
        if not (body.get("echo") or body.get("echo_last")) or body.get("stream"):
            await (super()._chat(connection) if chat else super()._completion(connection))
            return
        ids = await self._chat_ids(connection) if chat else self.model.encode(str(body.get("prompt", "")))
        steps, usage = await self._written(connection, ids)
        shown = len(ids) if body.get("echo") else min(int(body["echo_last"]), len(ids))
        whole = [*ids, *(step.token for step in steps)]
        count = int(body.get("top_logprobs") or 0)
        assert body.get("logprobs") is True and count <= 5, "only this form is played"
        entries = [self._entry(whole[:at], whole[at], count) for at in range(len(ids) - shown, len(whole))]
        text = self.model.decode(whole[len(ids) - shown :])
        choice = {**_said(chat, text), "logprobs": {"content": entries}, "finish_reason": steps[-1].finish}
        await connection.answer_json(self._reply("chat" if chat else "text", choice, usage))


class FakeTogether(_Hosted):
    """Together AI: the prompt's numbers stand in the top-level ``prompt``; turns end with ``eos``."""

    fields = _COMMON | {"echo", "context_length_exceeded_behavior", "chat_template_kwargs", "reasoning", "prediction"}

    async def _chat(self, connection: Connection) -> None:
        await self._answer(connection, chat=True)

    async def _completion(self, connection: Connection) -> None:
        await self._answer(connection, chat=False)

    async def _answer(self, connection: Connection, *, chat: bool) -> None:
        body = connection.exchange.body
        if body.get("logprobs") is None or body.get("stream"):
            await (super()._chat(connection) if chat else super()._completion(connection))
            return
        ids = await self._chat_ids(connection) if chat else self.model.encode(str(body.get("prompt", "")))
        steps, usage = await self._written(connection, ids)
        whole, count = [*ids, *(step.token for step in steps)], int(body["logprobs"])
        prompt = {"text": self.model.decode(ids), "logprobs": self._legacy(whole, range(len(ids)), count)}
        finish = "eos" if steps[-1].finish == "stop" else steps[-1].finish
        written = self._legacy(whole, range(len(ids), len(whole)), count)
        choice = {**_said(chat, "".join(step.text for step in steps)), "logprobs": written, "finish_reason": finish}
        usage = {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
        echoed = [prompt] if body.get("echo") else []
        await connection.answer_json({**self._reply("chat" if chat else "text", choice, usage), "prompt": echoed})

    def _legacy(self, ids: list[int], places: range, count: int) -> dict[str, list[Any]]:
        shape: dict[str, list[Any]] = {"token_ids": [], "tokens": [], "token_logprobs": [], "top_logprobs": []}
        for at in places:
            values = self.model.logprobs(ids[:at]) if at else None
            shape["token_ids"].append(ids[at])
            shape["tokens"].append(self.model.decode([ids[at]]))
            shape["token_logprobs"].append(None if values is None else values[ids[at]])
            shape["top_logprobs"].append(
                None if values is None else {self.model.decode([one]): values[one] for one in best(values, count)}
            )
        return shape


@dataclass
class FakeMistral(_Hosted):
    """Mistral's API: ``prompt_logprobs``, ``prefix: true``, and a reply that says the prefix again."""

    says_again: bool = True
    fields: ClassVar[frozenset[str]] = (_COMMON - {"prompt", "seed", "logit_bias", "stream_options", "min_p"}) | {
        *("prompt_logprobs", "top_prompt_logprobs", "top_logprobs", "random_seed", "prediction", "prompt_cache_key"),
        *("min_tokens", "safe_prompt", "metadata", "service_tier", "parallel_tool_calls", "prompt_mode", "guardrails"),
    }

    def _open(self, messages: list[Any]) -> bool:
        return super()._open(messages) and mapping(messages[-1]).get("prefix") is True

    def _prefix(self, connection: Connection) -> str:
        messages = items(connection.exchange.body.get("messages"))
        return str(messages[-1]["content"]) if self.says_again and self._open(messages) else ""

    async def _chat(self, connection: Connection) -> None:
        body = connection.exchange.body
        if body.get("stream"):
            await super()._chat(connection)
            return
        ids = await self._chat_ids(connection)
        steps, usage = await self._written(connection, ids, None)
        whole, count = [*ids, *(step.token for step in steps)], int(body.get("top_logprobs") or 0)
        text = self._prefix(connection) + "".join(step.text for step in steps)
        choice: dict[str, Any] = {**_said(True, text), "finish_reason": steps[-1].finish}
        if body.get("logprobs"):
            content = [self._entry(whole[:at], whole[at], count) for at in range(len(ids), len(whole))]
            choice["logprobs"] = {"content": content}
        if body.get("prompt_logprobs"):
            asked = int(body.get("top_prompt_logprobs") or 0)
            content = [self._entry(ids[:at], ids[at], asked) for at in range(1, len(ids))]
            choice["prompt_logprobs"] = {"content": content}
        await connection.answer_json(self._reply("chat", choice, usage))

    async def _chat_frames(
        self, connection: Connection, ids: list[int], limit: int, head: dict[str, Any], cached: int | None
    ) -> AsyncIterator[Frame]:
        prefix = self._prefix(connection)
        async for frame in super()._chat_frames(connection, ids, limit, head, cached):
            if isinstance(frame, dict) and frame["choices"][0].get("finish_reason"):  # unasked, in the last chunk
                frame = {**frame, "usage": self._count(connection, len(ids), connection.exchange.tokens, cached)}
            yield frame
            if prefix and isinstance(frame, dict):  # in two pieces, so that nobody relies on one
                for part in (prefix[:3], prefix[3:]):
                    delta = {"index": 0, "delta": {"content": part}, "finish_reason": None}
                    yield {**head, "object": "chat.completion.chunk", "choices": [delta]}
                prefix = ""


@dataclass
class FakeLlamaCppPython(_Hosted):
    """llama-cpp-python's server: echoed log-probabilities, ``shift`` positions late (1 without a BOS token, else 0).

    A chat closes the assistant's turn.
    """

    goes_on: bool = False
    shift: int = 1
    fields: ClassVar[frozenset[str]] = _COMMON | {"echo", "repeat_penalty", "suffix", "best_of", "user", "grammar"}

    async def _completion(self, connection: Connection) -> None:
        body = connection.exchange.body
        if not body.get("echo") or body.get("stream"):
            await super()._completion(connection)
            return
        ids = self.model.encode(str(body["prompt"]))
        steps, usage = await self._written(connection, ids)
        whole, count = [*ids, *(step.token for step in steps)], int(body.get("logprobs") or 0)
        shape: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        offset = 0
        for at in range(len(ids) if self.shift else len(whole)):
            token, values = whole[at], self.model.logprobs(whole[: at + self.shift])
            text = self.model.vocabulary[token].decode(errors="ignore")
            names = {self.model.vocabulary[one].decode(errors="ignore"): values[one] for one in best(values, count)}
            shape["text_offset"].append(offset)
            shape["tokens"].append(text)
            shape["token_logprobs"].append(values[token] if at else None)
            shape["top_logprobs"].append({**names, text: values[token]} if at else None)
            offset += len(text)
        choice = {"text": self.model.decode(ids) + "".join(step.text for step in steps), "logprobs": shape}
        usage = {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
        await connection.answer_json(self._reply("text", {**choice, "finish_reason": steps[-1].finish}, usage))
