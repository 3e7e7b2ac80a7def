"""The audit arm: a share of what was accepted on a rule's word is asked of the target too, in the background."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from doorway import ASKED, MESSAGES, QUESTION, Doorway, call, entered, items

import cheapspec
from cheapspec.core.request import Request
from cheapspec.core.shadows import AUDIT, ShadowRow
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.report import report_of
from cheapspec.report.audits import interval
from cheapspec.rules import Answer
from cheapspec.testing.faults import Status

DRAFT, REPLY = "So it is 42.", "It must be 42"
ANSWER = Answer("last_number")


@pytest.fixture
def chat(way: Doorway) -> Iterator[Doorway]:
    way.target.capabilities = "plain"
    way.ledger = BudgetedMemoryLedger()
    way.draft.model.replies[QUESTION] = DRAFT
    way.target.model.replies[QUESTION] = REPLY
    request = Request("chat", {"model": "toy", "messages": MESSAGES}, "toy", False, tuple(MESSAGES))
    way.target.model.replies[ANSWER.messages(request)[-1]["content"]] = "42"
    yield way


def auditing(way: Doorway, **more: Any) -> cheapspec.Speculation:
    given = {"target_backend": "auto", "accept": [ANSWER], "draft_tokens": None, "audit": 1.0, "workload": "maths"}
    made: cheapspec.Speculation = way.speculation(**{**given, "objective": "latency", **more})
    return made


async def quiet() -> None:
    for _ in range(1000):
        await asyncio.sleep(0.01)
        busy = any(thread.name == "cheapspec-audit" for thread in threading.enumerate())
        if not busy and not [task for task in asyncio.all_tasks() if "obey" in repr(task)]:
            return
    raise AssertionError("an audit is under way")


def audits(way: Doorway) -> list[ShadowRow]:
    return [row for row in way.ledger.shadow_rows() if row.kind == AUDIT]


@pytest.mark.parametrize("stream", [False, True])
def test_an_accepted_reply_is_asked_of_the_target_too(chat: Doorway, stream: bool) -> None:
    """The caller has the draft; the finding says that they agree, and the call is booked and bounded."""

    async def scenario() -> None:
        async with entered(chat.client(auditing(chat))) as client:
            reply = await call(client.chat.completions.create, **ASKED, stream=stream)
            if stream:
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in items(reply) if chunk.choices])
            else:
                text = reply.choices[0].message.content
            assert text == DRAFT
            await quiet()

    chat.run(scenario)
    (row,) = audits(chat)
    assert (row.rule, row.equal, row.bad, row.outcome) == (ANSWER.name, True, False, "accept")
    (record,) = chat.ledger.requests()
    (audited,) = [one for one in record.calls if one.row.purpose == "audit"]
    assert audited.status == "ok"
    assert audited.cost_usd
    sent = next(exchange for exchange in chat.target.requests if exchange.body.get("max_tokens", 0) > 100)
    assert not sent.body.get("stream"), "its own limit bounds what it costs"


def test_the_report_says_how_often_they_agree(chat: Doorway) -> None:
    """With an interval, and only of what was audited."""

    async def scenario() -> None:
        async with entered(chat.client(auditing(chat))) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()

    chat.run(scenario)
    told = json.loads(json.dumps(report_of(chat.ledger).to_dict()))["lossy"]
    assert told["accepted"] == told["audited"] == 1
    assert told["agreement"] == 1.0
    low, high = told["agreement_interval"]
    assert 0 < low < 0.1
    assert high == 1.0
    assert interval(100, 97) == pytest.approx((0.9148, 0.9938), abs=2e-4)


def test_nothing_is_audited_unless_it_is_asked_for_and_borne(chat: Doorway) -> None:
    """Share 0, an allowance without room, a direct reply: no call is made."""

    async def scenario() -> None:
        for more in ({"audit": 0.0}, {"seed_usd": "0.000001"}):
            async with entered(chat.client(auditing(chat, **more))) as client:
                await call(client.chat.completions.create, **ASKED)
                await quiet()
        chat.draft.plan("any", Status(500))
        async with entered(chat.client(auditing(chat))) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()

    chat.run(scenario)
    assert audits(chat) == []
    assert not [one for record in chat.ledger.requests() for one in record.calls if one.row.purpose == "audit"]


def test_an_audit_that_failed_shows_nothing(chat: Doorway) -> None:
    """It is booked, and no finding is made of it."""
    chat.target.plan(lambda exchange: exchange.body.get("max_tokens", 0) > 100, Status(500))

    async def scenario() -> None:
        async with entered(chat.client(auditing(chat))) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()

    chat.run(scenario)
    assert audits(chat) == []
    (record,) = chat.ledger.requests()
    assert [one.status for one in record.calls if one.row.purpose == "audit"] == ["failed"]


def test_disagreement_over_the_promise_revokes_the_certificate(chat: Doorway) -> None:
    """When audits show that more is lost than was promised, for whoever uses it."""
    from test_certified import certificate

    async def scenario() -> None:
        async with entered(chat.client(auditing(chat))) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()
            (row,) = audits(chat)
            made = certificate(
                at=time.time(),
                rule=row.rule,
                prompt_version=row.prompt_version,
                draft=row.draft,
                target=row.target,
                fingerprint=row.fingerprint,
                comparison=row.comparison,
                expires_at=time.time() + 60,
            )
            chat.ledger.put_certificate(made)
            chat.target.model.replies[QUESTION] = "It must be 43"
            for _ in range(2):
                await call(client.chat.completions.create, **ASKED)
                await quiet()
            assert chat.ledger.certificates("maths", row.target) == ()

    chat.run(scenario)
    (revoked,) = chat.ledger.certificate_rows()
    assert revoked.revoked_why is not None
    assert "audited replies were bad" in revoked.revoked_why
    assert replace(revoked, revoked_at=None, revoked_why=None).valid(time.time())
