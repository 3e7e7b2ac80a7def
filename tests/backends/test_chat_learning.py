"""What a reply refutes is not asked again; what it does not say teaches nothing.

Error texts are those of reports that quote the live APIs: vectorize-io/hindsight#58, decolua/9router#560,
gabrii/Cursor-Azure-GPT-5#33, confident-ai/deepeval#2184, openai/openai-python#1080, groq/groq-python#25,
block/buzz#3018 (OpenRouter's routing), docs.rs/mindfork 0.17.0 (xAI).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cheapspec.backends.chat_hosts import endpoint_for
from cheapspec.backends.chat_learning import learn, refusal
from cheapspec.core.effects import HttpReply
from cheapspec.core.endpoint import Endpoint

PLAIN = Endpoint()
ROUTER = endpoint_for("https://openrouter.ai/api/v1", "meta-llama/llama-3.3-70b-instruct", {})
ASKED = {"logprobs": True, "top_logprobs": 20}


def reply(body: object, status: int = 200) -> HttpReply:
    return HttpReply(status, body.encode() if isinstance(body, str) else json.dumps(body).encode())


def error(message: str, status: int = 400, **more: Any) -> HttpReply:
    return reply({"error": {"message": message, "type": "invalid_request_error", **more}}, status)


def wrapped(inner: object, status: int = 400) -> HttpReply:
    """As OpenRouter passes on what the host said."""
    raw = inner if isinstance(inner, str) else json.dumps(inner, indent=2)
    metadata = {"raw": raw, "provider_name": "Azure", "is_byok": False}
    told = {"error": {"message": "Provider returned error", "code": status, "metadata": metadata}, "user_id": "user_x"}
    return reply(told, status)


def said(text: str | None, finish: str = "stop", entries: Any = None, **more: Any) -> HttpReply:
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": entries}
    return reply({"id": "x", "choices": [choice], **more})


BELOW = {
    "error": {
        "message": "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 "
        "instead.",
        "type": "invalid_request_error",
        "param": "max_output_tokens",
        "code": "integer_below_min_value",
    }
}


@pytest.mark.parametrize(
    ("answer", "endpoint", "learned"),
    [
        pytest.param(wrapped(BELOW), PLAIN, replace(PLAIN, least_output=16), id="openrouter to azure"),
        pytest.param(reply(BELOW, 400), PLAIN, replace(PLAIN, least_output=16), id="openai"),
        pytest.param(
            error("max_tokens must be at least 16"), PLAIN, replace(PLAIN, least_output=16), id="in other words"
        ),
        pytest.param(
            error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.",
                param="max_tokens",
                code="unsupported_parameter",
            ),
            PLAIN,
            replace(PLAIN, limit_field="max_completion_tokens"),
            id="max_tokens",
        ),
        pytest.param(
            error("Unrecognized request argument supplied: max_completion_tokens"),
            replace(PLAIN, limit_field="max_completion_tokens"),
            PLAIN,
            id="an older server",
        ),
        pytest.param(
            error(
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is "
                "supported.",
                param="temperature",
                code="unsupported_value",
            ),
            PLAIN,
            replace(PLAIN, temperature=False),
            id="temperature",
        ),
        pytest.param(
            error("You are not allowed to request logprobs from this model", 403),
            PLAIN,
            replace(PLAIN, alternatives=0),
            id="403 for logprobs",
        ),
        pytest.param(
            error("This model does not support the 'logprobs' parameter.", param="logprobs"),
            PLAIN,
            replace(PLAIN, alternatives=0),
            id="400 for logprobs",
        ),
        pytest.param(
            error("`logprobs` is not supported with this model"), PLAIN, replace(PLAIN, alternatives=0), id="groq"
        ),
        pytest.param(
            error(
                "[{'type': 'extra_forbidden', 'loc': ('body', 'top_logprobs'), 'msg': 'Extra inputs are not permitted'"
            ),
            PLAIN,
            replace(PLAIN, alternatives=0),
            id="a strict schema",
        ),
        pytest.param(
            error("top_logprobs must be between 0 and 8"), PLAIN, replace(PLAIN, alternatives=8), id="fewer of them"
        ),
        pytest.param(
            error("Invalid value for top_logprobs: 20, maximum value is 5"),
            PLAIN,
            replace(PLAIN, alternatives=5),
            id="a maximum",
        ),
        pytest.param(
            error("No endpoints found that can handle the requested parameters.", 404, code=404),
            ROUTER,
            replace(ROUTER, alternatives=0, require_parameters=False),
            id="no host of the router's",
        ),
        pytest.param(
            reply(
                {
                    "code": "invalid-argument",
                    "error": "Model grok-build-0.1 does not support parameter reasoningEffort.",
                },
                400,
            ),
            replace(PLAIN, effort="none"),
            replace(PLAIN, thinking=1024),
            id="xai, a plain string",
        ),
        pytest.param(
            error(
                "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: "
                "'minimal', 'low', 'medium', and 'high'.",
                param="reasoning_effort",
            ),
            replace(PLAIN, effort="none"),
            replace(PLAIN, effort="minimal", thinking=1024),
            id="the least effort there is",
        ),
        pytest.param(
            error("Reasoning is mandatory for this endpoint and cannot be disabled."),
            replace(ROUTER, effort="none"),
            replace(ROUTER, thinking=1024),
            id="mandatory thinking",
        ),
        pytest.param(
            error("Unrecognized request argument supplied: thinking"),
            replace(PLAIN, fields={"thinking": {"type": "disabled"}}),
            replace(PLAIN, thinking=1024),
            id="another way to switch it off",
        ),
    ],
)
def test_b24_a_refusal_corrects_what_it_names(answer: HttpReply, endpoint: Endpoint, learned: Endpoint) -> None:
    """Only the field that is named changes; the corrected call is not refused for the same thing again."""
    assert learn(endpoint, answer, ASKED) == learned
    assert learn(learned, answer, ASKED) == learned or learned.thinking, "nothing is learned twice"


@pytest.mark.parametrize(
    "answer",
    [
        error("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
        error("Invalid request: the temperature of the oven, said the user, should be at most 200"),
        error("Incorrect API key provided", 401),
        error("Insufficient credits. Add more using https://openrouter.ai/settings/credits", 402, code=402),
        error("logprobs are not supported right now", 429),
        error("temperature is not supported", 500),
        error("No endpoints found for meta-llama/nothing:free.", 404, code=404),
        error("No allowed providers are available for the selected model.", 404),
        wrapped("upstream connect error", 502),
        wrapped("{not json", 400),
        reply("<html>not supported</html>", 400),
        reply("", 400),
        reply([1, 2], 400),
        reply({"error": None}, 400),
        reply({"choices": None, "error": {"message": "logprobs are not supported", "code": 429}}),
        said("Y", entries={"content": [{"token": "Y", "logprob": -0.1}]}),
        said("", finish="length"),
        said(None, finish="content_filter"),
        reply({"choices": []}),
        reply("<html>", 200),
    ],
)
def test_a_reply_that_refutes_nothing_teaches_nothing(answer: HttpReply) -> None:
    """Keys, credits, limits of rate, prompts that are quoted, pages and empty bodies are not about our fields."""
    for endpoint in (PLAIN, ROUTER):
        assert learn(endpoint, answer, ASKED) == endpoint


@pytest.mark.parametrize("entries", [None, {}, {"content": None}, {"content": []}])
def test_b24_log_probabilities_that_are_dropped_silently_are_not_asked_for_again(entries: Any) -> None:
    """Status 200 and no numbers: a digit next time. A call that did not ask for them shows nothing."""
    assert learn(ROUTER, said("Y", entries=entries), ASKED) == replace(ROUTER, alternatives=0, require_parameters=False)
    assert learn(ROUTER, said("42", entries=entries), {}) == ROUTER
    assert learn(ROUTER, said("42", entries=entries)) == ROUTER


def test_b29_thinking_that_used_up_the_limit_is_switched_off_then_allowed_for() -> None:
    """An unknown model thinks: first effort none; if it thinks on, room for it, more each time, with a bound."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 1}}
    cut = said("", finish="length", usage=usage, message={"reasoning": "Let me"})
    first = learn(PLAIN, cut, ASKED)
    assert first == replace(PLAIN, effort="none")
    second = learn(first, cut, ASKED)
    assert second == replace(PLAIN, effort="none", thinking=1024)
    endpoint = second
    for _ in range(9):
        endpoint = learn(endpoint, cut, ASKED)
    assert endpoint.thinking == 8192
    bare = said(None, finish="length", message={"reasoning_content": "Let me"})
    assert learn(PLAIN, bare, ASKED).effort == "none"


def test_thinking_that_fitted_is_allowed_for_twice_over() -> None:
    """It answered, after thinking nobody expected: what it took is the measure."""
    usage = {"prompt_tokens": 9, "completion_tokens": 41, "completion_tokens_details": {"reasoning_tokens": 40}}
    known = replace(PLAIN, effort="none")
    assert learn(known, said("Y", usage=usage), {}) == replace(known, thinking=80)
    roomy = replace(known, thinking=512)
    assert learn(roomy, said("Y", usage=usage), {}) == roomy


def test_what_a_router_wrapped_is_read_and_cut_at_a_bound() -> None:
    """Message, field and code of both errors, and never more than a page of it."""
    assert refusal(wrapped(BELOW)).splitlines()[:2] == [
        "provider returned error",
        "invalid 'max_output_tokens': integer below minimum value. expected a value >= 16, but got 1 instead.",
    ]
    assert refusal(wrapped("plain text")) == "provider returned error\nplain text"
    assert len(refusal(error("x" * 10_000))) == 2_000
    assert refusal(reply({"detail": "Not Found"}, 404)) == "not found"
