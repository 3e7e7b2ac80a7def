"""``FakeOpenRouter``: a router of chat models over several hosts, each with habits of its own.

Rules (its pages on provider routing, prompt caching, usage accounting, errors and streaming, 2026-11)
-----
* It chooses a host among :attr:`FakeOpenRouter.hosts`: those that ``provider`` allows (``only``, ``ignore``, ``order``,
  ``allow_fallbacks``), by ``order``, else the one that served this conversation before, else the first. A conversation
  is ``session_id``, ``x-session-id`` or ``prompt_cache_key``, else the first system and the first other message.
* A field that the host does not know is dropped silently, unless ``provider.require_parameters`` is true: then the host
  is out, and 404 if none is left.
* Prompt caches are the hosts' own. Cost is told in every reply; with a key of the caller's own (``byok``) it is the fee
  alone, and what the maker charges stands in ``cost_details``.
* Errors have ``code``, ``message`` and ``metadata``. Once a model has begun, they come under status 200, with
  ``finish_reason: "error"``. What a host refused stands as text in ``metadata.raw``.
* Streams begin with comments, and end with the counts unasked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from cheapspec.testing.chat_host import FakeChatHost, Said
from cheapspec.testing.wire import Action, Connection, items, mapping

__all__ = ["NO_LOGPROBS", "BrokenOff", "FakeOpenRouter", "RouterHost"]

_FEE = Decimal("0.05")
_MILLION = 1_000_000
NO_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
"""What hosts without log-probabilities do not know."""


@dataclass(frozen=True)
class RouterHost:
    """One host behind the router. ``lacks``: fields that it does not know; ``least_output``: 16 for OpenAI's Responses
    API; ``status``: it fails with this one.
    """

    name: str
    lacks: frozenset[str] = frozenset()
    least_output: int = 1
    status: int | None = None


@dataclass(frozen=True)
class BrokenOff(Action):
    """The model's host fails after it has begun: an error under status 200 (unstreamed: in the choice, with no usage
    but what was told so far).
    """

    code: int = 502
    message: str = "Provider returned error"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    in_choice: bool = False

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message, "metadata": dict(self.metadata)}
        if not self.in_choice:
            return {"error": error, "user_id": "user_0"}
        choice = {**data["choices"][0], "finish_reason": "error", "native_finish_reason": None, "error": error}
        return {**data, "choices": [choice]}


@dataclass
class FakeOpenRouter(FakeChatHost):
    """``credits``: dollars that are left, ``None``: enough. ``prices``: dollars per million tokens of input, cached
    input and output.
    """

    name: str = "meta-llama/llama-3.3-70b-instruct"
    base: str = "/api/v1"
    hosts: tuple[RouterHost, ...] = (RouterHost("Fireworks"), RouterHost("DeepInfra", NO_LOGPROBS))
    prices: tuple[str, str, str] = ("1", "0.5", "10")
    byok: bool = False
    credits: float | None = None
    served_by: list[str] = field(default_factory=list[str], init=False)
    """Which host answered each call that was answered, in order."""
    _sticky: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False)
    _chosen: dict[int, RouterHost] = field(default_factory=dict[int, RouterHost], init=False, repr=False)
    _caches: dict[str, set[bytes]] = field(default_factory=dict[str, set[bytes]], init=False, repr=False)
    keep_alive: ClassVar[str | None] = "OPENROUTER PROCESSING"

    # --- routing -------------------------------------------------------------------------------

    async def check(self, connection: Connection) -> None:
        body = connection.exchange.body
        if self.credits is not None and self.credits <= 0:
            message = "Insufficient credits. Add more using https://openrouter.ai/settings/credits"
            await self.refuse(connection, 402, {"message": message, "code": 402})
        allowed = list(self._allowed(body))
        if not allowed:
            await self.refuse(
                connection,
                404,
                {"message": "No endpoints found that can handle the requested parameters.", "code": 404},
            )
        key = self._conversation(connection)
        ordered = bool(items(mapping(body.get("provider")).get("order")))
        if not ordered and self._sticky.get(key) in [host.name for host in allowed]:
            allowed.sort(key=lambda host: host.name != self._sticky[key])
        host = next((host for host in allowed if host.status is None), None)
        if host is None:
            await self._failed(connection, allowed[0])
            return
        limit: Any = body.get("max_completion_tokens") or body.get("max_tokens") or host.least_output
        if limit < host.least_output:
            await self._too_few(connection, host, limit)
        self._sticky[key] = host.name
        self.served_by.append(host.name)
        self._blocks = self._caches.setdefault(host.name, set())
        self._chosen[id(connection.exchange)] = host

    def lacks(self, connection: Connection) -> frozenset[str]:
        return self._chosen[id(connection.exchange)].lacks

    def _allowed(self, body: Mapping[str, Any]) -> Iterator[RouterHost]:
        provider = mapping(body.get("provider"))
        order, only = items(provider.get("order")), items(provider.get("only"))
        ranked = sorted(self.hosts, key=lambda host: order.index(_slug(host)) if _slug(host) in order else len(order))
        for host in ranked:
            if only and _slug(host) not in only:
                continue
            if _slug(host) in items(provider.get("ignore")):
                continue
            if order and provider.get("allow_fallbacks") is False and _slug(host) not in order:
                continue
            if provider.get("require_parameters") is True and host.lacks & body.keys():
                continue
            yield host

    @staticmethod
    def _conversation(connection: Connection) -> str:
        body, headers = connection.exchange.body, connection.exchange.headers
        given = body.get("session_id") or headers.get("x-session-id") or body.get("prompt_cache_key")
        if given:
            return f"{body.get('model')} {given}"
        messages = [mapping(one) for one in items(body.get("messages"))]
        system = next((one for one in messages if one.get("role") in ("system", "developer")), None)
        other = next((one for one in messages if one.get("role") not in ("system", "developer")), None)
        return json.dumps([body.get("model"), system, other])

    async def _failed(self, connection: Connection, host: RouterHost) -> None:
        status = host.status or 502
        if status == 503:
            message = "There is no available model provider that meets your routing requirements"
            await self.refuse(connection, 503, {"message": message, "code": 503})
        raw = f"{host.name} is temporarily rate-limited upstream." if status == 429 else "upstream error"
        metadata = {"raw": raw, "provider_name": host.name}
        error = {"message": "Provider returned error", "code": status, "metadata": metadata}
        await self.refuse(connection, status, error)

    async def _too_few(self, connection: Connection, host: RouterHost, limit: int) -> None:
        inner = {
            "message": "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= "
            f"{host.least_output}, but got {limit} instead.",
            "type": "invalid_request_error",
            "param": "max_output_tokens",
            "code": "integer_below_min_value",
        }
        raw = json.dumps({"error": inner}, indent=2)
        metadata = {"raw": raw, "provider_name": host.name, "is_byok": self.byok}
        await self.refuse(connection, 400, {"message": "Provider returned error", "code": 400, "metadata": metadata})

    # --- replies -------------------------------------------------------------------------------

    def told(self, said: Said, connection: Connection) -> dict[str, Any]:
        body = connection.exchange.body
        host = self._chosen[id(connection.exchange)].name
        message = {"role": "assistant", "content": said.text, "refusal": None, "reasoning": None}
        if said.reasoning:
            message["reasoning"] = "Let me think. " * 2
        choice = {
            "logprobs": {"content": said.entries, "refusal": None} if said.entries else None,
            "finish_reason": said.finish,
            "native_finish_reason": {"stop": "end_turn", "length": "max_tokens"}.get(said.finish),
            "index": 0,
            "message": message,
        }
        head = self._head(f"gen-{next(self._numbers):010d}", "chat.completion")
        reply = {
            **head,
            "provider": host,
            "choices": [choice],
            "usage": self.usage(said, connection),
        }
        return {**reply, "model": body.get("model") or self.name}

    def usage(self, said: Said, connection: Connection) -> dict[str, Any]:
        cached = said.cached or 0
        own, cheap, out = map(Decimal, self.prices)
        prompt = ((said.prompt - cached) * own + cached * cheap) / _MILLION
        written = said.output * out / _MILLION
        upstream = prompt + written
        cost = upstream * _FEE if self.byok else upstream
        if self.credits is not None:
            self.credits -= float(cost)
        return {
            "prompt_tokens": said.prompt,
            "completion_tokens": said.output,
            "total_tokens": said.prompt + said.output,
            "cost": float(cost),
            "is_byok": self.byok,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0, "audio_tokens": 0},
            "cost_details": {
                "upstream_inference_cost": float(upstream),
                "upstream_inference_prompt_cost": float(prompt),
                "upstream_inference_completions_cost": float(written),
            },
            "completion_tokens_details": {"reasoning_tokens": said.reasoning},
        }

    def streams_usage(self, body: Mapping[str, Any]) -> bool:
        return True


def _slug(host: RouterHost) -> str:
    return host.name.lower()
