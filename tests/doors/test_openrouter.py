"""OpenRouter as a target, as its users meet it: through the client, at its own URL, against a stand-in."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import openai
import pytest
from chat_hosts import DIRECT, DRAFT, Played, knows, played, sent

from cheapspec import Answer, Judge, Validator
from cheapspec.testing.chat_host import Says
from cheapspec.testing.faults import Status
from cheapspec.testing.openrouter import NO_LOGPROBS, BrokenOff, FakeOpenRouter, RouterHost

JUDGE = Judge(uncalibrated=True)
ANSWER = Answer("last_number")


def fine(text: str) -> bool:
    return "7" in text


@pytest.fixture
def router(door: str) -> Iterator[Played[FakeOpenRouter]]:
    """The router, with a target behind it that knows the answer."""
    with played(FakeOpenRouter(says=knows), "openrouter.ai", door) as made:
        yield made


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rule", [ANSWER, JUDGE])
def test_an_accepted_draft_goes_out_for_the_price_of_a_verdict(
    router: Played[FakeOpenRouter], rule: Any, stream: bool
) -> None:
    """The caller reads the draft; one call was paid, and nothing left before it was answered."""
    text, info = router.ask(Validator(fine), rule, stream=stream)
    assert text == DRAFT
    assert (info.decision, info.rule, info.lossy, info.priced_by) == ("speculate", rule.name, True, "provider")
    assert len(router.target.requests) == len(router.verdicts()) == 1


def test_a_rejected_draft_is_answered_by_the_target_itself(router: Played[FakeOpenRouter]) -> None:
    """The target's own reply, whole and untouched; the verdict is in what was paid."""
    router.target.says = functools.partial(knows, good=False)
    text, info = router.ask(ANSWER)
    assert text == DIRECT
    assert (info.decision, info.reason) == ("direct", "rejected")
    paid = [Decimal(str(one.usage["cost"])) for one in router.target.requests if one.usage is not None]
    assert len(paid) == 2 and info.paid_usd == sum(paid)


def test_a_draft_that_fails_the_callers_own_check_never_reaches_the_target(router: Played[FakeOpenRouter]) -> None:
    """The only call is the direct one."""
    text, info = router.ask(Validator(lambda draft: False), ANSWER)
    assert text == DIRECT and info.reason == "rejected"
    assert [one.purpose for one in router.target.requests] == ["direct"]


def test_the_target_does_not_see_the_draft_where_it_gives_the_answer_itself(router: Played[FakeOpenRouter]) -> None:
    """The messages are the caller's, byte for byte, with the question after the last."""
    router.ask(ANSWER)
    [asked] = router.verdicts()
    [message] = sent(asked)["messages"]
    assert message["content"].startswith("What is 3 + 4?\n\n---\n") and DRAFT not in message["content"]


@pytest.mark.parametrize("byok", [False, True])
def test_what_the_router_says_a_call_cost_is_what_was_paid(router: Played[FakeOpenRouter], byok: bool) -> None:
    """``usage.cost`` wins over the price list; with a key of the caller's own the maker's share is added to the fee."""
    router.target.byok = byok
    router.target.prices = ("3", "1", "30")
    _, info = router.ask(ANSWER)
    [call] = router.calls("answer")
    usage = router.target.requests[0].usage
    assert usage is not None and usage["is_byok"] is byok
    upstream = Decimal(str(usage["cost_details"]["upstream_inference_cost"]))
    cost = Decimal(str(usage["cost"]))
    assert cost == (upstream * Decimal("0.05") if byok else upstream)
    assert info.paid_usd == call.cost_usd == (cost + upstream if byok else cost)


def test_b24_a_judge_is_routed_to_a_host_with_log_probabilities(router: Played[FakeOpenRouter]) -> None:
    """The host that the router would choose first has none; one that has is asked."""
    router.target.hosts = (RouterHost("DeepInfra", NO_LOGPROBS), RouterHost("Fireworks"))
    text, _ = router.ask(JUDGE)
    assert text == DRAFT and router.target.served_by == ["Fireworks"]
    assert sent(router.verdicts()[0])["provider"] == {"require_parameters": True}


def test_b24_where_no_host_has_them_a_digit_is_asked_for_and_that_is_remembered(router: Played[FakeOpenRouter]) -> None:
    """404 is free: the question is asked once more for a digit; the next request begins with that."""
    router.target.hosts = (RouterHost("DeepInfra", NO_LOGPROBS),)
    text, info = router.ask(JUDGE, times=2)
    assert text == DRAFT
    assert [one.status for one in router.verdicts()] == [404, 200, 200]
    assert "digit" in sent(router.verdicts()[2])["messages"][-1]["content"]
    assert info.verdicts[0]["version"] == "digit-1"


def test_b24_log_probabilities_that_a_pinned_host_drops_are_no_verdict_and_not_asked_for_again(
    router: Played[FakeOpenRouter],
) -> None:
    """The caller's pin holds, the verdict is paid in vain once, the target answers; then a digit is asked for."""
    router.target.hosts = (RouterHost("DeepInfra", NO_LOGPROBS), RouterHost("Fireworks"))
    pinned = {"provider": {"only": ["deepinfra"]}}
    text, info = router.ask(JUDGE, extra_body=pinned)
    assert (text, info.decision, info.reason) == (DIRECT, "direct", "no_verdict")
    [call] = router.calls("judge")
    assert call.status == "ok" and call.cost_usd
    text, info = router.ask(JUDGE, extra_body=pinned)
    assert text == DRAFT and info.verdicts[0]["version"] == "digit-1"
    assert all(sent(one)["provider"] == pinned["provider"] for one in router.target.requests)


def test_an_output_limit_below_sixteen_is_raised_where_a_host_refuses_it(router: Played[FakeOpenRouter]) -> None:
    """OpenAI's models are known; any other is learned from the refusal, which the router wraps as text."""
    router.target.hosts = (RouterHost("Azure", least_output=16),)
    text, _ = router.ask(JUDGE, model="openai/gpt-4.1-mini")
    assert text == DRAFT and [one.status for one in router.verdicts()] == [200]
    router.target.clear()
    text, _ = router.ask(JUDGE, times=2)
    assert text == DRAFT and [one.status for one in router.verdicts()] == [400, 200, 200]
    assert [sent(one)["max_tokens"] for one in router.verdicts()] == [1, 16, 16]


def test_verdict_and_direct_call_of_one_session_meet_one_hosts_cache(router: Played[FakeOpenRouter]) -> None:
    """The session goes out with both, so the direct call finds the prompt that the verdict has put there."""
    router.target.says = functools.partial(knows, good=False)
    long = "Read this. " * 60
    messages = [{"role": "system", "content": long}, {"role": "user", "content": "What is 3 + 4?"}]
    _, info = router.ask(ANSWER, messages=messages, extra_body={"session_id": "s-1"})
    verdict, direct = router.target.requests
    assert sent(verdict)["session_id"] == sent(direct)["session_id"] == "s-1"
    assert direct.usage is not None and direct.usage["prompt_tokens_details"]["cached_tokens"] > 100
    assert info.cached_input_tokens > 100


@pytest.mark.parametrize("suffix", [":free", ":nitro", ":floor"])
def test_a_variant_is_asked_under_the_name_that_the_caller_wrote(router: Played[FakeOpenRouter], suffix: str) -> None:
    """Suffixes choose a route or another entry of the catalogue: they are the caller's."""
    model = "qwen/qwen-2.5-72b-instruct" + suffix
    text, _ = router.ask(ANSWER, model=model)
    assert text == DRAFT and sent(router.verdicts()[0])["model"] == model


@pytest.mark.parametrize("status", [402, 408, 429, 502, 503])
def test_a_verdict_that_fails_costs_nothing_and_the_target_answers(router: Played[FakeOpenRouter], status: int) -> None:
    """No credits, a time-out, a limit of rate, a host that is down, no host at all: no verdict, then direct."""
    metadata = {"raw": "rate-limited upstream", "provider_name": "Fireworks"}
    body = {"error": {"code": status, "message": "Provider returned error", "metadata": metadata}}
    router.target.plan("verdict", Status(status, body=body))
    text, info = router.ask(ANSWER, max_retries=2)
    assert text == DIRECT and info.decision == "direct"
    failed = router.calls("answer")
    assert len(failed) < 3 and all(call.status == "failed" and not call.cost_usd for call in failed)
    assert len(router.target.requests) <= 3


def test_without_credits_the_caller_gets_the_routers_own_402(router: Played[FakeOpenRouter]) -> None:
    """Nothing is invented: the direct call's error is the caller's."""
    router.target.credits = 0.0
    with pytest.raises(openai.APIStatusError) as told:
        router.ask(ANSWER)
    assert told.value.status_code == 402 and "Insufficient credits" in str(told.value)
    assert router.ledger.totals().saved_usd <= 0


@pytest.mark.parametrize("in_choice", [False, True])
def test_b39_an_error_under_status_200_is_no_verdict(router: Played[FakeOpenRouter], in_choice: bool) -> None:
    """With the error object alone, or inside the choice with ``finish_reason: "error"``."""
    router.target.plan("verdict", BrokenOff(429, in_choice=in_choice))
    text, info = router.ask(ANSWER)
    assert (text, info.decision, info.reason) == (DIRECT, "direct", "no_verdict")


@pytest.mark.parametrize("rule", [ANSWER, JUDGE])
def test_b12_comments_before_and_in_a_direct_stream_are_no_text(router: Played[FakeOpenRouter], rule: Any) -> None:
    """``: OPENROUTER PROCESSING`` reaches nobody as data; the counts come unasked and are booked."""
    router.target.says = functools.partial(knows, good=False)
    text, info = router.ask(rule, stream=True)
    assert text == DIRECT and info.decision == "direct"
    [direct] = router.calls("direct")
    assert direct.usage is not None and not direct.usage.estimated and direct.cost_usd


def test_b29_a_model_that_turns_out_to_think_is_told_not_to(router: Played[FakeOpenRouter]) -> None:
    """The first verdict's limit goes into thinking: booked, no verdict. The next call switches thinking off."""
    router.target.thinks = "optional"
    text, info = router.ask(JUDGE, model="acme/thinker")
    assert (text, info.reason) == (DIRECT, "no_verdict")
    [lost] = router.calls("judge")
    assert lost.usage is not None and lost.usage.reasoning_tokens == 1 and lost.cost_usd
    text, _ = router.ask(JUDGE, model="acme/thinker")
    assert text == DRAFT and sent(router.verdicts()[-1])["reasoning_effort"] == "none"


def test_a_host_that_cannot_be_told_not_to_think_is_given_room(router: Played[FakeOpenRouter]) -> None:
    """A model that is known to think always gets its budget with the first call."""
    router.target.thinks = "always"
    text, info = router.ask(ANSWER, model="deepseek/deepseek-r1-0528")
    assert text == DRAFT and info.output_tokens == router.target.thinking_tokens + 1
    assert sent(router.verdicts()[0])["max_tokens"] > 1024


def test_the_callers_key_and_fields_are_kept_as_they_are(router: Played[FakeOpenRouter]) -> None:
    """Preferences of the caller's go out with the verdict and with the direct call."""
    router.target.says = functools.partial(knows, good=False)
    own = {"provider": {"order": ["fireworks"], "data_collection": "deny"}, "user": "u-1"}
    router.ask(JUDGE, extra_body=own)
    verdict, direct = router.target.requests
    assert sent(verdict)["provider"] == {**own["provider"], "require_parameters": True}  # type: ignore[dict-item]
    assert sent(direct)["provider"] == own["provider"]
    assert {one.headers["authorization"] for one in (verdict, direct)} == {"Bearer target-key"}


def test_an_odd_verdict_of_a_model_that_talks_is_none(router: Played[FakeOpenRouter]) -> None:
    """Prose where one letter was asked for: booked, and the target answers."""
    router.target.says = lambda body: "I think so." if "letter" in str(body["messages"][-1]) else knows(body)
    text, info = router.ask(JUDGE, model="openai/gpt-4.1-mini")
    assert (text, info.reason) == (DIRECT, "no_verdict")


def test_a_letter_that_is_unsure_is_a_rejection(router: Played[FakeOpenRouter]) -> None:
    """Y is what it wrote, and not by a majority of the two."""
    unsure = Says("Y", {"Y": 0.45, "N": 0.5})
    router.target.says = lambda body: unsure if "letter" in str(body["messages"][-1]) else knows(body)
    text, info = router.ask(JUDGE)
    assert (text, info.reason) == (DIRECT, "rejected")
