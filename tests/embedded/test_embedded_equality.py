"""Through the public door, on real llama.cpp: the reply is the target's own, sync and async, streamed and not.

The small version of ``tests/engines``, for every run of the tests. The target is SmolLM2-135M in F16; drafts are
the same model quantised and without some of its layers, a stand-in Ollama over one of them, the prompt's own text,
and a prediction. Even in F16 llama.cpp's log-probabilities move by some 0.005 nats with what its cache holds, so
prompts are asked here whose leaders are nowhere that near; ``tests/engines`` looks at ties.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from cheapspec import AsyncOpenAI, OpenAI, Speculation, info
from cheapspec.core.info import Info
from cheapspec.embedded import EmbeddedServer
from cheapspec.ledger.memory import CallRecord, MemoryLedger
from cheapspec.testing.ollama import SMOLLM2, StandInOllama

MODES = ("sync", "sync-stream", "async", "async-stream")
DRAFTERS = ("q4_1", "drop1", "drop3", "ollama")
SEEN = tuple[str, str | None, int, int]


def chat(*turns: str, **more: Any) -> dict[str, Any]:
    """Turns of user and assistant in alternation."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
    return {"messages": messages, "max_tokens": 14, **more}


ASKED: dict[str, dict[str, Any]] = {
    "json": chat('Give a JSON object with "name" and "age" for Alice, who is 30.'),
    "list": chat("List five fruits, one a line, numbered."),
    "greeting": chat("Say hello.", max_tokens=32),
    "french": chat("Translate to French: Good morning, how are you today?"),
    "turns": chat("My name is Ada.", "Nice to meet you, Ada!", "What is my name?"),
    "raw": {"prompt": "red green blue white, red green blue white, red green blue", "max_tokens": 12},
}


@dataclass
class Answer:
    """What a caller gets: text, finish reason, prompt and completion tokens; and the facts."""

    seen: SEEN
    told: Info | None
    calls: list[CallRecord] = field(default_factory=list[CallRecord])

    @property
    def speculated(self) -> Info:
        """The facts of a reply that the engine wrote."""
        assert self.told is not None
        assert self.told.decision == "speculate", self.told
        return self.told


def route(client: Any, body: Mapping[str, Any]) -> Any:
    """Chat or raw completions."""
    return client.chat.completions if "messages" in body else client.completions


def whole(reply: Any) -> SEEN:
    """Of an unstreamed reply."""
    [choice] = reply.choices
    text = choice.message.content if hasattr(choice, "message") else choice.text
    return text, choice.finish_reason, reply.usage.prompt_tokens, reply.usage.completion_tokens


def joined(chunks: list[Any]) -> SEEN:
    """Of a stream."""
    choices: list[Any] = []
    for chunk in chunks:
        choices += chunk.choices or []
    texts: list[str | None] = [choice.delta.content if hasattr(choice, "delta") else choice.text for choice in choices]
    [finish] = [choice.finish_reason for choice in choices if choice.finish_reason]
    [usage] = [chunk.usage for chunk in chunks if chunk.usage]
    return "".join(filter(None, texts)), finish, usage.prompt_tokens, usage.completion_tokens


class Target:
    """The F16 server and its drafters."""

    def __init__(self, server: EmbeddedServer, drafters: dict[str, dict[str, Any]]) -> None:
        self.options: dict[str, Any] = {"base_url": f"{server.url}/v1", "api_key": "none", "timeout": 120.0}
        self.fixed = {"model": server.model, "temperature": 0}
        self.drafters = drafters
        self._alone: dict[str, SEEN] = {}

    def alone(self, body: Mapping[str, Any]) -> SEEN:
        """The target's own reply, asked once."""
        if repr(body) not in self._alone:
            with openai.OpenAI(**self.options) as client:
                self._alone[repr(body)] = whole(route(client, body).create(**self.fixed, **body))
        return self._alone[repr(body)]

    def ask(self, body: Mapping[str, Any], drafter: str, mode: str = "sync", draft_tokens: int | None = 8) -> Answer:
        """Through cheapspec."""
        ledger = MemoryLedger()
        settings: dict[str, Any] = {"target_backend": "llamacpp", "ledger": ledger, "draft_timeout": 60}
        settings |= self.drafters[drafter]
        speculation = Speculation(draft_tokens=draft_tokens, **settings)
        asked = {**self.fixed, **body}
        if mode.endswith("stream"):
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        if mode.startswith("async"):
            answer = asyncio.run(self._ask_async(asked, speculation))
        else:
            with OpenAI(**self.options, speculation=speculation) as client:
                reply = route(client, asked).create(**asked)
                answer = Answer(joined(list(reply)) if "stream" in asked else whole(reply), info(reply))
        if answer.told is not None:
            answer.calls = ledger.calls(answer.told.request_id)
        return answer

    async def _ask_async(self, asked: dict[str, Any], speculation: Speculation) -> Answer:
        async with AsyncOpenAI(**self.options, speculation=speculation) as client:
            reply = await route(client, asked).create(**asked)
            seen = joined([chunk async for chunk in reply]) if "stream" in asked else whole(reply)
            return Answer(seen, info(reply))


@pytest.fixture(scope="module")
def target(
    f16_server: EmbeddedServer, q4_1_server: EmbeddedServer, drop1_server: EmbeddedServer, drop3_server: EmbeddedServer
) -> Iterator[Target]:
    """One target, four drafters over three models, and two without a model."""
    with StandInOllama(drop1_server.url) as ollama:
        yield Target(
            f16_server,
            {
                "q4_1": {"draft": f"llamacpp:{q4_1_server.url}"},
                "drop1": {"draft": f"llamacpp:{drop1_server.url}"},
                "drop3": {"draft": f"llamacpp:{drop3_server.url}"},
                "ollama": {"draft": f"ollama:{SMOLLM2.name}", "draft_url": ollama.url},
                "lookup": {"draft": "lookup"},
                "prediction": {},
            },
        )


@pytest.mark.parametrize("name", list(ASKED))
def test_the_reply_is_the_targets_own(target: Target, name: str) -> None:
    """Whoever drafts and whichever client asks: text, finish reason and token counts do not change."""
    body, first = ASKED[name], list(ASKED).index(name)
    alone = target.alone(body)
    drafter, mode = DRAFTERS[first % len(DRAFTERS)], MODES[(first + first // len(MODES)) % len(MODES)]
    answer = target.ask(body, drafter, mode)
    assert answer.seen == alone, (drafter, mode)
    assert answer.speculated.rounds >= 1
    assert answer.speculated.drafter is not None


def test_a_good_draft_is_accepted_and_a_poor_one_corrected(target: Target) -> None:
    """What is accepted depends on the draft; what the caller reads does not."""
    body = ASKED["list"]
    good, poor = target.ask(body, "q4_1"), target.ask(body, "drop3")
    assert good.seen == poor.seen
    assert good.speculated.accepted_tokens > poor.speculated.accepted_tokens
    assert poor.speculated.corrected_tokens > good.speculated.corrected_tokens
    assert len([call for call in good.calls if call.row.billed]) == good.speculated.target_calls


def test_the_end_of_the_turn_is_verified(target: Target) -> None:
    """A draft that ends where the target ends makes the reply whole: the target is not asked to go on."""
    alone = target.alone(ASKED["greeting"])
    answer = target.ask(ASKED["greeting"], "q4_1", "async-stream", draft_tokens=16)
    assert alone[1] == "stop"
    assert answer.seen == alone
    assert {call.row.purpose for call in answer.calls if call.row.billed} == {"force"}
    assert answer.speculated.handoff_tokens == 0


def test_half_a_prediction_is_handed_off(target: Target) -> None:
    """A prediction that ends early is accepted, and the target writes the rest."""
    body = ASKED["list"]
    text = target.alone(body)[0]
    predicted = {**body, "prediction": {"type": "content", "content": text[: len(text) // 2]}}
    answer = target.ask(predicted, "prediction", "sync-stream")
    assert answer.seen == target.alone(body)
    assert answer.speculated.drafter == "prediction"
    assert answer.speculated.accepted_tokens > 0
    assert answer.speculated.handoff_tokens > 0
    assert "continue" in {call.row.purpose for call in answer.calls}


def test_a_repetition_is_looked_up(target: Target) -> None:
    """Text that stands in the prompt is a draft without any model."""
    answer = target.ask(ASKED["raw"], "lookup", "async")
    assert answer.seen == target.alone(ASKED["raw"])
    assert answer.speculated.drafter == "lookup"
    assert answer.speculated.accepted_tokens > 0
    assert {call.row.side for call in answer.calls} == {"target"}


@pytest.mark.parametrize("mode", ["sync", "async-stream"])
def test_a_stop_string_and_a_limit_end_it_where_the_target_would(target: Target, mode: str) -> None:
    """Both cut the reply to the token, whichever side wrote it."""
    text = target.alone(ASKED["list"])[0]
    middle = len(text) // 2
    stopped = {**ASKED["list"], "stop": [text[middle : middle + 3]]}
    assert target.alone(stopped)[1] == "stop"
    assert target.ask(stopped, "drop1", mode).seen == target.alone(stopped)
    limited = {**ASKED["list"], "max_tokens": 3}
    assert target.ask(limited, "drop1", mode).seen == target.alone(limited)
