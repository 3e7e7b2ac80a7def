"""vLLM by token ids, on replies recorded from vLLM 0.32."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from exchange import chat, completion, decode, recorded, recording, reply, run

from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.acceptance import Alternative, verify_greedy
from cheapspec.core.effects import HttpReply
from cheapspec.core.ports import Context, NextToken, Score, Unusable

DRAFT = "Hi 😀 漢字\n\n  x . ,"
SUM = "The answer is 4."
RANKS = [14, 4, 1, 10, 1, 1, 1, 3686, 155, 876, 153]
REQUEST = chat("Say hi 😀 漢字")


def opened(target: VllmTarget, name: str = "vllm/live_tokenize_prompt") -> Context:
    context, _ = run(target.open(REQUEST), recorded(name))
    assert isinstance(context, Context)
    return context


def scored(target: VllmTarget, score_reply: HttpReply | None = None) -> tuple[Context, Score | Unusable]:
    context = opened(target)
    answer = score_reply or recorded("vllm/live_score_utf8")
    score, _ = run(target.score(REQUEST, context, DRAFT), recorded("vllm/live_tokenize_draft"), answer)
    return context, score


def altered(change: Any, name: str = "vllm/live_score_utf8") -> HttpReply:
    body = copy.deepcopy(recording(name)["response"])
    change(body)
    return reply(json.dumps(body))


def given(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The entry of the token that stands there, position by position."""
    choice = body["choices"][0]
    pairs = zip(choice["prompt_logprobs"], choice["prompt_token_ids"], strict=True)
    return [row[str(token_id)] for row, token_id in pairs if row is not None]


def test_the_prompt_becomes_ids_as_the_chat_route_renders_it() -> None:
    """Opening asks /tokenize at the server's root, unbilled, with what the chat template needs."""
    request = chat("x", chat_template_kwargs={"enable_thinking": False}, reasoning_effort="none", top_p=0.5)
    context, (call,) = run(VllmTarget().open(request), recorded("vllm/live_tokenize_prompt"))
    assert isinstance(context, Context)
    assert (call.path, call.billed) == ("/tokenize", False)
    assert call.body is not None
    assert call.body["add_generation_prompt"] is True
    assert call.body["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "none"}
    assert "top_p" not in call.body
    assert context.ids == tuple(recording("vllm/live_tokenize_prompt")["response"]["tokens"])
    assert (context.prompt_tokens, context.extra) == (len(context.ids or ()), 2048)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_remembered(status: int) -> None:
    """This request takes the text route; with a key that is good the next one goes by token ids."""
    target = VllmTarget()
    context, _ = run(target.open(REQUEST), reply({"error": "Unauthorized"}, status))
    assert isinstance(context, Context) and context.ids is None
    assert target.route is None
    assert opened(target).ids is not None


def test_a_completion_prompt_gets_its_special_tokens() -> None:
    """A text completion is tokenized with the special tokens that the completion route adds."""
    _, (call,) = run(VllmTarget().open(completion("Once")), recorded("vllm/vllm_tokenize"))
    assert call.body == {"model": "smol", "prompt": "Once", "add_special_tokens": True}


def test_a_gateway_without_tokenize_is_remembered() -> None:
    """404 on the route means the text route, and /tokenize is not asked again; an unknown model is no such sign."""
    target = VllmTarget()
    problem, _ = run(target.open(REQUEST), recorded("vllm/live_error_model"))
    assert isinstance(problem, Unusable) and problem.status == 404 and target.route is None
    context, _ = run(target.open(REQUEST), recorded("vllm/live_error_route"))
    assert isinstance(context, Context) and context.ids is None
    again, calls = run(target.open(REQUEST))
    assert isinstance(again, Context) and calls == []
    page, _ = run(VllmTarget().open(REQUEST), reply("<html>welcome</html>"))
    assert isinstance(page, Context) and page.ids is None


def test_b22_the_scoring_call_is_neutral_whatever_the_caller_samples_with() -> None:
    """Neutral sampling travels in the scoring call, the caller's own does not."""
    request = chat("x", temperature=0.2, top_p=0.1, stop=["!"], seed=3, cache_salt="s")
    target = VllmTarget()
    context, _ = run(target.open(request), recorded("vllm/live_tokenize_prompt"))
    assert isinstance(context, Context)
    replies = recorded("vllm/live_tokenize_draft"), recorded("vllm/live_score_utf8")
    _, (tokenize, score) = run(target.score(request, context, DRAFT), *replies)
    assert (tokenize.billed, score.billed, score.purpose, score.path) == (False, True, "score", "completions")
    body = dict(score.body or {})
    assert {key: body[key] for key in NEUTRAL_SAMPLING} == dict(NEUTRAL_SAMPLING)
    assert not {"stop", "seed"} & set(body) and body["cache_salt"] == "s"
    assert body["prompt"] == recording("vllm/live_score_utf8")["request"]["prompt"]
    assert (body["max_tokens"], body["prompt_logprobs"], body["add_special_tokens"]) == (1, 1, False)


def test_scores_carry_rank_alternatives_and_exact_ends() -> None:
    """Every draft token has its rank and the rank-1 token; a token inside a character has no end."""
    _, score = scored(VllmTarget())
    assert isinstance(score, Score) and score.trusted
    # Hi| 😀: two tokens| 漢: three| 字|\n\n_| x| .| ,
    assert score.ends == (2, None, 4, None, None, 6, 7, 10, 12, 14, 16)
    assert [token.rank for token in score.tokens] == RANKS
    assert score.tokens[0].text == "Hi" and {one.token_id for one in score.tokens[0].top} == {26843, 10813}
    assert score.usage.cached_tokens == 0 and score.usage.output_tokens == 1
    assert score.identity.model == "smol" and score.identity.system_fingerprint is not None
    assert score.next == NextToken(" .", 1673)


def test_the_end_of_turn_is_learned_from_the_generated_token() -> None:
    """finish_reason stop after the draft ends the turn, and a later correction by that id ends it too."""
    target = VllmTarget()
    assert target.follow(Alternative("<|im_end|>", -0.1, 2)) is None
    context, _ = run(target.open(REQUEST), recorded("vllm/live_tokenize_sum"))
    assert isinstance(context, Context)
    replies = recorded("vllm/live_tokenize_sum_draft"), recorded("vllm/live_score_end_of_turn")
    score, _ = run(target.score(REQUEST, context, SUM), *replies)
    assert isinstance(score, Score)
    assert score.next == NextToken(None, 2, ends_turn=True)
    assert verify_greedy(score.tokens).accepted == len(score.tokens)
    assert target.follow(Alternative("<|im_end|>", -0.1, 2)) == NextToken(None, 2, ends_turn=True)


@pytest.mark.parametrize("text", ["", "�", "a�", "<|endoftext|>", "<think>"])
def test_a_correction_that_is_no_text_is_left_to_the_hand_off(text: str) -> None:
    """Parts of characters and unknown control tokens never become text."""
    assert VllmTarget().follow(Alternative(text, -0.1, 7)) is None


def test_advance_keeps_whole_characters() -> None:
    """Accepted tokens that end inside a character are rolled back with it, and the ids with them."""
    target = VllmTarget()
    context, score = scored(target)
    assert isinstance(score, Score) and context.ids is not None
    for accepted, text, tokens in ((0, "", 0), (1, "Hi", 1), (2, "Hi", 1), (3, "Hi 😀", 3), (5, "Hi 😀", 3)):
        after, calls = run(target.advance(REQUEST, context, DRAFT, score, accepted, None))
        assert isinstance(after, Context) and calls == []
        assert (after.text, after.tokens) == (text, tokens)
        assert after.ids == context.ids + tuple(token.token_id for token in score.tokens[:tokens])


def test_a_token_that_completes_a_character_brings_the_whole_of_it() -> None:
    """vLLM decodes the last token of a character as the character, so the open tokens stay with it."""
    target = VllmTarget()
    context, score = scored(target)
    assert isinstance(score, Score) and context.ids is not None
    after, _ = run(target.advance(REQUEST, context, DRAFT, score, 2, NextToken(" 😁", 219)))
    assert isinstance(after, Context)
    assert (after.text, after.tokens) == ("Hi 😁", 3)
    assert after.ids == (*context.ids, 26843, 40303, 219)


def test_a_correction_that_clean_up_may_have_cut_is_asked_for() -> None:
    """ "." may be " ." cleaned up: the text that tokenizes back to the id is taken; known ids need no call."""
    target = VllmTarget()
    context, score = scored(target)
    assert isinstance(score, Score)
    dot, spaced = reply({"tokens": [30]}), reply({"tokens": [2200]})
    after, calls = run(target.advance(REQUEST, context, DRAFT, score, 1, NextToken(".", 2200)), dot, spaced)
    assert isinstance(after, Context) and after.text == "Hi ." and [call.billed for call in calls] == [False, False]
    again, calls = run(target.advance(REQUEST, context, DRAFT, score, 1, NextToken(".", 2200)))
    assert isinstance(again, Context) and again.text == "Hi ." and calls == []
    lost, _ = run(target.advance(REQUEST, context, DRAFT, score, 1, NextToken("!", 9)), dot, dot)
    assert isinstance(lost, Context) and lost.text == "Hi"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["choices"][0].update(prompt_logprobs=None),
        lambda body: body["choices"][0].pop("prompt_logprobs"),
        lambda body: body["choices"][0].update(prompt_logprobs=[None]),
        lambda body: body["choices"][0].update(prompt_logprobs=[]),
        lambda body: body["choices"][0]["prompt_logprobs"].pop(),
        lambda body: body.update(choices=[]),
        lambda body: body.update(choices=None),
    ],
)
def test_b24_missing_or_short_log_probabilities_are_no_evidence(change: Any) -> None:
    """A 200 without one entry a prompt token is unusable, and lastingly so: it is not paid for again."""
    _, score = scored(VllmTarget(), altered(change))
    assert isinstance(score, Unusable) and score.lasting and score.reason == "cannot_score"


def test_b24_a_refused_parameter_lasts_and_a_busy_server_does_not() -> None:
    """400 naming log-probabilities lasts; a full context, 429, 5xx and a broken line do not."""
    _, refused = scored(VllmTarget(), recorded("vllm/live_error_logprobs"))
    assert isinstance(refused, Unusable) and (refused.lasting, refused.status) == (True, 400)
    _, full = scored(VllmTarget(), recorded("vllm/live_error_context"))
    assert isinstance(full, Unusable) and (full.lasting, full.retryable) == (False, False)
    for status in (429, 500, 503):
        _, busy = scored(VllmTarget(), reply({"error": {"message": "later"}}, status))
        assert isinstance(busy, Unusable) and (busy.lasting, busy.retryable, busy.status) == (False, True, status)
    target = VllmTarget()
    context = opened(target)
    lost, _ = run(target.score(REQUEST, context, DRAFT), recorded("vllm/live_tokenize_draft"), None)
    assert isinstance(lost, Unusable) and lost.retryable


def test_b20_numbers_that_are_none_stay_unknown() -> None:
    """NaN, infinity and -9999 become None at their position, and nothing at it is accepted."""

    def spoil(body: dict[str, Any]) -> None:
        entries = given(body)
        for entry, number in zip(entries[-11:], [float("nan"), float("-inf"), -9999.0, None], strict=False):
            entry["logprob"] = number

    _, score = scored(VllmTarget(), altered(spoil))
    assert isinstance(score, Score) and score.trusted
    assert [token.logprob for token in score.tokens[:4]] == [None] * 4
    assert score.tokens[4].logprob is not None
    assert verify_greedy(score.tokens).accepted == 0


def test_b20_a_500_about_the_numbers_is_not_tried_again() -> None:
    """The same request meets the same numbers."""
    message = "Out of range float values are not JSON compliant"
    _, score = scored(VllmTarget(), reply({"error": {"message": message}}, 500))
    assert isinstance(score, Unusable) and not score.retryable


def test_b22_zeros_everywhere_are_no_distribution() -> None:
    """A server that answers 0.0 at every position, prompt included, is not trusted."""

    def flatten(body: dict[str, Any]) -> None:
        for entry in given(body):
            entry["logprob"] = 0.0

    _, score = scored(VllmTarget(), altered(flatten))
    assert isinstance(score, Score) and not score.trusted


def test_a_reply_about_other_ids_is_no_evidence() -> None:
    """Echoed ids, or listed tokens, that were not sent make the score unusable."""
    _, echoed = scored(VllmTarget(), altered(lambda body: body["choices"][0]["prompt_token_ids"].reverse()))
    assert isinstance(echoed, Unusable)

    def other(body: dict[str, Any]) -> None:
        del body["choices"][0]["prompt_token_ids"]
        body["choices"][0]["prompt_logprobs"][-1] = {"5": {"logprob": -0.1, "rank": 1, "decoded_token": " ,"}}

    _, listed = scored(VllmTarget(), altered(other))
    assert isinstance(listed, Unusable)


def test_a_draft_that_the_tokenizer_changes_is_not_paid_for() -> None:
    """Pieces that do not join to the draft are checked by /detokenize, before the billed call."""
    target = VllmTarget()
    context = opened(target)
    pieces = reply({"tokens": [1, 2], "token_strs": ["▁Hi", "▁there"]})
    answer, calls = run(target.score(REQUEST, context, "Hi there"), pieces, reply({"prompt": " Hi there"}))
    assert isinstance(answer, Unusable) and not any(call.billed for call in calls)


def test_the_hand_off_goes_on_from_the_ids_with_the_callers_fields() -> None:
    """Caller's sampling, no chat-only field, and what is left of the window as chat's own default limit."""
    request = chat("x", temperature=0, top_p=0.9, stop=["!"], seed=3, max_completion_tokens=50, store=False)
    context = Context(3, "ab", 2, (1, 2, 3, 4, 5), 2048)
    call = VllmTarget().continue_(request, context, 48).request
    assert (call.purpose, call.path, call.stream, call.billed) == ("continue", "completions", True, True)
    assert call.body == {
        "model": "smol",
        "prompt": [1, 2, 3, 4, 5],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "temperature": 0,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["!"],
        "max_tokens": 48,
    }
    unlimited = VllmTarget().continue_(chat("x"), context, None).request.body or {}
    assert unlimited["max_tokens"] == 2048 - 5


def test_a_recorded_stream_is_decoded_in_any_split() -> None:
    """Text, ids, end and usage of a real stream come out whole."""
    streaming = VllmTarget().continue_(chat("x"), Context(1, "", 0, (1,)), 40)
    pieces = decode(streaming.decoder, recording("vllm/live_continue_stream")["response"])
    assert "".join(piece.text for piece in pieces) == " 4."
    assert sum((piece.ids or () for piece in pieces), ()) == (216, 36, 30, 2)
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    usage = next(piece.usage for piece in pieces if piece.usage is not None)
    assert usage.output_tokens == 4 and any(piece.complete for piece in pieces)
    refused = streaming.on_error(recorded("vllm/live_error_context"))
    assert isinstance(refused, Unusable) and refused.status == 400


def test_two_decoders_never_share_a_stream() -> None:
    """A second hand-off starts with an empty decoder."""
    target = VllmTarget()
    context = replace(Context(), ids=(1,))
    assert target.continue_(REQUEST, context, 1).decoder is not target.continue_(REQUEST, context, 1).decoder


@pytest.mark.parametrize("tail", [["<think>", "\u010a"], ["<", "think", ">"], ["\u010a", "<think>", "\u010a\u010a"]])
def test_b29_a_prompt_that_opens_thoughts_is_not_speculated_on(tail: list[str]) -> None:
    """Where the chat template makes the target think first, the request goes direct, reason ``reasoning``."""
    told = {"count": 4, "max_model_len": 64, "tokens": [1, 2, 3, 4], "token_strs": ["Hi", *tail]}
    context, _ = run(VllmTarget(route="ids").open(REQUEST), reply(told))
    assert isinstance(context, Unusable)
    assert context.reason == "reasoning"


def test_b29_a_block_of_thoughts_that_is_closed_is_a_prompt_like_any_other() -> None:
    """Templates that switch thinking off write an empty block of thoughts; that is no obstacle."""
    told = {
        "count": 4,
        "max_model_len": 64,
        "tokens": [1, 2, 3, 4],
        "token_strs": ["<think>", "\u010a", "</think>", "\u010a"],
    }
    context, _ = run(VllmTarget(route="ids").open(REQUEST), reply(told))
    assert isinstance(context, Context)


def test_a_request_that_does_not_fit_the_window_goes_direct_before_anything_is_paid() -> None:
    """Prompt and max_tokens beyond the model's window: the server's own refusal is the answer; the same for a draft."""
    told = {"count": 4, "max_model_len": 16, "tokens": [1, 2, 3, 4]}
    context, _ = run(VllmTarget(route="ids").open(replace(REQUEST, max_tokens=13)), reply(told))
    assert isinstance(context, Unusable)
    assert context.reason == "unsupported_field"
    fits, _ = run(VllmTarget(route="ids").open(replace(REQUEST, max_tokens=12)), reply(told))
    assert isinstance(fits, Context)
    drafted = {"count": 12, "max_model_len": 16, "tokens": list(range(12)), "token_strs": ["x"] * 12}
    score, sent = run(VllmTarget(route="ids").score(REQUEST, fits, "x" * 12), reply(drafted))
    assert isinstance(score, Unusable)
    assert score.reason == "draft_context"
    assert not any(call.billed for call in sent)
