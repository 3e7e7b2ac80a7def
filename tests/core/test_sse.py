"""Streamed bodies: any split of the bytes gives the same events, and an end is only what says so."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.effects import Usage
from cheapspec.core.ports import Identity, TargetPiece
from cheapspec.core.sse import BadLine, ChatStreamReader, NDJSONDecoder, SSEDecoder, SSEEvent


def events(body: bytes) -> list[SSEEvent]:
    decoder = SSEDecoder()
    return decoder.feed(body) + decoder.close()


def read(*chunks: Any, kind: str = "chat", done: bool = False) -> list[TargetPiece]:
    """Pieces of a stream of these chunks (JSON objects, or raw frames as bytes)."""
    reader = ChatStreamReader(kind)
    frames = [
        chunk if isinstance(chunk, bytes) else b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks
    ]
    pieces = [piece for frame in frames for piece in reader.feed(frame)]
    return pieces + (reader.feed(b"data: [DONE]\n\n") if done else []) + reader.close()


def delta(text: str | None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason, **more}]}


# --- server-sent events ------------------------------------------------------------------------

BODY = (
    b'\xef\xbb\xbfdata: a\r\n\r\n: ping\n\ndata:{"x":1}\n\nevent: error\ndata: one\rdata: tw\xc3\xb6\r\rdata: \n\n'
    b"id: 7\nretry: 3\nnonsense\ndata\ndata: b\n\n\n\ndata: [DONE]\n\ndata: last"
)
WANTED = [
    SSEEvent("a"),
    SSEEvent('{"x":1}'),
    SSEEvent("one\ntwö", "error"),
    SSEEvent("\nb"),
    SSEEvent("[DONE]"),
    SSEEvent("last"),
]


def test_b12_every_form_of_an_event() -> None:
    """All line ends, a byte order mark, names, many lines, no space, empty data, and an end without blank line."""
    assert events(BODY) == WANTED
    assert [event.done for event in WANTED] == [False] * 4 + [True, False]


@given(st.lists(st.integers(0, len(BODY)), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    """Chunks may end inside a character, a line end or the byte order mark."""
    edges = sorted({0, len(BODY), *cuts})
    decoder = SSEDecoder()
    got = [event for left, right in itertools.pairwise(edges) for event in decoder.feed(BODY[left:right])]
    assert got + decoder.close() == WANTED


def test_byte_by_byte() -> None:
    """The smallest chunks, with empty ones between them."""
    decoder = SSEDecoder()
    got: list[SSEEvent] = []
    for byte in BODY:
        got += decoder.feed(bytes([byte])) + decoder.feed(b"")
    assert got + decoder.close() == WANTED


def test_b12_comments_are_dropped() -> None:
    """Keep-alive comments are no data, and a stream of nothing else takes up no memory."""
    decoder = SSEDecoder()
    assert decoder.feed(b": OPENROUTER PROCESSING\n\n:x: y\n\ndata: a\n\n") == [SSEEvent("a")]
    tracemalloc.start()
    try:
        assert decoder.feed(b": ping\n\n") == []
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2000):
            assert decoder.feed(b": ping\n\n") == []
        assert tracemalloc.get_traced_memory()[0] - before < 2000 * len(": ping")
    finally:
        tracemalloc.stop()
    assert decoder.feed(b": data: x\ndata: b\n\n") == [SSEEvent("b")]


def test_broken_characters_do_not_end_a_stream() -> None:
    """Bytes that are no UTF-8 are replaced, not raised."""
    assert events(b"data: a\xff\n\n") == [SSEEvent("a\ufffd")]


# --- lines of JSON -----------------------------------------------------------------------------


def test_lines_of_json_over_any_split() -> None:
    """Values come when their line is whole; blank lines are nothing; a lone CR is part of a line."""
    body = b'{"a":"\xc3\xa9"}\n\r\n\n[1]\r\n{"b":2}'
    for size in range(1, len(body) + 1):
        decoder = NDJSONDecoder()
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        got = [value for chunk in chunks for value in decoder.feed(chunk)]
        assert got + decoder.close() == [{"a": "é"}, [1], {"b": 2}]
    assert NDJSONDecoder().close() == []


def test_a_bad_line_is_marked_and_the_rest_is_read() -> None:
    """A line that is not JSON, and one that the end cut off, are told apart from values."""
    decoder = NDJSONDecoder()
    assert decoder.feed(b'<html>\n{"a":1}\n{"b":') == [BadLine("<html>"), {"a": 1}]
    assert decoder.close() == [BadLine('{"b":')]
    deep = b"[" * 200_000 + b"\n"
    assert NDJSONDecoder().feed(deep) == [BadLine(deep[:-1].decode())]


# --- chat and completion streams ---------------------------------------------------------------


def test_b11_chunks_without_choices() -> None:
    """An empty, missing or null list of choices is no text; usage in such a chunk is read."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    got = read(
        {"choices": [], "prompt_filter_results": []},
        {"x": 1},
        {"choices": None},
        delta("Hi"),
        delta(None, "stop"),
        {"choices": [], "usage": usage},
        done=True,
    )
    assert got == [
        TargetPiece(text="Hi"),
        TargetPiece(finish_reason="stop", complete=True),
        TargetPiece(usage=Usage(5, 2)),
        TargetPiece(complete=True),
    ]


def test_choices_other_than_the_first_are_ignored() -> None:
    """Only index 0 is the reply; junk in the list does no harm."""
    chunk = {"choices": [None, {}, {"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}
    assert read(chunk) == [TargetPiece(text="yes")]


def test_b12_a_target_stream_with_comments() -> None:
    """Comments before and between chunks change nothing."""
    reader = ChatStreamReader("chat")
    body = b": OPENROUTER PROCESSING\n\ndata:" + json.dumps(delta("a")).encode() + b"\n\ndata: \n\n: ping\n\n"
    assert reader.feed(body) == [TargetPiece(text="a")]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b'data: {"error":{"message":"overloaded","code":502}}\n\n', "overloaded"),
        (b'data: {"error":"overloaded"}\n\n', "overloaded"),
        (b'event: error\ndata: {"message":"overloaded"}\n\n', "overloaded"),
        (b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n', "overloaded"),
        (b"event: error\ndata: overloaded\n\n", "overloaded"),
        (b'data: {"object":"error","message":"overloaded","code":500}\n\n', "overloaded"),
        (b"data: <html>\n\n", "<html>"),
        (b'data: ["x"]\n\n', '["x"]'),
        (
            b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n',
            "the provider ended the stream with an error",
        ),
    ],
)
def test_b14_an_error_inside_the_stream_ends_it(frame: bytes, message: str) -> None:
    """However the error is written it is an error, not an end, and nothing after it counts."""
    got = read(delta("par"), frame, delta("tial", "stop"), done=True)
    assert [piece.text for piece in got] == ["par", ""]
    assert got[-1].error is not None and got[-1].error["message"] == message
    assert not any(piece.complete for piece in got)


def test_b15_ends_of_a_stream() -> None:
    """Neither sign: incomplete. [DONE] only, or a finish reason only: complete. The reason is kept."""
    assert not any(piece.complete for piece in read(delta("a")))
    assert any(piece.complete for piece in read(delta("a"), done=True))
    assert read(delta("a", "stop"))[-1] == TargetPiece(text="a", finish_reason="stop", complete=True)
    assert read(delta(None, "length"), done=True)[0].finish_reason == "length"
    assert read(b'data: {"choices":[{"delta":{"content":"cut')[0].error is not None


def test_b29_d_thoughts_are_not_text() -> None:
    """Reasoning fields, thinking parts and log-probability entries add nothing to the text."""
    thought = {"choices": [{"delta": {"reasoning_content": "hm", "reasoning": "hm"}, "logprobs": {"content": [{}]}}]}
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Pa"}, {"type": "text"}, "junk"]
    assert read(thought, {"choices": [{"delta": {"content": parts}}]}) == [TargetPiece(text="Pa")]


def test_text_completions() -> None:
    """The text of a completion chunk, its finish reason and usage in one chunk."""
    chunk = {
        "choices": [{"text": "hi", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
    assert read(chunk, kind="completion") == [
        TargetPiece(text="hi", finish_reason="stop", usage=Usage(1, 1), complete=True)
    ]


def test_token_ids_and_where_usage_hides() -> None:
    """vLLM's token ids are counted; usage inside the choice or Groq's extra object is found."""
    assert read(delta("ab", token_ids=[3, 4])) == [TargetPiece(text="ab", tokens=2, ids=(3, 4))]
    assert read(delta("a", token_ids=["x"])) == [TargetPiece(text="a")]
    counts = {"prompt_tokens": 3, "completion_tokens": 1}
    assert read(delta("a", usage=counts))[0].usage == Usage(3, 1)
    assert read({**delta("a"), "x_groq": {"usage": counts}, "service_tier": "flex"})[0].usage == Usage(
        3, 1, service_tier="flex"
    )


def test_identity_is_told_when_it_changes() -> None:
    """The first chunk that names the reply tells its identity; chunks that say the same, or nothing, do not."""
    named = {"id": "c1", "model": "m", "created": 5, "system_fingerprint": None}
    got = read({**delta("a"), **named}, {**delta("b"), **named}, delta("c"), {**delta("d"), **named, "id": "c2"})
    assert [piece.identity for piece in got] == [
        Identity(id="c1", model="m", created=5),
        None,
        None,
        Identity(id="c2", model="m", created=5),
    ]
