"""Every speculated reply leaves its rounds in the ledger, however it was asked for, and nothing of its text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from casepair import Pair

from cheapspec.core.assembly import assemble
from cheapspec.core.money import Prices
from cheapspec.core.policies import FixedLength
from cheapspec.core.records import TraceReader
from cheapspec.core.replay import Setting, replay
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory import MemoryLedger

REPLY = "One, two, three in Paris, four in Rome."
DRAFT = "One, two, three in Milan, four in Rome."


def last(ledger: TraceReader) -> RequestTrace:
    *_, (record, rounds) = ledger.traced()
    trace = assemble(record, rounds)
    assert trace is not None
    return trace


@pytest.mark.parametrize("stream", [False, True])
def test_rounds_are_kept_along_the_final_reply(pair: Pair, stream: bool) -> None:
    """As many tokens agreed as were accepted, each miss is one correction, and the turn's end was verified."""
    pair.says(REPLY, DRAFT)
    told = pair.ask(stream=stream).told
    *_, (_, rounds) = pair.ledger.traced()
    assert len(rounds) == told.rounds > 1
    assert sum(sum(one.agreed) for one in rounds) - rounds[-1].agreed[-1] <= told.accepted_tokens
    assert [one.position for one in rounds] == sorted({one.position for one in rounds})
    assert rounds[0].position == 0 and rounds[-1].ended
    assert all(len(one.logprobs) == len(one.agreed) for one in rounds)
    assert rounds[0].drafter == told.drafter and rounds[0].agreed[-1] is False


def test_a_reply_that_was_handed_off_is_known_up_to_there(pair: Pair) -> None:
    """What the target wrote by itself was not drafted: nothing is known of it."""
    pair.says(REPLY, DRAFT)
    pair.hand_off_after(1)
    told = pair.ask().told
    assert told.handoff_tokens
    trace = last(pair.ledger)
    bits = trace.drafts[0].agreed
    known = [bit for bit in bits if bit is not None]
    assert known == [True] * told.accepted_tokens + [False] and set(bits[len(known) :]) == {None}


def test_what_was_kept_can_be_replayed_at_what_was_paid(pair: Pair) -> None:
    """The same rule on the same traffic, by the counts of the ledger, costs what the calls did cost."""
    pair.says(REPLY, DRAFT)
    told = pair.ask().told
    trace = last(pair.ledger)
    assert (trace.prompt_tokens, trace.reply_tokens) == (told.prompt_tokens, told.reply_tokens)
    prices = Prices(Decimal(1), Decimal(10), Decimal(1))  # the stand-in finds nothing in its cache
    outcome = replay([trace], FixedLength(64), Setting(Tariff.of(prices)))
    assert outcome.requests[0].rounds == told.rounds
    assert outcome.estimated_share == 0.0
    # What was scored behind a miss is no longer known; each of those tokens cost a millionth.
    unseen = (told.drafted_tokens - outcome.requests[0].scored_tokens) / 1e6
    assert outcome.paid + unseen == pytest.approx(float(told.paid_usd or 0), rel=1e-9)


def test_a_database_keeps_them_without_any_text(pair: Pair, tmp_path: Path) -> None:
    """The file on disk holds numbers only."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    try:
        pair.settings["ledger"] = ledger
        pair.says(REPLY, DRAFT)
        pair.ask(stream=True)
        assert last(ledger).drafts[0].agreed[0] is True
    finally:
        ledger.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Paris" not in content and b"Milan" not in content


def test_a_request_that_goes_direct_leaves_no_round(pair: Pair) -> None:
    """Nothing was looked at."""
    pair.says(REPLY)
    pair.ask(temperature=None)
    *_, (record, rounds) = pair.ledger.traced()
    assert rounds == () and record.info is not None and record.info["decision"] == "direct"
    assert isinstance(pair.ledger, MemoryLedger)
