"""Cases B07, B29, B32, B35 and B50 at the level of the dialect: what is sent, and what replies mean."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ollama_recordings import (
    RENDERED,
    chat,
    completion,
    drafter,
    loaded,
    open_draft,
    play,
    read,
    recording,
    reply,
    show,
    text_of,
)

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.effects import HttpReply
from cheapspec.core.ports import NoDraft, Streaming

WELL = {"/api/ps": loaded(4096), "/api/show": show()}
QUESTION = chat("Count from one to ten in words.")


def lines(*values: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}, "done": False, **more}


DONE = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


def test_a_draft_is_asked_for_greedily_and_without_a_cut_prompt() -> None:
    """The request carries explicit greedy options, the loaded window, and nothing that reloads the model."""
    request = open_draft(QUESTION, max_tokens=16).request
    assert (request.path, request.method, request.stream, request.billed) == ("/api/chat", "POST", True, False)
    assert request.body == {
        "model": "smollm2:135m",
        "messages": [{"role": "user", "content": "Count from one to ten in words."}],
        "stream": True,
        "truncate": False,
        "logprobs": True,
        "options": {
            "temperature": 0,
            "top_k": 1,
            "repeat_penalty": 1,
            "seed": 0,
            "num_predict": 16,
            "num_ctx": 4096,
            "draft_num_predict": 0,
        },
    }


def test_the_role_developer_becomes_system() -> None:
    """Ollama writes an unknown role into the template as it is."""
    request = chat("x")
    messages = ({"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    request = type(request)("chat", {}, "gpt", False, messages)
    body = open_draft(request).request.body
    assert body is not None
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_a_completion_continues_its_prompt_without_a_template() -> None:
    """A text completion goes to the raw route, the reply so far appended to the prompt."""
    request = open_draft(completion("def add(a, b):"), "\n    return", 8).request
    assert request.path == "/api/generate"
    assert request.body is not None
    assert (request.body["raw"], request.body["prompt"]) == (True, "def add(a, b):\n    return")
    assert "think" not in request.body
    assert "system" not in request.body


def test_stop_strings_join_the_models_own() -> None:
    """A request's ``stop`` replaces the Modelfile's, so the model's own are sent with it."""
    body = open_draft(chat("x", stops=("\nUser:",))).request.body
    assert body is not None
    assert body["options"]["stop"] == ["\nUser:", "<|im_start|>", "<|im_end|>"]


def test_facts_are_asked_for_once_and_again_after_a_404() -> None:
    """Only the loaded window is asked for each time; a model that has vanished is looked up anew."""
    source = drafter()
    _, first = play(source.draft(QUESTION, "", 4), WELL)
    streaming, second = play(source.draft(QUESTION, "", 4), WELL)
    assert [request.path for request in first] == ["/api/ps", "/api/show"]
    assert [request.path for request in second] == ["/api/ps"]
    assert streaming.on_error(recording("ollama33_generate_missing").reply).broken
    _, third = play(source.draft(QUESTION, "", 4), WELL)
    assert [request.path for request in third] == ["/api/ps", "/api/show"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (chat(), "question"),
        (chat("Hi", "Hello"), "question"),
        (completion(""), "prompt"),
        (completion("def f(", suffix="return 1"), "suffix"),
    ],
)
def test_what_cannot_be_drafted_makes_no_call(request_: Any, why: str) -> None:
    """An empty prompt would only load the model; a trailing assistant message is ambiguous."""
    result, sent = play(drafter().draft(request_, "", 4), {})
    assert sent == []
    assert isinstance(result, NoDraft)
    assert why in result.detail


# --- B07 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last",
    [
        {"done": True, "done_reason": "stop", "eval_count": 12},
        {"done": True, "done_reason": "stop", "prompt_eval_count": 0, "eval_count": 12},
        {"done": True, "done_reason": "stop", "prompt_eval_count": None, "eval_count": "12"},
    ],
)
def test_b07_missing_counts_are_unknown_not_a_cut_prompt(last: dict[str, Any]) -> None:
    """A final line without ``prompt_eval_count`` ends the draft like any other, however long the prompt."""
    streaming = open_draft(chat("word " * 2000), replies={"/api/ps": loaded(8192)})
    pieces = read(streaming, lines(said("Paris"), last))
    assert text_of(pieces) == "Paris"
    assert pieces[-1].end == "stop"


# --- B29 ---------------------------------------------------------------------------------------

THINKING = show(capabilities=["completion", "thinking"])


def test_b29_thinking_is_switched_off() -> None:
    """A model that can think is told not to, in the draft and in the rendered prompt of a continuation."""
    replies = {**WELL, "/api/show": THINKING, "/api/chat": RENDERED}
    streaming, _ = play(drafter().draft(QUESTION, "", 4), replies)
    assert streaming.request.body["think"] is False
    streaming, sent = play(drafter().draft(QUESTION, "One", 4), replies)
    assert sent[-1].body is not None
    assert sent[-1].body["think"] is False
    assert streaming.request.path == "/api/generate"


@pytest.mark.parametrize("family", ["gptoss", "gpt-oss"])
def test_b29_a_model_that_cannot_stop_thinking_does_not_draft(family: str) -> None:
    """gpt-oss knows levels of thinking only."""
    replies = {**WELL, "/api/show": show(capabilities=["completion", "thinking"], details={"family": family})}
    result, _ = play(drafter("gpt-oss:20b").draft(QUESTION, "", 4), replies)
    assert isinstance(result, NoDraft)
    assert result.reason == "no_draft"


def test_b29_an_embedding_model_does_not_draft() -> None:
    """Without the capability ``completion`` there is nothing to ask for."""
    result, _ = play(drafter().draft(QUESTION, "", 4), {**WELL, "/api/show": show(capabilities=["embedding"])})
    assert isinstance(result, NoDraft)


@pytest.mark.parametrize("field", ["thinking", "reasoning", "reasoning_content"])
def test_b29_only_thoughts_are_no_draft_and_the_model_is_not_asked_again(field: str) -> None:
    """All output in a thinking field, content empty: nothing to accept, now or next time."""
    source = drafter()
    streaming, _ = play(source.draft(QUESTION, "", 8), {**WELL, "/api/show": THINKING})
    thought = {"message": {"role": "assistant", "content": "", field: "Hmm"}, "done": False}
    entries = {"logprobs": [{"token": "Hmm", "logprob": -0.5, "bytes": [72, 109, 109]}]}
    pieces = read(streaming, lines({**thought, **entries}, {**DONE, "done_reason": "length"}))
    assert text_of(pieces) == ""
    assert pieces[-1].problem is not None
    assert pieces[-1].problem.reason == "no_draft"
    result, _ = play(source.draft(QUESTION, "", 8), WELL)
    assert isinstance(result, NoDraft)
    assert "thinks" in result.detail


@pytest.mark.parametrize("step", [None, 1])
def test_b29_thoughts_in_the_content_are_taken_away(step: int | None) -> None:
    """``<think>a</think>Paris`` drafts ``Paris``, in whatever pieces it arrives."""
    streaming = open_draft(QUESTION)
    stream = lines(*(said(piece) for piece in ("<th", "ink>a</thi", "nk>", "\n\n", "Par", "is")), DONE)
    pieces = read(streaming, stream, step)
    assert text_of(pieces) == "Paris"
    assert pieces[-1].end == "stop"


@pytest.mark.parametrize("texts", [["<think>", "a, b", " and so on"], ["a", "</think>", "Paris"]])
def test_b29_a_thought_that_does_not_close_or_did_not_open_is_no_draft(texts: list[str]) -> None:
    """What cannot be told from thoughts is not used."""
    pieces = read(open_draft(QUESTION), lines(*(said(text) for text in texts), DONE))
    assert pieces[-1].problem is not None
    assert pieces[-1].end is None


def test_b29_a_template_that_opens_a_thought_does_not_continue_a_prefix() -> None:
    """The prefix would stand inside the thought."""
    rendered = reply(200, {"_debug_info": {"rendered_template": "<|im_start|>assistant\n<think>\n"}})
    result, _ = play(drafter().draft(QUESTION, "One", 4), {**WELL, "/api/chat": rendered})
    assert isinstance(result, NoDraft)


# --- B32 ---------------------------------------------------------------------------------------

LONG = chat("The word is plum. " + "This sentence is here to take up some room. " * 790)


def test_b32_a_long_prompt_gets_a_window_that_holds_it() -> None:
    """About 7,900 tokens: ``num_ctx`` is sent, by doubling from the loaded or the default window."""
    for window in (None, 4096):
        streaming, _ = play(drafter().draft(LONG, "", 64), {**WELL, "/api/ps": loaded(window), "/api/show": BIG})
        assert streaming.request.body["options"]["num_ctx"] == 16384


BIG = show(model_info={"qwen2.context_length": 32768})


def test_b32_a_count_far_below_the_estimate_marks_the_draft_as_cut() -> None:
    """(a) A server that ignores ``truncate`` answers 200 with ``prompt_eval_count`` 2050: not used."""
    streaming = open_draft(LONG, replies={"/api/ps": loaded(32768), "/api/show": BIG})
    pieces = read(streaming, lines(said("I do not know."), {**DONE, "prompt_eval_count": 2050, "eval_count": 5}))
    assert pieces[-1].problem is not None
    assert pieces[-1].problem.reason == "draft_context"


def test_b32_a_full_count_is_no_cut() -> None:
    """The honest count of the same prompt leaves the draft usable."""
    streaming = open_draft(LONG, replies={"/api/ps": loaded(32768), "/api/show": BIG})
    pieces = read(streaming, lines(said("Plum."), {**DONE, "prompt_eval_count": 7912, "eval_count": 3}))
    assert (text_of(pieces), pieces[-1].end) == ("Plum.", "stop")


@pytest.mark.parametrize(
    "message",
    [
        "the input length exceeds the context length",
        "prompt exceeds the context window of 4096",
        "request (7912 tokens) exceeds the available context size (4096 tokens), try increasing it",
    ],
)
def test_b32_a_refusal_naming_the_window_leads_to_one_larger_try(message: str) -> None:
    """(b) 400 naming 4096: again with a window that fits, then no draft with reason draft_context."""
    streaming = open_draft(chat("x " * 3000), replies={"/api/ps": loaded(4096)})
    again = streaming.on_error(reply(400, {"error": message}))
    assert isinstance(again, Streaming)
    assert again.request.body is not None
    assert again.request.body["options"]["num_ctx"] == 8192
    given_up = again.on_error(reply(400, {"error": message}))
    assert isinstance(given_up, NoDraft)
    assert given_up.reason == "draft_context"


def test_b32_a_prompt_beyond_the_train_context_is_not_drafted() -> None:
    """A window larger than the model was trained for does not exist."""
    result, _ = play(drafter().draft(chat("word and word " * 9000), "", 4), WELL)
    assert isinstance(result, NoDraft)
    assert result.reason == "draft_context"


def test_b32_a_long_reply_is_shortened_rather_than_the_window_raised() -> None:
    """Prompt and reply fit the loaded window, since a shift would drop the start of the prompt."""
    body = open_draft(chat("word " * 1500), max_tokens=4000, replies={"/api/ps": loaded(4096)}).request.body
    assert body is not None
    assert body["options"]["num_ctx"] == 4096
    assert 512 <= body["options"]["num_predict"] < 4096 - 1500


def test_b32_a_filled_window_marks_the_draft_as_cut() -> None:
    """0.24 counted 513 of 512: whatever reached the window's end may have been shifted."""
    streaming = open_draft(chat("word " * 10), replies={"/api/ps": loaded(1024)})
    last = {**DONE, "done_reason": "length", "prompt_eval_count": 1012, "eval_count": 12}
    pieces = read(streaming, lines(said("The"), last))
    assert pieces[-1].problem is not None
    assert pieces[-1].problem.reason == "draft_context"


# --- B35 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["30m", -1, 0])
def test_b35_keep_alive_goes_with_every_call_that_touches_the_model(keep: str | int) -> None:
    """Set, it is sent with the draft and with the rendering; unset, the host decides."""
    replies = {**WELL, "/api/chat": RENDERED}
    streaming, sent = play(drafter(keep_alive=keep).draft(QUESTION, "One", 4), replies)
    assert streaming.request.body["keep_alive"] == keep
    assert sent[-1].body is not None
    assert sent[-1].body["keep_alive"] == keep
    streaming, _ = play(drafter().draft(QUESTION, "One", 4), replies)
    assert "keep_alive" not in streaming.request.body


# --- B50 ---------------------------------------------------------------------------------------


def test_b50a_a_prefix_is_continued_on_the_rendered_prompt() -> None:
    """The exact prompt of the template, prefix appended, on the raw route; same window in both calls."""
    replies = {**WELL, "/api/ps": loaded(8192), "/api/chat": recording("ollama24_chat_render_qwen").reply}
    streaming, sent = play(drafter().draft(QUESTION, "One, two,", 8), replies)
    assert sent[-1].body is not None
    assert sent[-1].body["_debug_render_only"] is True
    assert sent[-1].body["options"]["num_ctx"] == 8192
    assert sent[-1].body["messages"] == [{"role": "user", "content": "Count from one to ten in words."}]
    body = streaming.request.body
    assert body["prompt"].endswith("<|im_start|>assistant\nOne, two,")
    assert (body["raw"], body["options"]["num_ctx"]) == (True, 8192)
    pieces = read(streaming, recording("ollama33_generate_raw").body)
    assert "One, two," + text_of(pieces) == "One, two, three, four, five,"


def _unrendered(control: dict[str, Any] | HttpReply) -> dict[str, Any]:
    """A host that does not know how to render: it answers the question, then the control prompt."""
    answer = control if isinstance(control, HttpReply) else reply(200, control)
    return {**WELL, "/api/chat": [recording("ollama24_chat").reply, answer]}


def _entry(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.1, "bytes": list(token.encode())}


APPENDS = {"message": {"role": "assistant", "content": "amus"}, "done": True, "done_reason": "stop"}
ECHOES = {
    "message": {"role": "assistant", "content": "hippopotamus"},
    "done": True,
    "logprobs": [_entry("am"), _entry("us")],
}
REPEATS = {**ECHOES, "logprobs": [_entry("h"), _entry("ippopot"), _entry("amus")]}


@pytest.mark.parametrize(
    ("control", "name", "step"),
    [
        (APPENDS, "ollama24_chat_prefill_qwen", None),
        (ECHOES, "ollama33_native_chat_prefill", None),
        (ECHOES, "ollama33_native_chat_prefill_stream", None),
        (ECHOES, "ollama33_native_chat_prefill_stream", 1),
    ],
)
def test_b50a_without_rendering_a_proven_template_continues(
    control: dict[str, Any], name: str, step: int | None
) -> None:
    """The prefix comes back or it does not; in the joined draft it stands once."""
    prefix = "One, two, three,"
    streaming, sent = play(drafter().draft(QUESTION, prefix, 8), _unrendered(control))
    assert isinstance(streaming, Streaming)
    assert sent[-1].body is not None
    assert sent[-1].body["messages"][-1] == {"role": "assistant", "content": "hippopot"}
    assert streaming.request.path == "/api/chat"
    assert streaming.request.body is not None
    assert streaming.request.body["messages"][-1] == {"role": "assistant", "content": prefix}
    pieces = read(streaming, recording(name).body, step)
    assert prefix + text_of(pieces) == "One, two, three, four, five, six, seven,"


@pytest.mark.parametrize(
    "control",
    [REPEATS, {"message": {"content": "The answer is"}}, {"message": {"content": "hippopotamus"}}, {}, []],
)
def test_b50a_without_rendering_an_unproven_template_does_not_continue(control: Any) -> None:
    """A closed turn answers what may read like a continuation: so nothing is drafted, and not asked again."""
    source = drafter()
    result, sent = play(source.draft(QUESTION, "One, two,", 8), _unrendered(control))
    assert isinstance(result, NoDraft)
    assert len(sent) == 4
    result, sent = play(source.draft(QUESTION, "One, two,", 8), WELL)
    assert isinstance(result, NoDraft)
    assert [request.path for request in sent] == ["/api/ps"]


@pytest.mark.parametrize("name", ["ollama24_chat_prefill", "ollama33_chat_prefill"])
def test_b50a_a_reply_that_does_not_begin_with_the_prefix_is_no_continuation(name: str) -> None:
    """Where an echo is expected, a reply without it is not appended."""
    streaming, _ = play(drafter().draft(QUESTION, "One, two, six,", 8), _unrendered(ECHOES))
    pieces = read(streaming, recording(name).body)
    assert text_of(pieces) == ""
    assert pieces[-1].problem is not None


@pytest.mark.parametrize("prefix", ["One, two, ", "One, two,\n\n", "One, two,\t "])
def test_b50a_white_space_at_the_end_stays_off_the_wire_and_stands_once(prefix: str) -> None:
    """Cut before it; a reply that begins with it goes on, one that does not is no draft."""
    tail = prefix[len("One, two,") :]
    streaming = open_draft(QUESTION, prefix, 8)
    assert streaming.request.body is not None
    assert streaming.request.body["prompt"].endswith("assistant\nOne, two,")
    first = {"response": tail[:1], "done": False}
    goes_on = lines(first, {"response": tail[1:] + "three", "logprobs": [_entry(tail[1:] + "three")]}, DONE)
    assert prefix + text_of(read(streaming, goes_on)) == prefix + "three"
    differs = read(open_draft(QUESTION, prefix, 8), lines({"response": "42", "done": False}, DONE))
    assert text_of(differs) == ""
    assert differs[-1].problem is not None


def test_b50a_a_token_shared_with_the_prefix_has_no_log_probability() -> None:
    """`` three`` after ``One, two, `` drafts ``three``, whose own probability nobody told."""
    pieces = read(open_draft(QUESTION, "One, two, ", 8), recording("ollama33_generate_raw").body)
    tokens = [token for piece in pieces for token in piece.tokens]
    assert tokens[0] == DraftToken("three", None)
    assert tokens[1].text == ","
    assert tokens[1].logprob is not None


def test_b50a_a_prompt_for_the_raw_route_carries_no_second_bos() -> None:
    """Ollama's tokenizer adds the token where the GGUF says so."""
    rendered = reply(200, {"_debug_info": {"rendered_template": "<|begin_of_text|>Hi"}})
    llama = show(model_info={"llama.context_length": 8192, "tokenizer.ggml.add_bos_token": True})
    streaming, _ = play(drafter().draft(QUESTION, "One", 4), {**WELL, "/api/show": llama, "/api/chat": rendered})
    assert streaming.request.body["prompt"] == "HiOne"


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
@pytest.mark.parametrize("kind", ["split_utf8", "split_utf8_stream"])
def test_b50b_parts_of_characters_give_no_confidence(version: str, kind: str) -> None:
    """Text from ``response`` only; an entry of U+FFFD or of a whole four-byte character has no number."""
    pieces = read(open_draft(completion("x")), recording(f"{version}_generate_{kind}").body)
    tokens = [token for piece in pieces for token in piece.tokens]
    assert "".join(token.text for token in tokens) == "awesome 🦤🪿 ꙮ"
    assert [token.text for token in tokens if token.logprob is not None] == ["awesome"]


@pytest.mark.parametrize(("version", "text"), [("ollama24", "awesome "), ("ollama33", "awesome")])
def test_b50b_a_draft_never_ends_in_half_a_character(version: str, text: str) -> None:
    """The limit fell inside a character: what was whole is the draft."""
    pieces = read(open_draft(completion("x")), recording(f"{version}_generate_cut_utf8").body)
    assert text_of(pieces) == text
    assert pieces[-1].end == "length"


def test_b50b_half_a_character_waits_for_the_rest() -> None:
    """U+FFFD at the end of a piece is held; at the end of the draft it is dropped."""
    streaming = open_draft(completion("x"))
    feed = streaming.decoder.feed
    assert text_of(feed(lines({"response": "a", "done": False}))) == "a"
    assert feed(lines({"response": "�", "done": False})) == []
    assert text_of(feed(lines({"response": "b", "done": False}))) == "�b"
    last = feed(lines({"response": " �", "done": False}, {"response": "", "done": True, "done_reason": "length"}))
    assert text_of(last) == " "


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
def test_b50c_tokens_held_back_for_a_stop_string_have_no_confidence(version: str) -> None:
    """0.33 gives ``, four`` one entry with the last token's number."""
    body = recording(f"{version}_generate_stop_stream")
    streaming = open_draft(chat("x", stops=tuple(body.request["options"]["stop"])))
    tokens = [token for piece in read(streaming, body.body) for token in piece.tokens]
    assert "".join(token.text for token in tokens) == " three, four"
    assert tokens[0].logprob is not None
    assert DraftToken(", four", None) in tokens or [token.text for token in tokens] == [" three", ",", " four"]


def test_b50c_a_token_that_begins_like_the_models_own_stop_is_doubted() -> None:
    """``<div`` may be ``<``, held back for ``<|im_end|>``, and ``div``."""
    stream = lines({"response": "<div", "done": False, "logprobs": [_entry("<div")]}, DONE)
    assert read(open_draft(QUESTION), stream)[0].tokens == (DraftToken("<div", None),)


@pytest.mark.parametrize("limit", [0, -1])
def test_b50d_an_empty_budget_makes_no_call(limit: int) -> None:
    """``num_predict: 0`` means no limit to Ollama."""
    result, sent = play(drafter().draft(QUESTION, "", limit), {})
    assert isinstance(result, NoDraft)
    assert sent == []


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
@pytest.mark.parametrize("kind", ["repeat_cut", "repeat_cut_stream"])
def test_b50e_a_reply_without_done_is_unfinished(version: str, kind: str) -> None:
    """HTTP 200, no ``done: true``, no counts: the text may be used, its end means nothing."""
    pieces = read(open_draft(completion("x")), recording(f"{version}_generate_{kind}").body)
    assert text_of(pieces) == " ha" * 31
    assert pieces[-1].end == "cut"
    assert all(piece.problem is None for piece in pieces)


def test_b50e_a_reply_cut_within_a_line_keeps_what_was_whole() -> None:
    """The half line of a broken connection is dropped, nothing crashes."""
    pieces = read(open_draft(QUESTION), lines(said("One")) + b'{"message":{"content":" tw')
    assert (text_of(pieces), pieces[-1].end) == ("One", "cut")


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
@pytest.mark.parametrize("kind", ["generate", "chat"])
def test_b50f_a_silently_cut_prompt_is_never_drafted_on(version: str, kind: str) -> None:
    """200 with fewer prompt tokens than were sent (512 or 258 of 6,001): not used, though text came."""
    recorded = recording(f"{version}_{kind}_too_long_silent")
    streaming = open_draft(chat("word " * 6000), replies={"/api/ps": loaded(8192)})
    pieces = read(streaming, lines(recorded.response | {"message": {"content": "1, 1"}, "response": "1, 1"}))
    assert pieces[-1].problem is not None
    assert pieces[-1].problem.reason == "draft_context"


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
@pytest.mark.parametrize("kind", ["generate_too_long_truncate_false", "chat_too_long_truncate_false"])
def test_b50f_both_error_shapes_lead_to_one_try_that_fits(version: str, kind: str) -> None:
    """The second try differs in ``num_ctx`` only, and stays that large for later drafts."""
    source = drafter()
    first, _ = play(source.draft(QUESTION, "", 64), {**WELL, "/api/ps": loaded(512)})
    again = first.on_error(recording(f"{version}_{kind}").reply)
    assert isinstance(again, Streaming)
    assert again.request.body is not None
    grown = again.request.body["options"].pop("num_ctx")
    assert grown == (8192 if version == "ollama33" else 1024)
    first.request.body["options"].pop("num_ctx")
    assert again.request.body == first.request.body
    later, _ = play(source.draft(QUESTION, "", 64), {**WELL, "/api/ps": loaded(None)})
    assert later.request.body["options"]["num_ctx"] == grown


def test_b50g_a_busy_host_is_left_alone() -> None:
    """503 without Retry-After, in any of the calls: no draft at once, and the breaker counts it."""
    busy = recording("ollama33_generate_busy").reply
    for path in ("/api/ps", "/api/show", "/api/chat"):
        result, _ = play(drafter().draft(QUESTION, "One", 4), {**WELL, "/api/chat": RENDERED, path: busy})
        assert result == NoDraft("draft_busy", result.detail, True)
    assert open_draft(QUESTION).on_error(busy) == NoDraft("draft_busy", result.detail, True)


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
def test_b50g_text_before_an_error_line_is_not_used(version: str) -> None:
    """The runner died in mid-stream under HTTP 200."""
    pieces = read(open_draft(QUESTION), recording(f"{version}_generate_runner_died").body)
    assert pieces[-1].problem is not None
    assert pieces[-1].problem.broken
    assert "unexpected EOF" in pieces[-1].problem.detail
    assert all(piece.end is None for piece in pieces)


@pytest.mark.parametrize("name", ["ollama24_generate_missing", "ollama33_generate_untagged"])
def test_b50g_a_missing_model_names_what_the_host_has(name: str) -> None:
    """The 404 is explained once, before any draft."""
    replies = {**WELL, "/api/show": recording(name).reply, "/api/tags": recording("ollama24_tags").reply}
    result, _ = play(drafter("smollm2").draft(QUESTION, "", 4), replies)
    assert isinstance(result, NoDraft)
    assert result.broken
    assert re.search(r"has no model 'smollm2'; it has qwen2\.5-coder:0\.5b, smollm2:135m", result.detail)


def test_b50g_a_host_that_does_not_answer_is_broken() -> None:
    """No connection: no draft, whichever call it was."""
    for path in ("/api/ps", "/api/show", "/api/chat"):
        result, _ = play(drafter().draft(QUESTION, "One", 4), {**WELL, "/api/chat": RENDERED, path: None})
        assert isinstance(result, NoDraft)
        assert (result.reason, result.broken) == ("no_draft", True)


@pytest.mark.parametrize("version", ["ollama24", "ollama33"])
@pytest.mark.parametrize("kind", ["load", "unload", "load_noprompt_stream", "chat_empty_messages", "chat_unload"])
def test_b50h_load_and_unload_answers_are_no_draft(version: str, kind: str) -> None:
    """200, ``done: true``, and an empty text."""
    pieces = read(open_draft(QUESTION), recording(f"{version}_{kind}").body)
    assert [piece.problem.reason for piece in pieces if piece.problem] == ["no_draft"]
    assert text_of(pieces) == ""


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>oops</html>\n", b"[1]\n", b'{"done":true,"done_reason":"stop"}'])
def test_b50h_a_reply_without_text_is_no_draft(body: bytes) -> None:
    """Nothing, or nothing that can be read, is no draft."""
    pieces = read(open_draft(QUESTION), body)
    assert pieces[-1].problem is not None
    assert text_of(pieces) == ""


def test_b50k_the_loaded_window_is_kept() -> None:
    """Loaded with 8192 by another program: that value exactly, never less; no ``shift``."""
    source = drafter()
    for window in (8192, 4096, 8192):
        streaming, _ = play(source.draft(QUESTION, "", 16), {**WELL, "/api/ps": loaded(window)})
        assert streaming.request.body["options"]["num_ctx"] == window
        assert "shift" not in streaming.request.body


def test_b50k_a_model_with_a_draft_layer_keeps_its_own_speculation() -> None:
    """``draft_num_predict`` is a load-time option there; with it on, log-probabilities mean nothing."""
    layered = show(modelfile="FROM x\nDRAFT /blobs/sha256-1\n")
    streaming = open_draft(QUESTION, replies={"/api/show": layered})
    assert streaming.request.body is not None
    assert "draft_num_predict" not in streaming.request.body["options"]
    stream = lines(said("One", logprobs=[_entry("One")]), DONE)
    assert read(streaming, stream)[0].tokens == (DraftToken("One", None),)
