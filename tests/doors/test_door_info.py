"""``cheapspec.info``: the facts of every kind of reply, and how long they are kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from doorway import ASKED, Doorway, call, entered, items

import cheapspec
from cheapspec.core.info import Info
from cheapspec.drive.state import InfoTable
from cheapspec.testing.faults import MissingLogprobs, Status

UNSET = {name: value for name, value in ASKED.items() if name != "temperature"}


def test_a_direct_reply_is_priced(way: Doorway) -> None:
    """Tokens and dollars of an unstreamed direct reply are its own; the baseline is the same call."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            reply = await call(client.chat.completions.create, **{**ASKED, "temperature": 1.0})
        told = cheapspec.info(reply)
        assert told is not None
        assert (told.decision, told.reason, told.priced_by) == ("direct", "top_p_unset", "user")
        usage = reply.usage
        assert (told.input_tokens, told.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)
        expected = (Decimal(usage.prompt_tokens) + 10 * Decimal(usage.completion_tokens)) / 1_000_000
        assert told.paid_usd == told.baseline_usd == expected
        assert told.saved_usd == Decimal(0)
        assert told.baseline == "exact"
        assert not hasattr(reply, "cheapspec"), "a direct reply is as it came"

    way.run(scenario)
    [row] = way.ledger.requests()
    assert [record.status for record in row.calls] == ["ok"]
    assert way.ledger.totals().unpriced_requests == 0


def test_a_direct_stream_is_priced(way: Doorway) -> None:
    """Its usage is asked for, and its cost known when it is over."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            stream = await call(client.chat.completions.create, **UNSET, stream=True)
            before = cheapspec.info(stream)
            async for _ in items(stream):
                pass
            told = cheapspec.info(stream)
        assert before is not None and told is not None
        assert (before.decision, before.paid_usd, before.output_tokens) == ("direct", None, 0)
        assert (told.decision, told.baseline) == ("direct", "exact")
        assert told.paid_usd == told.baseline_usd
        assert told.paid_usd is not None and told.paid_usd > 0 < told.output_tokens

    way.run(scenario)
    assert way.ledger.totals().unpriced_requests == 0


def test_what_was_spent_before_going_direct_is_paid(way: Doorway) -> None:
    """A scoring call without a verdict is in ``paid``, not in the baseline: the request shows a loss."""
    way.target.plan("score", MissingLogprobs("absent"))

    async def scenario() -> None:
        async with entered(way.client()) as client:
            reply = await call(client.chat.completions.create, **ASKED)
        told = cheapspec.info(reply)
        assert told is not None
        assert (told.decision, told.reason, told.target_calls) == ("direct", "cannot_score", 2)
        assert told.paid_usd is not None
        assert told.baseline_usd is not None
        assert told.paid_usd > told.baseline_usd > 0
        assert told.input_tokens > reply.usage.prompt_tokens

    way.run(scenario)
    assert way.purposes() == ["score", "direct"]
    totals = way.ledger.totals()
    assert totals.paid_usd > totals.baseline_usd > 0


def test_an_error_is_no_reply(way: Doorway) -> None:
    """A request that fails is closed in the books, with its calls; nothing was paid."""
    way.target.plan("direct", Status(400))

    async def scenario() -> None:
        async with entered(way.client()) as client:
            with pytest.raises(cheapspec.BadRequestError):
                await call(client.chat.completions.create, **{**ASKED, "temperature": 1.0})

    way.run(scenario)
    [row] = way.ledger.requests()
    assert row.info is not None
    assert row.info["reason"] == "top_p_unset"
    assert [record.status for record in row.calls] == ["failed"]


def test_strangers_have_no_facts() -> None:
    """Anything that did not come through cheapspec gives ``None``."""
    values: list[Any] = [None, object(), "chatcmpl-1", {"id": "chatcmpl-1"}, 3]
    assert [cheapspec.info(value) for value in values] == [None] * len(values)


def test_the_table_is_bounded() -> None:
    """The oldest facts go; a long-lived process does not grow."""
    table = InfoTable(limit=4)
    for number in range(10):
        table.put(Info("direct", f"r{number}"), f"id{number}")
    assert table.get("r9") == table.get("id9") == Info("direct", "r9")
    assert table.get("r7") is None
    assert table.get("id7") is None
