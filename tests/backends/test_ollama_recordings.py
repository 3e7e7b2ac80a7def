"""Every exchange recorded from real Ollama servers is read by the dialect, and read rightly."""

from __future__ import annotations

import pytest
from ollama_recordings import (
    NAMES,
    Recording,
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

from cheapspec.backends.ollama_model import read_show
from cheapspec.backends.ollama_names import find_model
from cheapspec.core.ports import NoDraft, Streaming

GENERATING = [name for name in NAMES if recording(name).endpoint in ("/api/chat", "/api/generate")]
ANSWERED = [name for name in GENERATING if recording(name).status == 200]
REFUSED = [name for name in GENERATING if recording(name).status != 200]
OTHER = [name for name in NAMES if name not in GENERATING]


def _ends(recorded: Recording) -> tuple[str | None, str | None]:
    """The end of the draft that the last line means, or the reason why there is none."""
    last = recorded.lines[-1]
    if "error" in last or last.get("done_reason") in ("load", "unload") or not recorded.text:
        return None, "no_draft"
    return last.get("done_reason", "cut"), None


@pytest.mark.parametrize("step", [None, 7])
@pytest.mark.parametrize("name", ANSWERED)
def test_a_recorded_reply_gives_its_own_text_and_end(name: str, step: int | None) -> None:
    """The draft is the reply's text, token by token, whatever pieces the bytes arrive in."""
    recorded = recording(name)
    pieces = read(open_draft(chat("Count."), max_tokens=500), recorded.body, step)
    end, reason = _ends(recorded)
    problems = [piece.problem for piece in pieces if piece.problem is not None]
    if reason is not None:
        assert [problem.reason for problem in problems] == [reason]
        return
    assert problems == []
    assert text_of(pieces) == recorded.text
    assert [piece.end for piece in pieces if piece.end] == [end]
    assert pieces[-1].end == end
    for piece in pieces:
        for token in piece.tokens:
            assert token.text
            assert token.logprob is None or token.logprob <= 0


@pytest.mark.parametrize("name", [name for name in ANSWERED if recording(name).lines[0].get("logprobs")])
def test_recorded_log_probabilities_stay_with_their_tokens(name: str) -> None:
    """A token of the draft carries a recorded entry's number only if it is that entry's own text."""
    recorded = recording(name)
    entries = {(e["token"], e["logprob"]) for line in recorded.lines for e in line.get("logprobs", [])}
    pieces = read(open_draft(chat("Count."), max_tokens=500), recorded.body)
    tokens = [token for piece in pieces for token in piece.tokens]
    known = [token for token in tokens if token.logprob is not None]
    assert {(token.text, token.logprob) for token in known} <= entries
    if recorded.text.isascii() and "stop" not in name and "prefill" not in name:
        assert len(known) >= len(tokens) - 1, "plain text must not lose its log-probabilities"


_REASONS = {404: "no_draft", 500: "no_draft", 503: "draft_busy"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_recorded_refusal_names_its_reason(name: str) -> None:
    """An overflow leads to one more try with a larger window; everything else is no draft at once."""
    recorded = recording(name)
    streaming = open_draft(chat("Count."), replies={"/api/ps": loaded(512)})
    meaning = streaming.on_error(recorded.reply)
    if "too_long" in name:
        assert isinstance(meaning, Streaming)
        assert meaning.request.body is not None
        assert meaning.request.body["options"]["num_ctx"] > (6001 if name.startswith("ollama33") else 512)
        again = meaning.on_error(recorded.reply)
        assert isinstance(again, NoDraft)
        assert again.reason == "draft_context"
        return
    assert isinstance(meaning, NoDraft)
    assert meaning.reason == _REASONS.get(recorded.status, "no_draft")
    assert meaning.broken == (recorded.status != 400)
    assert str(recorded.response["error"])[:40] in meaning.detail


@pytest.mark.parametrize("name", OTHER)
def test_every_other_recording_is_read(name: str) -> None:
    """Listings and model descriptions give their facts; the ``/v1`` layer's replies are never a draft."""
    recorded = recording(name)
    if recorded.endpoint == "/api/show" and recorded.status == 200:
        facts = read_show(recorded.response)
        assert (facts.obstacle, facts.thinking, facts.draft_layer) == ("", False, False)
        assert facts.train_context == (8192 if recorded.request["model"].startswith("smollm2") else 32768)
        assert facts.stops == (() if "native" in name else ("<|im_start|>", "<|im_end|>"))
    elif recorded.endpoint == "/api/show":
        result, sent = play(
            drafter("nope:1b").draft(chat("x"), "", 4),
            {"/api/ps": loaded(None), "/api/show": recorded.reply, "/api/tags": recording("ollama33_tags").reply},
        )
        assert isinstance(result, NoDraft)
        assert "smollm2:135m" in result.detail
        assert [request.path for request in sent] == ["/api/ps", "/api/show", "/api/tags"]
    elif recorded.endpoint == "/api/tags":
        installed = [model["name"] for model in recorded.response["models"]]
        assert find_model("SmolLM2:135M", installed) == "smollm2:135m"
        assert find_model("smollm2", installed) is None
    elif recorded.endpoint == "/api/ps":
        result, _ = play(drafter().draft(chat("x"), "", 4), {"/api/ps": recorded.reply, "/api/show": show()})
        windows = {model["name"]: model["context_length"] for model in recorded.response["models"]}
        assert result.request.body["options"].get("num_ctx") == windows.get("smollm2:135m")
    elif recorded.endpoint == "/api/version":
        assert recorded.response["version"] in ("0.24.0", "0.33.0-rc2")
    elif recorded.status >= 300:
        assert isinstance(open_draft(chat("x")).on_error(recorded.reply), NoDraft | Streaming)
    else:
        assert recorded.endpoint.startswith("/v1/")
        pieces = read(open_draft(completion("x")), recorded.body)
        assert text_of(pieces) == ""
        assert pieces[-1].problem is not None


def test_there_are_187_recordings() -> None:
    """None of them got lost, so that the tests above test something."""
    assert len(NAMES) == 187
    assert len(ANSWERED) > 100


def test_an_empty_listing_of_loaded_models_leaves_the_window_to_the_host() -> None:
    """A model that is not loaded gets the host's own default, as other programs ask for it."""
    result, _ = play(drafter().draft(chat("x"), "", 4), {"/api/ps": reply(200, {"models": None}), "/api/show": show()})
    assert "num_ctx" not in result.request.body["options"]
