"""What a failed call of ours leaves to the caller's request: attempts, and the pause that the target is owed."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, entered, items

import cheapspec
from cheapspec.drive import conductor, policy
from cheapspec.drive.io import Sleep
from cheapspec.testing.faults import CloseAfterBody, MissingLogprobs, Status
from cheapspec.testing.stream_faults import CutAfter


@pytest.mark.parametrize("status", [400, 404, 500, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_tokenizing_is_no_attempt(stream: bool, status: int, way: Doorway) -> None:
    """Whatever becomes of a call that nobody is charged for, a caller without repeats gets the target's answer."""
    way.target.plan("tokenize", Status(status))

    async def scenario() -> None:
        async with entered(way.client(max_retries=0)) as client:
            reply = await call(client.chat.completions.create, **ASKED, stream=stream)
            if stream:
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in items(reply) if chunk.choices])
            else:
                text = reply.choices[0].message.content
            assert text == ANSWER

    way.run(scenario)


@pytest.mark.parametrize(("cuts", "decision"), [(1, "speculate"), (2, "direct")])
def test_what_costs_nothing_is_repeated_once(cuts: int, decision: str, way: Doorway) -> None:
    """Tokenizing is cut before any answer: asked once more, without an attempt; cut again, the request goes direct."""
    way.target.plan("tokenize", CloseAfterBody(), times=cuts)

    async def scenario() -> None:
        async with entered(way.client(max_retries=0)) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            assert reply.choices[0].message.content == ANSWER
            told = cheapspec.info(reply)
            assert told is not None
            assert told.decision == decision

    way.run(scenario)
    lost = way.target.of("tokenize")[:cuts]
    assert len(lost) == cuts and all(exchange.status is None for exchange in lost)
    assert (len(way.target.of("tokenize")) == cuts) == (decision == "direct")


def test_a_resumed_hand_off_waits_first(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stream that was cut the target gets the pause that any failed call earns it."""
    pauses: list[float | None] = []
    slept: list[float] = []
    failed = policy.Attempts.failed

    def watched(self: policy.Attempts, outcome: Any) -> float | None:
        pauses.append(failed(self, outcome))
        return pauses[-1]

    def recorded(seconds: float) -> Sleep:
        slept.append(seconds)
        return Sleep(0.0)

    monkeypatch.setattr(policy.Attempts, "failed", watched)
    monkeypatch.setattr(conductor, "Sleep", recorded)
    way.draft.model.replies["Where?"] = "One, two"
    way.draft.plan("draft", Status(503), after=1)
    way.target.plan("continue", CutAfter(2), times=1)

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in items(stream) if chunk.choices])
            assert text == ANSWER

    way.run(scenario)
    assert way.purposes() == ["score", "continue", "continue"]
    assert len(pauses) == 1
    assert slept == pauses


def test_attempts_that_ran_out_tell_the_trouble_before(way: Doorway) -> None:
    """A stream is cut and no attempt is left: the caller reads of the cut, not of our counting."""
    way.draft.model.replies["Where?"] = "One, two"
    way.draft.plan("draft", Status(503), after=1)
    way.target.plan("continue", CutAfter(2))

    async def scenario() -> None:
        async with entered(way.client(max_retries=0)) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True)
            with pytest.raises(openai.APIError) as raised:
                async for _ in items(stream):
                    pass
            assert "attempts" not in raised.value.message

    way.run(scenario)
    assert way.purposes() == ["score", "continue"]


def test_a_lost_direct_call_leaves_the_bill_unknown(way: Doorway) -> None:
    """Scored, then a direct call whose answer was lost, then its repeat: nobody knows what all that cost."""
    way.target.plan("score", MissingLogprobs("absent"))
    way.target.plan("direct", CloseAfterBody(), times=1)

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            told = cheapspec.info(reply)
            assert told is not None
            assert told.decision == "direct"
            assert told.paid_usd is None
            assert told.baseline_usd is not None

    way.run(scenario)
    assert way.purposes() == ["score", "direct", "direct"]
    [row] = way.ledger.requests()
    assert [record.status for record in row.calls if record.row.billed] == ["ok", "possibly_billed", "ok"]
