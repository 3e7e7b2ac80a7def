"""One way to write a scenario for both clients: ``await call(…)`` and ``async for … in items(…)`` take what the
sync and what the async client give, so one table of scenarios serves both doors.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

import cheapspec
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

QUESTION = "Where?"
ANSWER = "One, two, three in Paris."
MESSAGES = [{"role": "user", "content": QUESTION}]
ASKED: dict[str, Any] = {"model": "toy", "messages": MESSAGES, "temperature": 0}


async def call(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What the function returns, awaited if need be."""
    result = function(*arguments, **more)
    return await result if inspect.isawaitable(result) else result


async def items(stream: Any) -> AsyncIterator[Any]:
    """What comes out of a stream of either kind."""
    if hasattr(stream, "__aiter__"):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item


@contextlib.asynccontextmanager
async def entered(manager: Any) -> AsyncGenerator[Any]:
    """``with`` or ``async with``."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


@dataclass
class Doorway:
    """Both servers, and clients of either kind that lead to them."""

    target: FakeTarget
    draft: FakeDraft
    door: str
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def speculation(self, **more: Any) -> cheapspec.Speculation:
        """The settings: a named backend and a fixed draft length, so that neither probe nor planner decides."""
        given: dict[str, Any] = {
            "draft": "ollama:toy:latest",
            "draft_url": self.draft.url,
            "target_backend": "vllm",
            "draft_tokens": 64,
            "draft_timeout": 5.0,
            "prices": {"input": 1, "cached_input": 0.5, "output": 10},
            "ledger": self.ledger,
        }
        return cheapspec.Speculation(**{**given, **more})

    def http(self, **more: Any) -> Any:
        """An HTTP client that loads no certificates, since that takes longer than a test."""
        kind: Any = openai.DefaultAsyncHttpxClient if self.door == "async" else openai.DefaultHttpxClient
        return kind(**{"verify": False, **more})

    def client(self, speculation: cheapspec.Speculation | None = None, **more: Any) -> Any:
        """Ours."""
        kind = cheapspec.AsyncOpenAI if self.door == "async" else cheapspec.OpenAI
        return kind(speculation=speculation or self.speculation(), **self._options(more))

    def plain(self, **more: Any) -> Any:
        """openai's own."""
        kind = openai.AsyncOpenAI if self.door == "async" else openai.OpenAI
        return kind(**self._options(more))

    def _options(self, more: dict[str, Any]) -> dict[str, Any]:
        given = {"base_url": self.target.base_url, "api_key": "target-key", "timeout": 20.0, "max_retries": 0}
        options = {**given, **more}
        return {**options, "http_client": options.get("http_client") or self.http()}

    def purposes(self) -> list[str]:
        """What the target was asked for that costs money, in order."""
        return [exchange.purpose for exchange in self.target.of("score", "continue", "direct")]

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Play it."""

        async def play() -> None:
            await scenario()

        asyncio.run(play())


@contextlib.contextmanager
def doorway(door: str, **more: Any) -> Generator[Doorway]:
    """Servers that know one answer."""
    with FakeTarget(model=ToyModel(3), **more) as target, FakeDraft(model=ToyModel(3)) as draft:
        for server in (target, draft):
            server.model.replies[QUESTION] = ANSWER
        yield Doorway(target, draft, door)


def url_of(request: httpx2.Request) -> str:
    """Without query."""
    return str(request.url.copy_with(query=None))
