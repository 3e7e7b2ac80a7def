"""Whatever a draft or a reply holds, rules never raise, and never accept without evidence."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rules_kit import request

from cheapspec.rules import Agree, Answer, Draft, Endpoint, Judge, OkOrAnswer, Patch
from cheapspec.rules.extract import Fields, Label, LastNumber, extractor
from cheapspec.rules.numbers import numbers
from cheapspec.rules.ok_or_answer import says_ok
from cheapspec.rules.verdict import nonce_for

SCRAPS = st.text() | st.text('0123456789.,-−$€%/:eE^ \n{}"ab', max_size=40) | st.sampled_from(["#### 42", "{}", "OK"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | SCRAPS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {}, optional={"token": JSON, "logprob": JSON, "bytes": JSON, "top_logprobs": JSON | st.lists(JSON, max_size=3)}
)
REPLY = JSON | st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": st.fixed_dictionaries({"content": JSON}, optional={"refusal": JSON, "tool_calls": JSON})},
                optional={
                    "finish_reason": st.sampled_from(["stop", "length", "content_filter", 7, None]),
                    "logprobs": st.fixed_dictionaries({"content": JSON | st.lists(ENTRY, max_size=3)}),
                },
            ),
            max_size=2,
        )
    },
    optional={"error": JSON},
)


@settings(max_examples=150, deadline=None)
@given(reply=REPLY, text=SCRAPS)
def test_no_reply_breaks_a_rule(reply: Any, text: str) -> None:
    """Any JSON in any place gives a verdict or none, and an empty draft is never accepted."""
    draft = Draft(text)
    rules: list[Any] = [
        Answer(),
        Answer(Label(("a", "b"))),
        Answer(Fields(("a",))),
        OkOrAnswer(),
        Patch(),
        Patch("code"),
    ]
    verdicts = [rule.read(reply, draft) for rule in rules]
    verdicts += [Judge(uncalibrated=True).read(reply, draft, 0.5, Endpoint(listed)) for listed in (0, 20)]
    for verdict in verdicts:
        assert verdict.outcome in ("accept", "reject", "none")
        assert verdict.why
        assert text.strip() or not verdict.accepted


@settings(max_examples=200, deadline=None)
@given(text=SCRAPS)
def test_no_text_breaks_an_extractor(text: str) -> None:
    """Reading is total, and what is read from a text equals what is read from it again."""
    numbers(text)
    for read in (LastNumber(), LastNumber(","), Label(("a", "b")), Fields(("a",)), extractor(str.split)):
        found = read.draft(text)
        read.short(text)
        assert found is None or isinstance(found, dict) or read.same(found, read.draft(text))


@settings(max_examples=100, deadline=None)
@given(text=SCRAPS, others=st.lists(st.tuples(SCRAPS, st.sampled_from("abc")), max_size=4))
def test_agreement_needs_another_form(text: str, others: list[tuple[str, str]]) -> None:
    """However many samples agree, one form alone never accepts."""
    drafts = [Draft(other, form=form) for other, form in others]
    got = Agree().verdict(Draft(text, form="a"), drafts)
    assert not got.accepted or {form for _, form in others} - {"a"}


@settings(max_examples=200, deadline=None)
@given(text=st.text(), salt=st.text(max_size=5))
def test_a_draft_stands_whole_between_its_marks(text: str, salt: str) -> None:
    """Byte for byte, and only there."""
    asked = Judge(uncalibrated=True).messages(request(), text, salt)[0]["content"]
    nonce = nonce_for(text, salt)
    assert asked.partition(f"<answer {nonce}>\n")[2].partition(f"\n</answer {nonce}>")[0] == text
    assert not says_ok(asked)
