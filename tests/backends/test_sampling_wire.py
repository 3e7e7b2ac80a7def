"""Temperature above 0 on the wire: what is asked of vLLM and llama.cpp, and how their answers are read."""

from __future__ import annotations

import math
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
from cheapspec.core.request import Bypass, Request, Sampling, sampling
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


RED, BLUE, GREEN, FAR = 1, 2, 3, 4


class Vllm:
    """A vLLM with defaults of its own: raw logits after "red blue red blue red blue red blue", in which green leads, or
    red; log-probabilities are of these, whatever the sampler makes of them.
    """

    def __init__(self, penalty: float = 1.0, rank: int = 20_000, red: float = 18.0, green: float = 18.3) -> None:
        self.penalty, self.rank = penalty, rank
        self.logits = {RED: red, BLUE: 15.0, GREEN: green, FAR: 2.0}
        self.calls: list[dict[str, Any]] = []
        self.biased = True
        self.noise = 0.0

    def __call__(self, body: dict[str, Any]) -> HttpReply:
        self.calls.append(body)
        total = math.log(sum(map(math.exp, self.logits.values())))
        prompt = body["prompt"] if isinstance(body["prompt"], list) else [RED, BLUE] * 4 + [RED]
        rows: list[Any] = [None] * (len(prompt) - 1)
        if "prompt_logprobs" in body:
            shown = {RED, GREEN, BLUE} if prompt[-1] == RED else {prompt[-1]}
            rows.append({str(one): {"logprob": self.logits[one] - total, "rank": self.rank} for one in shown})
        heard = dict(self.logits)
        for token, bias in (body.get("logit_bias") or {}).items() if self.biased else ():
            heard[int(token)] += bias
        penalty = body.get("repetition_penalty", self.penalty)
        for token in set(prompt):
            heard[token] = heard[token] / penalty if heard[token] > 0 else heard[token] * penalty
        heard[GREEN] += self.noise
        written = FAR if body["temperature"] == 2 else max(heard, key=heard.__getitem__)
        choice = {"prompt_token_ids": prompt, "token_ids": [written], "prompt_logprobs": rows}
        return reply({"choices": [choice]})

    def asked(self, facts: Facts = VLLM) -> Facts:
        op = ask_defaults("m", facts)
        try:
            call = next(op)
            while True:
                assert call.purpose == "probe" and call.billed
                call = op.send(self(dict(call.body or {})))
        except StopIteration as done:
            found: Facts = done.value
            return found


@pytest.mark.parametrize(("rank", "plain"), [(40, False), (20_000, True)])
def test_a_vllm_shows_its_defaults_at_temperature_2(rank: int, plain: bool) -> None:
    """A token far down the ranking shows that neither top_k nor min_p is at work; high ranks alone show nothing."""
    server = Vllm(rank=rank)
    found = server.asked()
    assert found.plain_sampling is plain and f"rank {rank}" in found.evidence[-1]
    assert found.hidden_defaults == (() if plain else ("top_k", "min_p"))
    [asked] = [call for call in server.calls if call["temperature"] == 2]
    assert not {"top_p", "top_k", "min_p", "repetition_penalty"} & asked.keys()


@pytest.mark.parametrize("leads", [18.0, 25.0, 11.0])
@pytest.mark.parametrize("penalty", [1.0, 1.02, 1.05, 1.1, 1.3])
def test_a_repetition_penalty_that_nobody_tells_is_found(penalty: float, leads: float) -> None:
    """Of 1.05 as of 1.3, whichever token leads, on both routes: exact is off at temperature 0, too."""
    for route in ("ids", "text"):
        found = Vllm(penalty, red=leads).asked(replace(VLLM, route=route))
        if penalty == 1:
            assert found.hidden_defaults == () and found.plain_sampling is (True if route == "ids" else None)
            continue
        assert found.hidden_defaults == ("repetition_penalty",) and found.plain_sampling is False
        for temperature in (0, 0.5):
            asked = chat("Hi", temperature=temperature, top_p=1)
            refused = sampling(asked, 1.0, found.plain_sampling, found.hidden_defaults)
            assert isinstance(refused, Bypass) and refused.reason == "sampling"
            said = chat("Hi", temperature=temperature, top_p=1, repetition_penalty=1)
            assert isinstance(sampling(said, None, found.plain_sampling, found.hidden_defaults), Sampling)


def test_a_vllm_whose_controls_fail_has_shown_no_penalty_and_no_lack_of_one() -> None:
    """A bias that is dropped on the way, or kernels that differ by more than the lead."""
    for penalty in (1.0, 1.05):
        dropped, noisy = Vllm(penalty), Vllm(penalty)
        dropped.biased, noisy.noise = False, 0.5
        for server in (dropped, noisy):
            found = server.asked()
            assert found.plain_sampling is None and found.hidden_defaults == ()


@pytest.mark.parametrize(
    "replies",
    [
        (None, None),
        (reply({}), reply({})),
        (reply({"choices": [{"prompt_token_ids": [1, 2, 1]}]}), reply({})),
        (None, reply({"choices": [{"prompt_token_ids": [1], "token_ids": [5]}]}), None),
    ],
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
    assert found.plain_sampling is True and found.hidden_defaults == ()
    found, _ = run(ask_defaults("m", LLAMACPP), props(top_k=40, repeat_penalty=1.1, typical_p=0.9, top_n_sigma=1.0))
    assert found.hidden_defaults == ("top_k", "top_n_sigma", "typical_p", "repeat_penalty")
    for silent in (None, reply({}), reply({}, 500)):
        found, _ = run(ask_defaults("m", LLAMACPP), silent)
        assert found.plain_sampling is None
    found, calls = run(ask_defaults("m", Facts(backend="sglang", can_score=True)))
    assert found.plain_sampling is None and not calls
