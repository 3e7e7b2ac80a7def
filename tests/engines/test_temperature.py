"""Temperature above 0 on real engines: what comes through cheapspec is distributed as what the target writes alone.

One prompt is asked :data:`SAMPLES` times of the target alone and as often through cheapspec, with a prediction as the
draft and seeds 0, 1, 2, … on both sides. Replies are three tokens long: one or two that are drafted, the
correction, bonus or fetched token after them, and what is handed off. The two samples are compared by Pearson's
χ² test of homogeneity over the replies seen often enough (:data:`LEAST` in both samples together), the others sorted by
their first and last characters; the test fails below :data:`THRESHOLD`. With fixed seeds it gives the same answer every
time. The proof is in ``tests/core/test_sampling_exact.py``; this looks at what engines really do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from cheapspec import OpenAI, Speculation, info
from cheapspec.core.info import Info
from cheapspec.embedded import EmbeddedServer
from cheapspec.ledger.memory import MemoryLedger

SAMPLES = 200
THRESHOLD = 0.001
LEAST = 10

QUESTION = "Write the numbers from one to six as words, separated by commas."
PLAIN = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}


@dataclass
class Sampled:
    """The replies of one side, and the facts of ours."""

    replies: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    told: list[Info] = field(default_factory=list[Info])


@dataclass
class Place:
    """An endpoint, and what was asked of it so far."""

    base_url: str
    model: str
    backend: str
    drafter: str | None = None

    def body(self, seed: int, **more: Any) -> dict[str, Any]:
        shaping = {"temperature": 1, "top_p": 1, **more}
        messages = [{"role": "user", "content": QUESTION}]
        return {
            "model": self.model,
            "messages": messages,
            "max_tokens": 3,
            "seed": seed,
            "extra_body": PLAIN,
            **shaping,
        }

    def alone(self, **more: Any) -> Sampled:
        out = Sampled()
        with openai.OpenAI(base_url=self.base_url, api_key="none", timeout=300, max_retries=0) as client:
            for seed in range(SAMPLES):
                reply = client.chat.completions.create(**self.body(seed, **more))
                out.replies[(reply.choices[0].message.content or "", reply.choices[0].finish_reason)] += 1
        return out

    def ours(
        self, guess: str, samples: int = SAMPLES, *, draft_tokens: int = 2, first: int = 0, **more: Any
    ) -> Sampled:
        out = Sampled()
        given = Speculation(target_backend=self.backend, draft_tokens=draft_tokens, ledger=MemoryLedger())
        with ExitStack() as stack:
            client = OpenAI(base_url=self.base_url, api_key="none", timeout=300, max_retries=0, speculation=given)
            stack.enter_context(client)
            for seed in range(first, first + samples):
                prediction: Any = {"type": "content", "content": guess}
                reply = client.chat.completions.create(**self.body(seed, **more), prediction=prediction)
                told = info(reply)
                assert told is not None
                out.told.append(told)
                out.replies[(reply.choices[0].message.content or "", reply.choices[0].finish_reason)] += 1
        return out


@pytest.fixture(scope="module", params=["vllm", "llamacpp"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """vLLM in float32, which scores; llama.cpp in F16, which is forced."""
    if request.param == "vllm":
        url = request.getfixturevalue("vllm_url")
        yield Place(f"{url}/v1", request.getfixturevalue("vllm_model"), "vllm")
    else:
        server: EmbeddedServer = request.getfixturevalue("f16_server")
        yield Place(f"{server.url}/v1", "smollm2", "llamacpp")


def homogeneity(one: Counter[Any], other: Counter[Any]) -> tuple[float, int]:
    """p of Pearson's test that two samples are of one distribution, and its degrees of freedom."""
    named = {key for key in one | other if one[key] + other[key] >= LEAST}
    sorted_in = [Counter[Any](), Counter[Any]()]
    for sample, into in zip((one, other), sorted_in, strict=True):
        for key, count in sample.items():
            into[key if key in named else kind(key)] += count
    seen_in = [[into[key] for into in sorted_in] for key in sorted_in[0] | sorted_in[1]]
    large = [column for column in seen_in if sum(column) >= LEAST]
    small = [sum(row) for row in zip(*(column for column in seen_in if sum(column) < LEAST), strict=True)]
    columns = [*large, small] if sum(small) else large
    totals = [sum(sample.values()) for sample in (one, other)]
    statistic = 0.0
    for column in columns:
        for seen, total in zip(column, totals, strict=True):
            expected = sum(column) * total / sum(totals)
            statistic += (seen - expected) ** 2 / expected
    return survival(statistic, len(columns) - 1), len(columns) - 1


def kind(reply: tuple[str, str]) -> tuple[str, ...]:
    """A coarse class of replies: how it ends, whether it begins with a capital, and what its last character is."""
    text, finish = reply
    last = text[-1:]
    ends = "letter" if last.isalpha() else "comma" if last == "," else "other"
    return finish, "capital" if text[:1].isupper() else "small" if text[:1].islower() else "sign", ends


def survival(statistic: float, freedom: int) -> float:
    """P(χ² ≥ statistic) by the regularised upper incomplete gamma function (Abramowitz & Stegun 26.4.4, 26.4.5)."""
    half = statistic / 2
    if freedom % 2 == 0:
        terms = (
            [math.exp(-half + k * math.log(half) - math.lgamma(k + 1)) for k in range(freedom // 2)] if half else [1.0]
        )
        return math.fsum(terms)
    total = math.erfc(math.sqrt(half))
    for k in range((freedom - 1) // 2):
        total += math.exp(-half + (k + 0.5) * math.log(half) - math.lgamma(k + 1.5)) if half else 0.0
    return total


def counted(yes: int, no: int) -> Counter[tuple[str, str]]:
    return Counter({("Yes", "stop"): yes, ("No", "stop"): no})


def test_the_tail_of_chi_squared_is_right() -> None:
    """Against printed values (Abramowitz & Stegun, table 26.8)."""
    for statistic, freedom, want in ((3.84146, 1, 0.05), (5.99146, 2, 0.05), (11.3449, 3, 0.01), (18.4668, 4, 0.001)):
        assert survival(statistic, freedom) == pytest.approx(want, rel=1e-4)
    assert homogeneity(counted(90, 10), counted(10, 90))[0] < 1e-9
    assert homogeneity(counted(50, 50), counted(52, 48))[0] > 0.5


@pytest.mark.parametrize(
    ("shaping", "guess"),
    [
        ({"temperature": 1, "top_p": 1}, "One, two, three"),
    ],
    ids=["whole"],
)
def test_replies_are_distributed_as_the_targets_own(place: Place, shaping: dict[str, Any], guess: str) -> None:
    """χ² over :data:`SAMPLES` replies a side; tokens were accepted, and the target's own came in between."""
    alone, ours = place.alone(**shaping), place.ours(guess, **shaping)
    chance, freedom = homogeneity(alone.replies, ours.replies)
    told = ours.told
    print(f"{place.backend} {shaping}: p = {chance:.3f}, {freedom} degrees of freedom, {len(alone.replies)} replies,")
    print(
        f"  accepted {sum(one.accepted_tokens for one in told)}, corrected {sum(one.corrected_tokens for one in told)},"
    )
    print(
        f"  handed off {sum(one.handoff_tokens for one in told)}, target calls {sum(one.target_calls for one in told)}"
    )
    speculated = [one for one in told if one.decision == "speculate"]  # a server may drop an idle connection
    assert len(speculated) >= 0.95 * SAMPLES, Counter((one.decision, one.reason) for one in told)
    assert freedom >= 3
    assert chance >= THRESHOLD
    assert sum(one.accepted_tokens for one in told) > 0
    assert sum(one.corrected_tokens for one in told) > 0


def test_a_seed_gives_the_same_reply_again(place: Place) -> None:
    """The same request with the same seed, drafted in the same way, is answered in the same way."""
    runs = [[place.ours("One, two, three", 1, first=seed) for seed in range(12)] for _ in range(2)]
    both = [pair for pair in zip(*runs, strict=True) if all(one.told[0].decision == "speculate" for one in pair)]
    assert len(both) >= 6
    assert all(once.replies == again.replies for once, again in both)
