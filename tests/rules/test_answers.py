"""What counts as the answer of a text, and when two are the same."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from cheapspec.rules.extract import Custom, Fields, Group, Label, LastNumber, extractor, same
from cheapspec.rules.numbers import numbers


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("18", 18, ""),
        ("18.\n", 18, ""),
        ("1,000", 1000, ""),
        ("12,345.6", Fraction("12345.6"), ""),
        ("12\u202f345", 12345, ""),
        (".5", Fraction(1, 2), ""),
        ("2.5e-3", Fraction("0.0025"), ""),
        ("-5", -5, ""),
        ("−5 km", -5, "km"),
        ("x = -3", -3, ""),
        ("a -5", -5, ""),
        ("covid-19", 19, ""),
        ("-$5", -5, "USD"),
        ("$-5", -5, "USD"),
        ("$ 1,234.50", Fraction("1234.5"), "USD"),
        ("USD 5", 5, "USD"),
        ("USD5", 5, "USD"),
        ("5 USD", 5, "USD"),
        ("5 dollars", 5, "USD"),
        ("€5", 5, "EUR"),
        ("50%", 50, "%"),
        ("50 per cent", 50, "%"),
        ("50 percent", 50, "%"),
        ("5km", 5, "km"),
        ("5 miles per day", 5, "mile"),
        ("5 eggs", 5, ""),
        ("$18 every day", 18, "USD"),
        ("5 million dollars", 5_000_000, "USD"),
        ("3/4", Fraction(3, 4), ""),
        ("2 3/4 cups", Fraction(11, 4), ""),
        (r"\frac{3}{4}", Fraction(3, 4), ""),
        ("9*2=$18", 18, "USD"),
    ],
)
def test_a_number_is_read_as_it_is_written(text: str, value: Fraction, unit: str) -> None:
    """Grouped digits, signs, currency, per cent, units, fractions and scales have their usual meaning."""
    found = numbers(text)[-1]
    assert found is not None
    assert (found.value, found.unit) == (value, unit)


@pytest.mark.parametrize(
    "text", ["1.000,5", "1,5", "1.2.3", "3:30", "10^3", "3-5", "5–7", "2024-05-01", "√2", "1/0", "1e5000", "9" * 500]
)
def test_a_number_that_can_mean_two_things_is_unreadable(text: str) -> None:
    """Nothing is guessed: decimal commas under a decimal point, ranges, powers and times are no answers."""
    assert numbers(text)[-1] is None
    assert LastNumber().draft(f"It is 7. The answer is {text}") is None


@pytest.mark.parametrize("text", ["H2O", "the 2nd", "x_2", "none", ""])
def test_digits_in_words_and_ordinals_are_no_numbers(text: str) -> None:
    """A text without a number has no answer."""
    assert numbers(text) == []
    assert LastNumber().draft(text) is None


def test_the_decimal_sign_can_be_a_comma() -> None:
    """With a decimal comma, 1.000,5 is one thousand and a half, and 1,000 is one."""
    german = LastNumber(decimal=",")
    assert german.same(german.draft("1.000,5"), german.draft("1000,50"))
    assert german.same(german.draft("1,000"), german.draft("1"))
    assert german.draft("1,000.5") is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "1.0", True),
        ("1,000", "1000", True),
        ("0.75", "3/4", True),
        ("$18", "18", True),
        ("$18", "18 dollars", True),
        ("$18", "€18", False),
        ("50%", "50", True),
        ("50%", "0.5", False),
        ("50 cents", "$0.50", False),
        ("5 km", "5 miles", False),
        ("-5", "5", False),
        ("18", "18.01", False),
    ],
)
def test_numbers_are_equal_by_value_and_unit(one: str, other: str, equal: bool) -> None:
    """Values must be equal, units where both have one; nothing is converted."""
    read = LastNumber()
    assert read.same(read.draft(one), read.draft(other)) is equal


def test_how_units_count_can_be_chosen() -> None:
    """Units may be asked for on both sides, or ignored."""
    strict, loose = LastNumber(units="same"), LastNumber(units="ignore")
    assert not strict.same(strict.draft("$18"), strict.draft("18"))
    assert loose.same(loose.draft("$18"), loose.draft("18 km"))
    assert not loose.same(None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Half is 9. #### 18", 18),
        (r"So $\boxed{\frac{1}{2}}$ of 7", Fraction(1, 2)),
        ("The answer is 18, since 9 and 9 are 18", 18),
        ("**Answer:** 18 eggs", 18),
        ("9 and 9 are 18", 18),
        ("It is 18.\n#### ", 18),
        ("18 in all. My answer is final", 18),
    ],
)
def test_a_draft_answers_at_its_end_or_behind_a_mark(text: str, value: Fraction) -> None:
    """The last number counts, of what follows the last mark if a number does."""
    found = LastNumber().draft(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    ("text", "value"), [("$18", 18), ("18 eggs", 18), ("2 * 9 = 18", 18), ("18 (18.0)", 18), ("Answer: 18", 18)]
)
def test_a_short_answer_holds_one_number(text: str, value: int) -> None:
    """A short answer is one number, or the one behind its equals sign."""
    found = LastNumber().short(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize("text", ["3 or 4", "no idea", "", "3-5", "between 3 and 5"])
def test_a_short_answer_with_two_numbers_or_none_is_no_answer(text: str) -> None:
    """What is ambiguous gives no verdict."""
    assert LastNumber().short(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is B.", "B"),
        ("**B**", "B"),
        ("A dog barks, so (C).", "C"),
        ("Answer: (c)", "C"),
        ("not B", None),
        ("The answer is not B but C", "C"),
        ("First (B), or (C)?", None),
        ("Because of this\nB", "B"),
        ("The answer is A or B", None),
        ("A dog barks", None),
    ],
)
def test_a_letter_is_a_label_only_where_it_is_set_off(text: str, found: str | None) -> None:
    """The article "A" is no choice, a negated choice is none, and two different ones are no answer."""
    assert Label(("A", "B", "C")).draft(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("This is Very positive.", "very positive"),
        ("positive or negative?", None),
        ("It is not positive, it is negative", "negative"),
        ("Answer: **Negative**", "negative"),
        ("unpositive", None),
    ],
)
def test_labels_are_whole_words_and_the_longest_wins(text: str, found: str | None) -> None:
    """A label inside another word or label is not that label."""
    read = Label(("positive", "negative", "very positive"))
    assert read.draft(text) == found
    assert read.short(text) == found


def test_letter_case_of_labels_is_an_option() -> None:
    """Labels that differ only in case can be told apart, if that is asked for."""
    exact = Label(("n", "N"), ignore_case=False)
    assert (exact.draft("N"), exact.draft("n")) == ("N", "n")
    assert exact.chance == 0.5
    with pytest.raises(ValueError, match="different labels"):
        Label(("n", "N"))


def test_named_members_are_compared_whatever_their_order() -> None:
    """Keys in any order, 1 = 1.0, further members ignored, a missing one is no answer."""
    read = Fields(("a", "b"))
    assert read.same(
        read.draft('Here: {"b": 1.0, "a": [1]} ok'), read.draft('```json\n{"a": [1.0], "b": 1, "c": 3}\n```')
    )
    assert not read.same(read.draft('{"a": 1, "b": "x"}'), read.draft('{"a": true, "b": "x"}'))
    assert not read.same(read.draft('{"a": 1, "b": "x"}'), read.draft('{"a": 1, "b": "X"}'))
    assert read.draft('{"a": 1}') is None
    assert read.draft('{"a": NaN, "b": 1}') is None
    assert read.draft("{" * 5000) is None
    assert (read.name, read.chance, read.tokens) == ("fields('a', 'b', ignore_case=False)", None, 64)
    loose = Fields(("b",), ignore_case=True)
    assert loose.same(loose.draft('{"b": "x"}'), loose.draft('{"b": "X"}'))


def test_a_group_is_taken_from_the_last_match() -> None:
    """The group ``answer``, else the first, else the match; a short answer may be bare."""
    read = Group(re.compile(r"total: (\S+)"))
    assert read.draft("total: 3\ntotal: 4 ") == "4"
    assert read.draft("sum: 4") is None
    assert read.same(read.short("4."), "4")
    assert Group(re.compile(r"(x)(?P<answer>y)")).draft("xy") == "y"
    assert Group(re.compile(r"\d")).draft("12") == "2"
    assert (read.name, read.chance) == ("group('total: (\\\\S+)', flags=32, ignore_case=False)", None)


def test_a_function_of_the_callers_is_an_extractor() -> None:
    """Its answers are compared by type and value, and its name is what certificates hold."""
    read = extractor(str.split)
    assert isinstance(read, Custom)
    assert read.same(read.draft("a  b"), read.short("a b"))
    assert "split" in read.name
    assert read.chance is None
    assert isinstance(extractor(re.compile("x")), Group)
    assert extractor(read) is read


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (True, True, True),
        ("1", 1, False),
        ("caf\u00e9", "cafe\u0301", True),
        ("a  b\n", "a b", True),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ([1, 2], [2, 1], False),
        (float("nan"), float("nan"), False),
        (float("inf"), float("inf"), False),
        (None, None, True),
    ],
)
def test_equality_is_typed(one: Any, other: Any, equal: bool) -> None:
    """Numbers by value, strings by normal form, members in any order, and nothing across types."""
    assert same(one, other) is equal


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: extractor("last_nubmer"),
        lambda: extractor("label"),
        lambda: extractor(3),
        lambda: Label(("yes",)),
        lambda: Label("yes"),  # type: ignore[arg-type]
        lambda: Fields(()),
        lambda: Group("("),  # type: ignore[arg-type]
        lambda: Group(re.compile(b"x")),  # type: ignore[arg-type]
        lambda: Group(re.compile("x"), tokens=0),
        lambda: Custom("x"),  # type: ignore[arg-type]
        lambda: LastNumber(decimal=";"),  # type: ignore[arg-type]
        lambda: LastNumber(units="any"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_extractor_is_refused_at_once(wrong: Any) -> None:
    """Construction says what is wrong, before any request is affected."""
    with pytest.raises(ValueError, match=r"\w"):
        wrong()


def test_a_misspelt_extractor_is_named() -> None:
    """The message names the nearest one there is."""
    with pytest.raises(ValueError, match="did you mean 'last_number'"):
        extractor("last_nubmer")
