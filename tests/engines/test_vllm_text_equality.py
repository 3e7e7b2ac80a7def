"""Behind a gateway that has no ``/tokenize`` the target is spoken to in text, and its answer is still its own.

On this route a hand-off can begin only at a safe edge of the text, and token counts are the target's word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asking import MODES, Run, ask, ask_alone, evidence_of
from prompts import PROMPTS, Prompt
from relay import Gateway, gateway

from cheapspec.embedded import EmbeddedServer

GROUP = "vLLM 0.32, float32, by text"
NAMES = (
    "code_fibonacci",
    "json_person",
    "list_fruits",
    "quote_sentence",
    "translate_german",
    "arabic",
    "german",
    "whitespace_poem",
    "short_sum",
    "short_capital",
    "turns_name",
    "system_pirate",
    "raw_story",
    "raw_code",
    "raw_emoji",
)
ASKED = tuple(prompt for prompt in PROMPTS if prompt.name in NAMES)


@pytest.fixture(scope="module")
def front(vllm_url: str) -> Iterator[Gateway]:
    """The gateway."""
    with gateway(vllm_url) as running:
        yield running


@pytest.fixture(scope="module")
def replies() -> dict[str, Run]:
    """What was asked so far, by the prompt's name."""
    return {}


@pytest.fixture
def run_of(
    front: Gateway,
    vllm_model: str,
    drafts: dict[str, EmbeddedServer],
    pytestconfig: pytest.Config,
    replies: dict[str, Run],
) -> Any:
    """Asks a prompt, once a session."""

    def run(prompt: Prompt) -> Run:
        if prompt.name not in replies:
            number = NAMES.index(prompt.name)
            drafter, mode = list(drafts)[number % len(drafts)], MODES[number % len(MODES)]
            body = {"model": vllm_model, **prompt.body}
            alone = ask_alone(f"{front.url}/v1", body)
            settings: dict[str, Any] = {"target_backend": "vllm", "draft": f"llamacpp:{drafts[drafter].url}"}
            reply, told, calls = ask(f"{front.url}/v1", body, mode, draft_tokens=12, **settings)
            done = Run(prompt, f"{drafter}-k12-{mode}", reply, alone, told, calls)
            replies[prompt.name] = evidence_of(pytestconfig).add(GROUP, done)
        return replies[prompt.name]

    return run


@pytest.mark.parametrize("prompt", ASKED, ids=lambda prompt: prompt.name)
def test_the_reply_is_the_targets_own(run_of: Any, prompt: Prompt) -> None:
    """Without one token id, the reply is that of the target alone."""
    run: Run = run_of(prompt)
    if run.excused:
        assert run.reply.seen() == run.alone.seen()
        return
    assert run.told.decision == "speculate", run.told
    assert run.reply.text == run.alone.text, run.combination
    assert run.reply.seen() == run.alone.seen(), run.combination
    assert run.told.rounds >= 1


EDGES = tuple(prompt for prompt in ASKED if prompt.kind in ("code", "list", "whitespace", "turns", "raw"))


@pytest.mark.parametrize("prompt", EDGES, ids=lambda prompt: prompt.name)
def test_stops_limits_and_predictions_by_text(
    front: Gateway, vllm_model: str, drafts: dict[str, EmbeddedServer], pytestconfig: pytest.Config, prompt: Prompt
) -> None:
    """A stop string inside the reply, a limit of five tokens, a prediction with one word changed: all as the target."""
    base_url, body = f"{front.url}/v1", {"model": vllm_model, **prompt.body}
    draft = {"draft": f"llamacpp:{drafts['drop1'].url}"}
    text = ask_alone(base_url, body).text
    middle = len(text) // 2
    stopped, limited = {**body, "stop": text[middle : middle + 3]}, {**body, "max_tokens": 5}
    asked: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ("stop", stopped, {}, draft),
        ("limit", limited, {}, draft),
    ]
    if prompt.chat:
        words = text.split(" ")
        changed = " ".join([*words[: len(words) // 2], "zebra", *words[len(words) // 2 + 1 :]])
        asked.append(("prediction", body, {"prediction": {"type": "content", "content": changed}}, {}))
    for number, (name, fields, ours, settings) in enumerate(asked):
        mode = MODES[(EDGES.index(prompt) + number) % len(MODES)]
        reply, told, calls = ask(base_url, fields | ours, mode, target_backend="vllm", draft_tokens=10, **settings)
        alone = ask_alone(base_url, fields)
        assert told.decision == "speculate", (name, told)
        run = Run(prompt, f"{name}-k10-{mode}", reply, alone, told, calls, stops="stop" in fields)
        assert reply.seen() == alone.seen(), (name, mode)
        evidence_of(pytestconfig).add(GROUP, run)


def test_the_set_accepts_corrects_and_hands_off(run_of: Any, front: Gateway) -> None:
    """All of it by the routes that a gateway has."""
    told = [run_of(prompt).told for prompt in ASKED]
    assert sum(one.accepted_tokens for one in told) > 0
    assert sum(one.corrected_tokens for one in told) > 0
    assert sum(one.handoff_tokens for one in told) > 0
    assert "/tokenize" in front.refused
    assert set(front.passed) == {"/v1/chat/completions", "/v1/completions"}
