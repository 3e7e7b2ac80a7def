"""A client of ours before a stand-in that goes by the name of the host that it plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import openai

import cheapspec
from cheapspec.core.info import Info
from cheapspec.ledger.memory import CallRecord, MemoryLedger
from cheapspec.testing.chat_host import FakeChatHost, Says
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.reroute import AsyncReroute, Reroute
from cheapspec.testing.toy import ToyModel
from cheapspec.testing.wire import Exchange

T = TypeVar("T", bound=FakeChatHost)
QUESTION = "What is 3 + 4?"
DRAFT = "3 + 4 = 7"
DIRECT = "The answer is 7."


def knows(body: dict[str, Any], *, good: bool = True) -> Says | str:
    """A target that knows the answer: it judges the draft, or gives the answer, or a whole reply."""
    asked = str(body["messages"][-1]["content"])
    if "Give only the final answer" in asked:
        return "7" if good else "8"
    if "Reply with one letter" in asked:
        return Says("Y", {"Y": 0.9, "N": 0.08}) if good else Says("N", {"N": 0.9, "Y": 0.08})
    if "Reply with one digit" in asked:
        return "9" if good else "1"
    return DIRECT


def sent(exchange: Exchange) -> dict[str, Any]:
    """The body as it came in."""
    told: dict[str, Any] = json.loads(exchange.content)
    return told


@dataclass
class Played(Generic[T]):
    """Stand-in, draft host, and the clients between them. ``host``: the name that the stand-in goes by."""

    target: T
    draft: FakeDraft
    host: str
    door: str
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def client(self, rules: list[Any], **more: Any) -> Any:
        speculation = cheapspec.Speculation(
            draft="ollama:toy:latest",
            draft_url=self.draft.url,
            accept=rules,
            draft_tokens=64,
            draft_timeout=10.0,
            prices={"input": 1, "cached_input": 0.5, "output": 10},
            ledger=self.ledger,
        )
        given: dict[str, Any] = {"api_key": "target-key", "timeout": 20.0, "max_retries": 0, **more}
        base_url = f"https://{self.host}{self.target.base}"
        if self.door == "async":
            http: Any = openai.DefaultAsyncHttpxClient(verify=False, transport=AsyncReroute(self.host, self.target.url))
            return cheapspec.AsyncOpenAI(base_url=base_url, http_client=http, speculation=speculation, **given)
        http = openai.DefaultHttpxClient(verify=False, transport=Reroute(self.host, self.target.url))
        return cheapspec.OpenAI(base_url=base_url, http_client=http, speculation=speculation, **given)

    def ask(self, *rules: Any, stream: bool = False, times: int = 1, **fields: Any) -> tuple[str, Info]:
        """The text that the caller got last, and its facts. The client's errors are raised."""
        options = {name: fields.pop(name) for name in ("max_retries",) if name in fields}
        asked = {"model": self.target.name, "messages": [{"role": "user", "content": QUESTION}], **fields}

        async def play() -> tuple[str, Info]:
            client, text, told = self.client(list(rules), **options), "", None
            for _ in range(times):
                made = client.chat.completions.create(**asked, stream=stream)
                reply = await made if self.door == "async" else made
                text = await _text(reply) if stream else reply.choices[0].message.content
                told = cheapspec.info(reply)
            closing = client.close()
            if closing is not None:
                await closing
            assert told is not None
            return text, told

        return asyncio.run(play())

    def verdicts(self) -> list[Exchange]:
        """What the target was asked by a rule."""
        return self.target.of("verdict")

    def calls(self, *purposes: str) -> list[CallRecord]:
        """The booked calls of these purposes, in order."""
        return [call for record in self.ledger.requests() for call in record.calls if call.row.purpose in purposes]


async def _text(reply: Any) -> str:
    chunks = [chunk async for chunk in reply] if hasattr(reply, "__aiter__") else list(reply)
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@contextmanager
def played(target: T, host: str, door: str) -> Generator[Played[T]]:
    """Both servers."""
    with target, FakeDraft(model=ToyModel(3)) as draft:
        draft.model.replies[QUESTION] = DRAFT
        yield Played(target, draft, host, door)
