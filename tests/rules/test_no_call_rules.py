"""Rules that need no call: the caller's own check, and the agreement of unlike drafters."""

from __future__ import annotations

import pickle
import re
import threading
from typing import Any

import pytest
from rules_kit import draft, request

from cheapspec.rules import Agree, Validator
from cheapspec.rules.extract import Label
from cheapspec.rules.validator import LONGEST, MOST_STUCK

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("check", "text", "outcome"),
    [
        (SCHEMA, '{"n": 1}', "accept"),
        (SCHEMA, '{"n": 1.5}', "reject"),
        (SCHEMA, '{"n": 1, "m": 2}', "reject"),
        (SCHEMA, '{"n": 1', "reject"),
        (SCHEMA, '{"n": NaN}', "reject"),
        (SCHEMA, "[" * 100_000, "reject"),
        ({"$ref": "https://elsewhere.example/schema"}, "{}", "none"),
        (r"\d+", " 12\n", "accept"),
        (r"\d+", "12 eggs", "reject"),
        (re.compile("yes", re.IGNORECASE), "YES", "accept"),
        (str.isupper, "YES", "accept"),
        (str.isupper, "yes", "reject"),
        (lambda text: 1 / 0, "x", "none"),
        (str.isupper, "", "none"),
        (str.isupper, "A" * (LONGEST + 1), "none"),
    ],
)
def test_a_check_passes_fails_or_breaks(check: Any, text: str, outcome: str) -> None:
    """What fails never reaches the target; a check that breaks, or that nothing can be said about, is no verdict."""
    assert Validator(check).verdict(draft(text)).outcome == outcome


def test_a_check_that_takes_too_long_is_no_verdict_and_a_few_of_them_stop_more() -> None:
    """The caller's function has its time; stuck ones do not pile up; those that end make room again."""
    free = threading.Event()
    ended = threading.Semaphore(0)

    def check(text: str) -> bool:
        if text == "stuck":
            free.wait()
            ended.release()
        return True

    slow = Validator(check, seconds=0.01)
    for _ in range(MOST_STUCK):
        assert "longer than" in slow.verdict(draft("stuck")).why
    assert "still running" in slow.verdict(draft("fine")).why
    free.set()
    for _ in range(MOST_STUCK):
        assert ended.acquire(timeout=60)
    for worker in threading.enumerate():
        if worker.name == "cheapspec-validator":
            worker.join(60)
    assert Validator(check, seconds=60).verdict(draft("fine")).accepted


def test_without_a_thread_there_is_no_verdict_and_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that can start no more threads loses nothing but the check."""

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        for _ in range(MOST_STUCK + 1):
            assert "no thread" in Validator(str.isupper).verdict(draft("YES")).why
    assert Validator(str.isupper, seconds=60).verdict(draft("YES")).accepted


def test_a_requests_own_format_is_a_validator() -> None:
    """Its schema, or that the reply is a JSON object; a schema that is none is left to the endpoint."""
    own = Validator.of(request(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}))
    assert own is not None
    assert own.verdict(draft('{"n": 1}')).accepted
    assert not own.sufficient
    plain = Validator.of(request(response_format={"type": "json_object"}))
    assert plain is not None
    assert plain.verdict(draft("[1]")).outcome == "reject"
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    assert Validator.of(request(response_format=broken)) is None
    assert Validator.of(request()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Validator({"type": "nothing"}),
        lambda: Validator({"x": object()}),
        lambda: Validator("("),
        lambda: Validator(3),  # type: ignore[arg-type]
        lambda: Validator(SCHEMA, seconds=0),
        lambda: Validator(SCHEMA, seconds=float("nan")),
    ],
)
def test_a_check_that_is_none_is_refused_at_construction(wrong: Any) -> None:
    """The message says what to write."""
    with pytest.raises(ValueError, match="Validator"):
        wrong()


def test_a_validator_can_be_pickled_and_named() -> None:
    """Worker pools carry it, certificates name it."""
    for one in (Validator(SCHEMA), Validator(r"\d+"), Validator(str.isupper)):
        assert pickle.loads(pickle.dumps(one)).name == one.name
    assert Validator(SCHEMA).name != Validator({"type": "object"}).name


def voter(text: str, form: str) -> Any:
    return draft(text, form=form)


@pytest.mark.parametrize(
    ("rule", "others", "outcome"),
    [
        (Agree(), [voter("#### 42", "phi")], "accept"),
        (Agree(), [voter("42.0", "qwen/program")], "accept"),
        (Agree(), [voter("#### 43", "phi")], "reject"),
        (Agree(), [voter("#### 42", "qwen")], "none"),
        (Agree(), [voter("#### 42", "qwen")] * 5, "none"),
        (Agree(), [voter("#### 41", "qwen"), voter("#### 42", "phi")], "none"),
        (Agree(), [voter("no idea", "phi")], "none"),
        (Agree(), [draft("#### 42", form="phi", complete=False)], "none"),
        (Agree(), [], "none"),
        (Agree(voters=3), [voter("42", "phi")], "none"),
        (Agree(voters=3), [voter("42", "phi"), voter("42", "gemma")], "accept"),
        (Agree(), [voter("42", "phi"), voter("43", "gemma")], "reject"),
        (Agree(majority=True), [voter("42", "phi"), voter("43", "gemma")], "accept"),
        (Agree(majority=True), [voter("42", "phi"), voter("43", "gemma"), voter("43", "llama")], "reject"),
    ],
)
def test_unlike_drafters_must_agree(rule: Agree, others: list[Any], outcome: str) -> None:
    """Samples of one form count once, one that contradicts itself not at all, and a rival answer rejects."""
    assert rule.verdict(voter("6 × 7 = 42", "qwen"), others).outcome == outcome


def test_a_draft_without_answer_has_no_vote() -> None:
    """Others may agree as they like: the text that would go out has no answer."""
    assert Agree().verdict(voter("no idea", "qwen"), [voter("42", "phi"), voter("42", "gemma")]).outcome == "none"
    assert Agree().verdict(voter("", "qwen"), [voter("42", "phi")]).outcome == "none"


def test_agreement_says_what_chance_does() -> None:
    """Two unrelated picks of two labels agree half the time, three of them a quarter."""
    rule = Agree(Label(("yes", "no")))
    assert rule.verdict(voter("Yes", "a"), [voter("yes", "b")]).chance == 0.5
    got = rule.verdict(voter("Yes", "a"), [voter("yes", "b"), voter("YES", "c")])
    assert (got.chance, got.score) == (0.25, 1.0)
    assert rule.name == "agree(label('yes', 'no', ignore_case=True), voters=2, majority=False)"


@pytest.mark.parametrize("voters", [1, 0, True, 2.5])
def test_one_drafter_cannot_agree(voters: Any) -> None:
    """Fewer than two voters are refused."""
    with pytest.raises(ValueError, match="voters"):
        Agree(voters=voters)
