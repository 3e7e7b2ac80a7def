"""What a stream that passes by says of itself, and the one chunk that is taken out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.effects import Usage
from cheapspec.core.meter import Metered, StreamMeter

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def event(data: Any, ends: str = "\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}{ends}{ends}".encode()


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text}, **more}]}


EXTRA = event({"id": "chatcmpl-1", "choices": [], "usage": USAGE, "service_tier": "default"})
HEAD = b"\xef\xbb\xbf: OPENROUTER PROCESSING\n\n" + event(said("Hé"))
BODY = event(said("llo", finish_reason="stop"))
DONE = event("[DONE]")


def passed(body: bytes, *, hide: bool = True, kind: str = "chat", step: int = 1) -> tuple[bytes, Metered]:
    meter = StreamMeter(kind, hide=hide)
    out = [meter.feed(body[start : start + step]) for start in range(0, len(body), step)]
    out.append(meter.close())
    return b"".join(out), meter.metered()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_b03_only_the_chunk_of_usage_is_taken_out(step: int) -> None:
    """Every other byte goes on, however the body is cut into pieces; what the chunk says is known."""
    out, told = passed(HEAD + BODY + EXTRA + DONE, step=step)
    assert out == HEAD + BODY + DONE
    assert told == Metered(Usage(7, 3, service_tier="default"), 6, 2, True, None, True, "chatcmpl-1")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no events at all",
        b": ping\n: pong\n\n",
        b"data: \n\ndata:\n\n",
        b"event: x\nid: 3\nretry: 5\ndata: {}\n\n",
        b"data: {not json}\n\ndata: [1]\n\n",
        b"data: {\ndata: }\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        HEAD + b"half a fra",
        event({"choices": [], "prompt_filter_results": []}) + BODY,
        event({"choices": [], "usage": None}) + event({"usage": {"prompt_tokens": "many"}}),
        event({**said("a"), "usage": USAGE}),
        BODY.replace(b"\n", b"\r\n") + BODY.replace(b"\n", b"\r") + DONE,
        DONE + b"\r",
    ],
)
@pytest.mark.parametrize("step", [1, 5, 10**6])
def test_everything_else_goes_on(body: bytes, step: int) -> None:
    """Comments, odd frames, other line ends, cut frames, chunks without choices that are not about usage."""
    assert passed(body, step=step)[0] == body


def test_what_is_not_to_be_hidden_goes_on_at_once() -> None:
    """A meter that hides nothing gives every piece on as it came, and knows the same."""
    meter = StreamMeter("chat")
    for piece in (HEAD[:3], HEAD[3:9], HEAD[9:], BODY, EXTRA, DONE):
        assert meter.feed(piece) is piece
    assert meter.close() == b""
    assert meter.metered().usage == Usage(7, 3, service_tier="default")


def test_comments_are_not_held_back() -> None:
    """A comment goes on with its line end, a frame with its blank line; a comment inside a hidden frame stays."""
    meter = StreamMeter("chat", hide=True)
    assert meter.feed(b": ping\n") == b": ping\n"
    assert meter.feed(b"data: {}\n") == b""
    assert meter.feed(b"\n") == b"data: {}\n\n"
    assert meter.feed(b"event: message\n: still here\n" + EXTRA) == b": still here\n"


def test_a_last_frame_without_its_blank_line_counts() -> None:
    """Some servers leave it out."""
    out, told = passed(BODY + EXTRA.rstrip())
    assert out == BODY
    assert told.usage is not None


@pytest.mark.parametrize("sign", [BODY, event(said("a")) + DONE])
def test_b15_either_end_sign_is_enough(sign: bytes) -> None:
    """A finish reason, or ``[DONE]``."""
    assert passed(sign)[1].whole
    assert not passed(event(said("a")))[1].whole


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (event({"error": {"message": "overloaded", "code": 502}}), "overloaded"),
        (event({"error": "overloaded"}), "overloaded"),
        (b"event: error\n" + event({"message": "overloaded"}), "overloaded"),
        (event({"type": "error", "message": "overloaded"}), "overloaded"),
        (event(said("", finish_reason="error")), "the provider ended the stream with an error"),
    ],
)
def test_b14_an_error_inside_is_a_problem(body: bytes, message: str) -> None:
    """The first one counts, and no end sign makes it whole again."""
    told = passed(event(said("Hello")) + body + body.replace(b"over", b"under") + DONE)[1]
    assert told.problem is not None
    assert told.problem.error["message"] == message
    assert (told.whole, told.began, told.written) == (False, True, 5)


@pytest.mark.parametrize("body", [b"", b"<!doctype html><h1>Welcome</h1>", b'{"choices": []}', b": ping\n\n"])
def test_b39_what_is_no_answer_has_not_begun(body: bytes) -> None:
    """A web page, an empty body, JSON without a choice."""
    told = passed(body)[1]
    assert told.problem is not None
    assert (told.began, told.whole, told.usage) == (False, False, None)


def test_a_whole_reply_instead_of_a_stream_is_read() -> None:
    """Some servers do not stream; what they say of usage counts."""
    reply = {"id": "r", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": USAGE}
    assert passed(json.dumps(reply).encode())[1] == Metered(Usage(7, 3), 5, 2, True, None, True, "r")


def test_a_body_too_long_to_keep_is_let_go() -> None:
    """A download is not kept in memory; nothing is known of it."""
    meter = StreamMeter("chat", hide=True)
    assert len(meter.feed(b"x" * 4_000_001)) == 4_000_001
    assert meter.close() == b""
    assert meter.metered() == Metered(began=True)


def test_everything_that_the_model_wrote_is_counted() -> None:
    """Text, thoughts once, refusals, arguments, in every choice; a piece is a token at least."""
    delta = {
        "content": [{"type": "text", "text": "ab"}, "x"],
        "refusal": "c",
        "reasoning": "de",
        "reasoning_content": "de",
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, 3],
        "function_call": {"name": "g"},
    }
    chunk = {"choices": [{"index": 0, "delta": delta}, {"index": 1, "text": "é"}, 5]}
    told = passed(event(chunk))[1]
    assert (told.written, told.tokens) == (2 + 1 + 2 + 1 + 2 + 1 + 2, 7)
    assert passed(event(said("a" * 400)))[1].tokens == 100


def test_responses_say_it_in_their_own_events() -> None:
    """``response.completed`` carries the usage; a failed one says why."""
    completed = {"id": "resp_1", "usage": {"input_tokens": 5, "output_tokens": 2}}
    body = event({"type": "response.output_text.delta", "delta": "Hi"})
    told = passed(body + event({"type": "response.completed", "response": completed}), kind="responses")[1]
    assert told == Metered(Usage(5, 2), 2, 1, True, None, True, "resp_1")
    failed = {"type": "response.failed", "response": {"error": {"message": "no"}}}
    told = passed(body + event(failed), kind="responses")[1]
    assert told.problem is not None
    assert told.problem.error["message"] == "no"
    told = passed(event({"type": "response.failed"}), kind="responses")[1]
    assert told.problem is not None
    whole = {"object": "response", **completed}
    assert passed(json.dumps(whole).encode(), kind="responses")[1].usage == Usage(5, 2)
    assert passed(b'{"error": {"message": "no"}}', kind="responses")[1].problem is not None


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_go_through(body: bytes, step: int) -> None:
    """Nothing raises, and nothing but a chunk of usage is ever missing."""
    out, _ = passed(body, step=step)
    assert out == body
    assert passed(body, step=step, hide=False)[0] == body


@pytest.mark.parametrize("keep", [False, True])
def test_text_is_told_only_where_it_is_kept(keep: bool) -> None:
    """What the model wrote, of a stream and of a whole reply."""
    whole = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
    for body in (event(said("Hel")) + event(said("lo", finish_reason="stop")) + DONE, whole):
        meter = StreamMeter("chat", keep_text=keep)
        meter.feed(body)
        meter.close()
        assert meter.metered().text == ("Hello" if keep else "")


@pytest.mark.parametrize("hide", [False, True])
def test_a_body_without_line_ends_is_not_kept(hide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on as it comes, what was held back too; what comes after its line is read again."""
    monkeypatch.setattr("cheapspec.core.meter._KEPT", 1000)
    meter = StreamMeter("chat", hide=hide)
    pieces = [b"data: " + b"x" * 94] * 50
    passed = b"".join(map(meter.feed, pieces))
    assert sum(map(len, meter._tail)) <= 1000
    event = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\n'
    passed += meter.feed(b"end\n\n" + event) + meter.close()
    assert passed == b"".join(pieces) + b"end\n\n" + event
    assert meter.metered().whole and meter.metered().written == 5


@pytest.mark.parametrize("hide", [False, True])
def test_an_event_that_never_ends_is_not_kept(hide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines without an empty one between them: they go on, and an event after them is read."""
    monkeypatch.setattr("cheapspec.core.meter._KEPT", 1000)
    meter = StreamMeter("chat", hide=hide)
    lines = [b"data: " + b"y" * 93 + b"\n"] * 50
    passed = b"".join(map(meter.feed, lines))
    assert sum(map(len, meter._frame)) <= 1000 and sum(map(len, meter._data)) <= 1000
    event = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\n'
    passed += meter.feed(b"\n" + event) + meter.close()
    assert passed == b"".join(lines) + b"\n" + event
    assert meter.metered().whole and meter.metered().written == 5
