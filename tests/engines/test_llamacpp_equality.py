"""llama.cpp as target, by forced decoding: the same answer, up to ties that the target's own numbers show.

llama.cpp's log-probabilities depend a little on what its cache holds and on how its work is cut into batches:
the target alone answers differently from itself where two tokens are that near. In F16 they move by some
0.005 nats (build 11549, SmolLM2-135M, November 2026: a prompt whose leaders were 0.0003 apart changed its
reply with the cache), with quantised weights more. So a difference may stand at a position where the target
holds both tokens for equally likely within a stated gap, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from asking import MODES, Evidence, Run, ask, ask_alone, evidence_of
from prompts import PROMPTS, Prompt, by_kind

from cheapspec.embedded import EmbeddedServer
from cheapspec.testing.ollama import SMOLLM2, StandInOllama

EXACT = "llama.cpp F16, forced"
QUANTISED = "llama.cpp Q4_1, forced"
DRAFTERS = ("q4_1", "drop1", "drop3", "ollama", "lookup+drop3")
TIE_NATS = {EXACT: 0.02, QUANTISED: 0.35}
"""How far apart two tokens may be, in the target's own numbers, to be called a tie."""
EXACT_PROMPTS = tuple(prompt for number, prompt in enumerate(PROMPTS) if number % 3 != 1)


@pytest.fixture(scope="module")
def drafters(drafts: dict[str, EmbeddedServer]) -> Iterator[dict[str, dict[str, Any]]]:
    """Five, over three models."""
    with StandInOllama(drafts["drop1"].url) as ollama:
        yield {
            **{name: {"draft": f"llamacpp:{server.url}"} for name, server in drafts.items()},
            "ollama": {"draft": f"ollama:{SMOLLM2.name}", "draft_url": ollama.url},
            "lookup+drop3": {"draft": f"lookup,llamacpp:{drafts['drop3'].url}"},
        }


class Target:
    """One llama.cpp server as target; nothing is asked twice."""

    def __init__(self, server: EmbeddedServer, drafters: dict[str, dict[str, Any]]) -> None:
        self.server = server
        self.drafters = drafters
        self.runs: dict[str, Run] = {}

    def run(self, prompt: Prompt, choices: tuple[str, ...]) -> Run:
        """The prompt with one of these drafters, K and client rotating."""
        if prompt.name not in self.runs:
            number = PROMPTS.index(prompt)
            drafter, mode, k = choices[number % len(choices)], MODES[number % len(MODES)], (6, 12, 24)[number % 3]
            body = {"model": self.server.model, **prompt.body}
            alone = ask_alone(f"{self.server.url}/v1", body)
            settings = {"target_backend": "llamacpp", "draft_tokens": k, **self.drafters[drafter]}
            reply, told, calls = ask(f"{self.server.url}/v1", body, mode, **settings)
            self.runs[prompt.name] = Run(prompt, f"{drafter}-k{k}-{mode}", reply, alone, told, calls)
        return self.runs[prompt.name]


@pytest.fixture(scope="module")
def f16(llamacpp_targets: dict[str, EmbeddedServer], drafters: dict[str, dict[str, Any]]) -> Target:
    """The target whose scoring and decoding agree."""
    return Target(llamacpp_targets["f16"], drafters)


@pytest.fixture(scope="module")
def q4_1(llamacpp_targets: dict[str, EmbeddedServer], drafters: dict[str, dict[str, Any]]) -> Target:
    """The target where they may not."""
    return Target(llamacpp_targets["q4_1"], drafters)


@pytest.mark.parametrize("prompt", EXACT_PROMPTS, ids=lambda prompt: prompt.name)
def test_f16_answers_to_the_token(f16: Target, prompt: Prompt, pytestconfig: pytest.Config) -> None:
    """Text, finish reason and both counts are those of the target alone, but for ties of a fiftieth of a nat."""
    run = f16.run(prompt, DRAFTERS)
    if run.excused:
        assert run.reply.text == run.alone.text
        return
    assert_equal_or_tied(EXACT, f16, run, evidence_of(pytestconfig))


def test_f16_ties_are_rare(f16: Target) -> None:
    """Nine replies in ten, and more, are equal without any excuse."""
    runs = [f16.run(prompt, DRAFTERS) for prompt in EXACT_PROMPTS]
    assert sum(run.equal for run in runs) >= 0.9 * len(runs)
    assert sum(run.told.decision == "speculate" for run in runs) >= 20


def test_the_f16_set_accepts_corrects_hands_off_and_ends(f16: Target) -> None:
    """All that speculation does has occurred, with every drafter."""
    runs = [f16.run(prompt, DRAFTERS) for prompt in EXACT_PROMPTS]
    told = [run.told for run in runs]
    assert sum(one.accepted_tokens for one in told) > 0
    assert sum(one.corrected_tokens for one in told) > 0
    assert sum(one.handoff_tokens for one in told) > 0
    assert sum(run.ended for run in runs) > 0
    for drafter in DRAFTERS:
        own = [run.told.accepted_tokens for run in runs if run.combination.startswith(f"{drafter}-")]
        assert sum(own) > 0, drafter


@pytest.mark.parametrize("mode", ["sync", "async-stream"])
def test_a_character_cut_by_the_limit_is_shown_as_llamacpp_shows_it(f16: Target, mode: str) -> None:
    """Its whole replies end in U+FFFD there, its streamed ones before the character: so do ours."""
    [prompt] = (one for one in PROMPTS if one.name == "raw_hello")
    base_url, body = f"{f16.server.url}/v1", {"model": f16.server.model, **prompt.body, "max_tokens": 23}
    alone = ask_alone(base_url, body, stream=mode.endswith("stream"))
    settings = {"target_backend": "llamacpp", "draft_tokens": 6, **f16.drafters["drop1"]}
    reply, told, calls = ask(base_url, body, mode, **settings)
    assert told.decision == "speculate"
    assert "continue" in {call.row.purpose for call in calls}
    assert reply.seen() == alone.seen()
    assert reply.text.endswith("\ufffd") == (mode == "sync")


# --- a quantised target ----------------------------------------------------------------------------

UNLIKE = ("drop1", "drop3")  # drafts other than the target itself
QUANTISED_PROMPTS = by_kind("code", "json", "list", "quote", "short", "system")


def own_numbers(server: EmbeddedServer, prompt: Prompt) -> list[dict[str, Any]]:
    """The target writes its reply and says, token by token, its ten best with their log-probabilities."""
    body = {"model": server.model, **prompt.body, "logprobs": True if prompt.chat else 10}
    body |= {"top_logprobs": 10} if prompt.chat else {}
    route = "chat/completions" if prompt.chat else "completions"
    told = httpx2.post(f"{server.url}/v1/{route}", json=body, timeout=300).json()
    entries: list[dict[str, Any]] = told["choices"][0]["logprobs"]["content"]
    return entries


def gap_at_first_difference(server: EmbeddedServer, run: Run) -> float:
    """Nats between the two tokens at which our reply and the target's own part, as the target says them.

    It says them while it writes its own reply again (which may itself come out as the other one, at a tie).
    Fails when one of the two is not among its ten best there.
    """
    ours, theirs, shared = run.reply.text.encode(), run.alone.text.encode(), b""
    for entry in own_numbers(server, run.prompt):
        longer = shared + bytes(entry["bytes"] or [])
        if len(longer) > len(shared) and ours.startswith(longer) and theirs.startswith(longer):
            shared = longer
            continue
        ranked = [_logprob(entry["top_logprobs"], text[len(shared) :]) for text in (ours, theirs)]
        assert None not in ranked, f"{run.combination}: at {shared[-20:]!r} a token is none of the target's best"
        return abs((ranked[0] or 0.0) - (ranked[1] or 0.0))
    raise AssertionError(f"{run.combination}: the target's reply says nothing about the difference")


def _logprob(options: list[dict[str, Any]], rest: bytes) -> float | None:
    """Log-probability of the longest option that ``rest`` begins with; of the end of turn when nothing is left."""
    sized = [(len(one["bytes"] or []), float(one["logprob"]), bytes(one["bytes"] or [])) for one in options]
    fitting = [(size, logprob) for size, logprob, data in sized if (rest.startswith(data) if data else not rest)]
    return max(fitting)[1] if fitting else None


def assert_equal_or_tied(group: str, target: Target, run: Run, evidence: Evidence) -> None:
    """The reply is the target's own, or parts from it where the target's numbers show a tie."""
    assert run.told.decision == "speculate", run.told
    evidence.add(group, run)
    assert run.told.rounds >= 1
    if run.reply.text == run.alone.text:
        assert run.reply.seen() == run.alone.seen(), run.combination
        return
    gap = gap_at_first_difference(target.server, run)
    assert gap <= TIE_NATS[group], f"{run.combination}: {run.reply.text!r} is not {run.alone.text!r}: {gap:.3f} nats"
    evidence.tie(group, gap)


def test_the_gap_is_the_targets_own(q4_1: Target) -> None:
    """The measure gives the distance of the target's second best, at any place, and passes no other token."""
    [prompt] = (one for one in PROMPTS if one.name == "list_bullets")
    alone = ask_alone(f"{q4_1.server.url}/v1", {"model": q4_1.server.model, **prompt.body})
    run = q4_1.run(prompt, UNLIKE)
    entries = own_numbers(q4_1.server, prompt)
    for place in (0, 3, 9):
        before = "".join(entry["token"] for entry in entries[:place])
        first, second = entries[place]["top_logprobs"][:2]
        other = replace(run, alone=alone, reply=replace(alone, text=f"{before}{second['token']} zebra"))
        expected = first["logprob"] - second["logprob"]
        assert gap_at_first_difference(q4_1.server, other) == pytest.approx(expected, abs=0.05)
    nonsense = replace(run, alone=alone, reply=replace(alone, text="zebra"))
    with pytest.raises(AssertionError, match="none of the target's best"):
        gap_at_first_difference(q4_1.server, nonsense)


@pytest.mark.parametrize("prompt", QUANTISED_PROMPTS, ids=lambda prompt: prompt.name)
def test_q4_1_differs_by_ties_only(q4_1: Target, prompt: Prompt, pytestconfig: pytest.Config) -> None:
    """Where the texts part, the target itself held both tokens for equally likely, within ``TIE_NATS``."""
    assert_equal_or_tied(QUANTISED, q4_1, q4_1.run(prompt, UNLIKE), evidence_of(pytestconfig))


def test_q4_1_differs_seldom(q4_1: Target) -> None:
    """Ties are the exception: three replies in four are the target's own, to the token."""
    runs = [q4_1.run(prompt, UNLIKE) for prompt in QUANTISED_PROMPTS]
    assert sum(run.equal for run in runs) >= 0.75 * len(runs)
