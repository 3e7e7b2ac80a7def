"""Shadow: the first requests of a workload go direct, untouched, while the rules are tried beside them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from doorway import ASKED, MESSAGES, QUESTION, Doorway, call, entered, items

import cheapspec
from cheapspec.core.request import Request
from cheapspec.core.shadows import ShadowRow
from cheapspec.drive.shadow import score_of
from cheapspec.estimating.tuning import batches, row_of, tune
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.rules import Agree, Answer, Judge, OkOrAnswer, Patch, Validator
from cheapspec.rules.comparison import Comparison
from cheapspec.testing.faults import Hang, Status

DRAFT, REPLY = "So it is 42.", "It must be 42"
ASKED_OF = {**ASKED, "messages": MESSAGES}
SALT = "00" * 8


def names(text: str) -> bool:
    return "42" in text


ANSWER = Answer("last_number")


@pytest.fixture(autouse=True)
def known_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a judge is asked is known beforehand."""
    monkeypatch.setattr("cheapspec.drive.verdicts.secrets.token_hex", lambda size: SALT)


@pytest.fixture
def chat(way: Doorway) -> Iterator[Doorway]:
    """A target that only chats, and a draft that says the same in other words."""
    way.target.capabilities = "plain"
    way.ledger = BudgetedMemoryLedger()
    pin(way)
    yield way


def pin(way: Doorway, draft: str = DRAFT, reply: str = REPLY, short: str = "42", letter: str = "Y") -> None:
    request = Request("chat", {"model": "toy", "messages": MESSAGES}, "toy", False, tuple(MESSAGES))
    way.draft.model.replies[QUESTION] = draft
    way.target.model.replies[QUESTION] = reply
    way.target.model.replies[ANSWER.messages(request)[-1]["content"]] = short
    way.target.model.replies[Judge().messages(request, draft, SALT)[-1]["content"]] = letter


def shadowing(way: Doorway, rules: Any = None, **more: Any) -> cheapspec.Speculation:
    given = {"target_backend": "auto", "accept": rules or [ANSWER], "draft_tokens": None, "shadow": 3}
    given |= {"objective": "latency"}  # so that short replies are worth a verdict too
    return way.speculation(**{**given, **more})


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "cheapspec-shadow"]


async def found(way: Doorway, count: int) -> list[ShadowRow]:
    """So many findings, when nothing is under way any more."""
    for _ in range(1000):
        rows = list(way.ledger.shadow_rows())
        if len(rows) >= count and not threads():
            return rows
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(list(way.ledger.shadow_rows()))} findings of {count}")


async def quiet() -> None:
    """Until nothing is tried beside a request."""
    await asyncio.sleep(0.05)
    for _ in range(1000):
        tasks = [task for task in asyncio.all_tasks() if "obey" in repr(task) or "_steps" in repr(task)]
        if not threads() and not tasks:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something is under way")


def facts(reply: Any) -> tuple[str, str | None]:
    told = cheapspec.info(reply)
    assert told is not None
    return told.decision, told.reason


def test_the_first_requests_go_direct_and_are_compared(chat: Doorway) -> None:
    """Three replies are the target's own; then the rule decides. Each finding names what it was made with."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, workload="maths"))) as client:
            for number in range(3):
                reply = await call(client.chat.completions.create, **ASKED_OF)
                assert facts(reply) == ("direct", "shadow")
                assert reply.choices[0].message.content == REPLY
                rows = await found(chat, number + 1)
            reply = await call(client.chat.completions.create, **ASKED_OF)
            assert facts(reply) == ("speculate", None)
            assert reply.choices[0].message.content == DRAFT
            assert len({row.request_id for row in rows}) == 3

    chat.run(scenario)
    row = next(iter(chat.ledger.shadow_rows()))
    assert (row.workload, row.rule, row.prompt_version) == ("maths", ANSWER.name, ANSWER.version)
    assert row.draft == f"ollama:toy:latest@{chat.draft.url}"
    assert row.target == f"toy@{chat.target.base_url}"
    assert (row.outcome, row.score, row.equal, row.bad) == ("accept", 1.0, True, False)
    assert row.comparison == ANSWER.extractor.name
    assert row.fingerprint is not None
    assert row.fingerprint.startswith("toy/")


def test_verdicts_are_booked_on_the_request_and_are_no_part_of_its_bill(chat: Doorway) -> None:
    """The ledger has the direct call and the verdict; the reply's facts know the direct call alone."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, [Judge(), ANSWER]))) as client:
            reply = await call(client.chat.completions.create, **ASKED_OF)
            await found(chat, 2)
            await quiet()
            told = cheapspec.info(reply)
            assert told is not None
            assert told.target_calls == 1
            assert told.paid_usd == told.baseline_usd

    chat.run(scenario)
    (record,) = chat.ledger.requests()
    calls = [(one.row.purpose, one.status) for one in record.calls if one.row.billed]
    assert sorted(calls) == [("answer", "ok"), ("direct", "ok"), ("judge", "ok")]
    assert all(one.cost_usd for one in record.calls if one.row.billed)
    assert {one.row.purpose for one in record.calls if not one.row.billed} == {"draft"}


def test_a_stream_passes_untouched_while_its_text_is_compared(chat: Doorway) -> None:
    """Piece by piece as without us, and the finding is there."""

    async def scenario() -> None:
        asked = {**ASKED_OF, "stream": True}
        async with entered(chat.client(shadowing(chat))) as ours, entered(chat.plain()) as theirs:
            texts: list[list[str]] = []
            for client in (ours, theirs):
                stream = await call(client.chat.completions.create, **asked)
                pieces = [chunk.choices[0].delta.content async for chunk in items(stream) if chunk.choices]
                texts.append(pieces)
            assert texts[0] == texts[1]
            (row,) = await found(chat, 1)
            assert (row.equal, row.bad) == (True, False)

    chat.run(scenario)


def test_the_reply_waits_for_nobody(chat: Doorway) -> None:
    """A draft host and a verdict that hang do not hold the direct reply back."""
    chat.draft.plan("any", Hang(30.0), times=1)

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, draft_timeout=0.5))) as client:
            reply = await call(client.chat.completions.create, **ASKED_OF)
            assert reply.choices[0].message.content == REPLY
            assert not [row for row in chat.ledger.requests() if row.info is None], "its books are closed"
            await quiet()

    chat.run(scenario)
    assert list(chat.ledger.shadow_rows()) == [], "no draft, no finding"


def test_what_is_bad_is_accepted_and_unequal(chat: Doorway) -> None:
    """An accepted draft whose answer is another is bad; a rejected one is not, whatever it said."""
    pin(chat, draft="So it is 41.", short="41")

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            assert (row.outcome, row.equal, row.bad) == ("accept", False, True)
            pin(chat, draft="So it is 41.", short="42")
            await call(client.chat.completions.create, **ASKED_OF)
            row = (await found(chat, 2))[1]
            assert (row.outcome, row.score, row.equal, row.bad) == ("reject", None, False, False)

    chat.run(scenario)


def test_every_rule_is_tried_and_a_check_stands_before_the_later_ones(chat: Doorway) -> None:
    """A draft that fails its check would have gone direct, so what follows would have accepted nothing."""
    pin(chat, draft="It is 41.", letter="Y")

    async def scenario() -> None:
        rules = [Validator(names), Judge(), ANSWER]
        async with entered(chat.client(shadowing(chat, rules))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            rows = {row.rule: row for row in await found(chat, 2)}
            assert set(rows) == {Judge().name, ANSWER.name}, "a check that is not sufficient accepts nothing itself"
            assert rows[Judge().name].outcome == "accept"
            assert [row.score for row in rows.values()] == [None, None]
            assert rows[Judge().name].comparison == ANSWER.extractor.name, "the ladder's own extractor compares"

    chat.run(scenario)


def test_a_judge_keeps_its_score_whatever_its_threshold(chat: Doorway) -> None:
    """So that thresholds can be chosen later; it is off until there is a certificate, and tried in shadow."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, [Judge()], comparison="last_number", shadow=1))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            assert row.score is not None
            assert row.score > 0.9
            assert (row.comparison, row.bad) == (ANSWER.extractor.name, False)
            assert facts(await call(client.chat.completions.create, **ASKED_OF)) == ("direct", "uncalibrated")

    chat.run(scenario)


def test_a_certificate_switches_a_judge_on_until_the_target_is_another(
    chat: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From findings to a threshold that the next request is judged by; a reply with another fingerprint ends it."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, [Judge()], comparison="last_number", shadow=1))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            (batch,) = batches([replace(row, request_id=f"cs-{n}", at=row.at + n) for n in range(299)])
            made = row_of(tune(batch), time.time(), 0.01, 0.95)
            assert made is not None
            chat.ledger.put_certificate(made)
            reply = await call(client.chat.completions.create, **ASKED_OF)
            assert facts(reply) == ("speculate", None)
            told = cheapspec.info(reply)
            assert told is not None
            assert (told.rule, told.lossy) == (Judge().name, True)
            monkeypatch.setattr("cheapspec.testing.vllm_wire.FINGERPRINT", "another")
            assert facts(await call(client.chat.completions.create, **ASKED_OF))[0] == "speculate", "which tells of it"
            assert facts(await call(client.chat.completions.create, **ASKED_OF)) == ("direct", "uncalibrated")

    chat.run(scenario)
    (revoked,) = chat.ledger.certificate_rows()
    assert revoked.revoked_why is not None
    assert "another" in revoked.revoked_why


def test_without_a_comparison_nothing_is_claimed(chat: Doorway) -> None:
    """The finding says so: neither equal nor bad."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, [Judge()]))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            assert (row.comparison, row.equal, row.bad) == ("", None, None)

    chat.run(scenario)


def test_a_comparison_that_raises_has_found_nothing_equal(chat: Doorway) -> None:
    """It counts against the draft, and nobody sees the error."""

    def broken(draft: str, reply: str) -> bool:
        raise RuntimeError("mine")

    async def scenario() -> None:
        given = shadowing(chat, comparison=Comparison("broken", broken))
        async with entered(chat.client(given)) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            assert (row.equal, row.bad) == (False, True)

    chat.run(scenario)


def test_a_reply_that_failed_shows_nothing(chat: Doorway) -> None:
    """The request is not counted, and the next one is shadowed in its place."""
    chat.target.plan(lambda exchange: "final answer" not in str(exchange.body).lower(), Status(500), times=1)

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, shadow=1))) as client:
            with pytest.raises(Exception, match="500"):
                await call(client.chat.completions.create, **ASKED_OF)
            await quiet()
            assert list(chat.ledger.shadow_rows()) == []
            assert facts(await call(client.chat.completions.create, **ASKED_OF)) == ("direct", "shadow")
            await found(chat, 1)
            assert facts(await call(client.chat.completions.create, **ASKED_OF))[0] == "speculate"

    chat.run(scenario)


def test_a_stream_that_the_caller_leaves_shows_nothing(chat: Doorway) -> None:
    """Half a reply is compared with nothing."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, shadow=1))) as client:
            stream = await call(client.chat.completions.create, **ASKED_OF, stream=True)
            async for _ in items(stream):
                break
            await call(stream.close)
            await quiet()
            assert list(chat.ledger.shadow_rows()) == []

    chat.run(scenario)


def test_under_a_budget_without_room_only_free_rules_are_tried(chat: Doorway) -> None:
    """The caller's own request goes out; no verdict does; what was reserved is given back."""

    async def scenario() -> None:
        rules = [Validator(names, sufficient=True), ANSWER]
        async with entered(chat.client(shadowing(chat, rules))) as client:
            budget = cheapspec.Budget(usd=Decimal("0.0004"))
            async with entered(client.session("tight", budget=budget)):
                await call(client.chat.completions.create, **ASKED_OF, max_tokens=20)
            (row,) = await found(chat, 1)
            assert row.rule == rules[0].name
            await quiet()

    chat.run(scenario)
    (record,) = chat.ledger.requests()
    assert [one.row.purpose for one in record.calls if one.row.billed] == ["direct"]


def test_the_allowance_bounds_what_shadowing_costs(chat: Doorway) -> None:
    """Without anything that may be lost no verdict is asked for."""

    async def scenario() -> None:
        given = shadowing(chat, [Validator(names, sufficient=True), ANSWER], seed_usd="0", allowance=0.0)
        async with entered(chat.client(given)) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            (row,) = await found(chat, 1)
            assert row.rule.startswith("validator(")
            await quiet()

    chat.run(scenario)
    (record,) = chat.ledger.requests()
    assert [one.row.purpose for one in record.calls if one.row.billed] == ["direct"]


def test_clients_share_the_count_on_one_ledger(chat: Doorway) -> None:
    """The first N of a workload, whoever sends them; another workload has its own."""

    async def scenario() -> None:
        for number in range(3):
            async with entered(chat.client(shadowing(chat, shadow=2, workload="a"))) as client:
                reply = await call(client.chat.completions.create, **ASKED_OF)
                assert facts(reply)[0] == ("direct" if number < 2 else "speculate")
                await found(chat, min(number + 1, 2))
        async with entered(chat.client(shadowing(chat, shadow=2, workload="b"))) as client:
            assert facts(await call(client.chat.completions.create, **ASKED_OF)) == ("direct", "shadow")
            await found(chat, 3)

    chat.run(scenario)


def test_many_at_once_are_not_more_than_were_asked_for(chat: Doorway) -> None:
    """Those under way count."""

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, shadow=2, draft_concurrency=16))) as client:
            many = [asyncio.create_task(_sent(client)) for _ in range(6)]
            told = [facts(reply) for reply in await asyncio.gather(*many)]
            assert told.count(("direct", "shadow")) == 2 or chat.door == "sync"
            await found(chat, 2)
            await quiet()
            assert len(list(chat.ledger.shadow_rows())) == 2

    chat.run(scenario)


async def _sent(client: Any) -> Any:
    return await call(client.chat.completions.create, **ASKED_OF)


def test_b42_a_forked_child_shadows_for_itself(chat: Doorway) -> None:
    """What the parent had under way is not waited for in the child, which counts anew what is in the ledger."""
    runtime = chat.client(shadowing(chat, shadow=1))._cheapspec.runtime
    if chat.door == "sync":  # the fork is the same
        scope = ("", f"toy@{chat.target.base_url}", f"ollama:toy:latest@{chat.draft.url}")
        assert runtime.certificates.begin_shadow(scope, 1)
        child = os.fork()
        if child == 0:
            told = runtime.certificates.begin_shadow(scope, 1)
            os._exit(0 if told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not runtime.certificates.begin_shadow(scope, 1)


def test_a_client_that_ends_takes_it_along(chat: Doorway) -> None:
    """A verdict that hangs when the client is closed leaves no thread, no task and no open row."""
    chat.target.plan(lambda exchange: "final answer" in str(exchange.body).lower(), Hang(2.0))

    async def scenario() -> None:
        async with entered(chat.client(shadowing(chat, shadow=1))) as client:
            await call(client.chat.completions.create, **ASKED_OF)
            await asyncio.sleep(0.3)
        await quiet()

    chat.run(scenario)
    (record,) = chat.ledger.requests()
    assert "open" not in [one.status for one in record.calls]


def test_the_settings_say_what_cannot_be(chat: Doorway) -> None:
    """A ledger that keeps nothing cannot count; a comparison must be one; shares are shares."""
    with pytest.raises(cheapspec.CheapspecError, match="shadow and audit need a ledger"):
        chat.client(shadowing(chat, ledger="off"))
    with pytest.raises(cheapspec.CheapspecError, match="did you mean 'last_number'"):
        shadowing(chat, comparison="last_numbr")
    with pytest.raises(cheapspec.CheapspecError, match="audit"):
        shadowing(chat, audit=2)


@pytest.mark.parametrize("rule", [OkOrAnswer(), Patch("json"), Agree("last_number")])
def test_a_rule_accepts_what_it_would_send_out(rule: Any) -> None:
    """Of rules without a threshold of their own: 1 if anything went out on their word, a share where they have one."""
    share = 0.5 if isinstance(rule, Agree) else 1.0
    told = {"score": 0.5, "text": None}
    assert score_of(rule, {**told, "outcome": "accept"}) == share
    assert score_of(rule, {**told, "outcome": "reject"}) is None
    assert score_of(rule, {**told, "outcome": "none"}) is None
    assert score_of(rule, {"score": None, "text": "mine", "outcome": "reject"}) == 1.0
    assert score_of(Judge(), {**told, "outcome": "reject"}) == 0.5
    assert score_of(Judge(), {**told, "outcome": "none"}) is None
