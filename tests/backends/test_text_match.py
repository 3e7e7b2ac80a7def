"""What a window says about a draft: tokens that agree, the first that does not, and nothing beyond."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cheapspec.backends.llamacpp_target import LlamaCppTarget
from cheapspec.backends.text_match import TextMatchTarget, WholeReplyTarget, text_matching
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.acceptance import VerificationResult, verify_greedy, verify_lenient
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import Context, NextToken, Score, Unusable
from cheapspec.core.request import Request, admit

HOLDS = "Paris is big"


def asked(**more: Any) -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "Where?"}], "temperature": 0, **more}
    found = admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
    assert isinstance(found, Request)
    return found


def played(op: Op[Any], replies: list[Any], sent: list[HttpRequest] | None = None) -> Any:
    """The operation's result; each reply is a JSON body, or a whole :class:`HttpReply`, or ``None`` for a lost call."""
    answer: HttpReply | None = None
    left = list(replies)
    try:
        while True:
            request = op.send(answer)
            if sent is not None:
                sent.append(request)
            told = left.pop(0)
            answer = told if told is None or isinstance(told, HttpReply) else HttpReply(200, json.dumps(told).encode())
    except StopIteration as over:
        return over.value


def llamacpp(tokens: list[tuple[str, int, list[tuple[str, int, float]]]], **more: Any) -> dict[str, Any]:
    """A ``/completion`` of these tokens with their alternatives."""
    probabilities = [
        {
            "id": number,
            "token": text,
            "bytes": list(text.encode()),
            "logprob": -0.1,
            "top_logprobs": [
                {"id": other, "token": shown, "bytes": list(shown.encode()), "logprob": logprob}
                for shown, other, logprob in others
            ],
        }
        for text, number, others in tokens
    ]
    return {
        "content": "".join(text for text, *_ in tokens),
        "tokens": [number for _, number, _ in tokens if number != 2],
        "completion_probabilities": probabilities,
        "stop_type": "limit",
        "tokens_evaluated": 5,
        "tokens_predicted": len(tokens),
        **more,
    }


def scored(target: Any, draft: str, *replies: Any, sent: list[HttpRequest] | None = None, **more: Any) -> Any:
    """The draft's three tokens are counted first."""
    context = Context(5, ids=(7, 8, 9, 10, 11))
    return played(target.score(asked(**more), context, draft), [{"tokens": [1, 2, 3]}, *replies], sent)


WORDS = [("Paris", 21, []), (" is", 22, []), (" big", 23, []), (".", 24, [])]


def test_a_draft_that_agrees_is_followed_by_the_targets_next_token() -> None:
    """Every token holds; the one after it is the target's own. The window asks for the draft's tokens and one."""
    sent: list[HttpRequest] = []
    score = scored(text_matching(LlamaCppTarget()), HOLDS, llamacpp(WORDS), sent=sent)
    assert isinstance(score, Score) and score.next == NextToken(".", 24) and score.ends == (5, 8, 12)
    assert verify_greedy(score.tokens) == VerificationResult(3)
    call = sent[-1]
    assert call.purpose == "continue" and call.billed and call.body is not None
    assert call.body["n_predict"] == 4 and call.body["temperature"] == 0 and "stop" not in call.body
    assert score.usage.output_tokens == 4


def test_the_first_difference_is_corrected_by_what_the_target_wrote() -> None:
    """Nothing after it counts, whatever it says."""
    score = scored(text_matching(LlamaCppTarget()), "Paris was big", llamacpp(WORDS))
    found = verify_greedy(score.tokens)
    assert (found.accepted, found.correction and found.correction.text, found.unverified) == (1, " is", 0)
    assert found.correction is not None and found.correction.token_id == 22 and score.next is None


def test_a_draft_that_ends_inside_a_token_does_not_hold_it() -> None:
    """ "Paris is b" agrees in two tokens; the third is the target's."""
    score = scored(text_matching(LlamaCppTarget()), "Paris is b", llamacpp(WORDS))
    found = verify_greedy(score.tokens)
    assert found.accepted == 2 and found.correction is not None and found.correction.text == " big"


def test_an_early_end_of_the_turn_is_a_correction_and_a_late_one_the_next_token() -> None:
    """The end token is learned; where the draft goes on, the target's end is what it says instead."""
    inner = LlamaCppTarget()
    ended = llamacpp([*WORDS[:3], ("", 2, [])], stop_type="eos")
    score = scored(text_matching(inner), HOLDS, ended)
    assert score.next == NextToken(None, 2, ends_turn=True) and 2 in inner.end_ids
    target = text_matching(inner)
    score = scored(target, "Paris is big and", ended)
    found = verify_greedy(score.tokens)
    assert found.accepted == 3 and found.correction is not None
    assert target.follow(found.correction) == NextToken(None, 2, ends_turn=True)


def test_a_character_of_several_tokens_holds_as_a_whole() -> None:
    """Only its last token has an end, and a draft with another character of the same beginning does not hold."""
    entry = llamacpp([("Hi ", 30, []), ("😀", 32, []), ("!", 33, [])])
    entry["tokens"] = [30, 31, 32, 33]
    score = scored(text_matching(LlamaCppTarget()), "Hi 😀!", entry)
    assert score.ends == (3, None, 4, 5) and verify_greedy(score.tokens).accepted == 4
    other = scored(text_matching(LlamaCppTarget()), "Hi 😁!", entry)
    assert verify_greedy(other.tokens).accepted == 1


def test_a_likely_token_holds_by_lenience_and_ends_the_window() -> None:
    """The longest listed token that is likely enough; what the target wrote after its own follows another text."""
    words = [
        WORDS[0],
        (" is", 22, [(" is", 22, -0.1), (" w", 40, -1.0), (" was", 41, -1.5), (" has", 42, -0.9)]),
        WORDS[2],
    ]
    target = TextMatchTarget(LlamaCppTarget(), 0.2)
    score = scored(target, "Paris was big", llamacpp(words))
    found = verify_lenient(score.tokens, 1.6094)
    assert (found.accepted, found.lenient) == (2, 1) and score.ends == (5, 9) and score.next is None
    assert score.tokens[-1].token_id == 41
    strict = scored(TextMatchTarget(LlamaCppTarget(), 0.9), "Paris was big", llamacpp(words))
    found = verify_lenient(strict.tokens, 0.1053)
    assert (found.accepted, found.lenient) == (1, 0) and found.correction is not None


def test_a_likely_token_may_stand_where_the_target_would_end() -> None:
    """The alternatives of the end are listed like any other's."""
    ended = llamacpp([WORDS[0], ("", 2, [(" is", 22, -1.0)])], stop_type="eos")
    score = scored(TextMatchTarget(LlamaCppTarget(), 0.2), HOLDS, ended)
    assert verify_lenient(score.tokens, 1.6094).lenient == 1


def vllm(tokens: list[str], ids: list[int], tops: list[dict[str, float]] | None = None, **more: Any) -> dict[str, Any]:
    listing = {"tokens": tokens, "token_logprobs": [-0.1] * len(tokens), "top_logprobs": tops}
    choice = {"index": 0, "text": "".join(one for one in tokens if "�" not in one and one != "</s>")}
    choice |= {"token_ids": ids, "logprobs": listing, "finish_reason": "length", "stop_reason": None, **more}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": len(ids)}}


def test_vllm_shows_its_tokens_by_text() -> None:
    """Ids and texts stand side by side; a part of a character has no end."""
    inner = VllmTarget(route="ids")
    score = scored(text_matching(inner), HOLDS, vllm(["Paris", " is", " big", "."], [21, 22, 23, 24]))
    assert verify_greedy(score.tokens).accepted == 3 and score.next == NextToken(".", 24)
    parts = vllm(["Hi ", "�", "😀", "!"], [1, 2, 3, 4])
    parts["choices"][0]["text"] = "Hi 😀!"
    score = scored(text_matching(inner), "Hi 😀!", parts)
    assert score.ends == (3, None, 4, 5)
    ended = vllm(["Paris", "</s>"], [21, 2], finish_reason="stop")
    score = scored(text_matching(inner), "Paris", ended)
    assert score.next == NextToken(None, 2, ends_turn=True) and 2 in inner.memory.end_ids


def test_a_token_that_does_not_stand_in_the_text_ends_what_is_known() -> None:
    """Clean-up may spell a token otherwise than the text: from there on nothing is believed."""
    odd = vllm(["Paris", " .", " big"], [21, 22, 23])
    odd["choices"][0]["text"] = "Paris. big"
    score = scored(text_matching(VllmTarget(route="ids")), "Paris. big", odd)
    assert verify_greedy(score.tokens).accepted == 1


def test_a_likely_token_of_vllm_has_its_id_asked_for() -> None:
    """The listing is by text: what tokenizes to one id may stand, what does not may not."""
    tops = [{}, {" is": -0.1, " was": -1.0, " w": -1.0, "�": -0.2}, {}]
    reply = vllm(["Paris", " is", " big"], [21, 22, 23], tops)
    target = TextMatchTarget(VllmTarget(route="ids"), 0.2)
    score = scored(target, "Paris was", reply, {"tokens": [41]})
    assert score.tokens[-1].token_id == 41 and verify_lenient(score.tokens, 1.6094).lenient == 1
    score = scored(target, "Paris was", reply, {"tokens": [41, 42]}, {"tokens": [40]})
    assert score.tokens[-1].text == " w"
    score = scored(target, "Paris was", reply, None, {"tokens": [1, 2]})
    assert verify_lenient(score.tokens, 1.6094).accepted == 1


@pytest.mark.parametrize(
    "reply",
    [
        None,
        HttpReply(500, b"{}"),
        HttpReply(200, b"<html>"),
        {"content": "Paris", "completion_probabilities": []},
        {"content": 3, "tokens": [1]},
        {"content": "Paris", "tokens": [1, 2], "completion_probabilities": [{"id": 9, "bytes": [65], "token": "A"}]},
        {"content": "", "tokens": [], "completion_probabilities": []},
        {"choices": [{"index": 0, "text": "Paris", "logprobs": None, "token_ids": [1]}]},
    ],
)
@pytest.mark.parametrize("inner", [LlamaCppTarget(), VllmTarget(route="ids")], ids=["llamacpp", "vllm"])
def test_an_odd_reply_is_no_evidence(inner: Any, reply: Any) -> None:
    """It is unusable, never a reason to accept and never an exception."""
    assert isinstance(scored(text_matching(inner), HOLDS, reply), Unusable)


def test_the_callers_limit_bounds_the_window() -> None:
    """No more is written than the reply may have."""
    sent: list[HttpRequest] = []
    scored(text_matching(LlamaCppTarget()), HOLDS, llamacpp(WORDS[:2]), sent=sent, max_tokens=2)
    assert sent[-1].body is not None and sent[-1].body["n_predict"] == 2


def test_without_a_count_of_the_servers_the_window_is_as_long_as_the_draft_looks() -> None:
    """A server that does not tokenize is asked for one token more than the draft has words."""
    sent: list[HttpRequest] = []
    target = text_matching(VllmTarget(route="ids"))
    played(target.score(asked(), Context(5, ids=(7,)), HOLDS), [None, None], sent)
    assert sent[-1].body is not None and sent[-1].body["max_tokens"] == 4


def test_a_route_by_text_is_refused() -> None:
    """Text is tokenized anew in every window: what would be compared need not be what the target would go on with."""
    target = text_matching(VllmTarget(route="text"))
    found = played(target.open(asked()), [])
    assert isinstance(found, Unusable) and found.reason == "cannot_score"


# --- APIs that only answer --------------------------------------------------------------------------------


def answered(text: object, reason: str = "stop", tokens: int = 5, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}
    return {"id": "c1", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


def test_a_whole_reply_is_asked_for_once_as_the_caller_would() -> None:
    """The caller's own fields but those of a stream; text and end are the reply's, agreement is in proportion."""
    sent: list[HttpRequest] = []
    target = text_matching(None)
    assert isinstance(target, WholeReplyTarget)
    request = asked(stream=True, top_p=0.5)
    context = played(target.open(request), [])
    score = played(target.score(request, context, "Paris was"), [answered("Paris is big")], sent)
    assert sent[0].body is not None and sent[0].body["top_p"] == 0.5 and "stream" not in sent[0].body
    found = verify_greedy(score.tokens)
    assert found.accepted == 2 and found.correction is not None
    follow = target.follow(found.correction)
    assert follow is not None and follow.ends_turn
    whole = played(target.advance(request, context, "Paris was", score, 2, None), [])
    assert (whole.text, whole.tokens) == ("Paris is big", 4) and score.prompt_tokens == 9


@pytest.mark.parametrize(("draft", "accepted"), [(HOLDS, 4), (HOLDS + "!", 4), ("Paris", 2), ("Rome", 0)])
def test_agreement_with_a_whole_reply(draft: str, accepted: int) -> None:
    """All of it, all and more, its beginning, nothing."""
    target = WholeReplyTarget()
    score = played(target.score(asked(), Context(), draft), [answered(HOLDS)])
    found = verify_greedy(score.tokens)
    assert found.accepted == accepted and (found.correction is None) == (draft == HOLDS)
    assert (score.next is not None) == (draft == HOLDS)


def test_a_reply_at_the_callers_limit_ends_there() -> None:
    """It is no end of the turn; a limit that is not the caller's makes it no reply to give out."""
    target = WholeReplyTarget()
    score = played(target.score(asked(max_tokens=5), Context(), HOLDS), [answered(HOLDS, "length")])
    assert score.next is None
    score = played(target.score(asked(max_tokens=5), Context(), "Rome"), [answered(HOLDS, "length")])
    correction = verify_greedy(score.tokens).correction
    assert correction is not None and target.follow(correction) is None
    cut = played(target.score(asked(), Context(), HOLDS), [answered(HOLDS, "length")])
    assert isinstance(cut, Unusable)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        HttpReply(429, b'{"error": {"message": "slow down"}}'),
        answered(None),
        answered("Paris", "tool_calls"),
        answered("Paris", tool_calls=[{"id": "x"}]),
        answered("", refusal="no"),
        {},
    ],
)
def test_a_reply_that_is_more_than_text_is_not_given_out(reply: Any) -> None:
    """The request goes direct then, so that the caller gets what the target really sends."""
    assert isinstance(played(WholeReplyTarget().score(asked(), Context(), HOLDS), [reply]), Unusable)
