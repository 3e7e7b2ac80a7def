"""The trace format: what is written is read back, unknown stays unknown, and a bad line names what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.traces import Branch, DraftRow, RequestTrace, StaticRow, dump_trace, load_trace

TRACE = RequestTrace(
    id="code-3",
    workload="code",
    prompt_tokens=120,
    reply_tokens=4,
    finish="stop",
    cached_prompt_tokens=64,
    max_tokens=200,
    target="qwen2.5-coder-1.5b",
    drafts=(
        DraftRow(
            "qwen2.5-coder-0.5b",
            (-0.0123, -1.5, None, None),
            (True, False, None, True),
            frozenset({3}),
            {1: Branch((-0.5, None), True)},
        ),
    ),
    statics=(
        StaticRow("lookup", (0, 7, None, 1), (0, 3, None, 1)),
        StaticRow("prediction", (3, 2, 1, 0), (1, 0, 0, 0), whole=True),
    ),
)
"""Every field is set, and every kind of unknown occurs."""


def test_a_trace_is_read_back_as_it_was_written() -> None:
    """One line of JSON holds all of it."""
    line = dump_trace(TRACE)
    assert "\n" not in line and load_trace(line) == TRACE


def test_unknown_keys_are_passed_over_and_defaults_hold() -> None:
    """A later version may add keys; rows may be left out."""
    line = '{"v":1,"id":"a","workload":"w","prompt_tokens":3,"reply_tokens":1,"finish":"length","more":[1]}'
    assert load_trace(line) == RequestTrace("a", "w", 3, 1, "length")


def test_what_is_no_number_is_written_as_unknown() -> None:
    """NaN and infinities are no JSON and no probability."""
    row = DraftRow("d", (float("nan"), float("-inf"), -0.123456), (True, None, False))
    read = load_trace(dump_trace(RequestTrace("a", "w", 1, 3, drafts=(row,))))
    assert read.drafts[0].logprobs == (None, None, -0.1235)


@given(st.lists(st.tuples(st.none() | st.floats(-50, 0), st.none() | st.booleans()), max_size=30))
def test_any_row_survives(entries: list[tuple[float | None, bool | None]]) -> None:
    """Whatever is known or unknown at a position stays so, to four decimals."""
    row = DraftRow("d", tuple(logprob for logprob, _ in entries), tuple(bit for _, bit in entries))
    read = load_trace(dump_trace(RequestTrace("a", "w", 1, len(entries), drafts=(row,)))).drafts[0]
    assert read.agreed == row.agreed
    assert read.logprobs == tuple(None if logprob is None else round(logprob, 4) for logprob in row.logprobs)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"v": 2}, "'v'"),
    ({"id": ""}, "'id'"),
    ({"workload": 3}, "'workload'"),
    ({"finish": None}, "'finish'"),
    ({"prompt_tokens": -1}, "'prompt_tokens'"),
    ({"prompt_tokens": True}, "'prompt_tokens'"),
    ({"reply_tokens": "4"}, "'reply_tokens'"),
    ({"cached_prompt_tokens": 121}, "'cached_prompt_tokens'"),
    ({"max_tokens": 1.5}, "'max_tokens'"),
    ({"drafts": [3]}, "'agreed'"),
]
ROW_WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("drafts", {"agreed": "10"}, "'agreed'"),
    ("drafts", {"agreed": "10x1"}, "'agreed'"),
    ("drafts", {"logprobs": [0.0]}, "'logprobs'"),
    ("drafts", {"logprobs": [0.0, 1.0, None, None]}, "'logprobs'"),
    ("drafts", {"logprobs": [True, None, None, None]}, "'logprobs'"),
    ("drafts", {"ends": [4]}, "'ends'"),
    ("drafts", {"branches": {"9": {"logprobs": []}}}, "'branches'"),
    ("drafts", {"branches": {"x": {"logprobs": []}}}, "'branches'"),
    ("drafts", {"branches": {"1": []}}, "'logprobs'"),
    ("drafts", {"drafter": None}, "'drafter'"),
    ("statics", {"proposed": [0, 7]}, "'proposed'"),
    ("statics", {"proposed": [0, 7, None, -1]}, "'proposed'"),
    ("statics", {"right": [0, 8, None, 1]}, "'right'"),
    ("statics", {"proposed": [0, 7, 9, 1], "right": [0, 3, 4, 1]}, "'right'"),
]


@pytest.mark.parametrize(("change", "named"), WRONG)
def test_a_bad_trace_names_the_key(change: dict[str, Any], named: str) -> None:
    """Who wrote the file learns what to mend."""
    with pytest.raises(ValueError, match=named):
        load_trace(json.dumps(json.loads(dump_trace(TRACE)) | change))


@pytest.mark.parametrize(("rows", "change", "named"), ROW_WRONG)
def test_a_bad_row_names_the_key(rows: str, change: dict[str, Any], named: str) -> None:
    """The same for what is wrong inside a row."""
    data = json.loads(dump_trace(TRACE))
    data[rows][0] |= change
    with pytest.raises(ValueError, match=named):
        load_trace(json.dumps(data))


@pytest.mark.parametrize("line", ["", "{", "[]", "null"])
def test_a_line_that_is_no_trace_says_so(line: str) -> None:
    """Not a crash, whatever the file holds."""
    with pytest.raises(ValueError, match=r"not JSON|'v'"):
        load_trace(line)
