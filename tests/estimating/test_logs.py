"""Past requests are read from whatever form they were kept in; what is odd is counted by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from logkit import answered, asked, body, completion, write

from cheapspec.errors import CheapspecError
from cheapspec.estimating.logs import read_logs


def test_a_batch_is_joined_by_custom_id(tmp_path: Path) -> None:
    """Input and output file, in any order of files and lines."""
    requests = write(tmp_path / "in.jsonl", asked("a", body("One?")), asked("b", body("Two?")))
    replies = write(tmp_path / "out.jsonl", answered("b", completion("2.")), answered("a", completion("1.")))
    for files in ((requests, replies), (replies, requests)):
        logs = read_logs(files)
        told = {one.id: (one.body["messages"][0]["content"], one.text) for one in logs.requests}
        assert told == {"a": ("One?", "1."), "b": ("Two?", "2.")}
        assert not logs.odd and logs.lines == 4
    one = logs.requests[0]
    assert (one.kind, one.model, one.finish, one.usage.input_tokens, one.usage.output_tokens) == (
        "chat",
        "big",
        "stop",
        9,
        3,
    )


@pytest.mark.parametrize(
    "line",
    [
        {"request": body(), "response": completion()},
        {"request": asked("x", body()), "response": {"body": completion()}},
        {**completion(), "messages": body()["messages"], "temperature": 0, "input_user": None, "metadata": {"a": "b"}},
        {
            "messages": [*body()["messages"], {"role": "assistant", "content": "Here."}],
            "model": "big",
            "temperature": 0,
        },
        {"request": {**body(), "model": None}, "response": completion()},
    ],
)
def test_other_forms_say_the_same(tmp_path: Path, line: dict[str, Any]) -> None:
    """A pair, a pair of batch lines, a stored completion, a conversation, a pair whose reply names the model."""
    (one,) = read_logs([write(tmp_path / "log.jsonl", line)]).requests
    assert (one.text, one.finish, one.kind, one.model) == ("Here.", "stop", "chat", "big")
    assert list(one.body["messages"]) == body()["messages"]
    assert "choices" not in one.body and "usage" not in one.body


def test_text_completions_and_compressed_files(tmp_path: Path) -> None:
    """The other route; a name that ends in .gz."""
    reply = {"id": "c", "choices": [{"index": 0, "text": "upon a time", "finish_reason": "length"}]}
    line = {"request": {"model": "big", "prompt": "Once", "max_tokens": 4}, "response": reply}
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    (one,) = read_logs([path]).requests
    assert (one.kind, one.text, one.finish) == ("completion", "upon a time", "length")


def test_what_is_odd_is_counted_and_named(tmp_path: Path) -> None:
    """Nothing of it ends the reading, and good lines are read all the same."""
    path = write(
        tmp_path / "log.jsonl",
        "junk",
        "",
        "[1, 2]",
        asked("alone", body()),
        answered("orphan", completion()),
        asked("bad", body()),
        answered("bad", {"error": {"message": "no"}}, 400),
        asked("void", body()),
        {"id": "x", "custom_id": "void", "response": None, "error": {"code": "batch_expired", "message": "late"}},
        asked("emb", {"model": "e", "input": "x"}, "/v1/embeddings"),
        answered("emb", {"data": []}),
        asked("twice", body()),
        asked("twice", body()),
        answered("twice", completion("Twice.")),
        answered("twice", completion("Twice.")),
        {"request": body(), "response": {"choices": []}},
        {"request": body(), "response": {"error": {"message": "no"}}},
        completion(),
        body(),
        {"hello": 1},
    )
    logs = read_logs([path])
    assert [one.text for one in logs.requests] == ["Twice."]
    assert logs.odd == {
        "not JSON": 1,
        "not a JSON object": 1,
        "a request without its reply": 2,
        "a reply without its request": 2,
        "failed with status 400": 1,
        "failed": 2,
        "another route than chat or text completions": 1,
        "a custom_id that was there before": 2,
        "a reply without a choice": 1,
        "no request and no reply": 1,
    }
    assert logs.lines == 19


def test_missing_usage_is_estimated_and_marked(tmp_path: Path) -> None:
    """Four bytes a token; of a tool call too."""
    call = completion("", tokens=None)
    call["choices"][0]["message"] = {"content": None, "tool_calls": [{"function": {"arguments": "x" * 80}}]}
    path = write(
        tmp_path / "log.jsonl",
        {"request": body("y" * 400), "response": completion("x" * 40, tokens=None)},
        {"request": body(), "response": call},
    )
    text, tool = read_logs([path]).requests
    assert (text.usage.estimated, text.usage.output_tokens) == (True, 10)
    assert text.usage.input_tokens >= 100
    assert tool.usage.output_tokens > 20


def test_tokens_are_taken_from_log_probabilities(tmp_path: Path) -> None:
    """If they join to the text; the end of the turn by its name is no part of it."""
    entries = [{"token": part, "logprob": -0.1, "bytes": list(part.encode())} for part in ("He", "re.", "<|end|>")]
    good, bad = completion(), completion("Another")
    for one in (good, bad):
        one["choices"][0]["logprobs"] = {"content": entries}
    first, second = read_logs(
        [write(tmp_path / "l.jsonl", *({"request": body(), "response": one} for one in (good, bad)))]
    ).requests
    assert (first.sizes, second.sizes) == ((2, 3), None)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """It names the file."""
    with pytest.raises(CheapspecError, match=r"nowhere\.jsonl cannot be read"):
        read_logs([tmp_path / "nowhere.jsonl"])
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"not compressed")
    with pytest.raises(CheapspecError, match="cannot be read"):
        read_logs([broken])


def test_half_a_surrogate_pair_is_text_all_the_same(tmp_path: Path) -> None:
    """It has no bytes in UTF-8 and is replaced, as every server does."""
    path = tmp_path / "log.jsonl"
    write(path, {"request": body(), "response": completion("a\ud800b")})
    (one,) = read_logs([path]).requests
    assert one.text == "a?b"
