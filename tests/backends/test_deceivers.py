"""Four servers that answer 200 and mislead, by their own recorded replies: the probe must not believe any of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from exchange import chat, completion, recorded, reply, run
from test_probe import Host, probed

from cheapspec.backends.echo import is_echoed, read_echo
from cheapspec.backends.llamacpp_python import LlamaCppPythonTarget
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.acceptance import verify_greedy, verify_lenient
from cheapspec.core.effects import HttpReply, HttpRequest, Usage
from cheapspec.core.ports import Context, Score, Unusable
from cheapspec.core.rules import MOST_NATS

NOT_FOUND = reply({"detail": "Not Found"}, 404)
PROMPT, DRAFT = "The capital of France is", " Paris, and the capital of Spain is"
GREEDY = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one, two, three"}, "finish_reason": "stop"}]
}


def answering(chats: HttpReply, score: HttpReply, echo: HttpReply) -> Callable[[HttpRequest], HttpReply]:
    """A server that serves the OpenAI routes only, so that nothing but its replies says what it is."""

    def answer(call: HttpRequest) -> HttpReply:
        body = call.body or {}
        if call.path not in ("chat/completions", "completions"):
            return NOT_FOUND
        if "prompt_logprobs" in body:
            return score
        return echo if body.get("echo") else chats

    return answer


def test_llama_cpp_ignores_echo_silently() -> None:
    """It answers with the generated token's numbers in chat shape: none of the text that was sent."""
    ignored, echo = recorded("llamacpp/xl_v1c_prompt_logprobs"), recorded("llamacpp/xl_v1c_echo")
    facts, _ = probed(answering(reply(GREEDY), ignored, echo))
    assert (facts.can_score, facts.can_force, facts.reason) == (False, False, "cannot_score")
    assert any("no log-probabilities of the prompt" in finding for finding in facts.evidence)
    assert "echo is ignored" in facts.evidence[-1]


def test_llama_cpp_python_is_off_by_one() -> None:
    """Read in place its numbers reject what it had written itself; read one position later they hold."""
    echo = recorded("others/lcp_v1c_echo_mt1")
    assert "shifted by one position" in read_echo(echo, PROMPT + DRAFT)
    assert is_echoed(echo, PROMPT + DRAFT)
    question = completion(PROMPT, max_tokens=16)
    in_place, _ = run(LlamaCppPythonTarget(shift=0).score(question, Context(), DRAFT), echo)
    assert isinstance(in_place, Score)
    assert verify_greedy(in_place.tokens).accepted == 0, "the model's own first token, judged by the next position"
    later, _ = run(LlamaCppPythonTarget(shift=1).score(question, Context(), DRAFT), echo)
    assert isinstance(later, Score)
    result = verify_greedy(later.tokens)
    assert result.accepted == 1
    assert result.correction is not None
    assert result.correction.text == ".", "after Paris it would have ended the sentence"
    assert later.next is not None
    assert later.next.text == " Madrid"
    unknown, calls = run(LlamaCppPythonTarget().open(question))
    assert isinstance(unknown, Unusable) and unknown.reason == "not_probed" and not calls


def test_litellm_turns_a_completion_into_a_chat() -> None:
    """``openrouter/`` models: the scoring fields are dropped on the way, and a plain text comes back."""
    echo = recorded("others/litellm_openrouter_text_echo")
    facts, calls = probed(answering(reply(GREEDY), reply(GREEDY), echo))
    assert (facts.can_score, facts.reason) == (False, "cannot_score")
    assert "echo is ignored" in facts.evidence[-1]
    assert [call.path for call in calls if call.billed][-1] == "completions"


@pytest.mark.parametrize("where", ["scoring", "continuing"])
def test_vllm_closes_the_turn_without_its_flags(where: str) -> None:
    """A gateway that drops the flags: what is scored ends in a control token, what is written is a new reply."""
    if where == "scoring":
        target = VllmTarget(route="text")
        recording = recorded("vllm/live_chat_score_closed")
        said = "The answer is 5 漢."
        scored, _ = run(target.score(chat("What is 2+2? Answer with one number."), Context(), said), recording)
        assert isinstance(scored, Unusable)
        assert scored.lasting and "closed the turn" in scored.detail
        return
    host, closed = Host(tokenizes=False), recorded("vllm/vllm_chat_prefill_noflag")

    def answer(call: HttpRequest) -> HttpReply:
        body = call.body or {}
        continues = body.get("continue_final_message") and "prompt_logprobs" not in body
        return closed if continues else host(call)

    facts, _ = probed(answer)
    assert not facts.can_score and not facts.can_continue
    assert any("does not continue" in finding for finding in facts.evidence)


def test_no_margin_accepts_a_token_that_llama_cpp_python_does_not_list() -> None:
    """It is less likely than all that are listed, by nobody knows how much: not even the widest margin takes it."""
    listing = {" Paris": -0.4, " a": -3.0, " the": -20.0}
    legacy = {"tokens": ["is", " zebra"], "token_logprobs": [None, -0.1], "top_logprobs": [listing, {" x": -0.1}]}
    choice = {"text": "is zebra.", "finish_reason": "length", "logprobs": legacy}
    told = LlamaCppPythonTarget(shift=1).scored({"choices": [choice]}, {}, "is zebra", Usage())
    assert not isinstance(told, str)
    judged = told.positions[1].judged
    assert judged is not None
    for result in (verify_lenient([judged], MOST_NATS), verify_greedy([judged], tie_nats=MOST_NATS)):
        assert result.accepted == 0 and result.correction is not None and result.correction.text == " Paris"
