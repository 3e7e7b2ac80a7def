"""What compares a draft with the target's own reply: typed, named, and unequal where nothing can be compared."""

from __future__ import annotations

import re

import pytest

from cheapspec.core.request import Request
from cheapspec.rules import Agree, Answer, Judge, Validator
from cheapspec.rules.comparison import Comparison, comparison, comparison_for
from cheapspec.rules.extract import Label

SCHEMA = {"type": "object", "required": ["a"]}


def short(text: str) -> bool:
    return len(text) < 5


def name_of(rule: object, *rules: object, given: object = None, request: Request | None = None) -> str | None:
    found = comparison_for(rule, rules, given, request)
    return None if found is None else found.name


def test_what_compares_is_found_in_a_stated_order() -> None:
    """The caller's, the rule's own extractor, another rule's, JSON under a schema, a check; else nothing."""
    answer, judge, check = Answer("last_number"), Judge(), Validator(short)
    assert name_of(answer, judge) == answer.extractor.name
    assert name_of(judge, check, answer) == answer.extractor.name
    assert name_of(Agree(Label(("yes", "no"))), answer) == Label(("yes", "no")).name
    assert name_of(judge, check, Validator(SCHEMA)) == "json"
    assert name_of(judge, check) == check.name
    assert name_of(judge) is None
    assert name_of(answer, given="text") == "text"
    wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    assert name_of(judge, request=Request("chat", {"response_format": wanted}, "m", False)) == "json"
    assert name_of(judge, request=Request("chat", {}, "m", False)) is None


def test_answers_are_compared_by_type_and_missing_ones_are_unequal() -> None:
    """1,000 = 1000.0 whatever stands around it; no answer on either side is no agreement."""
    numbers = comparison("last_number")
    assert numbers.equal("so 1,000", "It is 1000.0")
    assert not numbers.equal("so 1,001", "It is 1000")
    assert not numbers.equal("none", "none")
    assert not numbers.equal("1", "none")
    assert comparison(re.compile(r"<(\w+)>")).equal("a <b>", "c <b>")


def test_texts_and_json_are_compared_as_a_whole() -> None:
    """White space and the order of keys aside; true is not 1."""
    assert comparison("text").equal("a  b\n", "a b")
    assert not comparison("text").equal("a b", "a B")
    assert comparison("json").equal('{"a": 1, "b": 2}', '```json\n{"b": 2.0, "a": 1}\n```')
    assert not comparison("json").equal('{"a": 1}', '{"a": true}')
    assert not comparison("json").equal("null and void", "null and void")


def test_a_check_says_no_more_than_it_checks() -> None:
    """The draft is as good as the reply, unless the reply passes and the draft does not."""
    found = comparison_for(Judge(), [Validator(short)])
    assert found is not None
    assert found.equal("abc", "xyz")
    assert found.equal("too long", "too long")
    assert found.equal("abc", "too long")
    assert not found.equal("too long", "abc")


def test_a_comparison_of_ones_own_is_taken_as_it_is_and_others_are_named() -> None:
    """What is none is refused with the nearest name."""
    own = Comparison("mine", lambda draft, reply: True)
    assert comparison(own) is own
    with pytest.raises(ValueError, match="did you mean 'last_number'"):
        comparison("last_numbr")
    with pytest.raises(ValueError, match="no extractor"):
        comparison_for(Judge(), given=3)
