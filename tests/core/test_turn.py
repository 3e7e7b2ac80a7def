"""A turn: verified text goes out as far as it may, counts follow the stop string, money is booked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine_kit import asked

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.drafting import Draft
from cheapspec.core.effects import Emit, Finish, HttpRequest, Note, Side, Source, Start, Usage
from cheapspec.core.ports import Context
from cheapspec.core.request import Sampling
from cheapspec.core.tally import Tally
from cheapspec.core.turn import Turn


def turn_of(*, ids: bool = True, **more: Any) -> Turn:
    """A turn after a prompt of three tokens."""
    turn = Turn(asked(**more), Tally(), 0.0)
    turn.context = Context(3, ids=(1, 2, 3) if ids else None)
    return turn


def longer(turn: Turn, text: str, tokens: int) -> Context:
    """The context with this whole reply."""
    return Context(3, text, tokens, None if turn.context.ids is None else (1, 2, 3, *range(tokens)))


def test_verified_text_goes_out_at_once_by_ids() -> None:
    """Each side's characters are its own."""
    turn = turn_of()
    shown = list(turn.verify(longer(turn, "ab c!", 3), 4, (2, 4)))
    assert shown == [Emit("ab c", Source.DRAFT), Emit("!", Source.TARGET)]
    assert list(turn.verify(longer(turn, "ab c!", 3), 0, ())) == []


def test_by_text_only_what_lies_before_the_last_safe_edge_goes_out() -> None:
    """The rest waits, piece by piece, and a retreat forgets it together with its tokens."""
    turn = turn_of(ids=False)
    assert list(turn.verify(longer(turn, "ab cd ef", 4), 6, (2, 5, 6))) == [Emit("ab cd", Source.DRAFT)]
    assert list(turn.verify(longer(turn, "ab cd efg h", 6), 2, (1, 3))) == [
        Emit(" ", Source.DRAFT),
        Emit("ef", Source.TARGET),
        Emit("g", Source.DRAFT),
    ]
    assert turn.retreat() == " h" and turn.context == Context(3, "ab cd efg", 5)
    assert list(turn.finish("stop")) == [Finish("stop", Usage(3, 5))]


def test_a_retreat_where_nobody_said_where_tokens_end() -> None:
    """The token count shrinks in proportion; an empty reply stays empty."""
    turn = turn_of(ids=False)
    list(turn.verify(longer(turn, "ab cd ef", 4), 8, (None,) * 4))
    assert turn.retreat() == " ef" and turn.context.tokens == 2
    assert turn_of(ids=False).retreat() == ""


def test_the_count_ends_with_the_token_that_completes_the_stop_string() -> None:
    """Tokens after it, and tokens that end inside a character, do not count as completing it."""
    turn = turn_of(stops=["é."])
    list(turn.verify(longer(turn, "aé.b", 6), 4, (1, None, 2, 3, 4)))
    assert turn.stopped() and turn.outlet.hit
    assert list(turn.finish("length", 1)) == [Finish("stop", Usage(3, 4))]


def test_a_stop_string_beyond_the_last_edge_is_known_before_it_is_shown() -> None:
    """By text, the held rest may hold a stop string: the reply ends there all the same."""
    turn = turn_of(ids=False, stops=["\n"])
    assert list(turn.verify(longer(turn, "42\n", 2), 3, (2, 3))) == []
    assert turn.stopped() and not turn.outlet.hit
    assert list(turn.finish("length")) == [Emit("42", Source.DRAFT), Finish("stop", Usage(3, 2))]


def test_the_end_counts_its_own_token() -> None:
    """A verified end of turn is billed, so it is counted; the tally knows the reply's tokens and time."""
    turn = turn_of(stops=["zz"])
    assert list(turn.verify(longer(turn, "az", 1), 2, (2,))) == [Emit("a", Source.DRAFT)]
    turn.calls.now = 2.5
    assert list(turn.finish("stop", 1)) == [Emit("z", Source.DRAFT), Finish("stop", Usage(3, 2))]
    assert (turn.tally.reply_tokens, turn.tally.prompt_tokens, turn.tally.seconds_total) == (2, 3, 2.5)


def test_a_failure_keeps_what_was_shown() -> None:
    """No reason, the error, and the tokens so far."""
    turn = turn_of()
    list(turn.verify(longer(turn, "ab", 1), 2, (2,)))
    assert list(turn.fail({"message": "m"})) == [Finish(None, Usage(3, 1), {"message": "m"})]


def test_a_stream_can_start_again_only_while_nothing_was_shown() -> None:
    """An unstreamed reply can always, since its text is still here."""
    for stream in (True, False):
        turn = turn_of(stream=stream)
        assert turn.restartable()
        list(turn.verify(longer(turn, "ab", 1), 2, (2,)))
        assert turn.restartable() is not stream


def test_the_limit_counts_down() -> None:
    """No limit has no end; a limit never goes below zero."""
    assert turn_of(max_tokens=None).remaining() is None
    turn = turn_of(max_tokens=1)
    assert turn.remaining() == 1
    turn.context = longer(turn, "abc", 3)
    assert turn.remaining() == 0


def test_a_billed_call_is_booked_once() -> None:
    """By its report, else by what is owed; an unbilled call is not booked at all."""
    turn = turn_of()

    def call(billed: bool) -> list[Any]:
        def op() -> Any:
            yield HttpRequest("score", "x", billed=billed)

        return list(turn.calls.op(op(), Side.TARGET))

    assert list(turn.book()) == []
    assert isinstance(call(True)[0], Start)
    assert list(turn.book(Usage(9, 1))) == [Note("usage", {"call_id": 1, "usage": Usage(9, 1)})]
    assert list(turn.book(Usage(9, 1))) == []
    call(True)
    turn.owe(4, 1)
    assert list(turn.book()) == [Note("usage", {"call_id": 2, "usage": Usage(7, 1, estimated=True)})]
    call(False)
    assert list(turn.book()) == []
    assert turn.tally.usages == [Usage(9, 1), Usage(7, 1, estimated=True)]


def test_what_a_round_shows_of_a_draft_is_noted() -> None:
    """Whole tokens up to the verified character hold; one that was cut there, or never judged, teaches nothing."""
    draft = Draft((DraftToken("ab", -0.01), DraftToken("cd", -0.01), DraftToken("ef", -0.01)), "d")
    [note] = turn_of().learn(draft, 3, missed=True)
    assert isinstance(note, Note) and note.kind == "estimates"
    assert {(drafter, seen.trials, seen.hits) for (drafter, _), seen in note.data["delta"].items()} == {("d", 2, 1)}
    assert list(turn_of().learn(draft, 0, missed=False)) == []
    sampled = replace(asked(), sampling=Sampling(1.0, 1.0))
    [drawn] = Turn(sampled, Tally(), 0.0).learn(draft, 2, missed=False)
    assert isinstance(drawn, Note) and {drafter for drafter, _ in drawn.data["delta"]} == {"d (sampled)"}
