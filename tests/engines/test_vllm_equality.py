"""The answer is the target's own: every prompt asked of vLLM alone and through cheapspec, token by token.

vLLM computes in float32, where its scoring and its decoding agree, so nothing is excused here: a difference is
a bug. K is fixed (``draft_tokens``), so no run goes direct because a plan says so. Each prompt is asked
unstreamed and streamed, with drafters, K and sync/async rotating, so that every pair of them occurs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from asking import MODES, Evidence, Reply, Run, ask, ask_alone, evidence_of
from prompts import PROMPTS, Prompt, by_kind

from cheapspec.embedded import EmbeddedServer
from cheapspec.testing.ollama import SMOLLM2, StandInOllama

GROUP = "vLLM 0.32, float32, by token ids"
DRAFTERS = ("q4_1", "drop1", "drop3", "ollama", "lookup+drop1")
DRAFT_TOKENS = (5, 10, 20)


@dataclass(frozen=True)
class Combination:
    """Which drafter, how many draft tokens a round, which client."""

    drafter: str
    draft_tokens: int | None
    mode: str

    def __str__(self) -> str:
        return f"{self.drafter}-k{self.draft_tokens}-{self.mode}"


def combinations() -> list[tuple[Prompt, Combination]]:
    """Two runs a prompt, one of them streamed."""
    made: list[tuple[Prompt, Combination]] = []
    for number, prompt in enumerate(PROMPTS):
        for streamed in (0, 1):
            turn = 2 * number + streamed
            mode = MODES[2 * (number % 2) + streamed]
            combination = Combination(DRAFTERS[turn % len(DRAFTERS)], DRAFT_TOKENS[turn % len(DRAFT_TOKENS)], mode)
            made.append((prompt, combination))
    return made


@dataclass
class Bench:
    """The target, the drafters, and what was asked so far: nothing is asked twice."""

    url: str
    model: str
    drafters: dict[str, dict[str, Any]]
    evidence: Evidence
    replies: dict[tuple[Any, ...], Reply] = field(default_factory=dict[tuple[Any, ...], Reply])
    runs: dict[tuple[str, Combination], Run] = field(default_factory=dict[tuple[str, Combination], Run])

    def alone(self, prompt: Prompt, **more: Any) -> Reply:
        """The target's own reply."""
        key = (prompt.name, repr(sorted(more.items())))
        if key not in self.replies:
            self.replies[key] = ask_alone(f"{self.url}/v1", {"model": self.model, **prompt.body, **more})
        return self.replies[key]

    def run(self, prompt: Prompt, combination: Combination) -> Run:
        """One of the matrix."""
        key = (prompt.name, combination)
        if key not in self.runs:
            self.runs[key] = self.ask(prompt, combination)
        return self.runs[key]

    def ask(self, prompt: Prompt, combination: Combination, *, ours: dict[str, Any] | None = None, **more: Any) -> Run:
        """``more``: fields of both requests; ``ours``: of the one through cheapspec only."""
        alone = self.alone(prompt, **more)
        settings = {"target_backend": "vllm", **self.drafters[combination.drafter]}
        if combination.draft_tokens is not None:
            settings["draft_tokens"] = combination.draft_tokens
        body = {"model": self.model, **prompt.body, **more, **(ours or {})}
        reply, told, calls = ask(f"{self.url}/v1", body, combination.mode, **settings)
        run = Run(prompt, str(combination), reply, alone, told, calls, stops="stop" in more)
        return self.evidence.add(GROUP, run) if told.decision == "speculate" else run

    def ids(self, text: str) -> list[int]:
        """The target's tokens of a text."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        ids: list[int] = httpx2.post(f"{self.url}/tokenize", json=body, timeout=60).json()["tokens"]
        return ids


@pytest.fixture(scope="session")
def bench(
    vllm_url: str, vllm_model: str, drafts: dict[str, EmbeddedServer], pytestconfig: pytest.Config
) -> Iterator[Bench]:
    """vLLM, and five drafters over three models."""
    with StandInOllama(drafts["drop1"].url) as ollama:
        drafters = {
            **{name: {"draft": f"llamacpp:{server.url}"} for name, server in drafts.items()},
            "ollama": {"draft": f"ollama:{SMOLLM2.name}", "draft_url": ollama.url},
            "lookup+drop1": {"draft": f"lookup,llamacpp:{drafts['drop1'].url}"},
            "openai": {"draft": f"openai:draft@{drafts['drop1'].url}/v1"},
            "lookup": {"draft": "lookup"},
            "embedded": {"draft": "embedded"},
            "prediction": {},
        }
        yield Bench(vllm_url, vllm_model, drafters, evidence_of(pytestconfig))


def assert_equal(bench: Bench, run: Run) -> None:
    """Speculated, and the reply is the target's own, token by token."""
    if run.excused:
        assert run.reply.seen() == run.alone.seen(), run.combination
        return
    assert run.told.decision == "speculate", f"{run.combination}: {run.told}"
    ours, theirs = bench.ids(run.reply.text), bench.ids(run.alone.text)
    first = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    assert first is None, f"{run.combination}: token {first} differs: {run.reply.text!r} is not {run.alone.text!r}"
    assert run.reply.seen() == run.alone.seen(), run.combination
    assert run.told.rounds >= 1
    assert run.told.unverified_tokens == 0


MATRIX = combinations()


@pytest.mark.parametrize(("prompt", "combination"), MATRIX, ids=[f"{p.name}-{c}" for p, c in MATRIX])
def test_the_reply_is_the_targets_own(bench: Bench, prompt: Prompt, combination: Combination) -> None:
    """Text, finish reason, prompt tokens and completion tokens are those of the target alone."""
    run = bench.run(prompt, combination)
    assert_equal(bench, run)
    if combination.mode.endswith("stream"):
        assert "".join(run.reply.pieces) == run.alone.text


def test_every_drafter_meets_every_client_and_length() -> None:
    """The rotation leaves no pair out."""
    combined = [combination for _, combination in MATRIX]
    assert {(one.drafter, one.mode) for one in combined} == {(d, mode) for d in DRAFTERS for mode in MODES}
    assert {(one.drafter, one.draft_tokens) for one in combined} == {(d, k) for d in DRAFTERS for k in DRAFT_TOKENS}
    assert len(PROMPTS) >= 30


def test_the_set_accepts_corrects_hands_off_and_ends(bench: Bench) -> None:
    """Equality is not reached by leaving the work to the target: all that speculation does has occurred."""
    runs = [bench.run(prompt, combination) for prompt, combination in MATRIX]
    told = [run.told for run in runs]
    assert sum(one.accepted_tokens for one in told) > 0
    assert sum(one.corrected_tokens for one in told) > 0
    assert sum(one.handoff_tokens for one in told) > 0
    assert sum(run.ended for run in runs) > 0
    assert len({run.prompt.name for run in runs if run.told.decision == "speculate"}) >= 30
    for drafter in DRAFTERS:
        own = [run.told for run in runs if run.combination.startswith(f"{drafter}-")]
        assert sum(one.accepted_tokens for one in own) > 0, drafter


def test_a_stronger_draft_is_accepted_more_often(bench: Bench) -> None:
    """The three strengths are three strengths: what is accepted follows what drafts."""
    rates: list[float] = []
    for drafter in ("q4_1", "drop1", "drop3"):
        own = [bench.run(prompt, one).told for prompt, one in MATRIX if one.drafter == drafter]
        rates.append(sum(one.accepted_tokens for one in own) / sum(one.drafted_tokens for one in own))
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.7 > rates[2]


# --- drafts that are not a model of their own ------------------------------------------------------

PREDICTED = tuple(prompt for prompt in by_kind("code", "quote", "turns") if prompt.chat)[::2]


@pytest.mark.parametrize("altered", [False, True], ids=["right", "altered"])
@pytest.mark.parametrize("prompt", PREDICTED, ids=lambda prompt: prompt.name)
def test_the_callers_prediction_drafts(bench: Bench, prompt: Prompt, altered: bool) -> None:
    """A right prediction is accepted to its end; an altered one is left and picked up again."""
    alone = bench.alone(prompt)
    words = alone.text.split(" ")
    middle = len(words) // 2
    guess = " ".join([*words[:middle], "zebra", *words[middle + 1 :]]) if altered else alone.text
    combination = Combination("prediction", 16, MODES[len(prompt.name) % len(MODES)])
    run = bench.ask(prompt, combination, ours={"prediction": {"type": "content", "content": guess}})
    assert_equal(bench, run)
    assert run.told.drafter == "prediction"
    assert run.told.accepted_tokens > 0
    if not altered:
        assert run.told.corrected_tokens <= 1 + run.told.rounds, "at most a bonus token a round"


LOOKED_UP = tuple(prompt for prompt in PROMPTS if prompt.name in ("code_rename", "code_repeat", "raw_pattern"))


@pytest.mark.parametrize("prompt", LOOKED_UP, ids=lambda prompt: prompt.name)
def test_prompt_lookup_drafts_by_itself(bench: Bench, prompt: Prompt) -> None:
    """What stands in the conversation is proposed, without any model; where nothing fits the target goes on."""
    run = bench.ask(prompt, Combination("lookup", 16, "sync"))
    assert_equal(bench, run)
    assert run.told.drafter == "lookup"


def test_prompt_lookup_has_tokens_accepted(bench: Bench) -> None:
    """A repetition is drafted by looking it up, not by luck."""
    [prompt] = (one for one in LOOKED_UP if one.name == "raw_pattern")
    run = bench.ask(prompt, Combination("lookup", 8, "async-stream"))
    assert_equal(bench, run)
    assert run.told.accepted_tokens > 0


@pytest.mark.parametrize("drafter", ["openai", "embedded"])
def test_other_draft_hosts(bench: Bench, drafter: str) -> None:
    """A server with OpenAI's API, and llama.cpp in this process, draft as well."""
    for prompt in by_kind("quote")[:2]:
        run = bench.ask(prompt, Combination(drafter, 16, "sync"))
        assert_equal(bench, run)
        assert run.told.accepted_tokens > 0


# --- limits and stop strings -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("name", ["list_fruits", "translate_french", "raw_story"])
def test_a_small_limit_is_kept_to_the_token(bench: Bench, name: str, limit: int) -> None:
    """However few tokens are allowed, it is these tokens, and the reason says so."""
    [prompt] = (one for one in PROMPTS if one.name == name)
    run = bench.ask(prompt, Combination("drop1", 4, MODES[limit % 4]), max_tokens=limit)
    assert_equal(bench, run)
    assert run.reply.completion_tokens <= limit


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_inside_a_character(bench: Bench, limit: int) -> None:
    """A reply that may end in half an emoji is the target's own all the same, drafted or not."""
    [prompt] = (one for one in PROMPTS if one.name == "emoji")
    run = bench.ask(prompt, Combination("drop1", 4, MODES[limit % 4]), max_tokens=limit)
    assert run.reply.seen() == run.alone.seen()


STOPPED = tuple(prompt for prompt in PROMPTS if prompt.kind in ("code", "list", "turns", "raw"))[::2]


@pytest.mark.parametrize("prompt", STOPPED, ids=lambda prompt: prompt.name)
def test_a_stop_string_ends_where_the_target_would_stop(bench: Bench, prompt: Prompt) -> None:
    """Whichever side wrote its characters, and wherever tokens and rounds cut it."""
    text = bench.alone(prompt).text
    middle = len(text) // 2
    for number, stop in enumerate((text[middle : middle + 3], [text[middle - 1 : middle + 4], "never said"])):
        run = bench.ask(prompt, Combination("drop1", 8, MODES[number + 2 * (len(text) % 2)]), stop=stop)
        assert run.alone.text != text, "the stop string does stop"
        assert_equal(bench, run)


# --- the planner -----------------------------------------------------------------------------------

DEAR_OUTPUT = {"input": "0.10", "cached_input": "0.01", "output": "10.00"}


@pytest.mark.parametrize("prompt", PROMPTS[::6], ids=lambda prompt: prompt.name)
def test_the_planner_changes_the_cost_and_never_the_text(bench: Bench, prompt: Prompt) -> None:
    """K is the planner's own choice here; with output a hundred times dearer than input it speculates."""
    bench.drafters["planned"] = {**bench.drafters["q4_1"], "prices": DEAR_OUTPUT}
    run = bench.ask(prompt, Combination("planned", None, "sync-stream"))
    assert_equal(bench, run)
    assert run.told.paid_usd is not None
    assert run.told.saved_usd is not None
