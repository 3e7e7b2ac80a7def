"""Chat APIs that speak OpenAI's language with an accent, at their own URLs, against stand-ins."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import pytest
from chat_hosts import DIRECT, DRAFT, Played, knows, played, sent

from cheapspec import Answer, Judge
from cheapspec.testing.chat_host import FakeChatHost, Said
from cheapspec.testing.openai_hosts import FakeDeepSeek, FakeGroq, FakeLiteLLM, FakeOpenAI, FakeXai

JUDGE = Judge(uncalibrated=True)
ANSWER = Answer("last_number")

HOSTS: list[tuple[str, FakeChatHost]] = [
    ("api.openai.com", FakeOpenAI(says=knows)),
    ("api.openai.com", FakeOpenAI(says=knows, name="gpt-6.1-sol", thinks="optional")),
    ("api.openai.com", FakeOpenAI(says=knows, name="o4-mini", thinks="always")),
    ("mine.openai.azure.com", FakeOpenAI(says=knows, name="our-deployment", thinks="optional")),
    ("mine.openai.azure.com", FakeOpenAI(says=knows, name="our-deployment", thinks="always")),
    ("api.groq.com", FakeGroq(says=knows)),
    ("api.deepseek.com", FakeDeepSeek(says=knows)),
    ("api.x.ai", FakeXai(says=knows)),
    ("api.x.ai", FakeXai(says=knows, name="grok-4.7", efforts=("low", "high"), thinks="always")),
    ("api.x.ai", FakeXai(says=knows, name="grok-build-0.1", efforts=(), thinks="always")),
    ("litellm.example", FakeLiteLLM(says=knows)),
]


def on(host: str, target: FakeChatHost, door: str) -> AbstractContextManager[Played[FakeChatHost]]:
    target.clear()
    return played(target, host, door)


@pytest.mark.parametrize(("host", "target"), HOSTS, ids=[f"{host}-{one.name}-{one.thinks}" for host, one in HOSTS])
def test_every_host_gives_a_verdict_at_the_latest_on_the_third_request(host: str, target: FakeChatHost) -> None:
    """What a host refuses or drops is learned, at most by one free refusal a request, and not asked for again."""
    with on(host, target, "sync") as way:
        for rule in (ANSWER, JUDGE):
            way.ask(rule, times=3)
            way.target.requests.clear()
            text, info = way.ask(rule)
            assert (text, info.decision, info.rule) == (DRAFT, "speculate", rule.name)
            assert [one.status for one in way.verdicts()] == [200], "and so it stays"


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_rejected_is_answered_by_the_host_itself(door: str, stream: bool) -> None:
    """A keep-alive comment in its stream is no text, and the counts are booked."""
    with on("api.deepseek.com", FakeDeepSeek(says=functools.partial(knows, good=False)), door) as way:
        text, info = way.ask(ANSWER, stream=stream)
        assert (text, info.decision, info.reason) == (DIRECT, "direct", "rejected")
        [direct] = way.calls("direct")
        assert direct.usage is not None and direct.usage.output_tokens and not direct.usage.estimated


@pytest.mark.parametrize(("host", "target"), HOSTS[:3] + HOSTS[5:10])
def test_a_model_whose_name_says_it_is_asked_right_the_first_time(host: str, target: FakeChatHost) -> None:
    """Not one refusal where host and model are known."""
    with on(host, target, "async") as way:
        text, _ = way.ask(JUDGE)
        assert text == DRAFT and [one.status for one in way.verdicts()] == [200]


def test_a_deployment_whose_name_says_nothing_is_learned_from_its_refusals(door: str) -> None:
    """Azure: first the limit's name, then the temperature, then log-probabilities, one free refusal at a time."""
    with on("mine.openai.azure.com", FakeOpenAI(says=knows, name="prod", thinks="always"), door) as way:
        for _ in range(4):
            way.ask(JUDGE)
        refused = [one for one in way.verdicts() if one.status != 200]
        assert {one.tokens for one in refused} == {0} and len(refused) <= 4
        told = sent(way.verdicts()[-1])
        assert "max_completion_tokens" in told and not told.keys() & {"max_tokens", "temperature", "logprobs"}
        booked = [call for call in way.calls("judge") if call.status == "failed"]
        assert booked and not any(call.cost_usd for call in booked)


def test_cache_writes_that_are_billed_are_counted(door: str) -> None:
    """GPT-5.6 and later: what the verdict wrote to the cache is in its row, what the direct call read as well."""
    target = FakeOpenAI(says=functools.partial(knows, good=False), name="gpt-5.6-luna", bills_writes=True)
    target.thinks = "optional"
    messages = [
        {"role": "system", "content": "Read this with care. " * 80},
        {"role": "user", "content": "What is 3 + 4?"},
    ]
    with on("api.openai.com", target, door) as way:
        way.target.cached_from = 256
        way.ask(ANSWER, messages=messages, reasoning_effort="none")
        [verdict], [direct] = way.calls("answer"), way.calls("direct")
        assert verdict.usage is not None and direct.usage is not None
        assert verdict.usage.cache_write_tokens == verdict.usage.input_tokens
        assert direct.usage.cached_tokens and direct.usage.cached_tokens > 256


def test_groqs_judge_answers_with_a_digit(door: str) -> None:
    """No log-probabilities are asked for there, so nothing is refused."""
    with on("api.groq.com", FakeGroq(says=knows), door) as way:
        _, info = way.ask(JUDGE)
        assert info.verdicts[0]["version"] == "digit-1" and info.verdicts[0]["score"] == 1.0


def test_litellms_silent_drop_costs_one_verdict_and_no_more(door: str) -> None:
    """Status 200 without numbers: no verdict that time, a digit from then on."""
    with on("litellm.example", FakeLiteLLM(says=knows), door) as way:
        text, info = way.ask(JUDGE)
        assert (text, info.reason) == (DIRECT, "no_verdict")
        text, info = way.ask(JUDGE, times=2)
        assert text == DRAFT and info.verdicts[0]["version"] == "digit-1"


def test_log_probabilities_that_are_all_zero_are_no_verdict(door: str) -> None:
    """As DeepSeek's chat was reported to send them: certain of everything is evidence of nothing."""

    class Zero(FakeDeepSeek):
        def told(self, said: Said, connection: Any) -> dict[str, Any]:
            reply = super().told(said, connection)
            for entry in said.entries:
                for one in (entry, *entry["top_logprobs"]):
                    one["logprob"] = 0.0
            return reply

    with on("api.deepseek.com", Zero(says=knows), door) as way:
        text, info = way.ask(JUDGE)
        assert (text, info.reason) == (DIRECT, "no_verdict")
        assert "distribution" in info.verdicts[0]["why"]
