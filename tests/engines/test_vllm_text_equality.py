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
    "emoji",
    "chinese",
    "whitespace_poem",
    "short_sum",
    "short_capital",
    "turns_name",
    "system_pirate",
    "raw_story",
    "raw_code",
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
    assert run.told.decision == "speculate", run.told
    assert run.reply.text == run.alone.text, run.combination
    assert run.reply.seen() == run.alone.seen(), run.combination
    assert run.told.rounds >= 1


def test_the_set_accepts_corrects_and_hands_off(run_of: Any, front: Gateway) -> None:
    """All of it by the routes that a gateway has."""
    told = [run_of(prompt).told for prompt in ASKED]
    assert sum(one.accepted_tokens for one in told) > 0
    assert sum(one.corrected_tokens for one in told) > 0
    assert sum(one.handoff_tokens for one in told) > 0
    assert "/tokenize" in front.refused
    assert set(front.passed) == {"/v1/chat/completions", "/v1/completions"}
