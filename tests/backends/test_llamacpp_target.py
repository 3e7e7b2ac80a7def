"""llama.cpp as a target that is forced, on replies recorded from build 11549."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from exchange import chat, completion, decode, recorded, recording, reply, run

from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.llamacpp_wire import exact_grammar
from cheapspec.core.acceptance import Alternative, verify_greedy
from cheapspec.core.ports import Context, NextToken, Score, Unusable

DRAFT = 'Hi "😀" 漢\n\tx\\y'
REQUEST = chat("Say hi 😀 漢字")
OPENING = ("llamacpp/xl_props", "llamacpp/live_tokenize_end", "llamacpp/live_apply_template", "llamacpp/live_tokenize")


def opened(target: LlamaCppTarget) -> Context:
    context, _ = run(target.open(REQUEST), *map(recorded, OPENING))
    assert isinstance(context, Context)
    return context


def forced(change: Any = None, target: LlamaCppTarget | None = None) -> Score | Unusable:
    target = target or LlamaCppTarget()
    body = copy.deepcopy(recording("llamacpp/live_force")["response"])
    if change is not None:
        change(body)
    score, _ = run(target.score(REQUEST, opened(target), DRAFT), reply(json.dumps(body)))
    return score


def test_opening_renders_tokenizes_and_asks_once_for_the_end_token() -> None:
    """The prompt becomes ids; which token ends a turn is asked by name, once a server."""
    target = LlamaCppTarget()
    context = opened(target)
    assert context.ids == tuple(recording("llamacpp/live_tokenize")["response"]["tokens"])
    assert target.end_ids == {2}
    again, calls = run(
        target.open(REQUEST), recorded("llamacpp/live_apply_template"), recorded("llamacpp/live_tokenize")
    )
    assert again == context and [call.path for call in calls] == ["/apply-template", "/tokenize"]
    assert not any(call.billed for call in calls)
    _, calls = run(target.open(completion("Once")), recorded("llamacpp/live_tokenize"))
    assert [call.body for call in calls] == [{"content": "Once", "add_special": True, "parse_special": True}]


def test_the_grammar_of_a_draft_is_the_recorded_one() -> None:
    """Quotes, backslashes, white space, control characters and any script are written as code points."""
    assert exact_grammar(DRAFT) == recording("llamacpp/live_force")["request"]["grammar"]
    assert exact_grammar("a-b") == 'root ::= "a\\x2Db"'
    assert exact_grammar("\x00\x7f\x85é\u2028\uffff𝄞") == 'root ::= "\\x00\\x7F\\x85\\xE9\\u2028\\uFFFF\\U0001D11E"'


def test_a_forced_draft_is_evidence() -> None:
    """One billed call, neutral; each token's number is the unconstrained one."""
    target = LlamaCppTarget()
    context = opened(target)
    score, (call,) = run(target.score(chat("x", temperature=0.7), context, DRAFT), recorded("llamacpp/live_force"))
    body = dict(call.body or {})
    assert (call.purpose, call.path, call.billed) == ("force", "/completion", True)
    assert (body["temperature"], body["top_k"], body["n_probs"], body["cache_prompt"]) == (0, 0, 2, True)
    assert isinstance(score, Score) and score.trusted
    assert len(score.tokens) == len(recording("llamacpp/live_force")["response"]["tokens"]) - 1
    assert score.tokens[0].text == "H" and score.tokens[0].top[0] == Alternative(
        "�", score.tokens[0].top[0].logprob, 10813
    )
    assert score.usage.output_tokens == len(score.tokens) + 1 and score.usage.cached_tokens is not None


def test_the_tokens_of_one_character_but_the_last_are_unknown() -> None:
    """Three tokens of an emoji come as one entry with the last one's number: the others have none."""
    score = forced()
    assert isinstance(score, Score)
    emoji = [token for token in score.tokens if token.token_id in (10813, 242)]
    assert emoji and all(token.logprob is None and token.top == () for token in emoji)
    open_ends = [end for token, end in zip(score.tokens, score.ends, strict=True) if token.logprob is None]
    assert open_ends and set(open_ends) == {None}
    assert score.ends[-1] == len(DRAFT)


def test_the_entry_after_the_draft_says_what_comes_next() -> None:
    """The last entry's best alternative is the next token: here the end of the turn."""
    target = LlamaCppTarget()
    context = opened(target)
    score, _ = run(target.score(REQUEST, context, "The answer is 4."), recorded("llamacpp/live_force_end_of_turn"))
    assert isinstance(score, Score) and score.next == NextToken(None, 2, ends_turn=True)
    assert verify_greedy(score.tokens).accepted == len(score.tokens)
    other = forced()
    assert isinstance(other, Score) and other.next is not None and not other.next.ends_turn


def test_simulated_scoring_is_told_as_input() -> None:
    """Demo and bench: the draft's tokens count as input, one token as output; nothing else changes."""
    real, simulated = forced(), forced(target=LlamaCppTarget(simulate_scoring=True))
    assert isinstance(real, Score) and isinstance(simulated, Score)
    assert simulated.usage.input_tokens == real.usage.input_tokens + len(real.tokens)
    assert (simulated.usage.output_tokens, simulated.usage.cached_tokens) == (1, real.usage.cached_tokens)
    assert simulated.tokens == real.tokens


@pytest.mark.parametrize(
    ("change", "lasting"),
    [
        (lambda body: body.update(content="Hello, how may I help?"), True),
        (lambda body: body.update(content='Hi "'), False),
        (lambda body: body.pop("completion_probabilities"), True),
        (lambda body: body.update(completion_probabilities=None), True),
        (lambda body: body.update(tokens=[]), True),
        (lambda body: body["completion_probabilities"].pop(3), False),
        (lambda body: body["tokens"].insert(2, 77), False),
    ],
)
def test_b24_a_reply_that_does_not_fit_is_no_evidence(change: Any, lasting: bool) -> None:
    """Other text, no numbers, or entries that do not cover the tokens: unusable."""
    score = forced(change)
    assert isinstance(score, Unusable) and score.lasting is lasting


def test_b20_numbers_that_are_none_stay_unknown() -> None:
    """A null or a NaN is not a probability, and nothing at it is accepted."""

    def spoil(body: dict[str, Any]) -> None:
        for entry, number in zip(body["completion_probabilities"], [None, float("nan"), -9999.0], strict=False):
            entry["logprob"] = number

    score = forced(spoil)
    assert isinstance(score, Score) and [token.logprob for token in score.tokens[:3]] == [None] * 3
    assert verify_greedy(score.tokens).accepted == 0


def test_b22_zeros_everywhere_are_no_distribution() -> None:
    """All 0.0 is what a sampler leaves after filtering, not what a model says."""

    def flatten(body: dict[str, Any]) -> None:
        for entry in body["completion_probabilities"]:
            entry["logprob"] = 0.0

    score = forced(flatten)
    assert isinstance(score, Score) and not score.trusted


def test_errors_of_the_server_are_told_apart() -> None:
    """A full context is not lasting, a broken line and a loading model are worth another try."""
    target = LlamaCppTarget()
    context = opened(target)
    full, _ = run(target.score(REQUEST, context, "x"), recorded("llamacpp/live_error_context"))
    assert isinstance(full, Unusable) and (full.status, full.lasting, full.retryable) == (400, False, False)
    lost, _ = run(target.score(REQUEST, context, "x"), None)
    assert isinstance(lost, Unusable) and lost.retryable
    loading = reply({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)
    busy, _ = run(target.open(REQUEST), loading)
    assert isinstance(busy, Unusable) and busy.retryable
    broken, calls = run(target.score(REQUEST, context, "\ud800"))
    assert isinstance(broken, Unusable) and calls == []


def test_advance_goes_by_ids_and_whole_characters() -> None:
    """Accepted ids and the correction's id are appended; open characters are rolled back with what follows."""
    target = LlamaCppTarget()
    context, score = opened(target), forced()
    assert isinstance(score, Score) and context.ids is not None
    after, calls = run(target.advance(REQUEST, context, DRAFT, score, 2, target.follow(Alternative("!", -0.1, 17))))
    assert isinstance(after, Context) and calls == []
    assert (after.text, after.tokens, after.ids) == ("Hi!", 3, (*context.ids, 56, 89, 17))
    opening = next(index for index, end in enumerate(score.ends) if end is None)
    cut, _ = run(target.advance(REQUEST, context, DRAFT, score, opening + 1, NextToken("?", 33)))
    assert isinstance(cut, Context)
    assert (cut.text, cut.tokens) == ('Hi "', opening)
    assert cut.ids == context.ids + tuple(token.token_id for token in score.tokens[:opening])


def test_corrections_become_text_or_the_end_or_nothing() -> None:
    """Part of a character and unknown control tokens (no bytes) are left to the hand-off."""
    target = LlamaCppTarget(end_ids=(2,))
    assert target.follow(Alternative(" yes", -0.1, 5)) == NextToken(" yes", 5)
    assert target.follow(Alternative("", -0.1, 2)) == NextToken(None, 2, ends_turn=True)
    assert target.follow(Alternative("", -0.1, 0)) is None
    assert target.follow(Alternative("�", -0.1, 10813)) is None


def test_the_hand_off_streams_with_the_callers_fields() -> None:
    """Ids, the caller's sampling, what is left; a character of several tokens counts all of them."""
    request = chat("x", temperature=0, top_p=0.5, stop=["!"], seed=1, max_tokens=9)
    streaming = LlamaCppTarget().continue_(replace(request, stream=True), Context(2, "", 0, (1, 2)), 8)
    assert streaming.request.body == {
        "prompt": [1, 2],
        "stream": True,
        "cache_prompt": True,
        "return_tokens": True,
        "temperature": 0,
        "top_p": 0.5,
        "seed": 1,
        "stop": ["!"],
        "n_predict": 8,
    }
    pieces = decode(streaming.decoder, recording("llamacpp/live_continue_stream")["response"])
    assert "".join(piece.text for piece in pieces) == "🌟🌟"
    assert [piece.tokens for piece in pieces] == [3, 3, 2] and all(piece.ids is None for piece in pieces)
    last = pieces[-1]
    assert (last.finish_reason, last.complete) == ("length", True)
    assert last.usage is not None and (last.usage.output_tokens, last.usage.input_tokens) == (
        8,
        len(recording("llamacpp/live_tokenize")["response"]["tokens"]),
    )


@pytest.mark.parametrize(("stream", "text"), [(False, "is \ufffd"), (True, "is ")])
def test_a_character_cut_by_the_limit_is_shown_as_the_server_shows_it(stream: bool, text: str) -> None:
    """b50 (b): a whole reply of llama.cpp ends in U+FFFD there, a streamed one before the character."""
    body = (
        'data: {"content":"is ","stop":false,"tokens_predicted":1}\n\n'
        'data: {"content":"","stop":true,"stop_type":"limit","tokens_predicted":2}\n\n'
    )
    decoder = LlamaCppTarget().continue_(replace(REQUEST, stream=stream), Context(2, "", 0, (1, 2)), 2).decoder
    pieces = decode(decoder, body)
    assert "".join(piece.text for piece in pieces) == text
    assert sum(piece.tokens or 0 for piece in pieces) == 2 and pieces[-1].finish_reason == "length"


def test_a_stream_that_breaks_off_or_reports_an_error_is_not_complete() -> None:
    """No stop event, no end; an error object is an error."""
    streaming = LlamaCppTarget().continue_(REQUEST, Context(2, "", 0, (1, 2)), None)
    assert "n_predict" not in (streaming.request.body or {})
    pieces = decode(streaming.decoder, 'data: {"content":"a","stop":false,"tokens_predicted":1}\n\n')
    assert [piece.text for piece in pieces] == ["a"] and not any(piece.complete for piece in pieces)
    broken = LlamaCppTarget().continue_(REQUEST, Context(2, "", 0, (1, 2)), None)
    error = 'data: {"error":{"code":500,"message":"no slot","type":"server_error"}}\n\n'
    assert decode(broken.decoder, error)[0].error == {"code": 500, "message": "no slot", "type": "server_error"}
    refused = broken.on_error(recorded("llamacpp/live_error_context"))
    assert isinstance(refused, Unusable) and refused.status == 400


@pytest.mark.parametrize("mark", ["<think>", "<thought>", "[THINK]", "◁think▷", "<|START_THINKING|>", "<seed:think>"])
def test_b29_a_template_that_opens_thoughts_is_not_speculated_on(mark: str) -> None:
    """Where the chat template makes the target think first, the request goes direct, reason ``reasoning``."""
    target = LlamaCppTarget(end_ids=(2,))
    context, _ = run(target.open(REQUEST), reply({"prompt": f"<|im_start|>assistant\n{mark}\n"}))
    assert isinstance(context, Unusable)
    assert context.reason == "reasoning"
