"""vLLM by text, for hosts behind gateways that forward only /v1."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from exchange import chat, completion, decode, recorded, recording, reply, run

from cheapspec.backends.vllm import VllmTarget
from cheapspec.backends.vllm_text import seam
from cheapspec.core.ports import Context, NextToken, Score, Unusable

QUESTION = "What is 2+2? Answer with one number."
ANSWER = "The answer is 5 漢."
REQUEST = chat(QUESTION)


def score_of(answer: object, context: Context, draft: str) -> Score | Unusable:
    score, (call,) = run(VllmTarget(route="text").score(REQUEST, context, draft), reply(answer))
    assert call.billed and call.path == "chat/completions"
    return score


def recorded_body(name: str = "vllm/live_chat_score") -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(recording(name)["response"])
    return found


@pytest.mark.parametrize(
    ("surfaces", "reply_text", "draft", "found"),
    [
        ([">", "\n", "The", " sky"], "", "The sky", (2, 2)),
        ([">", "\n", "The", " sky"], "The", " sky", (2, 3)),
        ([">", "\n", "The", " sky"], "The s", "ky", None),
        ([">", "\n", "", "", "漢", "字"], "", "漢字", (2, 2)),
        ([">", "\n", "a", "", "", "漢"], "a", "漢", (2, 3)),
        ([">", "\n", "The", " sky", "<end>"], "", "The sky", None),
        (["The", "sky"], "", "The sky", None),
        ([">", "\n\n", "a"], "", "\na", None),
        ([">", "\n", "�", "�"], "", "漢", None),
    ],
)
def test_the_draft_begins_where_a_token_begins(
    surfaces: list[str], reply_text: str, draft: str, found: tuple[int, int] | None
) -> None:
    """The seam is found from the end, with the empty tokens of a character; a straddling token is none."""
    assert seam(surfaces, reply_text, draft) == found


def test_a_chat_is_scored_with_the_flags_and_without_trailing_white_space() -> None:
    """b26 too: the trailing newline is not sent, not scored, and leaves nothing known after the draft."""
    answer = recorded("vllm/live_chat_score")
    score, (call,) = run(VllmTarget(route="text").score(REQUEST, Context(), ANSWER + "\n"), answer)
    body = dict(call.body or {})
    assert body["messages"][-1] == {"role": "assistant", "content": ANSWER}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["prompt_logprobs"], body["max_tokens"], body["temperature"], body["top_p"]) == (1, 1, 0, 1)
    assert isinstance(score, Score) and score.trusted and score.next is None
    assert score.ends[-1] == len(ANSWER) and None in score.ends
    assert score.prompt_tokens == len(recorded_body()["prompt_token_ids"]) - len(score.tokens)


def test_the_second_round_starts_after_the_verified_reply() -> None:
    """With a reply so far, only the draft's tokens are judged, and the generated token is what follows."""
    score = score_of(recorded_body(), Context(text="The answer is"), " 5 漢.")
    assert isinstance(score, Score)
    assert "".join(token.text for token in score.tokens) == " 5 漢."
    assert score.next is not None and (score.next.text or score.next.ends_turn)


def test_b27_a_closed_turn_is_seen() -> None:
    """Without the flags the turn was closed: the control tokens after the text give it away, lastingly."""
    score = score_of(recorded_body("vllm/live_chat_score_closed"), Context(), ANSWER)
    assert isinstance(score, Unusable) and score.lasting and "closed" in score.detail


def thought_before(*marks: str) -> dict[str, Any]:
    """The recorded score with tokens that read so before the reply."""
    body = recorded_body()
    whole = score_of(body, Context(), ANSWER)
    assert isinstance(whole, Score)
    at = len(body["prompt_token_ids"]) - len(whole.tokens)
    ids = range(90_000, 90_000 + len(marks))
    rows = [
        {str(number): {"logprob": -0.5, "rank": 1, "decoded_token": mark}}
        for number, mark in zip(ids, marks, strict=True)
    ]
    body["prompt_token_ids"][at:at] = ids
    body["prompt_logprobs"][at:at] = rows
    return body


@pytest.mark.parametrize("marks", [["<think>", "\n"], ["<", "think", ">"], ["<think>", "\n\n", "</think>", "\n\n"]])
def test_b29_a_reply_after_thoughts_is_not_what_the_target_would_write(marks: list[str]) -> None:
    """A template that opens thoughts before the reply, or closes some that nobody switched off: lastingly unusable."""
    score = score_of(thought_before(*marks), Context(), ANSWER)
    assert isinstance(score, Unusable) and (score.reason, score.lasting) == ("reasoning", True)


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_b29_a_block_that_is_closed_since_thinking_is_off_is_no_obstacle(fields: dict[str, Any]) -> None:
    """Then the template shows the target the same empty block when it answers by itself; an open one stays one."""
    target, request = VllmTarget(route="text"), chat(QUESTION, **fields)
    closed = reply(thought_before("<think>", "\n\n", "</think>", "\n\n"))
    score, _ = run(target.score(request, Context(), ANSWER), closed)
    assert isinstance(score, Score) and score.trusted
    opened, _ = run(target.score(request, Context(), ANSWER), reply(thought_before("<think>", "\n")))
    assert isinstance(opened, Unusable) and opened.reason == "reasoning"


def test_text_that_the_caller_wrote_as_well_proves_no_closed_turn() -> None:
    """A draft that repeats the question may not condemn the host."""
    score = score_of(recorded_body(), Context(), "What is 2+2?")
    assert isinstance(score, Unusable) and not score.lasting


def test_b28_a_token_across_the_seam_proves_nothing() -> None:
    """A seam inside "answer" makes the score unusable, this once."""
    score = score_of(recorded_body(), Context(text="The ans"), "wer is 5 漢.")
    assert isinstance(score, Unusable) and not score.lasting


def test_a_prompt_that_changes_between_rounds_is_no_evidence() -> None:
    """The tokens before the reply must be those of the round before."""
    target = VllmTarget(route="text")
    first, _ = run(target.score(REQUEST, Context(), ANSWER), recorded("vllm/live_chat_score"))
    assert isinstance(first, Score)
    context, _ = run(target.advance(REQUEST, Context(), ANSWER, first, 3, None))
    assert isinstance(context, Context) and context.text == "The answer is"
    same, _ = run(target.score(REQUEST, context, " 5 漢."), recorded("vllm/live_chat_score"))
    assert isinstance(same, Score)
    body = recorded_body()
    body["prompt_token_ids"][1], row = 17, body["prompt_logprobs"][1]
    row["17"] = row.pop(next(iter(row)))
    changed, _ = run(target.score(REQUEST, context, " 5 漢."), reply(body))
    assert isinstance(changed, Unusable)


def test_a_reply_that_tokenizes_otherwise_than_it_was_written_is_continued() -> None:
    """Same text, other tokens: the target would be judged in a place where it never was. What was verified stands."""
    target = VllmTarget(route="text")
    first, _ = run(target.score(REQUEST, Context(), ANSWER), recorded("vllm/live_chat_score"))
    assert isinstance(first, Score)
    written = NextToken(" is", 99999)  # the target's own token, which is not the one that its text alone gives
    context, _ = run(target.advance(REQUEST, Context(), ANSWER, first, 2, written))
    assert isinstance(context, Context) and context.text == "The answer is" and context.tokens == 3
    score, _ = run(target.score(REQUEST, context, " 5 漢."), recorded("vllm/live_chat_score"))
    assert isinstance(score, Unusable) and score.continues and not score.lasting


def test_b25_listed_tokens_without_ids_are_taken_in_order() -> None:
    """A gateway that drops prompt_token_ids leaves vLLM's own order: the given token first."""
    body = recorded_body()
    del body["prompt_token_ids"]
    score = score_of(body, Context(), ANSWER)
    whole = score_of(recorded_body(), Context(), ANSWER)
    assert isinstance(score, Score) and isinstance(whole, Score)
    assert [token.logprob for token in score.tokens] == [token.logprob for token in whole.tokens]
    assert [token.token_id for token in score.tokens] == [token.token_id for token in whole.tokens]


def test_a_reply_through_litellm_is_read() -> None:
    """LiteLLM 1.108 passes vLLM's numbers at the top level of a chat reply."""
    request = chat("Count")
    score, _ = run(
        VllmTarget(route="text").score(request, Context(), "One,"), recorded("others/litellm_chat_cfm_promptlp")
    )
    assert isinstance(score, Score) and score.trusted
    assert [token.text for token in score.tokens] == ["One", ","] and score.usage.cached_tokens == 0


@pytest.mark.parametrize("value", [None, [], [None], {}])
def test_b24_no_numbers_no_evidence(value: object) -> None:
    """A chat reply without usable prompt_logprobs is lastingly unusable."""
    score = score_of(recorded_body() | {"prompt_logprobs": value}, Context(), ANSWER)
    assert isinstance(score, Unusable) and score.lasting


def test_white_space_alone_is_not_sent() -> None:
    """b26: a draft of only white space makes no call."""
    score, calls = run(VllmTarget(route="text").score(REQUEST, Context(), " \n"))
    assert isinstance(score, Unusable) and calls == []


def test_a_completion_is_scored_behind_its_prompt() -> None:
    """A text completion appends the draft to the prompt."""
    request = completion("The capital of France is")
    score, (call,) = run(
        VllmTarget(route="text").score(request, Context(), " Paris, and the capital of Spain is"),
        recorded("vllm/vllm_v1c_prompt_logprobs1"),
    )
    assert call.path == "completions" and (call.body or {})["prompt"].endswith("of Spain is")
    assert isinstance(score, Score) and len(score.tokens) == 8 and score.next == NextToken(" Madrid", None)


def test_the_hand_off_by_text_keeps_the_callers_body() -> None:
    """Everything the caller said travels on; the limit is what is left at the edge, in the caller's own words."""
    request = chat(
        QUESTION, max_completion_tokens=20, top_p=0.3, stop="!", prediction={"type": "content", "content": "x"}
    )
    target = VllmTarget(route="text")
    first, _ = run(target.score(request, Context(), ANSWER), recorded("vllm/live_chat_score"))
    assert isinstance(first, Score)
    context, _ = run(target.advance(request, Context(), ANSWER, first, len(first.tokens), None))
    assert isinstance(context, Context) and context.text == ANSWER
    edge = Context(context.prompt_tokens, "The answer is", 2, None, context.extra)
    call = target.continue_(request, edge, 18).request
    body = dict(call.body or {})
    assert body["messages"][-1] == {"role": "assistant", "content": "The answer is"}
    assert (body["max_completion_tokens"], body["top_p"], body["stop"]) == (17, 0.3, "!")
    assert "prediction" not in body and body["stream_options"] == {"include_usage": True}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    nothing = dict(target.continue_(request, Context(), 20).request.body or {})
    assert nothing["messages"] == request.body["messages"] and "continue_final_message" not in nothing


def test_a_chat_stream_is_decoded() -> None:
    """The hand-off's chunks become text with an end."""
    chunk = 'data: {"choices":[{"index":0,"delta":{"content":" four"}}]}\n\n'
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    pieces = decode(VllmTarget(route="text").continue_(REQUEST, Context(), 3).decoder, chunk + end)
    assert "".join(piece.text for piece in pieces) == " four" and any(piece.complete for piece in pieces)
