"""Getting one draft: used as far as it came, never more than can be sent, and never from a host that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_kit import Proposing, asked
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.calls import Calls
from cheapspec.core.drafting import Draft, Drafting, given_draft, slice_tokens
from cheapspec.core.effects import (
    Answered,
    Broke,
    Cancel,
    Closed,
    HttpReply,
    HttpRequest,
    Op,
    Opened,
    Received,
    Start,
    WaitAny,
)
from cheapspec.core.lookup import Prediction
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request

TOKENS = (DraftToken("ab", -0.1), DraftToken("c", -0.2), DraftToken("def", -0.3))


class Words:
    """A body of words; ``.`` ends the turn, ``!`` is a problem, an orderly end without either is "cut"."""

    def feed(self, data: bytes) -> list[DraftPiece]:
        return [self._piece(word) for word in data.decode().split(" ")]

    def _piece(self, word: str) -> DraftPiece:
        if word == "!":
            return DraftPiece(problem=NoDraft("no_draft", "thoughts only"))
        return DraftPiece(end="stop") if word == "." else DraftPiece((DraftToken(word, -0.1),))

    def close(self) -> list[DraftPiece]:
        return []


class Host:
    """A drafter with one preliminary call; ``refusal``: what it makes of a failed one."""

    name = "host"
    base_url = "http://host.test"

    def __init__(self, *, refusal: NoDraft | None = None, preliminary: bool = True) -> None:
        self.refusal = refusal
        self.preliminary = preliminary

    def propose(self, request: Request, prefix: str, max_tokens: int) -> None:
        return None

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        reply = (yield HttpRequest("show", "/show")) if self.preliminary else HttpReply(200, b"")
        if reply is None or self.refusal is not None:
            return self.refusal or NoDraft("no_draft", "no model list")
        body = {"prefix": prefix, "max_tokens": max_tokens}
        refused = NoDraft("draft_busy", "its queue is full")
        return Streaming(HttpRequest("draft", "/draft", body, stream=True), Words(), lambda reply: refused)


def begin(drafter: Any, limit: int = 8) -> tuple[Calls, Drafting, list[Any]]:
    calls = Calls(0.0)
    drafting = Drafting(calls, drafter)
    return calls, drafting, list(drafting.begin(asked(), "so far", limit))


def told(calls: Calls, drafting: Drafting, *events: Any) -> list[Any]:
    """Let events arrive; the effects besides the waits."""
    effects: list[Any] = []
    for event in events:
        steps = calls.step()
        assert isinstance(next(steps), WaitAny)
        try:
            effects.append(steps.send(event))
            effects.extend(steps)
        except StopIteration:
            pass
        effects.extend(drafting.pump())
    return effects


def opened(*events: Any) -> tuple[Drafting, list[Any]]:
    """A draft whose stream has begun and then gets these events."""
    calls, drafting, _ = begin(Host())
    return drafting, told(calls, drafting, Answered(1, HttpReply(200, b"")), Opened(2, 200, {}), *events)


def test_a_model_is_asked_and_its_stream_read() -> None:
    """Preliminary call, then the stream, on the drafter's own host; the end is what the stream says."""
    calls, drafting, effects = begin(Host())
    assert [effect.host for effect in effects] == ["http://host.test"]
    (started,) = told(calls, drafting, Answered(1, HttpReply(200, b"")))
    assert isinstance(started, Start) and started.request.body == {"prefix": "so far", "max_tokens": 8}
    told(calls, drafting, Opened(2, 200, {}), Received(2, b"a b"))
    assert drafting.result is None
    told(calls, drafting, Received(2, b"c ."))
    assert drafting.result == Draft(tuple(DraftToken(word, -0.1) for word in "abc"), "host", "stop")
    assert list(drafting.pump()) == [] and list(drafting.stop()) == []


@pytest.mark.parametrize("end", [Closed(2), Broke(2, "cut")])
def test_b15_a_stream_without_an_end_claims_none(end: Any) -> None:
    """The text is used, nothing is said about its end (B15 e)."""
    drafting, _ = opened(Received(2, b"a b"), end)
    assert isinstance(drafting.result, Draft) and (drafting.result.text, drafting.result.end) == ("ab", "cut")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((Broke(2, "timeout", "slow"),), NoDraft("no_draft", "host: slow", True)),
        ((Broke(2, "busy", "two at a time"),), NoDraft("draft_busy", "two at a time")),
        ((Received(2, b"."),), NoDraft("no_draft", "host drafted nothing")),
        ((Closed(2),), NoDraft("no_draft", "host drafted nothing")),
    ],
)
def test_streams_that_give_no_draft(events: tuple[Any, ...], why: NoDraft) -> None:
    """A failed host is called broken, a busy or silent one is not."""
    assert opened(*events)[0].result == why


def test_a_problem_discards_the_text_and_the_call() -> None:
    """What came before it must not be used."""
    drafting, effects = opened(Received(2, b"a !"))
    assert drafting.result == NoDraft("no_draft", "thoughts only") and effects[-1] == Cancel(2)


def test_a_refused_stream_says_why() -> None:
    """The dialect's own reading of the error reply."""
    calls, drafting, _ = begin(Host())
    told(calls, drafting, Answered(1, HttpReply(200, b"")), Answered(2, HttpReply(503, b"")))
    assert drafting.result == NoDraft("draft_busy", "its queue is full")


@pytest.mark.parametrize(
    ("broke", "why"),
    [
        (Broke(1, "connect", "refused"), NoDraft("no_draft", "no model list: refused", True)),
        (Broke(1, "timeout"), NoDraft("no_draft", "no model list", True)),
        (Broke(1, "busy", "two at a time"), NoDraft("draft_busy", "two at a time")),
    ],
)
def test_a_broken_preliminary_call(broke: Broke, why: NoDraft) -> None:
    """The host failed, unless it was our own limit that kept the call back."""
    calls, drafting, _ = begin(Host())
    told(calls, drafting, broke)
    assert drafting.result == why


def test_a_host_that_answered_and_declines_is_not_broken() -> None:
    """Its reason is passed on, with a call or without one."""
    why = NoDraft("draft_context", "the window is too small")
    calls, drafting, _ = begin(Host(refusal=why))
    told(calls, drafting, Answered(1, HttpReply(200, b"")))
    assert drafting.result == why
    _, drafting, effects = begin(Host(refusal=why, preliminary=False))
    assert drafting.result == why and effects == []


def test_given_text_needs_no_call() -> None:
    """Its tokens are static, empty ones left out; a model has none."""
    there = given_draft(Proposing(["abc"], size=2), asked(), "", 8)
    assert there == Draft((DraftToken("ab"), DraftToken("c")), "proposing", None, static=True)
    assert given_draft(Proposing([""]), asked(), "", 8) == Draft((), "proposing", None, static=True)
    assert given_draft(Host(), asked(), "", 8) is None


@pytest.mark.parametrize(("room", "end"), [(100, "stop"), (2, None)])
def test_a_prediction_that_has_room_ends_the_reply(room: int, end: str | None) -> None:
    """Cut at the limit it claims nothing."""
    there = given_draft(Prediction(), replace(asked(), prediction="One, two."), "", room)
    assert there is not None and there.end == end


def test_no_room_asks_nobody() -> None:
    """Some servers read a limit of 0 as none."""
    _, drafting, effects = begin(Host(), limit=0)
    assert effects == [] and isinstance(drafting.result, NoDraft)


# --- the deadline ------------------------------------------------------------------------------------------


def test_a_deadline_with_text_uses_the_text() -> None:
    """The call is given up, nothing is claimed about the end."""
    drafting, _ = opened(Received(2, b"a b"))
    assert list(drafting.stop()) == [Cancel(2)]
    assert isinstance(drafting.result, Draft) and (drafting.result.text, drafting.result.end) == ("ab", None)


def test_a_host_that_answers_without_text_in_time_is_hung_up_on() -> None:
    """It is not loading, it is slow."""
    drafting, _ = opened()
    assert list(drafting.stop()) == [Cancel(2, linger=False)]
    assert drafting.result == NoDraft("draft_deadline", "host gave no text in time")


@pytest.mark.parametrize("preliminary", [True, False])
def test_a_cold_host_may_finish_in_the_background(preliminary: bool) -> None:
    """A host that has not answered at all may be loading its model: the call lingers."""
    _, drafting, _ = begin(Host(preliminary=preliminary))
    assert list(drafting.stop()) == [Cancel(1, linger=True)]
    assert drafting.result == NoDraft("draft_deadline", "host gave no text in time")


# --- drafts as values ----------------------------------------------------------------------------------------


def test_a_head_claims_nothing_about_the_end() -> None:
    """Unless it is the whole draft."""
    draft = Draft(TOKENS, "d", "stop")
    assert draft.head(3) is draft and draft.head(9) is draft
    assert draft.head(2) == Draft(TOKENS[:2], "d", None)


@given(st.integers(-1, 8), st.integers(-1, 8))
def test_slices_are_the_texts_slices(start: int, stop: int) -> None:
    """Whole tokens keep their probability, cut ones lose it."""
    sliced = slice_tokens(TOKENS, max(start, 0), max(stop, 0))
    assert "".join(token.text for token in sliced) == "abcdef"[max(start, 0) : max(stop, 0)]
    assert all(token in TOKENS or token.logprob is None for token in sliced)


@pytest.mark.parametrize(
    ("before", "text", "sent"),
    [
        ("", "plain text", "plain text"),
        ("", "a<|im_end|>b", "a"),
        ("", "<|im_end|>", ""),
        ("x <", "|im_end|> b", ""),
        ("x <", "| b", "| b"),
        ("x </", "s> b", ""),
        ("he wrote <|im_end|>", " and so on", " and so on"),
        ("<|x|>", "<|y", ""),
        ("", "a\ud800b", "a"),
        ("", "a\ud800<|im_end|>", "a"),
    ],
)
def test_only_plain_text_is_sent(before: str, text: str, sent: str) -> None:
    """Cut before control tokens, also such as begin in the verified text, and before half a surrogate pair."""
    draft = Draft((DraftToken(text, -0.1),), "d", "stop").sendable(before)
    assert draft.text == sent
    assert draft.end == ("stop" if sent == text else None)


def test_what_is_left_of_a_draft_follows_the_verified_text() -> None:
    """It goes on after text that it said itself, with its claim about the end; of another text nothing is left."""
    draft = Draft(TOKENS, "d", "stop")
    first = TOKENS[0].text
    assert draft.after(first) == Draft(TOKENS[1:], "d", "stop")
    assert draft.after(draft.text).tokens == () == draft.after(f"{first}?").tokens
    assert draft.after("") == draft
