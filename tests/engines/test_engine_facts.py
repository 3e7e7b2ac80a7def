"""Facts about the engines that the plan of this project leans on; when one changes, the plan must.

vLLM 0.32.0 on CPU and llama.cpp build 11549 (2026-11).
"""

from __future__ import annotations

import uuid
from typing import Any

import httpx2
import pytest

from cheapspec.embedded import EmbeddedServer

STORY = "Once upon a time there was a small model that wrote drafts for a big one. "


def complete(url: str, **body: Any) -> dict[str, Any]:
    reply = httpx2.post(f"{url}/v1/completions", json={"temperature": 0, **body}, timeout=300)
    reply.raise_for_status()
    answer: dict[str, Any] = reply.json()
    return answer


def cached(reply: dict[str, Any]) -> int:
    details: dict[str, int] = reply["usage"].get("prompt_tokens_details") or {}
    return details.get("cached_tokens") or 0


def test_vllm_scoring_skips_the_prefix_cache(vllm_url: str, vllm_model: str) -> None:
    """A warm prompt is cached for plain calls, and paid anew in full when it is scored."""
    prompt = f"{uuid.uuid4()} {STORY * 20}"
    cold = complete(vllm_url, model=vllm_model, prompt=prompt, max_tokens=1)
    warm = complete(vllm_url, model=vllm_model, prompt=prompt, max_tokens=1)
    scored = complete(vllm_url, model=vllm_model, prompt=prompt, max_tokens=1, prompt_logprobs=1)
    assert cached(cold) == 0
    assert cached(warm) > warm["usage"]["prompt_tokens"] / 2  # whole blocks only, 128 tokens each on a CPU
    assert cached(scored) == 0


def test_vllm_prompt_logprobs_give_each_token_with_its_rank_and_the_leader(vllm_url: str, vllm_model: str) -> None:
    """One call gives acceptance (rank 1) and correction (the leader) at every position but the first."""
    reply = complete(vllm_url, model=vllm_model, prompt=STORY, max_tokens=1, prompt_logprobs=1, return_token_ids=True)
    choice = reply["choices"][0]
    ids, entries = choice["prompt_token_ids"], choice["prompt_logprobs"]
    assert len(ids) == len(entries) == reply["usage"]["prompt_tokens"]
    assert entries[0] is None
    for token, entry in zip(ids[1:], entries[1:], strict=True):
        assert entry[str(token)]["logprob"] <= 0
        leader = [other for other in entry.values() if other["rank"] == 1]
        assert len(leader) == 1
        assert entry[str(token)]["rank"] >= 1
        assert entry[str(token)]["logprob"] <= leader[0]["logprob"]
    assert {entry[str(token)]["rank"] > 1 for token, entry in zip(ids[1:], entries[1:], strict=True)} == {True, False}


def test_vllm_float32_scores_its_own_greedy_reply_as_its_argmax(vllm_url: str, vllm_model: str) -> None:
    """Scoring and decoding agree in float32: the ground on which equality with direct stands."""
    prompt = [1, 4093, 198]
    reply = complete(vllm_url, model=vllm_model, prompt=prompt, max_tokens=64, return_token_ids=True)
    written = reply["choices"][0]["token_ids"]
    scored = complete(vllm_url, model=vllm_model, prompt=[*prompt, *written], max_tokens=1, prompt_logprobs=1)
    entries = scored["choices"][0]["prompt_logprobs"][len(prompt) :]
    assert len(written) > 16
    assert [entry[str(token)]["rank"] for token, entry in zip(written, entries, strict=True)] == [1] * len(written)


def test_vllm_refuses_to_stream_a_scoring_call(vllm_url: str, vllm_model: str) -> None:
    """Scoring is never streamed."""
    body = {"model": vllm_model, "prompt": STORY, "max_tokens": 1, "prompt_logprobs": 1, "stream": True}
    assert httpx2.post(f"{vllm_url}/v1/completions", json=body, timeout=300).status_code == 400


@pytest.mark.parametrize("name", ["f16", "q4_1"])
def test_llamacpp_forced_decoding_returns_the_draft_with_its_own_opinion(
    llamacpp_targets: dict[str, EmbeddedServer], name: str
) -> None:
    """A grammar forces the draft, and the log-probabilities are those without the grammar, the end included."""
    draft = "The capital of France is banana."
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    body = {"prompt": prompt, "grammar": f'root ::= "{draft}"', "n_predict": 40, "n_probs": 2, "temperature": 0}
    reply = httpx2.post(f"{llamacpp_targets[name].url}/completion", json=body, timeout=300).json()
    assert reply["content"] == draft
    entries = reply["completion_probabilities"]
    *tokens, end = entries
    assert "".join(entry["token"] for entry in tokens) == draft
    assert end["token"] == ""
    forced = [entry["token"] for entry in tokens if entry["id"] != entry["top_logprobs"][0]["id"]]
    assert any("ban" in token for token in forced)
    assert all(entry["logprob"] < 0 for entry in entries)


def test_llamacpp_silently_ignores_a_request_to_score(llamacpp_targets: dict[str, EmbeddedServer]) -> None:
    """No prompt scoring over HTTP, and no error that says so: the reason why capabilities are probed."""
    url = llamacpp_targets["f16"].url
    reply = complete(url, prompt=STORY, max_tokens=1, echo=True, logprobs=1, prompt_logprobs=1)
    choice = reply["choices"][0]
    assert "prompt_logprobs" not in choice
    assert not choice["text"].startswith(STORY)


def test_the_three_drafts_write(drafts: dict[str, EmbeddedServer]) -> None:
    """Each draft server answers, and they are three different models."""
    prompt = "<|im_start|>user\nTell me about cats.<|im_end|>\n<|im_start|>assistant\n"
    body = {"prompt": prompt, "n_predict": 48, "temperature": 0}
    texts = {httpx2.post(f"{s.url}/completion", json=body, timeout=300).json()["content"] for s in drafts.values()}
    assert len(texts) == 3
    assert all(texts)
