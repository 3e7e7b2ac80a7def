"""Where a verdict's call goes is known by the host's name; what it may ask, by host and model."""

from __future__ import annotations

from typing import Any

import pytest

from cheapspec.backends.chat_hosts import ANY, HOSTS, endpoint_for, host_of
from cheapspec.backends.chat_models import KINDS, PLAIN, kind_of
from cheapspec.core.endpoint import Endpoint
from cheapspec.core.request import Request
from cheapspec.rules import Answer, Draft, Judge

ROUTER = "https://openrouter.ai/api/v1"
OPENAI = "https://api.openai.com/v1"


def asked(**fields: Any) -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "What is 6 × 7?"}], **fields}
    return Request("chat", body, str(body["model"]), False, max_tokens=fields.get("max_tokens"))


def judged(url: str, model: str, **fields: Any) -> dict[str, Any]:
    """The body of a judge's call."""
    request = asked(model=model, **fields)
    return Judge(uncalibrated=True).body(request, Draft("42"), "salt", endpoint_for(url, model, request.body))


def answered(url: str, model: str, **fields: Any) -> dict[str, Any]:
    """The body of a call for the short answer."""
    request = asked(model=model, **fields)
    return Answer().body(request, endpoint_for(url, model, request.body))


@pytest.mark.parametrize(
    ("url", "family"),
    [
        (ROUTER, "OpenRouter"),
        (ROUTER + "/", "OpenRouter"),
        ("https://OPENROUTER.AI./api/v1", "OpenRouter"),
        ("https://eu.openrouter.ai/api/v1", "OpenRouter"),
        (OPENAI, "OpenAI"),
        ("https://eu.api.openai.com/v1", "OpenAI"),
        ("https://mine.openai.azure.com/openai/v1/?api-version=preview", "Azure OpenAI"),
        ("https://mine.services.ai.azure.com/models", "Azure OpenAI"),
        ("https://api.groq.com/openai/v1", "Groq"),
        ("https://api.deepseek.com", "DeepSeek"),
        ("https://api.x.ai/v1", "xAI"),
        ("https://api.mistral.ai/v1", "Mistral"),
        ("https://api.fireworks.ai/inference/v1", "Fireworks"),
        ("https://api.together.xyz/v1", "Together"),
        ("http://localhost:11434/v1", "Ollama"),
        ("http://litellm.internal:4000", "any other"),
        ("https://openrouter.ai.evil.example/api/v1", "any other"),
        ("https://notopenrouter.ai/api/v1", "any other"),
        ("http://[broken", "any other"),
        ("", "any other"),
    ],
)
def test_a_host_is_known_by_its_name_alone(url: str, family: str) -> None:
    """Path, port (but Ollama's), query and letter case say nothing; a name that merely contains another is another."""
    assert host_of(url).family == family
    assert endpoint_for(url, "some-model", {}).family == family


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("gpt-4o-mini", PLAIN.name),
        ("gpt-4.1", PLAIN.name),
        ("o1", "OpenAI o1, o3, o4"),
        ("openai/o4-mini:floor", "OpenAI o1, o3, o4"),
        ("gpt-5-mini-2025-08-07", "OpenAI GPT-5, GPT-5 mini and nano"),
        ("openai/GPT-5:nitro", "OpenAI GPT-5, GPT-5 mini and nano"),
        ("gpt-5-pro", "OpenAI GPT-5 and later, -pro and -codex"),
        ("gpt-5.1-codex-max", "OpenAI GPT-5 and later, -pro and -codex"),
        ("gpt-5.2-chat-latest", "OpenAI GPT-5 and later, -chat"),
        ("gpt-5.4-mini", "OpenAI GPT-5.1 and later"),
        ("gpt-6.1-sol", "OpenAI GPT-5.1 and later"),
        ("openai/gpt-oss-120b:free", "gpt-oss"),
        ("grok-4.20-non-reasoning", "xAI Grok, -non-reasoning, Grok 3"),
        ("grok-3", "xAI Grok, -non-reasoning, Grok 3"),
        ("grok-3-mini", "xAI Grok 4.7 and later, Grok 3 mini"),
        ("x-ai/grok-4.3", "xAI Grok 4.3"),
        ("grok-4.7", "xAI Grok 4.7 and later, Grok 3 mini"),
        ("grok-code-fast-1", "xAI Grok, other reasoning models"),
        ("qwen/qwen3-32b", "open models that think or not"),
        ("qwen/qwen3-235b-a22b-instruct-2507", PLAIN.name),
        ("qwen/qwen3-235b-a22b-thinking-2507", "open models that always think"),
        ("deepseek-v4-flash", "open models that think or not"),
        ("deepseek/deepseek-r1-0528:free", "open models that always think"),
        ("meta-llama/llama-3.3-70b-instruct", PLAIN.name),
        ("", PLAIN.name),
    ],
)
def test_a_model_that_thinks_is_known_by_its_name(model: str, kind: str) -> None:
    """Maker, suffix and letter case are no part of the name; what is not known is a plain model."""
    assert kind_of(model).name == kind


@pytest.mark.parametrize("suffix", [":free", ":nitro", ":floor", ":exacto", ""])
def test_a_suffix_stays_as_the_caller_wrote_it(suffix: str) -> None:
    """The verdict is asked of the very model that the reply would come from."""
    model = "meta-llama/llama-3.3-70b-instruct" + suffix
    assert judged(ROUTER, model)["model"] == answered(ROUTER, model)["model"] == model


def test_b24_openrouter_is_told_to_choose_a_host_with_log_probabilities_where_they_are_asked_for() -> None:
    """Without it they are dropped silently; a call for a short answer needs none, and requires nothing."""
    assert judged(ROUTER, "meta-llama/llama-3.3-70b-instruct")["provider"] == {"require_parameters": True}
    assert "provider" not in answered(ROUTER, "meta-llama/llama-3.3-70b-instruct")
    assert "provider" not in judged(OPENAI, "gpt-4o")


def test_the_callers_own_provider_is_kept_and_never_overruled() -> None:
    """Preferences are merged; whoever pinned a host, or said what is required, meant it."""
    model = "meta-llama/llama-3.3-70b-instruct"
    price = {"max_price": {"prompt": 1}, "quantizations": ["fp8"]}
    assert judged(ROUTER, model, provider=price)["provider"] == {**price, "require_parameters": True}
    for own in (
        {"require_parameters": False},
        {"only": ["fireworks"]},
        {"order": ["fireworks"], "allow_fallbacks": False},
    ):
        assert judged(ROUTER, model, provider=own)["provider"] == own
        assert answered(ROUTER, model, provider=own)["provider"] == own


def test_verdict_and_direct_call_are_kept_on_one_host_by_the_callers_session() -> None:
    """What OpenRouter routes by goes out with the verdict as it goes out with the direct call."""
    kept = {"session_id": "s-1", "prompt_cache_key": "k", "user": "u", "models": ["a/b", "c/d"], "route": "fallback"}
    told = answered(ROUTER, "a/b", **kept)
    assert {name: told[name] for name in kept} == kept


def test_openrouter_serves_openais_models_with_sixteen_tokens_at_least() -> None:
    """An output limit of 1 is refused by the host behind it; elsewhere the one token is enough."""
    assert judged(ROUTER, "openai/gpt-4.1-mini")["max_tokens"] == 16
    assert judged(ROUTER, "mistralai/mistral-small-3.2")["max_tokens"] == 1
    assert judged(OPENAI, "gpt-4.1-mini")["max_tokens"] == 1


def test_any_of_openrouters_fallbacks_may_answer() -> None:
    """What one of them refuses is not sent."""
    told = judged(ROUTER, "meta-llama/llama-3.3-70b-instruct", models=["openai/o4-mini", 7])
    assert told["max_tokens"] == 16 + 1024
    assert "temperature" not in told and "logprobs" not in told and "reasoning_effort" not in told
    same = judged(ROUTER, "a/b", models=["a/b", "c/d"])
    assert same["logprobs"] is True and same["temperature"] == 0 and same["max_tokens"] == 1


def test_openais_models_that_think_take_no_temperature_and_another_limit() -> None:
    """o4 always thinks and tells no log-probabilities, so a digit is asked for with room to think."""
    told = judged(OPENAI, "o4-mini")
    assert told["max_completion_tokens"] == 1 + 1024 and told["reasoning_effort"] == "low"
    assert not told.keys() & {"max_tokens", "temperature", "logprobs", "top_logprobs"}
    assert "digit" in told["messages"][-1]["content"]


def test_openais_models_whose_thinking_can_be_off_tell_log_probabilities_then() -> None:
    """GPT-5.1 and later: effort none, temperature 0, twenty alternatives."""
    told = judged(OPENAI, "gpt-6.1-sol")
    assert told["reasoning_effort"] == "none" and told["temperature"] == 0 and told["top_logprobs"] == 20
    assert told["max_completion_tokens"] == 1 and "max_tokens" not in told


def test_groq_tells_no_log_probabilities() -> None:
    """A judge is asked for a digit there."""
    told = judged("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile")
    assert "logprobs" not in told and "digit" in told["messages"][-1]["content"]
    assert told["max_completion_tokens"] == 1
    assert judged("https://api.groq.com/openai/v1", "qwen/qwen3-32b")["reasoning_effort"] == "none"


def test_deepseek_is_told_in_its_own_way_not_to_think() -> None:
    """Its field replaces reasoning_effort, which could not switch thinking off."""
    told = judged("https://api.deepseek.com", "deepseek-v4-flash")
    assert told["thinking"] == {"type": "disabled"} and "reasoning_effort" not in told
    assert told["max_tokens"] == 1 and told["top_logprobs"] == 20


@pytest.mark.parametrize(
    ("model", "effort", "limit"),
    [("grok-4.3", "none", 1), ("grok-4.7", "low", 1025), ("grok-build-0.1", None, 1025), ("grok-3", None, 1)],
)
def test_xais_models_think_by_name(model: str, effort: str | None, limit: int) -> None:
    """Some can be told not to, some only to think little, some refuse the field."""
    told = judged("https://api.x.ai/v1", model)
    assert told.get("reasoning_effort") == effort and told["max_tokens"] == limit


def test_mistral_and_fireworks_list_five_alternatives() -> None:
    """No more are asked for than the host lists."""
    assert judged("https://api.mistral.ai/v1", "mistral-medium-3.5")["top_logprobs"] == 5
    assert judged("https://api.fireworks.ai/inference/v1", "accounts/fireworks/models/glm-5p3")["top_logprobs"] == 5
    assert "logprobs" not in judged("https://api.together.ai/v1", "Qwen/Qwen3.6-Plus")


def test_b50i_ollama_is_given_the_limit_that_it_reads() -> None:
    """``max_completion_tokens`` is ignored there, whatever the caller wrote; thinking is off."""
    told = judged("http://localhost:11434/v1", "qwen3:8b", max_completion_tokens=400)
    assert told["max_tokens"] == 1 and "max_completion_tokens" not in told and told["reasoning_effort"] == "none"


def test_a_judge_that_is_another_model_gets_its_own_endpoints_fields_only() -> None:
    """The caller's provider, session and user are for the target's host."""
    request = asked(model="gpt-4o", provider={"only": ["azure"]}, session_id="s", user="u", tools=[{"type": "f"}])
    rule = Judge(model="deepseek-v4-flash", base_url="https://api.deepseek.com", api_key="k", uncalibrated=True)
    told = rule.body(request, Draft("42"), "salt", endpoint_for("https://api.deepseek.com", "deepseek-v4-flash", {}))
    assert told.keys() == {"model", "messages", "temperature", "max_tokens", "logprobs", "top_logprobs", "thinking"}
    assert told["model"] == "deepseek-v4-flash"
    router = Judge(model="a/b", base_url=ROUTER, api_key="k", uncalibrated=True)
    told = router.body(request, Draft("42"), "salt", endpoint_for(ROUTER, "a/b", {}))
    assert told["provider"] == {"require_parameters": True}


def test_an_unknown_host_is_taken_for_the_plain_api() -> None:
    """The defaults, but for what a known name of a model says."""
    assert endpoint_for("http://gateway:4000", "team-model", {}) == Endpoint(family=ANY.family)
    assert endpoint_for("http://gateway:4000", "openai/gpt-5-mini", {}).temperature is False


def test_every_row_names_its_source() -> None:
    """A fact without a source is nobody's."""
    assert all(host.source for host in (*HOSTS, ANY)) and all(kind.source for kind in (*KINDS, PLAIN))
