"""llama.cpp as a drafter, on streams recorded from build 11549."""

from __future__ import annotations

import json

import pytest
from exchange import chat, completion, decode, recorded, recording, reply, run

from cheapspec.backends.llamacpp import LlamaCppDrafter
from cheapspec.backends.llamacpp_draft import DraftReader
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming

REQUEST = chat("What is 2+2? Answer with one number.", temperature=0.7, stop=["!"])
RENDERED = recording("llamacpp/live_apply_template_sum")["response"]["prompt"]


def started(prefix: str, max_tokens: int = 12) -> Streaming[DraftPiece]:
    drafter = LlamaCppDrafter("http://127.0.0.1:8080/")
    answer, _ = run(drafter.draft(REQUEST, prefix, max_tokens), recorded("llamacpp/live_apply_template_sum"))
    assert isinstance(answer, Streaming)
    return answer


def text_of(pieces: list[DraftPiece]) -> str:
    return "".join(token.text for piece in pieces for token in piece.tokens)


def stream(name: str) -> str:
    body: str = recording(f"llamacpp/{name}")["response"]
    return body


def test_a_draft_is_greedy_and_follows_the_rendered_prompt() -> None:
    """Whatever the caller samples with, the draft is greedy; it is never billed."""
    drafter = LlamaCppDrafter("http://127.0.0.1:8080/")
    assert (drafter.name, drafter.base_url) == ("llamacpp:127.0.0.1:8080", "http://127.0.0.1:8080")
    assert LlamaCppDrafter("http://h:1", name="embedded").name == "embedded"
    assert drafter.propose(REQUEST, "", 5) is None
    call = started("The answer is").request
    body = dict(call.body or {})
    assert (call.path, call.stream, call.billed, call.purpose) == ("/completion", True, False, "draft")
    assert (body["prompt"], body["n_predict"], body["n_probs"]) == (RENDERED + "The answer is", 12, 1)
    assert (body["temperature"], body["stop"]) == (0, ["!"])


def test_b29_the_template_is_told_not_to_think() -> None:
    """Whatever else the caller's variables say, they reach the draft's template with thinking switched off."""
    request = chat("x", chat_template_kwargs={"date": "today"})
    _, (rendering,) = run(LlamaCppDrafter("http://h:1").draft(request, "", 5), recorded("llamacpp/live_error_route"))
    assert rendering.path == "/apply-template"
    assert (rendering.body or {})["chat_template_kwargs"] == {"date": "today", "enable_thinking": False}


def test_b29_a_host_that_thinks_all_the_same_is_asked_once() -> None:
    """A rendered prompt that ends in an opened block of thoughts: no draft, and no call the next time."""
    drafter = LlamaCppDrafter("http://h:1")
    first, calls = run(drafter.draft(REQUEST, "", 5), reply({"prompt": "<|im_start|>assistant\n<think>\n"}))
    assert isinstance(first, NoDraft) and first.reason == "no_draft" and not first.broken and len(calls) == 1
    assert run(drafter.draft(REQUEST, "", 5)) == (first, [])
    closed = {"prompt": "<|im_start|>assistant\n<think>\n\n</think>\n\n"}
    other, _ = run(LlamaCppDrafter("http://h:1").draft(REQUEST, "", 5), reply(closed))
    assert isinstance(other, Streaming)
    plain, _ = run(drafter.draft(completion("Once"), "", 5))
    assert isinstance(plain, Streaming)


def test_a_recorded_draft_gives_tokens_with_their_log_probabilities() -> None:
    """Tokens join to the text, each with its own number; end of turn is told."""
    pieces = decode(started("The answer is").decoder, stream("live_draft_stream_end"))
    tokens = [token for piece in pieces for token in piece.tokens]
    assert [token.text for token in tokens] == [" ", "4", "."]
    assert tokens[1].logprob == pytest.approx(-0.0749, abs=1e-3)
    assert [piece.end for piece in pieces if piece.end] == ["stop"]


def test_pieces_arrive_as_the_events_do() -> None:
    """A token is released with its event, not at the end of the draft."""
    decoder = started("The answer is").decoder
    first, rest = stream("live_draft_stream_end").split("\n\n", 1)
    assert text_of(decoder.feed(first.encode() + b"\n\n")) == " "
    assert text_of(decoder.feed(rest.encode())) == "4." and decoder.close() == []


def test_a_character_of_several_tokens_has_no_known_probability() -> None:
    """The one entry of three tokens carries the last one's number, which says nothing of all three."""
    pieces = decode(started("").decoder, stream("live_draft_stream"))
    assert text_of(pieces) == "🌟🌟" and pieces[-1].end == "length"
    assert [token.logprob for piece in pieces for token in piece.tokens] == [None, None]


def test_b26_spaces_at_the_end_of_the_prefix_stand_exactly_once() -> None:
    """They are not sent; the draft must bring them, and is shown without; a draft that does not is unusable."""
    spaced = started("The answer is ")
    assert (spaced.request.body or {})["prompt"] == RENDERED + "The answer is"
    assert text_of(decode(spaced.decoder, stream("live_draft_stream_end"))) == "4."
    other = decode(started("The answer is  ").decoder, stream("live_draft_stream_end"))
    assert any(piece.problem is not None for piece in other) and text_of(other) == ""
    newline = started("Steps:\n").request.body or {}
    assert newline["prompt"] == RENDERED + "Steps:\n"


def test_a_stop_string_stays_in_the_draft_and_ends_nothing() -> None:
    """The target has yet to write the stop string: the draft holds it, and claims no end of turn."""
    pieces = decode(started("").decoder, stream("live_draft_stream_word"))
    assert text_of(pieces) == "The answer" and pieces[-1].end == "cut"


def test_a_stream_that_breaks_off_is_cut() -> None:
    """What came counts, nothing is said about its end."""
    first = stream("live_draft_stream_end").split("\n\n", 1)[0] + "\n\n"
    pieces = decode(DraftReader(), first)
    assert text_of(pieces) == " " and [piece.end for piece in pieces if piece.end] == ["cut"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"error": {"code": 500, "message": "slot died", "type": "server_error"}}, "no_draft"),
        ({"content": "a", "stop": True, "stop_type": "limit", "truncated": True}, "draft_context"),
    ],
)
def test_trouble_inside_the_stream_is_a_problem(event: dict[str, object], reason: str) -> None:
    """An error object or a truncated prompt makes the draft unusable, and nothing comes after it."""
    pieces = decode(DraftReader(), f"data: {json.dumps(event)}\n\n" + stream("live_draft_stream_end"))
    problem = pieces[-1].problem
    assert problem is not None and problem.reason == reason and text_of(pieces) == ""


def test_refusals_are_told_apart() -> None:
    """A full window, a loading model, a missing route and a dead host are different reasons."""
    streaming = started("")
    full = streaming.on_error(recorded("llamacpp/live_error_context"))
    assert isinstance(full, NoDraft) and full.reason == "draft_context" and not full.broken
    loading = streaming.on_error(reply({"error": {"message": "Loading model", "type": "unavailable_error"}}, 503))
    assert isinstance(loading, NoDraft) and loading.reason == "draft_busy"
    dead, _ = run(LlamaCppDrafter("http://h:1").draft(REQUEST, "", 5), None)
    assert isinstance(dead, NoDraft) and dead.broken
    missing, _ = run(LlamaCppDrafter("http://h:1").draft(REQUEST, "", 5), recorded("llamacpp/live_error_route"))
    assert isinstance(missing, NoDraft) and missing.reason == "no_draft"


def test_a_completion_needs_no_template() -> None:
    """A text completion's prompt is sent as it is; no room, no call."""
    answer, calls = run(LlamaCppDrafter("http://h:1").draft(completion("Once upon"), " a", 5))
    assert isinstance(answer, Streaming) and calls == []
    assert (answer.request.body or {})["prompt"] == "Once upon a"
    none, calls = run(LlamaCppDrafter("http://h:1").draft(REQUEST, "", 0))
    assert isinstance(none, NoDraft) and calls == []
