"""Any OpenAI-compatible server as a draft host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exchange import chat, completion, decode, recorded, reply, run

from cheapspec.backends.llamacpp import LlamaCppDrafter
from cheapspec.backends.openai_drafter import OpenAIDrafter, OpenAIDraftReader
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming

REQUEST = chat("Hi", temperature=0.7, stop=["!"], user="u")
MISSING = reply({"detail": "Not Found"}, 404)
VLLM = recorded("vllm/vllm_version")


def started(drafter: OpenAIDrafter, prefix: str, *replies: Any) -> Streaming[DraftPiece]:
    answer, calls = run(drafter.draft(REQUEST, prefix, 9), *replies)
    assert isinstance(answer, Streaming) and not any(call.billed for call in calls)
    return answer


def events(*chunks: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta | more.pop("delta", {}), "finish_reason": finish, **more}]}


def entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def text_of(pieces: list[DraftPiece]) -> str:
    return "".join(token.text for piece in pieces for token in piece.tokens)


def test_an_empty_prefix_is_an_ordinary_chat() -> None:
    """Greedy, streamed, with log-probabilities; none of the caller's sampling, stops or names."""
    drafter = OpenAIDrafter("small", "http://h:1/v1/")
    assert (drafter.name, drafter.base_url) == ("openai:small@h:1", "http://h:1/v1")
    call = started(drafter, "", MISSING, MISSING, MISSING).request
    assert (call.path, call.stream, call.purpose) == ("chat/completions", True, "draft")
    assert call.body == {
        "model": "small",
        "temperature": 0,
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
        "logprobs": True,
    }


def test_b27_a_prefix_is_continued_only_where_that_is_known() -> None:
    """An unknown host gets no prefix: its reply could not show whether it began again."""
    unknown = OpenAIDrafter("small", "http://h:1/v1")
    answer, _ = run(unknown.draft(REQUEST, "Hello", 9), MISSING, MISSING, MISSING)
    assert isinstance(answer, NoDraft) and not answer.broken
    again, calls = run(unknown.draft(REQUEST, "Hello", 9))
    assert isinstance(again, NoDraft) and calls == []
    body = dict(started(OpenAIDrafter("small", "http://h:1/v1"), "Hello", VLLM).request.body or {})
    assert body["messages"][-1] == {"role": "assistant", "content": "Hello"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_b26_white_space_before_the_seam_stands_exactly_once() -> None:
    """It is not sent, must come back, and is not shown twice."""
    drafter = OpenAIDrafter("small", "http://h:1/v1")
    streaming = started(drafter, "The answer is:\n", VLLM)
    assert (streaming.request.body or {})["messages"][-1]["content"] == "The answer is:"
    assert text_of(decode(streaming.decoder, events(chunk("\n"), chunk("42"), chunk(finish="stop")))) == "42"
    other = decode(started(drafter, "The answer is:\n").decoder, events(chunk(" 42")))
    assert other[0].problem is not None


def test_b25_entries_are_used_where_they_fit_the_text() -> None:
    """Chat shape and completion shape are read; entries that do not fit leave the number unknown."""
    fitting = chunk("Hello", logprobs={"content": [entry("Hel", -0.1), entry("lo", -0.2)]})
    pieces = decode(OpenAIDraftReader(), events(fitting, chunk(" you"), chunk(finish="length")))
    tokens = [token for piece in pieces for token in piece.tokens]
    assert [(token.text, token.logprob) for token in tokens][:2] == [("Hel", -0.1), ("lo", -0.2)]
    assert text_of(pieces) == "Hello you" and tokens[-1].logprob is None and pieces[-1].end == "length"
    alien = chunk("Paris", logprobs={"content": [entry("London", -0.1)]})
    tokens = [token for piece in decode(OpenAIDraftReader(), events(alien)) for token in piece.tokens]
    assert "".join(token.text for token in tokens) == "Paris" and all(token.logprob is None for token in tokens)
    old = {
        "choices": [{"text": "Hi", "logprobs": {"tokens": ["Hi"], "token_logprobs": [-0.5]}, "finish_reason": "stop"}]
    }
    (piece,) = decode(OpenAIDraftReader(), events(old))
    assert [(token.text, token.logprob) for token in piece.tokens] == [("Hi", -0.5)] and piece.end == "stop"


@pytest.mark.parametrize(
    "chunks",
    [
        (chunk(delta={"reasoning_content": "hm"}), chunk(delta={"reasoning": "hm"}), chunk(finish="length")),
        (chunk("<thi"), chunk("nk>a"), chunk("</think>Paris"), chunk(finish="stop")),
    ],
)
def test_b29_thoughts_are_no_draft(chunks: tuple[dict[str, Any], ...]) -> None:
    """Reasoning fields are not text, and a reply that thinks aloud is not used."""
    pieces = decode(OpenAIDraftReader(), events(*chunks))
    assert pieces[-1].problem is not None and not pieces[-1].problem.broken


def test_b24_a_host_that_refuses_log_probabilities_is_asked_once_without() -> None:
    """The retry drops the parameter, later drafts begin without it; another 400 is a refusal."""
    drafter = OpenAIDrafter("small", "http://h:1/v1")
    streaming = started(drafter, "", MISSING, MISSING, MISSING)
    retry = streaming.on_error(reply({"error": {"message": "logprobs is not supported"}}, 400))
    assert isinstance(retry, Streaming) and "logprobs" not in (retry.request.body or {})
    assert "logprobs" not in (started(drafter, "").request.body or {})
    refused = retry.on_error(reply({"error": {"message": "logprobs is not supported"}}, 400))
    assert isinstance(refused, NoDraft)


@pytest.mark.parametrize(
    ("body", "end", "problem"),
    [
        (events(chunk("a"), {"error": {"message": "boom"}}), None, True),
        ("data: <html>\n\n", None, True),
        ('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', "cut", False),
        (events({"choices": []}, {"choices": None}, chunk("a"), chunk(finish="content_filter")), "cut", False),
    ],
)
def test_broken_streams_claim_nothing(body: str, end: str | None, problem: bool) -> None:
    """Errors in the stream make the draft unusable; a stream without its end is cut."""
    pieces = decode(OpenAIDraftReader(), body)
    assert (pieces[-1].end, pieces[-1].problem is not None) == (end, problem)


def test_a_completion_is_continued_by_its_text() -> None:
    """No template stands between, so any host continues a text completion."""
    drafter = OpenAIDrafter("small", "http://h:1/v1")
    answer, _ = run(drafter.draft(completion("Once"), " upon", 9), MISSING, MISSING, MISSING)
    assert isinstance(answer, Streaming) and answer.request.path == "completions"
    assert (answer.request.body or {})["prompt"] == "Once upon" and (answer.request.body or {})["logprobs"] == 1
    none, calls = run(drafter.draft(REQUEST, "", 0))
    assert isinstance(none, NoDraft) and calls == []


def test_lm_studio_drafts_without_numbers_and_only_the_beginning() -> None:
    """It answers every path with 200 and an error object, has ``logprobs: null``, and is not known to continue."""
    unexpected = reply({"error": "Unexpected endpoint or method. (GET /version)"})
    drafter = OpenAIDrafter("qwen2.5-0.5b-instruct", "http://localhost:1234/v1")
    call = started(drafter, "", unexpected, unexpected, unexpected)
    body = events(chunk("One", logprobs=None), chunk(", two", logprobs=None), chunk(finish="stop", logprobs=None))
    pieces = decode(call.decoder, body)
    assert text_of(pieces) == "One, two" and pieces[-1].end == "stop"
    assert {token.logprob for piece in pieces for token in piece.tokens} == {None}
    later, calls = run(drafter.draft(REQUEST, "One, two", 9))
    assert isinstance(later, NoDraft) and not later.broken and calls == []


@pytest.mark.parametrize(
    "says",
    [
        [reply({"version": "0.32.0"})],
        [MISSING, reply({"model_path": "/models/q", "is_generation": True})],
        [MISSING, MISSING, recorded("llamacpp/xl_props")],
    ],
    ids=["vllm", "sglang", "llamacpp"],
)
def test_hosts_that_are_known_to_continue_do(says: list[Any]) -> None:
    """vLLM, SGLang and llama.cpp say who they are, once, and then take the reply's beginning."""
    drafter = OpenAIDrafter("small", "http://h:1/v1")
    call = started(drafter, "One, two", *says).request
    assert call.body is not None
    assert call.body["messages"][-1] == {"role": "assistant", "content": "One, two"}
    assert (call.body["continue_final_message"], call.body["add_generation_prompt"]) == (True, False)
    assert started(drafter, "One, two, three").request.path == "chat/completions"


def test_a_password_of_the_host_is_no_part_of_its_name() -> None:
    """The name goes into replies, reports and logs."""
    assert OpenAIDrafter("small", "http://me:hunter2@h:1/v1").name == "openai:small@h:1"
    assert LlamaCppDrafter("http://me:hunter2@h:1").name == "llamacpp:h:1"
