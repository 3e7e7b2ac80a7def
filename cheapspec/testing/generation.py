"""How a stand-in server writes a reply: token by token, with stop strings, limits and sampling.

Rules
-----
* A step is what one token releases: text may lag behind tokens, because part of a character has no text
  yet, and because text that may begin a stop string is held back.
* The end token counts as generated, as it does in vLLM's and Ollama's counts, and has no text.
* Temperature 0 takes the likeliest token; above it, softmax(log p / T), cut to ``top_k`` and ``top_p``,
  is drawn from with the request's ``seed``.
"""

from __future__ import annotations

import codecs
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cheapspec.testing.toy import ToyModel

__all__ = ["Sampling", "Step", "generate"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The fields of a request that shape the text. ``stops``: strings that end it and are not shown."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stops: tuple[str, ...] = ()
    logit_bias: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def read(cls, body: Mapping[str, Any], max_tokens: int, default_temperature: float) -> Sampling:
        """From an OpenAI-shaped body (or Ollama's ``options``)."""
        stop: Any = body.get("stop") or []
        temperature = body.get("temperature")
        top_p = body.get("top_p")
        return cls(
            max_tokens=max_tokens,
            temperature=default_temperature if temperature is None else float(temperature),
            top_p=1.0 if top_p is None else float(top_p),
            top_k=int(body.get("top_k") or 0),
            seed=int(body.get("seed") or 0),
            stops=(stop,) if isinstance(stop, str) else tuple(stop),
            logit_bias=body.get("logit_bias") or {},
        )


@dataclass(frozen=True, slots=True)
class Step:
    """``text`` that has become certain, the ``token`` just generated, and how the reply ended, if it did."""

    text: str
    token: int
    finish: str | None = None
    stop_reason: str | None = None


def generate(model: ToyModel, prompt: Sequence[int], sampling: Sampling, said: str | None) -> Iterator[Step]:
    """Write a reply to ``prompt``; ``said`` is a text to write instead of the model's own."""
    draw = random.Random(sampling.seed)
    context = list(prompt)
    script = None if said is None else [*model.encode(said), model.end_id]
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    hold = max(map(len, sampling.stops), default=1) - 1
    held = ""
    for count in range(1, sampling.max_tokens + 1):
        token = script[count - 1] if script is not None else _choose(model, context, sampling, draw)
        context.append(token)
        last = count == sampling.max_tokens
        if token == model.end_id:
            yield Step(held + decoder.decode(b"", final=True), token, "stop")
            return
        held += decoder.decode(model.vocabulary[token], final=last)
        found = [(held.find(stop), stop) for stop in sampling.stops if stop in held]
        if found:
            at, stop = min(found)
            yield Step(held[:at], token, "stop", stop)
            return
        if last:
            yield Step(held, token, "length")
            return
        cut = len(held) - hold if hold else len(held)
        yield Step(held[: max(cut, 0)], token)
        held = held[max(cut, 0) :]


def _choose(model: ToyModel, context: Sequence[int], sampling: Sampling, draw: random.Random) -> int:
    values = model.logprobs(context)
    for token, bias in sampling.logit_bias.items():
        values[int(token)] += float(bias)
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    if sampling.temperature <= 0:
        return order[0]
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    top = values[order[0]]
    weights = [math.exp((values[token] - top) / sampling.temperature) for token in order]
    total = sum(weights)
    kept: list[float] = []
    for weight in weights:
        kept.append(weight)
        if sum(kept) >= sampling.top_p * total:
            break
    return draw.choices(order[: len(kept)], kept)[0]
