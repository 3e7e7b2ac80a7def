"""The wire of the hosted dialects, field by field: a wrong name in a question or a reply must not pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exchange import chat, completion, decode, reply, run

from cheapspec.backends.fireworks import FireworksTarget
from cheapspec.backends.mistral import MistralTarget
from cheapspec.backends.sglang import SglangTarget
from cheapspec.backends.text_target import TextTarget
from cheapspec.backends.together import TogetherTarget
from cheapspec.core.acceptance import verify_greedy
from cheapspec.core.ports import Context, NextToken, Score, Target, Unusable

ASKED = chat("Where?", max_tokens=40, stop=["\n"], seed=7, user="u")
DRAFT = "In Paris"
USAGE = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
PROMPT = ["<s>", "Where", "?", "<a>"]  # what the template makes of the question
TOKENS = [*PROMPT, "In", " Paris"]


def score_of(target: Target, body: dict[str, Any], draft: str = DRAFT) -> Score | Unusable:
    score, _ = run(target.score(ASKED, Context(), draft), reply(body))
    return score


def good(score: Score | Unusable) -> Score:
    assert isinstance(score, Score), score
    return score


def one(token: str, number: int, logprob: float | None, *others: tuple[str, int, float]) -> dict[str, Any]:
    """An entry of Fireworks' and Mistral's ``content``."""
    told = {"token": token, "token_id": number, "logprob": logprob, "bytes": list(token.encode())}
    listed = [{"token": t, "token_id": n, "logprob": p, "bytes": list(t.encode())} for t, n, p in others]
    return {**told, "top_logprobs": listed}


def entries(second: tuple[str, int, float] = (" Paris", 15, -0.2)) -> list[dict[str, Any]]:
    numbers = [
        one(token, 10 + index, -1.0, (token, 10 + index, -1.0), ("x", 50, -1.5))
        for index, token in enumerate(TOKENS[:5])
    ]
    return [*numbers, one(" Paris", 15, -0.2, second)]


def fireworks(
    found: list[dict[str, Any]], usage: dict[str, Any] | None = None, finish: str = "length"
) -> dict[str, Any]:
    choice = {"index": 0, "message": {"content": "ignored"}, "finish_reason": finish, "logprobs": {"content": found}}
    return {"id": "f", "model": "m", "choices": [choice], "usage": usage or {**USAGE, "prompt_tokens": 6}}


def test_the_question_to_fireworks() -> None:
    """``echo_last`` reaches over the draft, alternatives with ids are asked for, nothing may be truncated silently."""
    _, [call] = run(FireworksTarget().score(ASKED, Context(), DRAFT), reply({}))
    assert (call.path, call.purpose, call.billed, call.stream) == ("chat/completions", "score", True, False)
    assert call.body == {
        "model": "smol",
        "messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": DRAFT}],
        "user": "u",
        "temperature": 0,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "n": 1,
        "context_length_exceeded_behavior": "error",
        "max_tokens": 1,
        "echo_last": len(DRAFT) + 16,
        "logprobs": True,
        "top_logprobs": 2,
    }


def test_a_reply_of_fireworks() -> None:
    """The echoed entries come first; the generated one says what follows; the first of a whole prompt says nothing."""
    following = one("!", 16, -0.1, ("!", 16, -0.1))
    score = good(score_of(FireworksTarget(), fireworks([*entries(), following])))
    assert [token.token_id for token in score.tokens] == [14, 15]
    assert score.ends == (2, 8) and score.prompt_tokens == 4
    assert verify_greedy(score.tokens).accepted == 2
    assert score.next == NextToken("!", 16)
    ended = good(score_of(FireworksTarget(), fireworks([*entries(), following], finish="stop")))
    assert ended.next == NextToken(None, 16, ends_turn=True)
    corrected = good(score_of(FireworksTarget(), fireworks([*entries((" Rome", 99, -0.1)), following])))
    result = verify_greedy(corrected.tokens)
    assert result.accepted == 1 and result.correction is not None and result.correction.token_id == 99


def test_only_the_end_of_a_prompt_of_fireworks() -> None:
    """With a long prompt the entries begin late; what was not shown is counted."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 900}}
    shown = [one("x", 1, -1.0)] * (len(DRAFT) + 16 - 6) + entries()
    score = good(score_of(FireworksTarget(), fireworks([*shown, one("!", 16, -0.1)], usage)))
    assert score.prompt_tokens == 998
    assert (score.usage.input_tokens, score.usage.cached_tokens) == (1000, 900)


@pytest.mark.parametrize(
    "body",
    [
        fireworks(entries()[:-2]),
        fireworks([]),
        {**fireworks(entries()), "choices": [{"index": 0, "message": {"content": "x"}, "logprobs": None}]},
        {
            **fireworks(entries()),
            "choices": [{"index": 0, "message": {"content": "x"}, "logprob": {"content": entries()}}],
        },
        {**fireworks(entries()), "usage": None},
        {"choices": None},
    ],
)
def test_b24_a_reply_of_fireworks_without_the_prompts_numbers(body: dict[str, Any]) -> None:
    """Numbers of the generated token alone are no evidence."""
    score = score_of(FireworksTarget(), body)
    assert isinstance(score, Unusable) and score.reason == "cannot_score" and score.lasting


def together(**changed: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "token_ids": [10, 11, 12, 13, 14, 15],
        "tokens": TOKENS,
        "token_logprobs": [None, -1.0, -1.0, -1.0, -0.3, -0.2],
        "top_logprobs": [None, {"a": -0.5}, {"b": -0.5}, {"c": -0.5}, {"In": -0.3}, {" Paris": -0.2}],
    }
    written = {"token_ids": [16], "tokens": ["!"], "token_logprobs": [-0.1], "top_logprobs": [{"!": -0.1}]}
    choice = {"index": 0, "message": {"content": "!"}, "finish_reason": "length", "logprobs": written}
    return {"id": "t", "prompt": [{"text": "x", "logprobs": {**told, **changed}}], "choices": [choice], "usage": USAGE}


def test_together_tells_the_prompt_at_the_top() -> None:
    """``prompt[0].logprobs``, not ``choices``; ``eos`` ends a turn."""
    _, [call] = run(TogetherTarget().score(ASKED, Context(), DRAFT), reply({}))
    body = dict(call.body or {})
    assert (body["echo"], body["logprobs"], body["max_tokens"]) == (True, 2, 1)
    assert "top_logprobs" not in body and body["context_length_exceeded_behavior"] == "error"
    score = good(score_of(TogetherTarget(), together()))
    assert [token.token_id for token in score.tokens] == [14, 15] and verify_greedy(score.tokens).accepted == 2
    assert score.next == NextToken("!", 16)
    told = together()
    told["choices"][0]["finish_reason"] = "eos"
    assert good(score_of(TogetherTarget(), told)).next == NextToken(None, 16, ends_turn=True)
    moved = {**together(), "prompt": []}
    moved["choices"][0]["logprobs"] = together()["prompt"][0]["logprobs"]
    assert isinstance(score_of(TogetherTarget(), moved), Unusable)


@pytest.mark.parametrize(
    "changed",
    [
        {"top_logprobs": {"In": -0.3}},  # as the schema types it: for which position?
        {"top_logprobs": None},
        {"top_logprobs": [{}] * 6},
    ],
)
def test_together_without_alternatives_by_position_proves_little(changed: dict[str, Any]) -> None:
    """Only what is likelier than everything else together holds then, and nothing is corrected."""
    score = score_of(TogetherTarget(), together(**changed, token_logprobs=[None, -1.0, -1.0, -1.0, -0.9, -0.2]))
    if isinstance(score, Unusable):
        return
    result = verify_greedy(score.tokens)
    assert (result.accepted, result.correction, result.unverified) == (0, None, 1)


def test_together_lists_two_tokens_of_one_text() -> None:
    """A number under the token's text that is not the token's own speaks of another: no evidence."""
    listed = [None, {"a": -0.5}, {"b": -0.5}, {"c": -0.5}, {"In": -0.3}, {" Paris": -0.01}]
    result = verify_greedy(good(score_of(TogetherTarget(), together(top_logprobs=listed))).tokens)
    assert (result.accepted, result.unverified) == (1, 1)


@pytest.mark.parametrize(
    "changed", [{"tokens": TOKENS[:5]}, {"token_logprobs": []}, {"token_ids": [1]}, {"tokens": [1] * 6}]
)
def test_b25_lists_of_together_that_do_not_fit(changed: dict[str, Any]) -> None:
    """Lists of different lengths, or of other things than text, are none."""
    assert isinstance(score_of(TogetherTarget(), together(**changed)), Unusable)


def mistral(found: list[dict[str, Any]], finish: str = "length", key: str = "prompt_logprobs") -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, key: {"content": found}}
    choice["message"] = {"content": DRAFT + "!"}
    choice["logprobs"] = {"content": [one("!", 16, -0.1)]}
    return {"id": "x", "choices": [choice], "usage": {**USAGE, "prompt_tokens": 6}}


@pytest.mark.parametrize("first", ["shown", "null", "left out"])
def test_mistral_tells_the_prompt_in_the_choice(first: str) -> None:
    """``choices[0].prompt_logprobs.content``, whatever becomes of the first token; the message says ``prefix``."""
    found = entries()
    found = found[1:] if first == "left out" else found
    if first == "null":
        found[0]["logprob"] = None
    target = MistralTarget()
    answer, [call] = run(target.score(ASKED, Context(), DRAFT), reply(mistral(found)))
    score = good(answer)
    assert [token.token_id for token in score.tokens] == [14, 15]
    assert verify_greedy(score.tokens).accepted == 2 and score.prompt_tokens == 4
    assert score.next == NextToken("!", 16)
    body = dict(call.body or {})
    assert body["messages"][-1] == {"role": "assistant", "content": DRAFT, "prefix": True}
    assert (body["prompt_logprobs"], body["top_prompt_logprobs"], body["logprobs"]) == (True, 2, True)
    assert not {"seed", "stop", "min_p", "top_k", "stream_options"} & body.keys()
    wrong = score_of(MistralTarget(), mistral(found, key="prompt_logprob"))
    assert isinstance(wrong, Unusable) and wrong.lasting


def test_mistral_scores_chats_only() -> None:
    """It has no raw completions."""
    found, calls = run(MistralTarget().open(completion("x", max_tokens=3)))
    assert isinstance(found, Unusable) and found.reason == "cannot_score" and calls == []


def chunks(*texts: str) -> str:
    told: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts
    ]
    told.append({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}], "usage": USAGE})
    return "".join(f"data: {json.dumps(one)}\n\n" for one in told) + "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("texts", "rest"),
    [
        (["In Paris", ", I think."], ", I think."),
        (["I", "n", " P", "aris, I", " think."], ", I think."),
        (["In Paris"], ""),
        (["In Par"], "In Par"),  # it went another way: what it wrote is not the beginning
        ([", I think."], ", I think."),
        (["In P", "raise"], "In Praise"),
        ([], ""),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_beginning_said_again_is_taken_off_once(texts: list[str], rest: str, size: int) -> None:
    """Exactly that text, however the stream is cut, and the end and the counts still arrive."""
    call = MistralTarget().continue_(ASKED, Context(4, "In Paris", 2), 30)
    pieces = decode(call.decoder, chunks(*texts), size)
    assert "".join(piece.text for piece in pieces) == rest
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    assert [piece.usage.output_tokens for piece in pieces if piece.usage] == [1]
    broken = decode(MistralTarget().continue_(ASKED, Context(4, "In Paris", 2), 30).decoder, chunks("In Pa")[:90], size)
    assert "".join(piece.text for piece in broken) in ("", "In Pa")
    assert not any(piece.complete for piece in broken)


@pytest.mark.parametrize("target", [FireworksTarget(), TogetherTarget(), MistralTarget()], ids=lambda one: one.name)
def test_the_hand_off_carries_the_callers_own_fields(target: TextTarget) -> None:
    """Sampling, stops and what is left of the limit are the caller's; of scoring there is no trace."""
    call = target.continue_(ASKED, Context(4, "In Paris ", 2), 30).request
    body = dict(call.body or {})
    assert (call.path, call.stream, call.billed, call.purpose) == ("chat/completions", True, True, "continue")
    assert (body["temperature"], body["stop"], body["seed"], body["max_tokens"]) == (0, ["\n"], 7, 30)
    assert body["messages"][-1]["content"] == "In Paris", "white space at the end is not sent"
    assert not {"echo", "echo_last", "logprobs", "prompt_logprobs", "top_logprobs", "repetition_penalty"} & body.keys()


def sglang(**changed: Any) -> dict[str, Any]:
    meta = {
        "id": "r",
        "prompt_tokens": 6,
        "completion_tokens": 1,
        "cached_tokens": 3,
        "finish_reason": {"type": "length", "length": 1},
        "input_token_logprobs": [[None, 13, "<a>"], [-0.3, 14, "In"], [-2.0, 15, " Paris"]],
        "input_top_logprobs": [None, [[-0.3, 14, "In"]], [[-0.1, 99, " Rome"]]],
    }
    return {"text": "!", "output_ids": [16], "meta_info": {**meta, **changed}}


def sglang_score(body: dict[str, Any], texts: list[str] | None = None) -> tuple[Any, dict[str, Any]]:
    context = Context(4, "", 0, (10, 11, 12, 13), 2048)
    shown = texts or ["".join(PROMPT), "".join(TOKENS), "In", " Paris"]
    replies = [reply({"tokens": [14, 15], "count": 2}), reply({"text": shown}), reply(body)]
    score, calls = run(SglangTarget().score(ASKED, context, DRAFT), *replies)
    assert calls[0].body == {"model": "smol", "prompt": DRAFT, "add_special_tokens": False}
    assert [call.billed for call in calls] == [False, False, True] and calls[2].path == "/generate"
    return score, dict(calls[2].body or {})


def test_sglang_scores_from_the_last_known_token_on() -> None:
    """``logprob_start_len`` is one before the draft, so that the cache serves the rest; the first entry is null."""
    score, body = sglang_score(sglang())
    assert (body["input_ids"], body["logprob_start_len"]) == ([10, 11, 12, 13, 14, 15], 3)
    assert (body["return_logprob"], body["top_logprobs_num"], body["return_text_in_logprobs"]) == (True, 2, True)
    sampling = body["sampling_params"]
    assert (sampling["temperature"], sampling["max_new_tokens"], sampling["repetition_penalty"]) == (0, 1, 1)
    result = verify_greedy(good(score).tokens)
    assert result.accepted == 1 and result.correction is not None and result.correction.token_id == 99
    assert score.next == NextToken("!", 16) and score.usage.cached_tokens == 3
    ended, _ = sglang_score(sglang(finish_reason={"type": "stop", "matched": 2}))
    assert ended.next == NextToken(None, 2, ends_turn=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"input_token_logprobs": None},
        {"input_token_logprobs": [[None, 13, "<a>"], [-0.3, 14, "In"]]},
        {"input_token_logprobs": [[None, 12, "?"], [-0.3, 14, "In"], [-2.0, 15, " Paris"]]},
        {"input_token_logprobs": [[None, 13, "<a>"], [-0.3, 14, "In"], [-2.0, 77, " Paris"]]},
        {"input_top_logprobs": [None]},
        {"input_token_logprobs": [3, "x", None]},
    ],
)
def test_b25_sglang_entries_of_other_tokens(changed: dict[str, Any]) -> None:
    """One entry a token from that position on, of the ids that were sent, or it is no evidence."""
    score, _ = sglang_score(sglang(**changed))
    assert isinstance(score, Unusable) and score.lasting


def test_sglang_ids_that_do_not_read_as_the_draft_are_not_paid_for() -> None:
    """A tokenizer that changes the text is found out before the billed call."""
    context = Context(4, "", 0, (10, 11, 12, 13), 2048)
    texts = reply({"text": ["".join(PROMPT), "".join(PROMPT) + "in paris", "in", " paris"]})
    score, calls = run(SglangTarget().score(ASKED, context, DRAFT), reply({"tokens": [14, 15]}), texts)
    assert isinstance(score, Unusable) and not any(call.billed for call in calls)


def test_sglang_tokens_whose_space_shows_only_in_place() -> None:
    """SentencePiece drops a leading space of a lone token: the texts are then differences of growing prefixes."""
    context = Context(4, "", 0, (10, 11, 12, 13), 2048)
    shown = "".join(PROMPT)
    replies = [
        reply({"tokens": [14, 15]}),
        reply({"text": [shown, shown + DRAFT, "In", "Paris"]}),
        reply({"text": [shown + "In", shown + DRAFT]}),
        reply(sglang()),
    ]
    score, _ = run(SglangTarget().score(ASKED, context, DRAFT), *replies)
    assert [token.text for token in good(score).tokens] == ["In", " Paris"]


def test_b29_sglang_prompts_that_open_thoughts() -> None:
    """The end of the rendered prompt is looked at, once for each end."""
    target = SglangTarget()
    ids = reply({"tokens": [1, 2, 3], "max_model_len": 100})
    found, calls = run(target.open(ASKED), ids, reply({"text": ["<|im_start|>assistant\n<think>\n"]}))
    assert isinstance(found, Unusable) and found.reason == "reasoning"
    assert [call.path for call in calls] == ["/tokenize", "/detokenize"]
    again, calls = run(target.open(ASKED), ids)
    assert isinstance(again, Unusable) and len(calls) == 1
    assert "add_generation_prompt" not in dict(calls[0].body or {}), "so that it renders as a chat completion would"
