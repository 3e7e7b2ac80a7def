"""``max_added_latency`` through the doors: a target that is slow to score does not hold the caller up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doorway import ANSWER, ASKED, Doorway, call, doorway, entered

import cheapspec
from cheapspec.testing.faults import Hang


@pytest.fixture
def blocking() -> Iterator[Doorway]:
    with doorway("sync") as made:
        yield made


@pytest.fixture
def awaiting() -> Iterator[Doorway]:
    with doorway("async") as made:
        yield made


def test_a_score_that_takes_too_long_is_given_up(awaiting: Doorway) -> None:
    """The asynchronous client hangs up on it, books it as possibly billed, and asks the target directly."""
    way = awaiting
    way.target.plan("score", Hang(60.0))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(max_added_latency=2.0))) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            assert reply.choices[0].message.content == ANSWER
            told = cheapspec.info(reply)
            assert told is not None
            assert (told.decision, told.reason) == ("direct", "latency")
            assert told.paid_usd is not None
            assert told.baseline_usd is not None
            assert told.paid_usd > told.baseline_usd

    way.run(scenario)
    assert way.purposes() == ["score", "direct"]
    assert way.target.wait_for(lambda: way.target.of("score")[0].hung_up)
    [row] = way.ledger.requests()
    assert [record.status for record in row.calls if record.row.billed] == ["possibly_billed", "ok"]


def test_a_blocking_client_looks_at_the_time_after_the_answer(blocking: Doorway) -> None:
    """A call that blocks cannot be given up: its late answer is used, and no second round follows."""
    way = blocking
    first = "One, two"
    way.draft.model.replies["Where?"] = lambda written: first if first.startswith(written) else ANSWER
    way.target.plan("score", Hang(3.0))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(max_added_latency=2.5))) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            assert reply.choices[0].message.content == ANSWER
            told = cheapspec.info(reply)
            assert told is not None
            assert (told.decision, told.rounds) == ("speculate", 1)

    way.run(scenario)
    assert way.purposes() == ["score", "continue"]
