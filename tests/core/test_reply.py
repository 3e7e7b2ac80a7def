"""Replies: what is built parses as OpenAI's own, what is read is never taken for more than it says."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from openai.types import Completion as OpenAICompletion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cheapspec.core.effects import HttpReply, Source, Usage
from cheapspec.core.ports import Identity
from cheapspec.core.reply import (
    DONE,
    Completion,
    Problem,
    ReplyBuilder,
    encode_event,
    error_frame,
    read_completion,
    read_usage,
    strict_json,
)
from cheapspec.core.request import Request

CREATED = 1_700_000_000
INFO = {"decision": "speculate", "acceptance_rate": 0.5}


def builder(kind: str = "chat", identity: Identity | None = None, **more: Any) -> ReplyBuilder:
    request = Request(kind=kind, body={}, model="asked", stream=True, **more)
    return ReplyBuilder(request, identity or Identity(), CREATED, "chatcmpl-1")


def reply(body: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, body if isinstance(body, bytes) else json.dumps(body).encode())


# --- writing -----------------------------------------------------------------------------------


def test_a_whole_chat_reply_is_openais() -> None:
    """It validates strictly as ChatCompletion, with usage as the target alone would report it."""
    told = builder(identity=Identity(model="named", system_fingerprint="fp", service_tier="default")).whole(
        "Hi é", "stop", Usage(10, 3, cached_tokens=4, reasoning_tokens=1), INFO
    )
    parsed = ChatCompletion.model_validate_json(strict_json(told))
    assert (parsed.id, parsed.created, parsed.model, parsed.object) == (
        "chatcmpl-1",
        CREATED,
        "named",
        "chat.completion",
    )
    assert (parsed.system_fingerprint, parsed.service_tier) == ("fp", "default")
    choice = parsed.choices[0]
    assert (choice.index, choice.message.content, choice.finish_reason, choice.logprobs) == (0, "Hi é", "stop", None)
    assert choice.message.role == "assistant" and choice.message.refusal is None
    assert parsed.usage is not None and parsed.usage.total_tokens == 13
    assert parsed.usage.prompt_tokens_details is not None and parsed.usage.prompt_tokens_details.cached_tokens == 4
    assert parsed.usage.completion_tokens_details is not None
    assert parsed.usage.completion_tokens_details.reasoning_tokens == 1
    assert told["cheapspec"] == INFO


def test_a_whole_text_completion_is_openais() -> None:
    """It validates strictly as Completion; details that nobody knows are absent."""
    told = builder("completion").whole("Hi", "length", Usage(10, 3), {})
    parsed = OpenAICompletion.model_validate_json(strict_json(told))
    assert (parsed.object, parsed.model, parsed.choices[0].text) == ("text_completion", "asked", "Hi")
    assert parsed.choices[0].finish_reason == "length"
    assert set(told["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert "system_fingerprint" not in told and "service_tier" not in told


def test_a_chat_stream_is_openais() -> None:
    """Role first, then text with its source, then the finish reason with the facts; one identity throughout."""
    made = builder()
    first = made.first_chunk()
    assert first is not None
    chunks = [first, made.chunk("Hi", Source.DRAFT), made.chunk("!", Source.TARGET)]
    chunks += made.last_chunks("stop", Usage(1, 2), INFO)
    parsed = [ChatCompletionChunk.model_validate_json(strict_json(chunk)) for chunk in chunks]
    assert [one.choices[0].delta.role for one in parsed] == ["assistant", None, None, None]
    assert [one.choices[0].delta.content for one in parsed] == ["", "Hi", "!", None]
    assert [one.choices[0].finish_reason for one in parsed] == [None, None, None, "stop"]
    assert {(one.id, one.created, one.model, one.object) for one in parsed} == {
        ("chatcmpl-1", CREATED, "asked", "chat.completion.chunk")
    }
    assert [chunk.get("cheapspec") for chunk in chunks] == [None, {"source": "draft"}, {"source": "target"}, INFO]
    assert not any("usage" in chunk for chunk in chunks)


def test_b03_the_usage_chunk_goes_only_to_who_asked() -> None:
    """With include_usage a last chunk without choices carries usage and the facts; the others say null."""
    made = builder(include_usage=True)
    content, finish, usage = made.chunk("a", Source.DRAFT), *made.last_chunks("stop", Usage(1, 2), INFO)
    assert content["usage"] is None and finish["usage"] is None and "cheapspec" not in finish
    assert usage["choices"] == [] and usage["cheapspec"] == INFO
    assert ChatCompletionChunk.model_validate(usage).usage is not None


def test_a_text_completion_stream_is_openais() -> None:
    """No role chunk; every chunk validates strictly as Completion."""
    made = builder("completion")
    assert made.first_chunk() is None
    chunks = [made.chunk("Hi", Source.TARGET), *made.last_chunks("stop", Usage(1, 2), INFO)]
    parsed = [OpenAICompletion.model_validate({**chunk, "choices": []}) for chunk in chunks]
    assert {one.object for one in parsed} == {"text_completion"}
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hi", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_frames_are_strict_json() -> None:
    """NaN and infinities become null, text stays readable, half a surrogate pair is escaped."""
    frame = encode_event({"text": "é\n", "number": math.nan, "list": (math.inf, {"x": 1.5})})
    assert frame == 'data: {"text":"é\\n","number":null,"list":[null,{"x":1.5}]}\n\n'.encode()
    assert json.loads(strict_json({"a": "\ud83d", "b": math.nan})) == {"a": "\ud83d", "b": None}
    assert DONE == b"data: [DONE]\n\n"


def test_b14_an_error_frame_has_openais_shape() -> None:
    """An object keeps what it says, a plain string becomes the message."""
    assert error_frame({"message": "overloaded", "code": 502})["error"] == {
        "message": "overloaded",
        "type": "api_error",
        "param": None,
        "code": 502,
    }
    assert error_frame("overloaded")["error"]["message"] == "overloaded"


# --- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (  # OpenAI
            {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "prompt_tokens_details": {"cached_tokens": 1920},
                "completion_tokens_details": {"reasoning_tokens": 120},
            },
            Usage(2006, 300, cached_tokens=1920, reasoning_tokens=120),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None}, Usage(5, 1)),
        (  # DeepSeek
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
            Usage(10, 1, cached_tokens=8),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 1, "cached_tokens": 3}, Usage(10, 1, cached_tokens=3)),  # Moonshot
        (  # OpenRouter
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "cost": 0.00014,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 40},
            },
            Usage(100, 5, cached_tokens=60, cache_write_tokens=40, cost_usd="0.00014"),
        ),
        ({"input_tokens": 4, "output_tokens": 2, "cost": "1e-5"}, Usage(4, 2, cost_usd="0.00001")),
        ({"prompt_tokens": 4, "total_tokens": 9}, Usage(4, 5)),
        ({"completion_tokens": 4.0}, Usage(0, 4)),
        # counts that make no sense
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 9},
            },
            Usage(10, 2, cached_tokens=10, cache_write_tokens=0, reasoning_tokens=2),
        ),
        ({"prompt_tokens": -3, "completion_tokens": 2, "cost": -1}, Usage(0, 2)),
        ({"prompt_tokens": True, "completion_tokens": 2, "cost": True}, Usage(0, 2)),
        ({"prompt_tokens": math.inf, "completion_tokens": 2, "cost": "free"}, Usage(0, 2)),
        ({"prompt_tokens": 1, "completion_tokens": 2, "cost": math.nan}, Usage(1, 2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 8,
                "prompt_tokens_details": {"audio_tokens": 7, "image_tokens": 1},
                "completion_tokens_details": {"audio_tokens": 6},
            },
            Usage(9, 8, media_tokens=14),
        ),
        (
            {
                "prompt_tokens": 1,
                "completion_tokens": 2,
                "cost": 0.01,
                "is_byok": True,
                "cost_details": {"upstream_inference_cost": 0.5},
            },
            Usage(1, 2, cost_usd="0.51"),
        ),
        ({"prompt_tokens": 1, "completion_tokens": 2, "cost": 0, "is_byok": True, "cost_details": None}, Usage(1, 2)),
        ({"prompt_tokens": 1, "completion_tokens": 2, "cost": "1e30"}, Usage(1, 2, cost_usd="1E+30")),
        ({"prompt_tokens": 1, "completion_tokens": 2, "cost": "1e-99"}, Usage(1, 2, cost_usd="0.000000000000000000")),
    ],
)
def test_b01_usage_in_every_shape(told: dict[str, Any], usage: Usage) -> None:
    """Cached tokens are inside the input and reasoning inside the output; impossible counts are clamped."""
    assert read_usage(told) == usage


@pytest.mark.parametrize(
    "told", [None, {}, [], "x", {"total_tokens": 3}, {"prompt_tokens": None}, {"input_tokens": 10**13}]
)
def test_no_counts_are_no_usage(told: Any) -> None:
    """Unknown is not zero."""
    assert read_usage(told) is None


def test_the_service_tier_rides_on_usage() -> None:
    """The tier that the reply names is kept; anything but a name is none."""
    counts = {"prompt_tokens": 1, "completion_tokens": 1}
    assert read_usage(counts, "flex") == Usage(1, 1, service_tier="flex")
    assert read_usage(counts, 3) == Usage(1, 1)


# --- whole replies -----------------------------------------------------------------------------


def test_a_chat_reply_is_read() -> None:
    """Text, finish reason, usage, identity and token ids."""
    told = {
        "id": "c1",
        "created": 5,
        "model": "m",
        "system_fingerprint": "fp",
        "service_tier": "flex",
        "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop", "token_ids": [1, 2]}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    identity = Identity("c1", "m", "fp", 5, "flex")
    usage = Usage(1, 2, service_tier="flex")
    assert read_completion(reply(told), "chat") == Completion("Hi", "stop", usage, identity, (1, 2))


@pytest.mark.parametrize("logprobs", [None, {"content": None}, {"content": []}])
def test_b24_a_reply_without_log_probabilities_is_still_a_reply(logprobs: Any) -> None:
    """The answer was paid for: it is read whatever the field says."""
    told = {"choices": [{"message": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": 3}], "created": "x"}
    assert read_completion(reply(told), "chat") == Completion("Hi", None, None)


def test_empty_and_textual_replies() -> None:
    """A message without content is empty text, and a completion's text is read."""
    assert read_completion(
        reply({"choices": [{"message": {"content": None, "role": "assistant"}}]}), "chat"
    ) == Completion("", None, None)
    assert read_completion(reply({"choices": [{"text": "", "index": 0}]}), "completion") == Completion("", None, None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": None, "choices": None, "error": {"message": "Provider returned error", "code": 429}}, 429),
        ({"error": {"message": "x", "code": "503"}}, 503),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, 429),
        ({"error": {"message": "x", "type": "invalid_request_error", "code": None}}, 400),
        ({"error": {"message": "x", "code": 7}}, 502),
        ({"error": "overloaded"}, 502),
        ({"object": "error", "message": "x", "code": 404}, 404),
        ({"choices": []}, 502),
        ({"choices": None}, 502),
        ({"choices": [{"finish_reason": "stop"}]}, 502),
        ({}, 502),
        (b"<html>Bad gateway</html>", 502),
        (b"", 502),
        (b"[1]", 502),
    ],
)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_b39_no_answer_under_status_200(body: Any, status: int, kind: str) -> None:
    """An inner error keeps its code; null, empty or missing choices, pages and nothing are a bad gateway."""
    problem = read_completion(reply(body), kind)
    assert isinstance(problem, Problem)
    assert problem.status == status and problem.error["message"]
    assert problem.retryable == (status in (429, 502, 503))


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [
        (400, {"error": {"message": "bad", "code": 429}}, False),
        (503, b"busy", True),
        (408, {}, True),
        (302, {}, True),
    ],
)
def test_error_replies_keep_their_status(status: int, body: Any, retryable: bool) -> None:
    """The server's own status wins over the code inside; a redirect is no answer either."""
    problem = read_completion(reply(body, status), "chat")
    assert isinstance(problem, Problem)
    assert problem.status == (502 if status == 302 else status) and problem.retryable is retryable
