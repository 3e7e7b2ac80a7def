"""Our client in front of real engines, recorded once, replayed here while no server is there.

Every scenario asks plain ``openai`` and then ``cheapspec`` the same question; texts are kept in the cassette's
metadata, so that a replay is held to what was seen. Questions carry ``é`` and emoji, which engines send in several
tokens. The draft is the prompt's own text, or the caller's prediction: no draft server takes part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import openai
import pytest
from cassette_kit import CASSETTES, KEY, RECORD, Engine, body_of, cassette_machine, read_cassette

import cheapspec
from cheapspec.ledger.memory import MemoryLedger

SENTENCE = "Café crème 🙂, naïve façade 🎉."
REPEATED = f"{SENTENCE} {SENTENCE} Café crème 🙂,"
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": f"Repeat this text: {REPEATED}"}],
    "max_tokens": 40,
    "prediction": {"type": "content", "content": f"{SENTENCE} {SENTENCE}"},
}
RAW = {"prompt": REPEATED, "max_tokens": 24}
SCENARIOS: dict[str, Mapping[str, Any]] = {
    "sync": CHAT,
    "sync-stream": CHAT,
    "async": CHAT,
    "async-stream": CHAT,
    "raw-sync": RAW,
    "raw-async-stream": RAW,
}


def speculation(engine: Engine, ledger: MemoryLedger) -> cheapspec.Speculation:
    return cheapspec.Speculation(
        draft="lookup",
        target_backend=engine.name,
        draft_tokens=12,
        simulate_scoring=engine.name == "llamacpp",
        prices={"input": 1, "cached_input": 0.1, "output": 4},
        ledger=ledger,
    )


def text_of(reply: Any) -> str:
    """Of a reply, or of a list of chunks."""
    texts: list[str] = []
    for part in reply if isinstance(reply, list) else [reply]:
        for choice in part.choices:
            holder = getattr(choice, "message", None) or getattr(choice, "delta", None)
            texts.append((choice.text if holder is None else holder.content) or "")
    return "".join(texts)


def ask(client: Any, asked: dict[str, Any]) -> tuple[str, Any]:
    route = client.chat.completions if "messages" in asked else client.completions
    reply = route.create(**asked)
    return text_of(list(reply) if asked["stream"] else reply), cheapspec.info(reply)


async def ask_async(client: Any, asked: dict[str, Any]) -> tuple[str, Any]:
    route = client.chat.completions if "messages" in asked else client.completions
    reply = await route.create(**asked)
    return text_of([chunk async for chunk in reply] if asked["stream"] else reply), cheapspec.info(reply)


def play(engine: Engine, scenario: str, ledger: MemoryLedger) -> tuple[str, str, Any]:
    """The target's own text, ours, and the facts of ours."""
    asked = {"model": engine.model, "temperature": 0, "stream": scenario.endswith("stream"), **SCENARIOS[scenario]}
    options: dict[str, Any] = {"base_url": f"{engine.url}/v1", "api_key": KEY, "timeout": 120, "max_retries": 0}
    ours = {**options, "speculation": speculation(engine, ledger)}
    if "async" not in scenario:
        with openai.OpenAI(**options) as plain, cheapspec.OpenAI(**ours) as client:
            return ask(plain, asked)[0], *ask(client, asked)

    async def both() -> tuple[str, str, Any]:
        async with openai.AsyncOpenAI(**options) as plain, cheapspec.AsyncOpenAI(**ours) as client:
            alone, _ = await ask_async(plain, asked)
            return alone, *await ask_async(client, asked)

    return asyncio.run(both())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_b48a_a_replay_gives_the_recorded_text(scenario: str, engine: Engine) -> None:
    """With the server gone the same client gets the recorded text, not an empty one, and the recorded calls."""
    path = CASSETTES / engine.name / f"{scenario}.yaml"
    if RECORD:
        path.unlink(missing_ok=True)
    ledger = MemoryLedger()
    with cassette_machine(mode="all" if RECORD else "none").use_cassette(str(path)) as cassette:
        alone, text, told = play(engine, scenario, ledger)
        for name, value in engine.metadata.items():
            cassette.get_metadata(name, value)
        expected = cassette.get_metadata("text", text)
    assert text == expected == alone
    assert "é" in text
    assert "🙂" in text or "🎉" in text
    assert told.decision == "speculate"
    assert told.accepted_tokens > 0
    if not RECORD:
        assert cassette.all_played
    billed = [call for call in ledger.calls(told.request_id) if call.row.billed]
    assert billed
    assert all(call.status == "ok" and call.usage is not None for call in billed)


@pytest.mark.skipif(RECORD, reason="the cassettes are being made")
def test_b48a_cassettes_hold_what_they_are_for() -> None:
    """Streams, gzipped bodies and both servers are really among the recordings, and a body is read back unpacked."""
    seen: set[str] = set()
    for path in (*CASSETTES.glob("vllm/*.yaml"), *CASSETTES.glob("llamacpp/*.yaml")):
        cassette = read_cassette(path)
        assert cassette["metadata"]["version"]
        for exchange in cassette["interactions"]:
            kinds = str(exchange["response"]["headers"])
            body = body_of(exchange["response"])
            assert body.decode()
            if "event-stream" in kinds:
                seen.add(f"{path.parent.name} stream")
                if "/v1/" in exchange["request"]["uri"]:
                    assert body.rstrip().endswith(b"data: [DONE]")
            if "gzip" in kinds:
                seen.add(f"{path.parent.name} gzip")
    assert seen == {"vllm stream", "llamacpp stream", "vllm gzip"}
