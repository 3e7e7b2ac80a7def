"""What a reply of the target says about a draft: short answers, judges, OK or an answer."""

from __future__ import annotations

from typing import Any

import pytest
from rules_kit import draft, letter, reply

from cheapspec.rules import Answer, Draft, Endpoint, Judge, OkOrAnswer, Patch
from cheapspec.rules.extract import Fields, Label

NUMBER = Answer("last_number")
DRAFT = draft("6 times 7 is 42. The answer is 42.")
UNUSABLE = [draft(""), draft(" \n"), draft("The answer is 4", complete=False)]


@pytest.mark.parametrize("text", ["42", "42.0", "The answer is 42.", "$42", "6 * 7 = 42"])
def test_an_equal_short_answer_accepts_the_draft(text: str) -> None:
    """The draft goes out when the target's own answer is its answer."""
    got = NUMBER.read(reply(text), DRAFT)
    assert got.accepted
    assert got.text is None


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (reply("43"), "reject"),
        (reply("42 or 43"), "none"),
        (reply("forty-two"), "none"),
        (reply("42", "length"), "none"),
        (reply("", "length", reasoning="6 × 7 …"), "none"),
        (reply(None, refusal="I will not say 42"), "none"),
        (reply("42", "content_filter"), "none"),
        ({"error": {"code": 429}}, "none"),
        (None, "none"),
    ],
)
def test_any_other_short_answer_does_not(told: Any, outcome: str) -> None:
    """Another answer rejects; a cut, ambiguous, refused or missing one is no verdict."""
    assert NUMBER.read(told, DRAFT).outcome == outcome


def test_a_draft_without_an_answer_costs_no_call() -> None:
    """It is rejected before anything is asked, and whatever is answered."""
    blank = draft("I do not know")
    got = NUMBER.before(blank)
    assert got is not None
    assert got.outcome == "reject"
    assert NUMBER.read(reply("42"), blank) == got
    assert NUMBER.before(DRAFT) is None


@pytest.mark.parametrize("one", UNUSABLE)
@pytest.mark.parametrize("rule", [NUMBER, Judge(uncalibrated=True), OkOrAnswer(), Patch("code")])
def test_an_empty_or_cut_draft_is_never_judged(rule: Any, one: Draft) -> None:
    """There is no verdict, though the reply would accept."""
    got = rule.before(one)
    assert got.outcome == "none"
    if isinstance(rule, Judge):
        told = letter("Y", {"Y": 0.99, "N": 0.01})
        assert rule.read(told, one, 0.5, Endpoint()) == got
    else:
        assert rule.read(reply("OK 4"), one) == got


def test_few_labels_agree_by_chance_and_the_verdict_says_so() -> None:
    """Of four labels every fourth pair of unrelated answers is equal."""
    rule = Answer(Label(("A", "B", "C", "D")))
    assert rule.read(reply("b"), draft("The answer is B")).chance == 0.25
    assert rule.read(reply("C"), draft("The answer is B")).chance == 0.25
    assert NUMBER.read(reply("42"), DRAFT).chance is None


def test_named_members_are_asked_for_and_compared() -> None:
    """The whole draft is accepted on the members that matter."""
    rule = Answer(Fields(("total",)))
    assert '"total"' in rule.extractor.form
    assert rule.read(reply('```json\n{"total": 3.0}\n```'), draft('{"total": 3, "note": "three"}')).accepted


def test_a_judge_is_off_until_it_is_certified() -> None:
    """Without a certificate there is no threshold, unless the caller waives it."""
    assert Judge().cutoff(None) is None
    assert Judge(threshold=0.9).cutoff(None) is None
    assert Judge().cutoff(0.95) == 0.95
    assert Judge(threshold=0.99).cutoff(0.95) == 0.99
    assert Judge(threshold=0.9).cutoff(0.95) == 0.95
    assert Judge(uncalibrated=True).cutoff(None) == 0.5
    assert Judge(uncalibrated=True, threshold=0.8).cutoff(0.95) == 0.8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Judge(threshold=0),
        lambda: Judge(threshold=1.5),
        lambda: Judge(threshold=float("nan")),
        lambda: Judge(threshold=True),
        lambda: Judge(base_url="https://judge.example/v1"),
        lambda: Judge("m", "https://judge.example/v1"),
        lambda: Judge("m", api_key="k"),
        lambda: Answer("label"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_at_construction(wrong: Any) -> None:
    """A judge elsewhere needs a key of its own: the target's never goes to another base URL."""
    with pytest.raises(ValueError, match=r"threshold|base_url|extractor"):
        wrong()


def test_a_judge_reads_a_letter_or_a_digit() -> None:
    """With alternatives the letter counts, without them the digit."""
    judge = Judge(uncalibrated=True)
    assert judge.read(letter("Y", {"Y": 0.9, "N": 0.1}), DRAFT, 0.8, Endpoint()).accepted
    assert judge.read(reply("8"), DRAFT, 0.8, Endpoint(0)).accepted
    assert judge.read(reply("8"), DRAFT, 0.8, Endpoint()).outcome == "none"
    assert judge.read(letter("Y", {"Y": 0.9, "N": 0.1}), DRAFT, 0.8, Endpoint(0)).outcome == "none"


@pytest.mark.parametrize("text", ["OK", "ok.", "**OK**", " OK\n"])
def test_ok_accepts_the_draft(text: str) -> None:
    """Marks around it do not matter."""
    assert OkOrAnswer().read(reply(text), DRAFT).accepted


def test_anything_else_is_the_targets_own_reply() -> None:
    """A whole reply goes out itself, so that no direct call follows."""
    got = OkOrAnswer().read(reply("OK, it is 42."), DRAFT)
    assert (got.outcome, got.text) == ("reject", "OK, it is 42.")


@pytest.mark.parametrize("told", [reply("It is 4", "length"), reply(None, refusal="no"), reply(""), None])
def test_an_odd_reply_is_no_verdict_and_no_answer(told: Any) -> None:
    """A cut, refused or empty reply is not passed on."""
    got = OkOrAnswer().read(told, DRAFT)
    assert (got.outcome, got.text) == ("none", None)


def test_a_draft_that_is_ok_itself_is_not_asked_about() -> None:
    """Its verdict could not be told from its correction."""
    got = OkOrAnswer().before(draft("OK."))
    assert got is not None
    assert got.outcome == "none"


def test_names_tell_rules_apart() -> None:
    """A certificate for one rule is none for another."""
    rules = [NUMBER, Answer(Fields(("a",))), Answer(Fields(("b",))), Judge(), Judge("m"), OkOrAnswer(), Patch()]
    names = [rule.name for rule in rules]
    assert len(set(names)) == len(names)
