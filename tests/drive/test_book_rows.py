"""What the books of a request say of its calls, and what they keep of it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doorway import ANSWER, ASKED, MESSAGES, QUESTION, Doorway, call, entered, items
from sqlalchemy import select

import cheapspec
from cheapspec import Budget
from cheapspec.core.ports import Call
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.schema import requests
from cheapspec.testing.faults import HangAfter, MissingLogprobs, RefuseStreamOptions
from cheapspec.testing.wire import Action, Connection, Frame

PRICES = {"input": 1, "output": 10, "tiers": {"flex": {"input": "0.5", "output": 5}}}


@dataclass
class Closed(MemoryLedger):
    """Remembers what calls were closed with."""

    closed: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        MemoryLedger.__init__(self)

    __hash__ = object.__hash__

    def close_call(self, call: Call) -> None:
        self.closed.append(call)
        super().close_call(call)


@dataclass(frozen=True)
class Served(Action):
    """The reply names this service tier."""

    tier: str

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        return {**data, "service_tier": self.tier}

    async def frames(self, frames: AsyncIterator[Frame], connection: Connection) -> AsyncIterator[Frame]:
        async for frame in frames:
            yield {**frame, "service_tier": self.tier} if isinstance(frame, dict) else frame


def told(reply: Any) -> cheapspec.Info:
    found = cheapspec.info(reply)
    assert found is not None
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_budgets_count_the_dearer_tier_of_a_hand_off(way: Doorway) -> None:
    """Asked for a tier, served by a cheaper one: what the call cost, and beside it what it would have cost."""
    ledger = Closed()
    way.target.plan("score", MissingLogprobs("absent"), after=1)
    way.target.plan("continue", Served("flex"))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(ledger=ledger, prices=PRICES, draft_tokens=4))) as client:
            async for _ in items(
                await call(client.chat.completions.create, **ASKED, service_tier="default", stream=True)
            ):
                pass

    way.run(scenario)
    [one] = [one for one in ledger.closed if one.usage is not None and one.usage.service_tier == "flex"]
    assert one.cost_usd is not None and one.budget_usd is not None
    assert Decimal(one.budget_usd) == 2 * Decimal(one.cost_usd)


def test_budgets_count_the_worst_case_of_a_hand_off_that_was_left(way: Doorway) -> None:
    """A stream is left in the middle of a hand-off: its usage is an estimate; budgets count its worst case."""
    ledger = Closed()
    way.target.plan("score", MissingLogprobs("absent"), after=1)
    way.target.plan("continue", HangAfter(2, 20.0))

    async def scenario() -> None:
        async with entered(way.client(way.speculation(ledger=ledger, draft_tokens=4))) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True, max_tokens=500)
            async for _ in items(stream):
                if ledger.requests()[-1].calls[-1].row.purpose == "continue":
                    break
            await call(stream.close)

    way.run(scenario)
    until(lambda: ledger.requests()[-1].info is not None)
    [row] = [one for one in ledger.requests()[-1].calls if one.row.purpose == "continue"]
    [closed] = [one for one in ledger.closed if one.call_id == row.row.call_id]
    assert closed.usage is not None and closed.usage.estimated
    assert closed.budget_usd == row.row.worst_usd
    assert Decimal(closed.budget_usd or 0) > Decimal(closed.cost_usd or 0)


def test_a_refused_request_made_no_call(way: Doorway) -> None:
    """Nothing was sent, so nothing is counted."""
    ledger = BudgetedMemoryLedger()

    async def scenario() -> None:
        async with entered(way.client(way.speculation(ledger=ledger))) as client:
            with client.session("s", budget=Budget(usd=0)), pytest.raises(Exception, match="budget"):
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    info = ledger.requests()[-1].info
    assert info is not None
    assert (info["decision"], info["target_calls"]) == ("refused", 0)


def test_a_call_that_was_refused_for_its_usage_counts_as_one_of_two(way: Doorway) -> None:
    """The server knows no ``stream_options``, so the request is sent again without: two calls."""
    way.target.plan("direct", RefuseStreamOptions())

    async def scenario() -> None:
        async with entered(way.client()) as client:
            async for _ in items(
                await call(client.chat.completions.create, **{**ASKED, "temperature": 1}, stream=True)
            ):
                pass

    way.run(scenario)
    info = way.ledger.requests()[-1].info
    assert info is not None and info["target_calls"] == 2
    assert len([one for one in way.ledger.requests()[-1].calls if one.row.billed]) == 2


@pytest.mark.parametrize("tag", [None, "mail"])
def test_the_workload_of_a_row_is_the_one_that_is_learned_for(tag: str | None, way: Doorway) -> None:
    """The caller's tag, else the hash of the system prompt: in the request's row as in the estimates."""
    system = {"role": "system", "content": "Be brief."}

    async def scenario() -> None:
        async with entered(way.client(way.speculation(workload=tag))) as client:
            await call(client.chat.completions.create, **{**ASKED, "messages": [system, *MESSAGES]})

    way.draft.model.replies[QUESTION] = ANSWER
    way.run(scenario)
    named = way.ledger.requests()[-1].row.workload
    assert named == tag if tag else named
    assert {workload for _, workload, *_ in way.ledger.estimate_rows()} <= {named}


def test_the_forecast_of_a_run_that_went_direct_is_kept(way: Doorway) -> None:
    """A planned scoring call that came to nothing stays in what the planner expected."""
    way.target.plan("score", MissingLogprobs("absent"))
    infos: list[cheapspec.Info] = []

    async def scenario() -> None:
        async with entered(way.client(way.speculation(draft_tokens=None))) as client:
            infos.append(told(await call(client.chat.completions.create, **ASKED)))

    for server in (way.target, way.draft):
        server.model.replies[QUESTION] = ANSWER * 8
    way.run(scenario)
    [info] = infos
    assert info.decision == "direct" and "score" in way.purposes()
    assert info.forecast_usd is not None and info.forecast_usd > 0


@pytest.mark.parametrize("stream", [False, True])
def test_direct_replies_teach_how_fast_the_target_is(stream: bool, way: Doorway) -> None:
    """Else an endpoint that is taken for too slow by the prior would never show that it is not."""
    clients: list[Any] = []

    async def scenario() -> None:
        async with entered(way.client()) as client:
            clients.append(client)
            reply = await call(client.chat.completions.create, **{**ASKED, "temperature": 1}, stream=stream)
            if stream:
                async for _ in items(reply):
                    pass

    way.run(scenario)
    learning = clients[0]._cheapspec.runtime.learning
    assert learning.measured(f"toy@{way.target.base_url}") is not None
    assert learning.measured(f"other@{way.target.base_url}") is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("store_text", [False, True])
def test_text_is_kept_where_it_was_asked_for(
    store_text: bool, enabled: bool, stream: bool, way: Doorway, tmp_path: Path
) -> None:
    """``store_text``: prompt and reply of every request are in the ledger; without it neither is."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path / 'ledger.db'}", store_text=store_text)

    async def scenario() -> None:
        async with entered(way.client(way.speculation(ledger=ledger, enabled=enabled))) as client:
            reply = await call(client.chat.completions.create, **ASKED, stream=stream)
            if stream:
                async for _ in items(reply):
                    pass

    way.run(scenario)
    with ledger.read() as connection:
        [row] = connection.execute(select(requests)).all()
    ledger.close()
    assert row.decision == ("speculate" if enabled else "bypass")
    if store_text:
        assert (json.loads(row.prompt_text), row.reply_text) == (MESSAGES, ANSWER)
    else:
        assert (row.prompt_text, row.reply_text) == (None, None)
