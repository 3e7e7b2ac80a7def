"""What is learned from a request, through the public door: acceptance by workload, and the planner's forecast."""

from __future__ import annotations

import pytest
from doorway import ASKED, Doorway, call, entered, items

import cheapspec


@pytest.mark.parametrize("stream", [False, True])
def test_a_speculated_request_teaches_its_workload(way: Doorway, stream: bool) -> None:
    """Of each draft token that was looked at the ledger knows whether it held, under the caller's tag."""

    async def scenario() -> None:
        async with entered(way.client(way.speculation(workload="greetings"))) as client:
            reply = await call(client.chat.completions.create, **ASKED, stream=stream)
            if stream:
                async for _ in items(reply):
                    pass
            told = cheapspec.info(reply)
        assert told is not None and told.decision == "speculate" and told.accepted_tokens > 0
        target = told.target
        assert target is not None
        counts = way.ledger.estimates(target, "greetings")
        assert sum(count.hits for count in counts.values()) >= told.accepted_tokens > 0
        assert all(count.hits <= count.trials + 1e-9 for count in counts.values())
        assert {drafter for drafter, _ in counts} == {"ollama:toy:latest"}
        assert way.ledger.estimates(target, "other") == {}

    way.run(scenario)


def test_a_planned_request_says_what_it_expected(way: Doorway) -> None:
    """The forecast is dollars over going direct; with a fixed length there is none. With the objective latency the
    same request is planned in seconds, and has no forecast of dollars.
    """
    dear = {"input": 1, "cached_input": 0.01, "output": 500}

    async def scenario() -> None:
        for more, planned in (
            ({"draft_tokens": None}, True),
            ({}, False),
            ({"draft_tokens": None, "objective": "latency"}, False),
        ):
            async with entered(way.client(way.speculation(prices=dear, seed_usd="5", **more))) as client:
                told = cheapspec.info(await call(client.chat.completions.create, **ASKED))
            assert told is not None
            if planned:
                assert told.decision == "speculate"
                assert told.forecast_usd is not None and told.forecast_usd > 0
            else:
                assert told.forecast_usd is None

    way.run(scenario)
