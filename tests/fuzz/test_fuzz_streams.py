"""Streams of any bytes, cut anywhere: no decoder raises, and how the bytes were cut changes nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from fuzzing import body_of, decoded, often, splits, spoil
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.backends.llamacpp_draft import DraftReader
from cheapspec.backends.llamacpp_target import CompletionReader
from cheapspec.backends.ollama_stream import OllamaDecoder, Reading
from cheapspec.backends.openai_drafter import OpenAIDraftReader
from cheapspec.core.ports import DraftPiece, TargetPiece
from cheapspec.core.sse import ChatStreamReader, NDJSONDecoder, SSEDecoder

TEXT = ["One", ",", " two", ", th", "r", "ee 🙂", " é", "."]


def chat(number: int, text: str) -> dict[str, Any]:
    entry = {"token": text, "logprob": -0.25, "bytes": list(text.encode()), "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": text}, "logprobs": {"content": [entry]}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def completion(number: int, text: str) -> dict[str, Any]:
    legacy = {"tokens": [text], "token_logprobs": [-0.25], "top_logprobs": [{text: -0.25}], "text_offset": [0]}
    choice = {"index": 0, "text": text, "logprobs": legacy, "finish_reason": None, "token_ids": [number]}
    return {"id": "c", "object": "text_completion", "model": "m", "choices": [choice]}


def llamacpp(number: int, text: str) -> dict[str, Any]:
    entry = {"id": number, "token": text, "bytes": list(text.encode()), "logprob": -0.25, "top_logprobs": []}
    return {"content": text, "tokens": [number], "stop": False, "completion_probabilities": [entry]}


def ollama(number: int, text: str) -> dict[str, Any]:
    entry = {"token": text, "logprob": -0.25, "bytes": list(text.encode())}
    return {"model": "m", "response": text, "done": False, "logprobs": [entry]}


USAGE = {"prompt_tokens": 9, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 0}}
ENDS: dict[Any, list[Any]] = {
    chat: [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": USAGE}],
    completion: [{"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, {"choices": [], "usage": USAGE}],
    llamacpp: [{"content": "", "stop": True, "stop_type": "eos", "tokens_predicted": 8, "tokens_evaluated": 9}],
    ollama: [{"response": "", "done": True, "done_reason": "stop", "eval_count": 8, "prompt_eval_count": 9}],
}
DECODERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "chat of a target": (lambda: ChatStreamReader("chat"), chat),
    "completion of a target": (lambda: ChatStreamReader("completion"), completion),
    "llama.cpp as target": (CompletionReader, llamacpp),
    "llama.cpp as target, whole": (lambda: CompletionReader(whole=True), llamacpp),
    "llama.cpp as draft": (DraftReader, llamacpp),
    "llama.cpp as draft, after a space": (lambda: DraftReader(" "), llamacpp),
    "OpenAI-compatible draft, chat": (OpenAIDraftReader, chat),
    "OpenAI-compatible draft, completion": (OpenAIDraftReader, completion),
    "Ollama": (lambda: OllamaDecoder(Reading(low=5)), ollama),
    "events": (SSEDecoder, chat),
    "lines": (NDJSONDecoder, ollama),
}
EACH = pytest.mark.parametrize("name", DECODERS)


def framed(kind: Any, events: list[Any], source: random.Random) -> bytes:
    """As lines of JSON, or as server-sent events with what servers put around them."""
    if kind is ollama:
        return b"".join(body_of(event) + b"\n" for event in events)
    ends = [b"\n\n", b"\r\n\r\n", b"\r\r"]
    noise = [b"", b": keep-alive\n\n", b"event: x\n", b"data: [DONE]\n\n" if source.random() < 0.05 else b""]
    out = b"".join(source.choice(noise) + b"data: " + body_of(event) + source.choice(ends) for event in events)
    return out + (b"data: [DONE]\n\n" if source.random() < 0.7 else b"")


def healthy(kind: Any) -> list[Any]:
    return [*(kind(number, text) for number, text in enumerate(TEXT)), *ENDS[kind]]


def assert_sane(pieces: list[Any], name: str) -> None:
    """Whatever came: text is text, an end is the last piece, a problem brings no text."""
    for at, piece in enumerate(pieces):
        if isinstance(piece, DraftPiece):
            assert all(isinstance(token.text, str) for token in piece.tokens)
            assert all(token.logprob is None or -9000 < token.logprob <= 0.001 for token in piece.tokens)
            assert piece.end in (None, "stop", "length", "cut")
            assert piece.problem is None or not piece.tokens
            if piece.end is not None or piece.problem is not None:
                assert at == len(pieces) - 1, f"{name}: something follows the end"
        elif isinstance(piece, TargetPiece):
            assert isinstance(piece.text, str)
            assert piece.finish_reason is None or isinstance(piece.finish_reason, str)
            assert piece.ids is None or all(type(token) is int for token in piece.ids)


@EACH
@often(40)
@given(data=st.binary(max_size=300), source=st.randoms(use_true_random=False))
def test_any_bytes_cut_anywhere(name: str, data: bytes, source: random.Random) -> None:
    """Random bytes: nothing is raised, and every split gives the same pieces."""
    make, _ = DECODERS[name]
    whole = decoded(make(), [data])
    assert_sane(whole, name)
    assert decoded(make(), splits(data, source)) == whole
    assert decoded(make(), [data[at : at + 1] for at in range(len(data))]) == whole


@EACH
@often(60)
@given(source=st.randoms(use_true_random=False))
def test_spoiled_streams_cut_anywhere(name: str, source: random.Random) -> None:
    """Events that are missing, repeated, out of order, cut off or of wrong types: the same."""
    make, kind = DECODERS[name]
    events = [spoil(event, source, source.randrange(3)) for event in healthy(kind)]
    for _ in range(source.randrange(3)):
        one, other = source.randrange(len(events)), source.randrange(len(events))
        events[one], events[other] = events[other], events[one]
    events += [{"error": {"message": "overloaded", "code": 429}}] if source.random() < 0.1 else []
    data = framed(kind, events, source)
    if source.random() < 0.3:
        data = data[: source.randrange(len(data) + 1)]
    whole = decoded(make(), [data])
    assert_sane(whole, name)
    assert decoded(make(), splits(data, source)) == whole


@EACH
@often(20)
@given(source=st.randoms(use_true_random=False))
def test_healthy_streams_say_what_was_said(name: str, source: random.Random) -> None:
    """The control: unspoiled, cut anywhere, the text is the text and the end is the end."""
    make, kind = DECODERS[name]
    data = framed(kind, healthy(kind), random.Random(3))
    pieces = decoded(make(), splits(data, source))
    if name in ("events", "lines"):
        texts = [
            json.loads(piece.data) if name == "events" else piece
            for piece in pieces
            if getattr(piece, "data", "") != "[DONE]"
        ]
        assert texts == healthy(kind)
    elif isinstance(pieces[0], DraftPiece):
        text = "".join(token.text for piece in pieces for token in piece.tokens)
        want = "".join(TEXT)
        if "after a space" in name:
            assert pieces[-1].problem is not None or text == want
        else:
            assert text == want
            assert pieces[-1].end == ("length" if kind is completion else "stop")
    else:
        assert "".join(piece.text for piece in pieces) == "".join(TEXT)
        assert any(piece.complete for piece in pieces)
