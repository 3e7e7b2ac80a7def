"""A target and a draft host on real sockets, and one way to ask through either client.

* ``pair``: both servers, run once with the sync and once with the async client. ``pair.says(target,
  draft)`` pins what each answers to the one question; ``pair.ask()`` asks it and returns an
  :class:`Outcome`, errors included.
* The backend is named (``vllm``) and the draft length fixed, so that no probe and no planner decides what
  a test is about. The draft host fails on request (:meth:`Pair.hand_off_after`), which makes the target
  write the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import openai

from cheapspec import AsyncOpenAI, OpenAI, Speculation, info
from cheapspec.core.info import Info
from cheapspec.ledger.memory import CallRecord, MemoryLedger, RequestRecord
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Status
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel
from cheapspec.testing.wire import Exchange

QUESTION = "Where?"
PRICES = {"input": 1, "cached_input": 0.5, "output": 10}


@dataclass
class Outcome:
    """What the caller got: text, how it ended, or the error with the text that came before it."""

    text: str = ""
    finish: str | None = None
    chunks: list[Any] = field(default_factory=list[Any])
    reply: Any = None
    info: Info | None = None
    error: Exception | None = None

    @property
    def told(self) -> Info:
        """The facts; a test that asks for them expects them."""
        assert self.info is not None, f"no facts about the request (error: {self.error!r})"
        return self.info

    def add(self, chunk: Any) -> None:
        """Take a streamed chunk as any caller would."""
        self.chunks.append(chunk)
        for choice in chunk.choices or []:
            self.text += choice.delta.content or ""
            self.finish = choice.finish_reason or self.finish

    def whole(self, reply: Any) -> None:
        """Take an unstreamed reply."""
        self.reply = reply
        self.text = reply.choices[0].message.content
        self.finish = reply.choices[0].finish_reason


@dataclass
class Pair:
    """Both servers and the client between them."""

    target: FakeTarget
    draft: FakeDraft
    door: str
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def says(self, target: str, draft: str | None = None, question: str = QUESTION) -> None:
        """Pin the answers. The draft goes on with its own text after a correction of the same length; a
        draft that ends before the target's answer does says nothing more after it.
        """
        self.target.model.replies[question] = target
        text = target if draft is None else draft

        def goes_on(written: str) -> str:
            return text if text.startswith(written) else written + text[len(written) :]

        self.draft.model.replies[question] = goes_on

    def hand_off_after(self, drafts: int) -> None:
        """The draft host is busy from then on, so the target writes the rest."""
        self.draft.plan("draft", Status(503, body={"error": "server busy, please try again."}), after=drafts)

    def speculation(self, **more: Any) -> Speculation:
        """The settings of this pair's clients."""
        given: dict[str, Any] = {
            "draft": f"ollama:{self.draft.name}",
            "draft_url": self.draft.url,
            "target_backend": "vllm",
            "draft_tokens": 64,
            "draft_timeout": 5.0,
            "prices": PRICES,
            "ledger": self.ledger,
        }
        return Speculation(**{**given, **self.settings, **more})

    def body(self, **more: Any) -> dict[str, Any]:
        """What is asked."""
        asked: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        return {name: value for name, value in {**asked, **more}.items() if value is not ...}

    def client_options(self) -> dict[str, Any]:
        """What the client is made with."""
        given: dict[str, Any] = {"base_url": self.target.base_url, "api_key": "target-key", "timeout": 20.0}
        # Without certificates to load, a client is made in a moment.
        kind = openai.DefaultAsyncHttpxClient if self.door == "async" else openai.DefaultHttpxClient
        return {**given, "http_client": kind(verify=False), **self.options}

    def ask(self, *, stream: bool = False, **more: Any) -> Outcome:
        """Ask once, with a client of its own."""
        [outcome] = self.ask_again(1, stream=stream, **more)
        return outcome

    def ask_again(
        self, times: int, *, stream: bool = False, between: Callable[[], None] | None = None, **more: Any
    ) -> list[Outcome]:
        """Ask several times, one after the other, with one client."""
        body = self.body(stream=stream, **more)
        if self.door == "async":
            return asyncio.run(self._ask_async(times, body, stream, between))
        outcomes: list[Outcome] = []
        with OpenAI(speculation=self.speculation(), **self.client_options()) as client:
            for number in range(times):
                if number and between is not None:
                    between()
                outcome = Outcome()
                try:
                    reply: Any = client.chat.completions.create(**body)
                    if stream:
                        for chunk in reply:
                            outcome.add(chunk)
                    else:
                        outcome.whole(reply)
                    outcome.info = info(reply)
                except openai.OpenAIError as error:
                    outcome.error = error
                outcomes.append(outcome)
        return outcomes

    async def _ask_async(
        self, times: int, body: dict[str, Any], stream: bool, between: Callable[[], None] | None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        async with AsyncOpenAI(speculation=self.speculation(), **self.client_options()) as client:
            for number in range(times):
                if number and between is not None:
                    between()
                outcome = Outcome()
                try:
                    reply: Any = await client.chat.completions.create(**body)
                    if stream:
                        async for chunk in reply:
                            outcome.add(chunk)
                    else:
                        outcome.whole(reply)
                    outcome.info = info(reply)
                except openai.OpenAIError as error:
                    outcome.error = error
                outcomes.append(outcome)
        return outcomes

    # --- what was asked of the servers --------------------------------------------------------

    @property
    def paid(self) -> list[Exchange]:
        """The requests that a provider would charge for."""
        return self.target.of("score", "continue", "direct")

    def purposes(self) -> list[str]:
        """What those were for, in order."""
        return [exchange.purpose for exchange in self.paid]

    def row(self) -> RequestRecord:
        """The ledger's last request."""
        return self.ledger.requests()[-1]

    def calls(self) -> list[CallRecord]:
        """The target calls in the ledger's last request that cost money."""
        return [call for call in self.row().calls if call.row.billed]


@contextlib.contextmanager
def servers(door: str, **more: Any) -> Iterator[Pair]:
    """A pair on fresh models."""
    with FakeTarget(model=ToyModel(3), **more) as target, FakeDraft(model=ToyModel(3)) as draft:
        yield Pair(target, draft, door)
