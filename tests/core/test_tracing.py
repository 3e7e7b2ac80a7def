"""What a round leaves behind is what was looked at, in the target's tokens, and a request is put together from it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from trace_kit import PRICES, row

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.assembly import assemble
from cheapspec.core.books import Trace
from cheapspec.core.drafting import Draft
from cheapspec.core.policies import Direct, WholeDraft
from cheapspec.core.ports import Identity, RequestRow
from cheapspec.core.records import RequestRecord
from cheapspec.core.replay import Setting, replay
from cheapspec.core.tally import Tally
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace, StaticRow, dump_trace, load_trace
from cheapspec.core.tracing import align, trace_note


def draft(*tokens: tuple[str, float | None], end: str | None = None, static: bool = False) -> Draft:
    return Draft(tuple(DraftToken(text, logprob) for text, logprob in tokens), "d", end, static)


@pytest.mark.parametrize(
    ("tokens", "ends", "expected"),
    [
        ([("ab", -1.0), ("c", -2.0)], [2, 3], (-1.0, -2.0)),
        ([("a", -1.0), ("b", -2.0), ("c", -4.0)], [2, 3], (-3.0, -4.0)),
        ([("abc", -1.0), ("d", -2.0)], [1, 2, 3, 4], (-1.0, 0.0, 0.0, -2.0)),
        ([("ab", -1.0), ("cd", -2.0)], [1, 3, 4], (-1.0, -2.0, 0.0)),
        ([("a", None), ("b", -2.0), ("c", -4.0)], [2, 3], (None, -4.0)),
        ([("é", -1.0), ("x", -2.0)], [None, 1, 2], (0.0, -1.0, -2.0)),
        ([("abc", -1.0)], [1], (-1.0,)),
        ([], [], ()),
    ],
)
def test_probabilities_move_to_the_targets_tokens(
    tokens: list[tuple[str, float | None]], ends: list[int | None], expected: tuple[float | None, ...]
) -> None:
    """Each counts where its token begins; together they are what the draft model said of this text."""
    assert align(draft(*tokens), ends) == expected


def test_no_probability_is_lost_or_counted_twice() -> None:
    """However both sides cut the text: the sum over whole drafts is the draft's own."""
    chance = random.Random(5)
    for _ in range(200):
        texts = ["x" * chance.randint(1, 4) for _ in range(chance.randint(1, 8))]
        length = sum(map(len, texts))
        cuts = sorted({length, *(chance.randint(1, length) for _ in range(5))})
        told = align(draft(*((text, -1.0) for text in texts)), cuts)
        assert sum(value or 0.0 for value in told) == -len(texts)


def fields(scored: Draft, ends: list[int | None], accepted: int, **more: Any) -> dict[str, Any]:
    tally = Tally(rounds=1, identity=Identity(model="m"))
    note = trace_note(tally, 7, scored, ends, accepted, **{"missed": False, "ended": False, **more})
    assert note.kind == "trace"
    return dict(note.data)


def test_a_round_tells_what_was_looked_at() -> None:
    """Up to the first miss and with it; nothing of what lies behind."""
    told = fields(draft(("a", -1.0), ("b", -2.0), ("c", -3.0)), [1, 2, 3], 1, missed=True)
    assert told == {
        "round": 1,
        "drafter": "d",
        "position": 7,
        "logprobs": (-1.0, -2.0),
        "agreed": (True, False),
        "ended": False,
        "model": "m",
    }


@pytest.mark.parametrize("ended", [True, False])
def test_a_draft_that_claims_the_end_is_told_whether_it_was_right(ended: bool) -> None:
    """One entry more, without a number; only if everything before it held."""
    scored = draft(("a", -1.0), ("b", -2.0), end="stop")
    told = fields(scored, [1, 2], 2, ended=ended)
    assert (told["logprobs"], told["agreed"], told["ended"]) == ((-1.0, -2.0, None), (True, True, ended), ended)
    assert fields(scored, [1, 2], 1, missed=True)["agreed"] == (True, False)
    assert fields(scored, [1, 2], 1)["agreed"] == (True,)  # not looked at further: no claim was tested


def test_given_text_has_no_numbers() -> None:
    """Not even where it spans several of the target's tokens."""
    assert fields(draft(("ab", None), static=True), [1, 2], 2)["logprobs"] == (None, None)


# --- put together --------------------------------------------------------------------------------


def record(decision: str = "speculate", reason: str | None = None, **info: Any) -> RequestRecord:
    told = {"decision": decision, "reason": reason, "prompt_tokens": 50, "reply_tokens": 10, **info}
    return RequestRecord(RequestRow("r-1", 0.0, "m", "chat", False, workload=info.get("workload")), told)


def round_(number: int, position: int, bits: str, drafter: str | None = "d", **more: Any) -> Trace:
    logprobs = more.pop("logprobs", (-0.1,) * len(bits))
    return Trace("r-1", number, drafter, position, logprobs, tuple(bit == "1" for bit in bits), **more)


def test_rounds_become_one_row_along_the_reply() -> None:
    """What no round looked at stays unknown; the request's own counts are the ledger's."""
    trace = assemble(
        record(cached_prompt_tokens=20, target="m@https://h/v1", workload="tag"),
        [round_(1, 0, "110"), round_(2, 3, "10")],
    )
    assert trace == RequestTrace(
        "r-1",
        "tag",
        50,
        10,
        "stop",
        20,
        None,
        "m@https://h/v1",
        (
            row_of("11010....."),
        ),
    )  # fmt: skip
    assert trace is not None and load_trace(dump_trace(trace)).drafts[0].agreed == trace.drafts[0].agreed


def row_of(bits: str) -> Any:
    plain = row(bits)
    return type(plain)(
        "d", tuple(-0.1 if bit in "10" else None for bit in bits), plain.agreed, plain.ends, plain.branches
    )


def test_the_end_of_the_turn_and_a_claim_that_failed_are_known_as_ends() -> None:
    """The last entry without a number, in a row that has some."""
    claim = (-0.1, -0.1, None)
    failed = assemble(record(), [round_(1, 0, "110", logprobs=claim)])
    assert failed is not None and failed.drafts[0].ends == {2} and failed.drafts[0].agreed[2] is False
    held = assemble(record(reply_tokens=3), [round_(1, 0, "111", logprobs=claim, ended=True)])
    assert held is not None and held.drafts[0].ends == {2} and held.finish == "stop"
    told = replay([held], WholeDraft(), Setting(Tariff.of(PRICES))).requests[0]
    assert (told.rounds, told.handoff_tokens) == (1, 0)


def test_a_drafter_that_never_tells_numbers_claims_no_ends() -> None:
    """Its last entry is a token like the others."""
    silent = assemble(record(), [round_(1, 0, "110", logprobs=(None, None, None))])
    assert silent is not None and silent.drafts[0].ends == frozenset()


@pytest.mark.parametrize(
    ("rounds", "finish"),
    [
        ([], "stop"),
        ([round_(1, 0, "111111111")], "length"),
        ([round_(1, 0, "1111111110", ended=True)], "stop"),
        ([round_(1, 0, "110")], "stop"),
    ],
)
def test_how_a_reply_ended_follows_from_its_rounds(rounds: list[Trace], finish: str) -> None:
    """Cut at the limit only if the rounds reach the last token without an end of turn."""
    trace = assemble(record(), rounds)
    assert trace is not None and (trace.finish, trace.max_tokens) == (finish, 10 if finish == "length" else None)


def test_given_text_is_known_as_far_as_it_was_scored() -> None:
    """A proposal that held for two tokens holds for one from its second token on."""
    trace = assemble(record(), [round_(1, 2, "110", "lookup"), round_(2, 8, "1111", "lookup")])
    assert trace is not None and trace.drafts == ()
    assert trace.statics == (
        StaticRow(
            "lookup", (None, None, 3, 2, 1, None, None, None, 4, 3), (None, None, 2, 1, 0, None, None, None, 2, 1)
        ),
    )
    load_trace(dump_trace(trace))


def test_positions_past_the_replys_end_are_dropped() -> None:
    """A stop string cut the reply after the round that went beyond it."""
    trace = assemble(record(reply_tokens=2), [round_(1, 0, "11111")])
    assert trace is not None and trace.drafts[0].agreed == (True, True)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (record("direct", "not_worth_it"), True),
        (record("direct", "allowance"), True),
        (record("direct", "temperature_unset"), False),
        (record("bypass", "tools"), False),
        (record("refused", "budget"), False),
        (record(prompt_tokens=None), False),
        (record(reply_tokens=None), False),
        (record(reply_tokens=0), False),
        (RequestRecord(RequestRow("r", 0.0, "m", "chat", False)), False),
    ],
)
def test_only_what_could_have_been_speculated_on_is_replayed(told: RequestRecord, kept: bool) -> None:
    """And only where its tokens are known."""
    trace = assemble(told, [])
    assert (trace is not None) is kept
    if trace is not None:
        assert trace.workload == "m" and trace.cached_prompt_tokens == 0
        assert replay([trace], Direct(), Setting(Tariff.of(PRICES))).paid_over_baseline == 1.0
