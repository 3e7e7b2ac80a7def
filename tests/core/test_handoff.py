"""The hand-off: from verified text to the target's own, without a word lost, doubled or made up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from engine_kit import Alone, Proposing, TextTarget, alone, asked, cut_stream, pinned, ran

from cheapspec.core.effects import Broke, HttpReply, Source, Start
from cheapspec.core.engine import Policy
from cheapspec.core.handoff import hand_off
from cheapspec.core.ports import Context
from cheapspec.core.tally import Tally
from cheapspec.core.turn import Turn
from cheapspec.testing.scripted import ScriptedTarget, play

REPLY = "The capital of France is Paris. The capital of Spain is Madrid and it is big."


def on_continue(*faults: Any) -> Any:
    """The n-th continuing call meets the n-th fault (``None``: it is answered)."""

    def fault(start: Start, earlier: int) -> Any:
        return faults[earlier] if start.request.purpose == "continue" and earlier < len(faults) else None

    return fault


def handed(reply: str, drafted: str, *, target: ScriptedTarget | None = None, size: int = 4, **more: Any) -> Any:
    """One round of a draft, then the target's own text; ``more``: for the request and for ``ran``."""
    told = {name: more.pop(name) for name in ("stream", "stops", "max_tokens") if name in more}
    model = pinned(reply)
    if target is not None:
        target.model = model
    policy = Policy(draft_tokens=100)
    return ran(asked(**told), model, [Proposing([drafted], size)], target=target, policy=policy, **more)


# --- whole streams, and streams that are not -----------------------------------------------------------


def test_the_target_goes_on_from_the_verified_prefix() -> None:
    """The draft's part is the draft's, the rest is the target's, and the end is the target's."""
    outcome = handed(REPLY, "The capital of France is")
    assert outcome.end == alone(pinned(REPLY), asked())
    draft, target = ([one.text for one in outcome.played.emitted if one.source is side] for side in Source)
    assert "".join(draft) == "The capital of France is" and "".join(draft + target) == REPLY


@pytest.mark.parametrize("lines", [0, 1, 5])
def test_a_stream_that_breaks_off_is_continued_from_what_was_received(lines: int) -> None:
    """With token ids a second call goes on where the first one was cut; both are paid, nothing is lost."""
    outcome = handed(REPLY, "The capital", fault=on_continue(cut_stream(lines)))
    assert outcome.end == alone(pinned(REPLY), asked())
    assert outcome.tally.usages == list(outcome.books.billed.values())
    assert outcome.tally.usages[1].estimated and outcome.tally.usages[1].output_tokens == lines


def test_a_cut_inside_a_character_is_continued_before_it() -> None:
    """Tokens that have shown no text yet are written again."""
    reply = "The 🙂 is big"
    outcome = handed(reply, "The", fault=on_continue(cut_stream(3)))  # " ", then two bytes of four
    assert outcome.end == alone(pinned(reply), asked())


def test_a_call_that_is_not_answered_is_made_again() -> None:
    """No connection costs nothing and hides nothing."""
    outcome = handed(REPLY, "The capital", fault=on_continue(Broke(0, "connect", "refused")))
    assert outcome.end == alone(pinned(REPLY), asked())
    assert len(outcome.tally.usages) == 2


def test_calls_that_do_not_get_on_are_given_up() -> None:
    """Two continuing calls in a row without a token: the reply breaks off with an error."""
    outcome = handed(REPLY, "The capital", fault=on_continue(*[cut_stream(0)] * 9))
    assert outcome.played.purposes().count("continue") == 2
    assert outcome.played.finish.error["type"] == "connection_error"
    assert outcome.text == "The capital of"


def test_an_exhausted_budget_ends_the_reply() -> None:
    """The driver allows no further call: what was shown stays, the error that follows says what was wrong with
    the call before, and nothing more is paid.
    """
    exhausted = Broke(0, "exhausted", "no attempts are left")
    outcome = handed(REPLY, "The capital", fault=on_continue(cut_stream(2), exhausted))
    assert outcome.played.finish.error["message"] == "the target's stream ended without an end sign"
    assert outcome.played.finish.finish_reason is None
    assert REPLY.startswith(outcome.text) and len(outcome.tally.usages) == 2


def test_a_budget_that_was_exhausted_before_is_told_in_the_drivers_words() -> None:
    """Without a continuing call before it there is no other trouble to tell."""
    outcome = handed(REPLY, "The capital", fault=on_continue(Broke(0, "exhausted", "no attempts are left")))
    assert outcome.played.finish.error["message"] == "no attempts are left"
    assert outcome.played.purposes().count("continue") == 1


def test_b15_a_stream_cut_at_the_limit_lacks_only_its_end_sign() -> None:
    """All tokens of the limit are there: the reply is whole, no call with a limit of 0 goes out."""
    request = asked(max_tokens=8)
    outcome = handed(REPLY, "The capital", max_tokens=8, fault=on_continue(cut_stream(5)))
    assert outcome.end == alone(pinned(REPLY), request)
    assert outcome.played.purposes().count("continue") == 1


@pytest.mark.parametrize("stream", [True, False])
def test_b15_a_stream_without_ids_that_is_cut(stream: bool) -> None:
    """After text went out: an error frame, never a false end. Before: the request goes direct."""
    target = TextTarget(pinned(REPLY))
    outcome = handed(REPLY, "The capital of", target=target, stream=stream, fault=on_continue(cut_stream(4)))
    assert outcome.tally.usages[1].estimated
    if stream:
        assert outcome.played.finish.error["type"] == "connection_error"
        assert outcome.played.finish.finish_reason is None and REPLY.startswith(outcome.text)
    else:
        assert outcome.played.direct.reason == "cannot_score" and outcome.played.finish is None
    assert [note.kind for note in outcome.played.notes][-1] == "handoff_failed"


def test_a_stream_with_stop_strings_that_is_cut_is_not_continued() -> None:
    """The server holds text back, so its ids run ahead of its text: going on from them would lose words."""
    outcome = handed(REPLY, "The capital", stops=["\n\nUser:"], fault=on_continue(cut_stream(9)))
    assert outcome.played.finish.error is not None and REPLY.startswith(outcome.text)


@pytest.mark.parametrize("error", [{"message": "overloaded", "code": 502}, {}])
def test_b14_an_error_object_inside_the_stream(error: dict[str, Any]) -> None:
    """The reply fails with the server's words; its text so far stays, no end is claimed, the tokens are paid."""
    outcome = handed(REPLY, "The capital", fault=on_continue(cut_stream(3, error=error)))
    finish = outcome.played.finish
    assert finish.finish_reason is None and finish.error["code"] == error.get("code")
    assert finish.error["message"] == error.get("message", "the target reported an error in its stream")
    assert finish.error["type"] == "upstream_error"
    assert outcome.text == "The capital of France is Paris"
    assert outcome.tally.usages[1].output_tokens == 3 and outcome.tally.usages[1].estimated


@pytest.mark.parametrize("stream", [True, False])
def test_a_refused_continuation_costs_nothing(stream: bool) -> None:
    """An error status: an error frame after text, the whole request direct before."""
    outcome = handed(REPLY, "The capital", stream=stream, fault=on_continue(HttpReply(503, b"")))
    assert len(outcome.tally.usages) == 1
    if stream:
        assert outcome.played.finish.error["code"] == 503
    else:
        assert "503" in outcome.played.direct.detail


# --- stop strings over the seam -------------------------------------------------------------------------


@pytest.mark.parametrize("drafted", ["ok", "ok\n", "ok\nUs", "ok\nUser", "ok\nUser:", "ok\nUser: hi"])
@pytest.mark.parametrize("split", [0, 1, 5])
def test_b18_a_stop_string_over_the_seam(drafted: str, split: int) -> None:
    """Wherever the draft ends, the text is ``ok``, the reason ``stop``, and nothing of the stop string is shown."""
    reply = "ok\nUser: hi there"
    outcome = handed(reply, drafted, stops=["\nUser:"], split=split, size=1)
    assert outcome.end == alone(pinned(reply), asked(stops=["\nUser:"]))
    assert outcome.text == "ok"


def test_b18_held_text_that_turns_out_harmless_is_released() -> None:
    """A beginning that does not go on as the stop string is the caller's."""
    reply = "ok\nUs two"
    assert handed(reply, "ok\nUs", stops=["\nUser:"], size=1).end == alone(pinned(reply), asked(stops=["\nUser:"]))


def test_b18_a_stop_string_that_overlaps_itself_over_the_seam() -> None:
    """The server would see only the second half's repetition, so it is not told the stop string."""
    reply = "ok\n\n\nand"
    outcome = handed(reply, "ok\n", stops=["\n\n"], size=1)
    assert outcome.end == alone(pinned(reply), asked(stops=["\n\n"])) and outcome.text == "ok"


# --- text routes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafted", ["The", "The capital of Fr", "The capital of France is Paris. The", REPLY[:-4]])
@pytest.mark.parametrize("swallows", [False, True])
def test_b28_a_text_route_goes_on_from_a_safe_edge(drafted: str, swallows: bool) -> None:
    """What lies beyond the edge is written again; spaces stand exactly once, swallowed or not (B26)."""
    outcome = handed(REPLY, drafted, target=TextTarget(pinned(REPLY), swallows=swallows))
    assert outcome.end == alone(pinned(REPLY), asked())


@pytest.mark.parametrize("echo", ["prefix", "sentence"])
@pytest.mark.parametrize("split", [0, 1])
def test_b27_what_the_target_says_again_is_said_once(echo: str, split: int) -> None:
    """A target that repeats the whole prefix, or its last sentence, does not make the caller read it twice."""
    target = TextTarget(pinned(REPLY), echo=echo)
    outcome = handed(
        REPLY, "The capital of France is Paris. The capital of Spain is Madrid", target=target, split=split
    )
    assert outcome.text == REPLY


def test_one_identity_goes_through_the_whole_reply() -> None:
    """The scoring call named it; what the continuing call calls itself is another call's name."""
    outcome = handed(REPLY, "The capital of", target=TextTarget(pinned(REPLY)))
    assert outcome.tally.identity.id == "scripted-1"


def test_b27a_a_target_that_takes_no_prefill_and_nothing_has_reached_the_caller() -> None:
    """The refusal is final for this request: it goes direct, and the scoring call stays counted."""
    reply = HttpReply(400, b'{"error": {"message": "must end with a user message"}}')
    outcome = handed(REPLY, "The", target=TextTarget(pinned(REPLY)), stream=False, fault=on_continue(reply))
    assert outcome.played.direct.reason == "cannot_score" and outcome.played.finish is None
    assert len(outcome.tally.usages) == 1


def test_b27d_what_only_looks_like_a_repetition_stays() -> None:
    """A prefix ``4`` that goes on as ``42`` is no echo."""
    target = TextTarget(pinned("4 42 is it"))
    assert handed("4 42 is it", "4 4", target=target, size=1).text == "4 42 is it"


def test_an_echo_and_nothing_more_adds_nothing() -> None:
    """The held words are decided when the stream ends."""
    reply = "The capital of France is Paris"
    target = TextTarget(pinned(reply), echo="prefix")
    model = target.model
    ids = tuple(model.encode(model.render(asked().messages)))
    turn = Turn(asked(), Tally(), 0.0)
    turn.context = Context(len(ids), "The capital of France", 4, None, ids)
    list(turn.verify(turn.context, 0, ()))

    def only_echo(whole: Iterable[bytes]) -> list[bytes]:
        lines = list(whole)
        return [*lines[:5], lines[-1]]  # "The capital of", three characters a line

    played = play(hand_off(turn, target), lambda start: only_echo(target.answer(start)))  # type: ignore[arg-type]
    assert played.text == "" and played.finish is not None and played.finish.finish_reason == "stop"


def test_a_target_without_end_reason_has_stopped() -> None:
    """B15 (b): an end sign without a reason is a whole reply."""

    def no_reason(whole: Iterable[bytes]) -> list[bytes]:
        return [line.replace(b'"stop"', b"null") for line in whole]

    assert handed("The big", "The", fault=on_continue(no_reason)).end == Alone("The big", "stop", 3)
