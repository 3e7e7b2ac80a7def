"""``FakeChatHost``: a hosted chat API that only answers; what it says is scripted, a toy model's, or a real engine's.

Rules
-----
* ``says``: what the model answers to a body. A :class:`Says` has the first token's alternatives with it, so that a
  verdict of one letter can be read; a plain string is the likeliest text of a model that is sure of it. ``None``: the
  toy model's own text.
* ``upstream``: a real engine's API base. Its words, log-probabilities and counts go out in this host's shape, so that
  verdicts are real. What only the host knows (``provider``, ``models``, sessions) does not reach it.
* Hidden thinking is output: it counts, comes before the text, and uses up the limit. A limit that it uses up leaves an
  empty text and ``finish_reason: "length"``.
* Where the host charges nothing (a refusal), :attr:`Exchange.tokens` stays 0.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import httpx2

from cheapspec.testing import vllm_wire
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.wire import Connection, Exchange, Frame, Replied, items, mapping

__all__ = ["FakeChatHost", "Said", "Says"]

_PIECES = re.compile(r"\s*\S+|\s+")
_SURE = 0.98
_ENGINE_TAKES = frozenset(
    {"messages", "temperature", "top_p", "stop", "seed", "logprobs", "top_logprobs", "tools", "tool_choice"}
)


@dataclass(frozen=True)
class Says:
    """A scripted reply. ``top``: probabilities of its first token's alternatives (its own text with ``_SURE``, unless
    given). ``thinking``: hidden tokens before it.
    """

    text: str
    top: Mapping[str, float] = field(default_factory=dict[str, float])
    thinking: int = 0


@dataclass
class Said:
    """A reply before the host puts it into its own shape. ``entries``: one a token of the text."""

    text: str
    finish: str
    entries: list[dict[str, Any]]
    prompt: int
    output: int
    cached: int | None = None
    reasoning: int = 0


@dataclass
class FakeChatHost(FakeTarget):
    """``thinks``: whether its model thinks before it answers: ``"no"``, ``"optional"`` (on unless it is told not to) or
    ``"always"``; ``thinking_tokens``: how much. ``engine_model``: the model's name at ``upstream``. ``cached_from``:
    shorter prompts are not cached.
    """

    capabilities: Literal["vllm", "no_tokenize", "plain"] = "plain"
    says: Callable[[dict[str, Any]], Says | str | None] | None = None
    upstream: str | None = None
    engine_model: str | None = None
    thinks: Literal["no", "optional", "always"] = "no"
    thinking_tokens: int = 40
    cached_from: int = 0
    keep_alive: ClassVar[str | None] = None
    """What a comment of its streams says, ``None``: it sends none."""

    # --- what a host does its own way ------------------------------------------------------------

    async def check(self, connection: Connection) -> None:
        """Refuse what this host does not take, by :meth:`refuse`."""

    def lacks(self, connection: Connection) -> frozenset[str]:
        """Fields that are dropped without a word."""
        return frozenset()

    def thinking(self, body: Mapping[str, Any]) -> bool:
        """Whether the model thinks this time."""
        if self.thinks == "optional":
            return body.get("reasoning_effort") != "none"
        return self.thinks == "always"

    def told(self, said: Said, connection: Connection) -> dict[str, Any]:
        """The reply in this host's shape."""
        message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None, "annotations": []}
        listed = {"content": said.entries, "refusal": None} if said.entries else None
        choice = {"index": 0, "message": message, "logprobs": listed, "finish_reason": said.finish}
        head = self._head(f"chatcmpl-{next(self._numbers):016x}", "chat.completion")
        reply = {**head, "choices": [choice], "usage": self.usage(said, connection)}
        return {**reply, "service_tier": "default", "system_fingerprint": "fp_0123456789"}

    def usage(self, said: Said, connection: Connection) -> dict[str, Any]:
        """Tokens as this host counts them."""
        return {
            "prompt_tokens": said.prompt,
            "completion_tokens": said.output,
            "total_tokens": said.prompt + said.output,
            "prompt_tokens_details": {"cached_tokens": said.cached or 0},
            "completion_tokens_details": {"reasoning_tokens": said.reasoning},
        }

    def streams_usage(self, body: Mapping[str, Any]) -> bool:
        """Whether a stream ends with the counts."""
        return bool(mapping(body.get("stream_options")).get("include_usage"))

    # --- the server ------------------------------------------------------------------------------

    def purpose(self, exchange: Exchange) -> str:
        """``verdict`` for what carries one of our questions, else ``direct``, or the route."""
        route = self._route(exchange)
        if route != "chat/completions":
            return route.strip("/")
        messages = items(exchange.body.get("messages"))
        return "verdict" if messages and "\n\n---\n" in str(mapping(messages[-1]).get("content")) else "direct"

    async def refuse(self, connection: Connection, status: int, error: Mapping[str, Any]) -> None:
        """Answer with an error object. Always raises :class:`Replied`."""
        await connection.answer(status, {"error": dict(error)})
        raise Replied

    async def _chat(self, connection: Connection) -> None:
        exchange = connection.exchange
        await self.check(connection)
        await connection.wait(self.latency)
        lacks = self.lacks(connection)
        known = {name: value for name, value in exchange.body.items() if name not in lacks}
        said = await self._said(connection, known)
        exchange.tokens = said.output
        if not known.get("logprobs"):
            said.entries.clear()
        reply = self.told(said, connection)
        exchange.usage = reply["usage"]
        number = next(self._numbers)
        if not exchange.body.get("stream"):
            await connection.answer_json(reply, self._headers(number))
            return
        frames = self._framed(connection, reply, self._prefix())
        await connection.stream(
            frames, ndjson=False, headers={"content-type": "text/event-stream", **self._headers(number)}
        )

    def _prefix(self) -> list[Frame]:
        return [] if self.keep_alive is None else [f": {self.keep_alive}\n\n".encode()] * 2

    async def _framed(
        self, connection: Connection, reply: dict[str, Any], first: Sequence[Frame]
    ) -> AsyncIterator[Frame]:
        """The reply as a stream, a word at a time."""
        choice = reply["choices"][0]
        head = {name: value for name, value in reply.items() if name not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        extra = {name: choice[name] for name in ("native_finish_reason",) if name in choice}
        for frame in first:
            yield frame
        yield {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        for at, piece in enumerate(_PIECES.findall(choice["message"]["content"] or "")):
            await connection.wait(self.token_seconds)
            if at == 2 and self.keep_alive is not None:
                yield f": {self.keep_alive}\n\n".encode()
            yield {**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"], **extra}]}
        if self.streams_usage(connection.exchange.body):
            yield {**head, "choices": [], "usage": reply["usage"]}
        yield "[DONE]"

    # --- what is said ----------------------------------------------------------------------------

    async def _said(self, connection: Connection, body: dict[str, Any]) -> Said:
        planned = next((text for action in connection.actions if (text := action.text(body)) is not None), None)
        if self.upstream is not None and planned is None:
            return await self._engine(body)
        ids = await self._chat_ids(connection)
        limit = await self._limit(connection, ids, None)
        cached = self._cached(ids, read=len(ids) >= self.cached_from)
        self._remember(ids)
        found: Says | str | None = planned if planned is not None or self.says is None else self.says(body)
        if found is None:
            steps = [step async for step in self._steps(connection, ids, limit)]
            text, written = "".join(step.text for step in steps), [step.token for step in steps]
            count = int(body.get("top_logprobs") or 0)
            entries = [
                vllm_wire.chat_entry(self.model, ids + written[:at], token, count, False)
                for at, token in enumerate(written)
            ]
            return Said(text, steps[-1].finish or "length", entries, len(ids), len(steps), cached)
        says = found if isinstance(found, Says) else Says(found)
        thought = (says.thinking or self.thinking_tokens) if self.thinking(body) else says.thinking
        thought = min(thought, limit)
        pieces = _PIECES.findall(says.text)
        shown = pieces[: limit - thought]
        cut = len(shown) < len(pieces) or not pieces
        entries = [self._entry(piece, says.top if not at else {}, body) for at, piece in enumerate(shown)]
        output = thought + len(shown)
        return Said("".join(shown), "length" if cut else "stop", entries, len(ids), output, cached, thought)

    @staticmethod
    def _entry(piece: str, top: Mapping[str, float], body: Mapping[str, Any]) -> dict[str, Any]:
        shares = dict(top) or {piece: _SURE}
        listed = [
            {"token": text, "logprob": math.log(share), "bytes": list(text.encode())}
            for text, share in sorted(shares.items(), key=lambda one: -one[1])
        ]
        own = math.log(shares.get(piece, min(shares.values())))
        count = int(body.get("top_logprobs") or 0)
        return {"token": piece, "logprob": own, "bytes": list(piece.encode()), "top_logprobs": listed[:count]}

    async def _engine(self, body: Mapping[str, Any]) -> Said:
        """Ask the real engine, in the plain form of the API."""
        asked = {name: value for name, value in body.items() if name in _ENGINE_TAKES}
        limit: object = body.get("max_completion_tokens") or body.get("max_tokens")
        if limit is not None:
            asked["max_tokens"] = limit
        asked["model"] = self.engine_model or body.get("model")
        async with httpx2.AsyncClient(timeout=300.0, trust_env=False) as client:
            answer = await client.post(f"{str(self.upstream).rstrip('/')}/chat/completions", json=asked)
        answer.raise_for_status()
        told = mapping(answer.json())
        choice = mapping((items(told.get("choices")) or [{}])[0])
        usage = mapping(told.get("usage"))
        cached = mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
        return Said(
            str(mapping(choice.get("message")).get("content") or ""),
            str(choice.get("finish_reason") or "stop"),
            items(mapping(choice.get("logprobs")).get("content")),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
            cached if isinstance(cached, int) else None,
        )

    def _head(self, identifier: str, kind: str) -> dict[str, Any]:
        return {"id": identifier, "object": kind, "created": int(time.time()), "model": self.name}
