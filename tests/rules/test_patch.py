"""A patch is applied and validated, or it is nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rules_kit import draft, reply, request

from cheapspec.rules import Patch, Validator
from cheapspec.rules.patch import edit, merge

# RFC 7396, appendix A: every example.
RFC: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("value", "patch", "result"), RFC)
def test_merge_patches_are_those_of_the_rfc(value: Any, patch: Any, result: Any) -> None:
    """All examples of RFC 7396, and the given value stays as it was."""
    before = json.dumps(value)
    assert merge(value, patch) == result
    assert json.dumps(value) == before


DRAFT = draft('{"n": 1, "name": "a"}')
CHECK = Validator({"type": "object", "properties": {"n": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("text", "outcome", "patched"),
    [
        ("{}", "accept", None),
        ("```json\n{}\n```", "accept", None),
        ('{"n": 2}', "reject", '{"n": 2, "name": "a"}'),
        ('```\n{"name": null}\n```', "reject", '{"n": 1}'),
        ('{"n": "two"}', "none", None),
        ('{"n": 1}', "none", None),
        ("[]", "none", None),
        ("null", "none", None),
        ("It is fine.", "none", None),
        ('Here: {"n": 2}', "none", None),
    ],
)
def test_a_merge_patch_is_applied_and_validated(text: str, outcome: str, patched: str | None) -> None:
    """What is no patch, changes nothing, or breaks the check is no verdict."""
    got = Patch(check=CHECK).read(reply(text), DRAFT)
    assert (got.outcome, got.text) == (outcome, patched)


def test_a_requests_own_schema_is_the_check() -> None:
    """Without a check of the caller's the request's format counts."""
    own = request(response_format={"type": "json_schema", "json_schema": {"schema": CHECK.check}})
    assert Patch().read(reply('{"n": "two"}'), DRAFT, own).outcome == "none"
    assert Patch().read(reply('{"n": "two"}'), DRAFT).text == '{"n": "two", "name": "a"}'
    lines = draft('{\n  "n": 1\n}')
    assert Patch().read(reply('{"n": 2}'), lines).text == '{\n  "n": 2\n}'


def test_a_draft_that_is_no_object_is_rejected_unasked() -> None:
    """A merge patch needs an object."""
    got = Patch().before(draft("[1]"))
    assert got is not None
    assert got.outcome == "reject"


CODE = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
ONE = "<<<<<<< SEARCH\ndef f():\n    return 1\n=======\ndef f():\n    return 2\n>>>>>>> REPLACE"
TWICE = "<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE"
AWAY = "<<<<<<< SEARCH\ndef g():\n    return 1\n=======\n>>>>>>> REPLACE\n"


def test_blocks_replace_what_is_found_once() -> None:
    """In order, exactly; an empty replacement deletes; anything beside blocks is no patch."""
    assert edit(CODE, ONE) == CODE.replace("return 1", "return 2", 1)
    assert edit(CODE, f"{ONE}\n{AWAY}") == "def f():\n    return 2\n\n\n\n"
    assert edit(CODE, TWICE) is None
    assert edit(CODE, ONE.replace("def f", "def h")) is None
    assert edit(CODE, f"Here you are:\n{ONE}") is None
    assert edit(CODE, "") is None


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("OK", "accept"), (ONE, "reject"), (f"```python\n{ONE}\n```", "reject"), (TWICE, "none"), ("fine", "none")],
)
def test_code_is_patched_by_blocks(text: str, outcome: str) -> None:
    """OK accepts the draft, blocks that fit change it."""
    got = Patch("code", Validator(lambda code: bool(compile(code, "x", "exec")))).read(reply(text), draft(CODE))
    assert got.outcome == outcome
    assert (got.text is not None) == (outcome == "reject")


@pytest.mark.parametrize(
    ("new", "why"), [("def f(:", "the patched text: the check raised SyntaxError"), ("def f():", "changes nothing")]
)
def test_a_patched_text_must_pass_its_check(new: str, why: str) -> None:
    """A patch that breaks the code, or changes nothing, is no verdict."""
    block = f"<<<<<<< SEARCH\ndef f():\n=======\n{new}\n>>>>>>> REPLACE"
    got = Patch("code", Validator(lambda code: bool(compile(code, "x", "exec")))).read(reply(block), draft(CODE))
    assert got.outcome == "none"
    assert why in got.why


def test_a_patch_that_leaves_nothing_is_none() -> None:
    """An empty reply is never sent, and each form has a prompt of its own."""
    gone = Patch("code").read(reply("<<<<<<< SEARCH\nx\n=======\n>>>>>>> REPLACE"), draft("x"))
    assert (gone.outcome, gone.why) == ("none", "the patched text is empty")
    assert (Patch().version, Patch("code").version) == ("patch_json-1", "patch_code-1")


@pytest.mark.parametrize("told", [reply('{"n": 2}', "length"), reply(None, refusal="no"), None])
def test_a_cut_or_odd_patch_is_no_verdict(told: Any) -> None:
    """Nothing is applied."""
    assert Patch().read(told, DRAFT).outcome == "none"


@pytest.mark.parametrize("wrong", [lambda: Patch("xml"), lambda: Patch(check=str.isupper)])  # type: ignore[arg-type]
def test_another_form_or_check_is_refused(wrong: Any) -> None:
    """The message says what to write."""
    with pytest.raises(ValueError, match=r"'json' or 'code'|Validator"):
        wrong()
