"""What a stand-in Ollama has inside: a real llama.cpp server, read the way two Ollama versions read it.

Rules
-----
* ≥ 0.30 runs llama.cpp's server and passes its chunks on: stop strings are llama.cpp's business, a
  chunk is one entry whose token is the chunk's text and whose value is the last token's, so the
  tokens of one character, and those held back for a possible stop string, are one entry.
* ≤ 0.24 ran its own loop over tokens: every token has an entry, parts of a character as U+FFFD, and
  what is held back goes out as one chunk with all its entries. llama.cpp does not tell the parts of a
  character, so they are asked for one by one; only greedy drafts need them.
* Nothing here is made up: texts, token ids and log-probabilities are llama.cpp's.

Source: recordings of 0.24.0 and 0.33.0-rc2 (2026-11-29), llama.cpp build 11549.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

__all__ = ["Chunk", "End", "EngineRefused", "LlamaCpp", "Sampling"]

_SAMPLERS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "seed")
_REPLACEMENT = "�"


@dataclass(frozen=True, slots=True)
class Sampling:
    """``options``: Ollama's own. ``limit``: reply tokens, -1 for none. ``top``: alternatives a token."""

    options: Mapping[str, Any]
    stops: Sequence[str]
    limit: int
    top: int
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that goes out together, with its log-probability entries in Ollama's shape."""

    text: str
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(frozen=True, slots=True)
class End:
    """``reason``: ``stop`` or ``length``; ``tokens``: generated ones, the end token included."""

    reason: str
    tokens: int


class EngineRefused(Exception):
    """The engine answered with an error; the message is its body."""


class LlamaCpp:
    """A llama.cpp server by its URL. One client per instance, for one event loop."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def tokenize(self, text: str) -> list[int]:
        """Token ids of a prompt, control tokens parsed."""
        body = {"content": text, "add_special": True, "parse_special": True}
        reply = await self._client.post("/tokenize", json=body)
        return [int(token) for token in reply.json()["tokens"]]

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, merged: bool
    ) -> AsyncGenerator[Chunk | End, None]:
        """Generate after ``prompt``. ``merged``: entries as ≥ 0.30 sends them, else as ≤ 0.24."""
        run = self._passed_on(prompt, sampling) if merged else self._token_by_token(prompt, sampling)
        try:
            async for piece in run:
                yield piece
        finally:
            await run.aclose()

    async def _passed_on(self, prompt: Sequence[int], sampling: Sampling) -> AsyncGenerator[Chunk | End, None]:
        async for event in self._events(prompt, sampling, sampling.stops):
            if event["content"]:
                last = event.get("completion_probabilities", [{}])[-1]
                yield Chunk(event["content"], [_entry(event["content"], last, sampling.top)] if last else [])
            if event["stop"]:
                yield End("length" if event["stop_type"] == "limit" else "stop", event["tokens_predicted"])

    async def _token_by_token(self, prompt: Sequence[int], sampling: Sampling) -> AsyncGenerator[Chunk | End, None]:
        ids, count = list(prompt), 0
        held = ""
        entries: list[dict[str, Any]] = []
        async for event in self._events(prompt, sampling, ()):
            if event["content"]:
                missing = event["tokens_predicted"] - count - 1
                count = event["tokens_predicted"]
                parts: list[dict[str, Any]] = []
                for _ in range(missing):
                    part = await self._greedy(ids, sampling.top)
                    ids.append(part["id"])
                    parts.append(part)
                last = event["completion_probabilities"][-1]
                ids.append(last["id"])
                entries += _token_entries(event["content"], [*parts, last], sampling.top)
                held += event["content"]
                cut = min((at for stop in sampling.stops if (at := held.find(stop)) >= 0), default=None)
                if cut is not None:
                    if cut:
                        yield Chunk(held[:cut], entries)
                    yield End("stop", count)
                    return
                if not _may_begin_stop(held, sampling.stops):
                    yield Chunk(held, entries)
                    held, entries = "", []
            if event["stop"]:
                if held:
                    yield Chunk(held, entries)
                yield End("length" if event["stop_type"] == "limit" else "stop", event["tokens_predicted"])

    async def _events(
        self, prompt: Sequence[int], sampling: Sampling, stops: Sequence[str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        body: dict[str, Any] = {key: sampling.options[key] for key in _SAMPLERS if key in sampling.options}
        body |= {"prompt": list(prompt), "n_predict": sampling.limit, "n_probs": max(sampling.top, 1), "stream": True}
        if stops:
            body["stop"] = list(stops)
        if sampling.schema is not None:
            body["json_schema"] = sampling.schema
        async with self._client.stream("POST", "/completion", json=body) as reply:
            if reply.status_code != 200:
                raise EngineRefused((await reply.aread()).decode())
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])

    async def _greedy(self, ids: Sequence[int], top: int) -> dict[str, Any]:
        """The likeliest token after ``ids`` as an entry, also if it is a part of a character.

        llama.cpp shows entries of whole characters only, so another token is forced by a bias, which its
        log-probabilities do not see.
        """
        plain = (await self.tokenize(" a"))[-1]
        body = {
            "prompt": list(ids),
            "n_predict": 1,
            "n_probs": max(top, 1),
            "temperature": 0,
            "logit_bias": [[plain, 1000]],
        }
        reply = (await self._client.post("/completion", json=body)).json()
        tops: list[dict[str, Any]] = reply["completion_probabilities"][0]["top_logprobs"]
        return {**tops[0], "top_logprobs": tops}


def _entry(text: str, probability: Mapping[str, Any], top: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"token": text, "logprob": probability["logprob"], "bytes": list(text.encode())}
    if top:
        shown = [(_shown(other["bytes"]), other["logprob"]) for other in probability["top_logprobs"][:top]]
        entry["top_logprobs"] = [
            {"token": token, "logprob": logprob, "bytes": list(token.encode())} for token, logprob in shown
        ]
    return entry


def _token_entries(text: str, probabilities: Sequence[Mapping[str, Any]], top: int) -> list[dict[str, Any]]:
    """One entry a token of a chunk that may be a character of several tokens."""
    if len(probabilities) == 1:
        return [_entry(text, probabilities[0], top)]
    parts = [*(bytes(part["bytes"]) for part in probabilities[:-1])]
    parts.append(text.encode()[sum(map(len, parts)) :])
    return [_entry(_shown(part), said, top) for part, said in zip(parts, probabilities, strict=True)]


def _shown(octets: Sequence[int]) -> str:
    """Bytes as Go's JSON shows them: every byte that is not UTF-8 becomes U+FFFD of its own."""
    text = bytes(octets).decode("utf-8", "surrogateescape")
    return "".join(_REPLACEMENT if "\udc80" <= char <= "\udcff" else char for char in text)


def _may_begin_stop(text: str, stops: Sequence[str]) -> bool:
    return any(text.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))
