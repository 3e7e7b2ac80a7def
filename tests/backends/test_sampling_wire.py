"""Temperature above 0 on the wire: what is asked of vLLM and llama.cpp, and how their answers are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from exchange import chat, reply, run

from cheapspec.backends.facts import Facts
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.probe_sampling import ask_defaults
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.effects import HttpReply
from cheapspec.core.ports import Context, Drawn, SamplingTarget, Score, Unusable
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law

HOT = Sampling(0.7, 0.9)
CONTEXT = Context(prompt_tokens=3, ids=(1, 2, 3))


def hot(**fields: Any) -> Request:
    return replace(chat("Hi", temperature=0.7, top_p=0.9, top_k=0, min_p=0, **fields), sampling=HOT)


def row(given: int, *others: tuple[int, float, str], logprob: float = -2.0) -> dict[str, Any]:
    listed = {str(given): {"logprob": logprob, "rank": 9, "decoded_token": f"t{given}"}}
    return listed | {str(one): {"logprob": value, "rank": 1, "decoded_token": text} for one, value, text in others}


def test_the_laws_are_the_servers_own() -> None:
    """vLLM takes the nucleus at the caller's temperature, llama.cpp before it; by text nothing is followed."""
    vllm, llamacpp = VllmTarget(), LlamaCppTarget()
    assert isinstance(vllm, SamplingTarget) and isinstance(llamacpp, SamplingTarget)
    assert vllm.law(HOT) == Law(0.7, 0.9, 20, nucleus_first=False)
    assert llamacpp.law(HOT) == Law(0.7, 0.9, 64, nucleus_first=True)
    assert VllmTarget(route="text").law(HOT) is None


def test_vllm_is_asked_for_20_tokens_a_position_and_one_position_more() -> None:
    """The scoring call stays neutral; the end of the turn stands after the draft, so its probability is always told."""
    target = VllmTarget(end_ids=(9,))
    tokens = reply({"tokens": [5, 6], "token_strs": ["One", "Ġtwo"]})
    rows = [None, row(2), row(3), row(5, (7, -0.2, "Two")), row(6), row(9, (8, -0.1, " three"), logprob=-3.0)]
    choice = {"index": 0, "text": "x", "finish_reason": "length", "token_ids": [4], "prompt_logprobs": rows}
    told = reply({"choices": [choice], "usage": {"prompt_tokens": 6, "completion_tokens": 1}})
    score, sent = run(target.score(hot(), CONTEXT, "One two"), tokens, told)
    assert isinstance(score, Score) and len(score.tokens) == 2 and score.next is None
    assert score.after is not None and score.after.token_id == 9 and score.after.logprob == -3.0
    assert [one.token_id for one in score.after.top] == [9, 8]
    body = sent[-1].body or {}
    assert (body["prompt"], body["prompt_logprobs"], body["temperature"]) == ([1, 2, 3, 5, 6, 9], 20, 0)


def test_a_vllm_that_lists_fewer_is_asked_for_fewer_next_time() -> None:
    """``--max-logprobs`` is the server's to set; its refusal is about sampling only, and not for good."""
    target = VllmTarget()
    tokens = reply({"tokens": [5], "token_strs": ["One"]})
    words = "Requested prompt logprobs of 20, which is greater than max allowed: 5"
    told, _ = run(target.score(hot(), CONTEXT, "One"), tokens, reply({"error": {"message": words}}, 400))
    assert isinstance(told, Unusable) and (told.reason, told.lasting) == ("sampling", False)
    law = target.law(HOT)
    assert law is not None and law.alternatives == 5


@pytest.mark.parametrize("banned", [(7, 8), ()])
def test_vllm_draws_one_token(banned: tuple[int, ...]) -> None:
    """With bans at temperature 1 and nothing else, without them as the caller samples; the seed is the draw's own."""
    target = VllmTarget()
    shape = {"tokens": ["token_id:5"], "token_logprobs": [-3.5], "top_logprobs": [{}]}
    choice = {"text": "One", "token_ids": [5], "finish_reason": "length", "stop_reason": None, "logprobs": shape}
    answer = reply({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    drawn, [call] = run(target.draw(hot(seed=1), CONTEXT, banned, 77), answer)
    assert isinstance(drawn, Drawn) and (drawn.token_id, drawn.logprob, drawn.ends_turn) == (5, -3.5, False)
    body = call.body or {}
    assert (call.path, call.billed, body["max_tokens"], body["prompt"], body["seed"]) == (
        "completions",
        True,
        1,
        [1, 2, 3],
        77,
    )
    if banned:
        assert (body["temperature"], body["top_p"], body["logit_bias"]) == (1, 1, {"7": -100, "8": -100})
    else:
        assert (body["temperature"], body["top_p"]) == (0.7, 0.9) and "logit_bias" not in body
    ended = {**choice, "finish_reason": "stop", "token_ids": [9]}
    drawn, _ = run(target.draw(hot(), CONTEXT, banned, None), reply({"choices": [ended]}))
    assert isinstance(drawn, Drawn) and drawn.ends_turn and drawn.usage.estimated and 9 in target.memory.end_ids


@pytest.mark.parametrize(
    "answer", [None, reply({}, 500), reply({"choices": [{"token_ids": [1, 2], "finish_reason": "length"}]})]
)
def test_a_draw_without_one_token_is_unusable(answer: HttpReply | None) -> None:
    """No reply, an error, or not exactly one id."""
    for target in (VllmTarget(), LlamaCppTarget()):
        drawn, _ = run(target.draw(hot(), CONTEXT, (7,), None), answer)
        assert isinstance(drawn, Unusable)


def test_vllm_joins_what_was_drawn() -> None:
    """Text by /detokenize; control tokens show nothing; what clean-up may have changed is tokenized back."""
    target = VllmTarget()
    joined, _ = run(target.join(hot(), CONTEXT, (5,)), reply({"prompt": "One"}))
    assert isinstance(joined, Context) and (joined.text, joined.ids, joined.tokens) == ("One", (1, 2, 3, 5), 1)
    special, _ = run(target.join(hot(), CONTEXT, (6,)), reply({"prompt": "<|im_start|>"}))
    assert isinstance(special, Context) and (special.text, special.ids) == ("", (1, 2, 3, 6))
    half, _ = run(target.join(hot(), CONTEXT, (6, 7)), reply({"prompt": "\ufffd"}))
    assert isinstance(half, Context) and half.text == "\ufffd"
    replies = reply({"prompt": "."}), reply({"tokens": [11]}), reply({"tokens": [12]})
    spaced, _ = run(target.join(hot(), CONTEXT, (12,)), *replies)
    assert isinstance(spaced, Context) and spaced.text == " ."
    unclear, _ = run(target.join(hot(), CONTEXT, (13,)), *replies)
    assert isinstance(unclear, Context) and unclear.text == ".", "what was drawn is kept, whatever its spelling"
    failed, _ = run(target.join(hot(), CONTEXT, (5,)), reply({}, 500))
    assert isinstance(failed, Unusable)


def test_llamacpp_draws_and_joins() -> None:
    """Bans as ``false`` in ``logit_bias``, the token's number before any ban, the end of the turn by its reason."""
    target = LlamaCppTarget(end_ids=(2,))
    entry = {"id": 5, "token": "One", "bytes": [79, 110, 101], "logprob": -3.5, "top_logprobs": []}
    told = {
        "tokens": [5],
        "stop_type": "limit",
        "completion_probabilities": [entry],
        "tokens_evaluated": 3,
        "tokens_predicted": 1,
    }
    drawn, [call] = run(target.draw(hot(), CONTEXT, (7, 8), 77), reply(told))
    assert isinstance(drawn, Drawn) and (drawn.token_id, drawn.logprob, drawn.ends_turn) == (5, -3.5, False)
    body = call.body or {}
    assert (call.path, body["n_predict"], body["temperature"], body["top_k"], body["min_p"]) == (
        "/completion",
        1,
        1,
        0,
        0,
    )
    assert (body["logit_bias"], body["seed"]) == ([[7, False], [8, False]], 77)
    ended = {**told, "tokens": [], "stop_type": "eos", "completion_probabilities": [{**entry, "id": 0, "bytes": []}]}
    drawn, [call] = run(target.draw(hot(), CONTEXT, (), None), reply(ended))
    assert isinstance(drawn, Drawn) and drawn.ends_turn and drawn.token_id == 0 and 0 in target.end_ids
    assert (call.body or {})["temperature"] == 0.7
    joined, _ = run(target.join(hot(), CONTEXT, (5,)), reply({"content": "One"}))
    assert isinstance(joined, Context) and (joined.text, joined.ids) == ("One", (1, 2, 3, 5))
    special, _ = run(target.join(hot(), CONTEXT, (6,)), reply({"content": "<|im_start|>"}))
    assert isinstance(special, Context) and special.text == ""
    failed, _ = run(target.join(hot(), CONTEXT, (5,)), reply({"content": 3}))
    assert isinstance(failed, Unusable)


# --- what a server does by itself ------------------------------------------------------------------------

VLLM = Facts(backend="vllm", can_score=True, route="ids")
LLAMACPP = Facts(backend="llamacpp", can_force=True)


@pytest.mark.parametrize(("rank", "plain"), [(40, False), (20_000, True)])
def test_a_vllm_shows_its_defaults_at_temperature_2(rank: int, plain: bool) -> None:
    """A token far down the ranking shows that neither top_k nor min_p is at work; high ranks alone show nothing."""
    written = reply({"choices": [{"prompt_token_ids": [1, 2], "token_ids": [5, 6], "finish_reason": "length"}]})
    rows = [None, None, {"5": {"logprob": -9.0, "rank": 3}}, {"6": {"logprob": -9.0, "rank": rank}}]
    found, calls = run(ask_defaults("m", VLLM), written, reply({"choices": [{"prompt_logprobs": rows}]}))
    assert found.plain_sampling is plain and f"rank {rank}" in found.evidence[-1]
    asked = calls[0].body or {}
    assert asked["temperature"] == 2 and not {"top_p", "top_k", "min_p"} & asked.keys()
    assert (calls[1].body or {})["prompt"] == [1, 2, 5, 6] and all(call.purpose == "probe" for call in calls)


@pytest.mark.parametrize(
    "replies", [(None,), (reply({}),), (reply({"choices": [{"prompt_token_ids": [1], "token_ids": [5]}]}), None)]
)
def test_a_vllm_that_shows_nothing_stays_unknown(replies: tuple[HttpReply | None, ...]) -> None:
    """No ids, no ranks, no reply."""
    found, _ = run(ask_defaults("m", VLLM), *replies)
    assert found.plain_sampling is None


def test_llamacpp_tells_its_defaults() -> None:
    """Those of build 11549 change the distribution; neutral ones do not; no answer, no finding."""

    def props(**params: Any) -> HttpReply:
        return reply({"default_generation_settings": {"params": params}})

    found, _ = run(ask_defaults("m", LLAMACPP), props(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05))
    assert found.plain_sampling is False and "top_k, top_p, min_p" in found.evidence[-1]
    found, _ = run(ask_defaults("m", LLAMACPP), props(top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0))
    assert found.plain_sampling is True
    for silent in (None, reply({}), reply({}, 500)):
        found, _ = run(ask_defaults("m", LLAMACPP), silent)
        assert found.plain_sampling is None
    found, calls = run(ask_defaults("m", Facts(backend="sglang", can_score=True)))
    assert found.plain_sampling is None and not calls
