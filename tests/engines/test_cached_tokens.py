"""What the engines report about their caches is what the ledger holds, call by call.

vLLM computes every scored prompt anew (it has to, for the numbers), yet a hand-off finds the scored text in the
cache. llama.cpp reads what its slot holds for every kind of call.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from asking import Run, ask, ask_alone
from prompts import Prompt

from cheapspec.core.effects import Usage
from cheapspec.embedded import EmbeddedServer

FACTS = "The river is wide and slow. The mill stands on its left bank. The miller has three cats. "


def long_prompt(max_tokens: int = 48) -> Prompt:
    """Some 330 tokens that no earlier request can have begun with."""
    content = f"{uuid.uuid4()}\n{FACTS * 12}\nRepeat the first three sentences about the river."
    return Prompt(
        "long",
        "long",
        {"messages": [{"role": "user", "content": content}], "temperature": 0} | {"max_tokens": max_tokens},
    )


def sums(run: Run, billed: list[Usage]) -> tuple[int, int, int]:
    """Input, cached and output tokens of the billed calls."""
    cached = sum(usage.cached_tokens or 0 for usage in billed)
    return sum(one.input_tokens for one in billed), cached, sum(one.output_tokens for one in billed)


def run_with_handoff(url: str, model: str, backend: str) -> Run:
    """The first half of the target's own reply is predicted, so that the target must write the other half."""
    prompt = long_prompt()
    body = {"model": model, **prompt.body}
    alone = ask_alone(f"{url}/v1", body)
    fresh = long_prompt()  # another beginning: nothing of it is cached
    body = {"model": model, **fresh.body}
    half = alone.text[: len(alone.text) // 2]
    predicted = {**body, "prediction": {"type": "content", "content": half}}
    reply, told, calls = ask(f"{url}/v1", predicted, "sync", target_backend=backend, draft_tokens=8)
    run = Run(fresh, "prediction-k8-sync", reply, ask_alone(f"{url}/v1", body), told, calls)
    assert told.decision == "speculate", told
    assert "continue" in run.purposes(), "the prediction ends early, so the target goes on"
    return run


def test_vllm_scores_at_full_price_and_continues_from_its_cache(vllm_url: str, vllm_model: str) -> None:
    """qs = 1 and qh = c, as the usage reports say: the numbers that the planner's prices stand for."""
    run = run_with_handoff(vllm_url, vllm_model, "vllm")
    assert run.reply.text == run.alone.text
    scores, [handoff] = run.used("score"), run.used("continue")
    assert len(scores) == run.told.rounds >= 2
    assert [usage.cached_tokens for usage in scores] == [0] * len(scores)
    assert {usage.output_tokens for usage in scores} == {1}
    shown = [usage.input_tokens for usage in scores]
    assert shown == sorted(shown)
    assert run.reply.prompt_tokens < shown[0] <= run.reply.prompt_tokens + 8 * 4  # a word is a few tokens
    assert handoff.cached_tokens is not None
    assert handoff.cached_tokens >= run.reply.prompt_tokens // 2  # whole blocks only
    assert handoff.input_tokens + handoff.output_tokens == run.reply.prompt_tokens + run.reply.completion_tokens
    assert (run.told.input_tokens, run.told.cached_input_tokens, run.told.output_tokens) == sums(
        run, [*scores, handoff]
    )
    assert run.told.target_calls == len(scores) + 1


def test_llamacpp_reads_its_slot_in_every_call(llamacpp_targets: dict[str, EmbeddedServer]) -> None:
    """Each forced call after the first, and the hand-off, find the prompt and the accepted text in the slot."""
    server = llamacpp_targets["f16"]
    run = run_with_handoff(server.url, server.model, "llamacpp")
    assert run.reply.text == run.alone.text
    forced, [handoff] = run.used("force"), run.used("continue")
    assert len(forced) == run.told.rounds >= 2
    for usage in [*forced[1:], handoff]:
        assert usage.cached_tokens is not None
        assert usage.cached_tokens >= run.reply.prompt_tokens - 1
    assert (forced[0].cached_tokens or 0) < run.reply.prompt_tokens / 2
    assert (run.told.input_tokens, run.told.cached_input_tokens, run.told.output_tokens) == sums(
        run, [*forced, handoff]
    )


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_every_billed_call_has_its_usage(
    engine: str,
    vllm_url: str,
    vllm_model: str,
    llamacpp_targets: dict[str, EmbeddedServer],
    drafts: dict[str, EmbeddedServer],
) -> None:
    """No call of a speculated reply is left open or without the engine's own count; a draft is never billed."""
    server = llamacpp_targets["f16"]
    url, model = (vllm_url, vllm_model) if engine == "vllm" else (server.url, server.model)
    body: dict[str, Any] = {"model": model, **long_prompt(24).body}
    draft = f"llamacpp:{drafts['drop3'].url}"
    reply, told, calls = ask(f"{url}/v1", body, "async-stream", target_backend=engine, draft_tokens=8, draft=draft)
    assert reply.completion_tokens > 0
    assert told.decision == "speculate"
    assert {call.status for call in calls} <= {"ok", "cancelled"}
    billed = [call for call in calls if call.row.billed]
    assert all(call.status == "ok" and call.usage is not None and not call.usage.estimated for call in billed)
    assert {call.row.side for call in billed} == {"target"}
    assert {call.row.purpose for call in calls if call.row.side == "draft"} <= {"draft", "tokenize"}
