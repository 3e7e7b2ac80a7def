"""The allowance through the public door: a client loses no more than was stated, whatever its drafts are worth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cheapspec
from cheapspec import AsyncOpenAI, OpenAI, Speculation
from cheapspec.drive import runtime
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

PRICES = {"input": 1, "cached_input": 0.02, "output": 8}


@pytest.fixture
def servers() -> Iterator[tuple[FakeTarget, FakeDraft]]:
    """A target, and a draft that is sure of itself and always wrong."""
    model = ToyModel(5)
    with FakeTarget(model=model) as target, FakeDraft(model=model.twin(0.0)) as draft:
        yield target, draft


def client(servers: tuple[FakeTarget, FakeDraft], **settings: Any) -> OpenAI:
    target, draft = servers
    speculation = Speculation(draft="toy", draft_url=draft.url, target_backend="vllm", prices=PRICES, **settings)
    return OpenAI(base_url=target.base_url, api_key="k", speculation=speculation, max_retries=0)


def ask(client: OpenAI, number: int, **more: Any) -> cheapspec.Info:
    reply = client.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": f"Question {number}"}], temperature=0, max_tokens=24, **more
    )
    found = cheapspec.info(reply)
    assert found is not None
    return found


def test_without_seed_and_allowance_nothing_is_risked(servers: tuple[FakeTarget, FakeDraft]) -> None:
    """An allowance of 0 with no seed sends everything direct, reason ``allowance``; nothing is paid for a draft."""
    with client(servers, allowance=0.0, seed_usd=0) as openai:
        infos = [ask(openai, number) for number in range(4)]
    assert {info.decision for info in infos} == {"direct"}
    assert "allowance" in {info.reason for info in infos}
    assert {info.reason for info in infos} <= {"allowance", "not_worth_it"}
    assert not servers[0].of("score")


def test_a_run_of_bad_luck_costs_no_more_than_the_seed(servers: tuple[FakeTarget, FakeDraft]) -> None:
    """Drafts that never hold lose at most the seed (no share is allowed here), then their requests go direct."""
    seed = Decimal("0.00003")
    with client(servers, allowance=0.0, seed_usd=seed) as openai:
        infos = [ask(openai, number) for number in range(24)]
    paid = sum((info.paid_usd or Decimal(0) for info in infos), Decimal(0))
    baseline = sum((info.baseline_usd or Decimal(0) for info in infos), Decimal(0))
    assert any(info.decision == "speculate" for info in infos), "the seed lets it try"
    assert any(info.reason == "allowance" for info in infos), "and then it is used up"
    assert baseline < paid <= baseline + seed


def test_workloads_lose_their_own_seed(servers: tuple[FakeTarget, FakeDraft]) -> None:
    """A copy of the client shares the allowance; another workload of it is judged by its own account, too."""
    with client(servers, allowance=0.0, seed_usd=0) as openai:
        other = openai.copy()
        assert ask(other, 1, extra_body={"cheapspec": {"workload": "b"}}).reason in {"allowance", "not_worth_it"}


def test_who_cannot_ask_the_ledger_goes_direct(
    servers: tuple[FakeTarget, FakeDraft],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound that cannot be checked is not a bound: with its ledger away every request goes direct, said once."""
    blocked = tmp_path / "folder"
    blocked.write_text("no folder")
    monkeypatch.setattr(runtime, "_warned", set[str]())
    with client(servers, ledger=f"sqlite:///{blocked}/ledger.db") as openai:
        infos = [ask(openai, number) for number in range(3)]
    assert {(info.decision, info.reason) for info in infos} == {("direct", "allowance")}
    assert not servers[0].of("score")
    assert [record.message for record in caplog.records].count(
        "the ledger cannot be asked what speculation may lose, so requests go direct until it can"
    ) == 1


def test_a_fresh_client_on_the_same_ledger_goes_on_with_what_is_left(
    servers: tuple[FakeTarget, FakeDraft], tmp_path: Path
) -> None:
    """What one process lost, the next one has lost too: the seed is for the ledger, not for each start."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    settings: dict[str, Any] = {"ledger": url, "allowance": 0.0, "seed_usd": Decimal("0.00003")}
    with client(servers, **settings) as openai:
        first = [ask(openai, number) for number in range(8)]
    with client(servers, **{**settings, "ledger": DatabaseLedger(url)}) as openai:
        second = [ask(openai, number) for number in range(8, 12)]
    assert any(info.decision == "speculate" for info in first)
    assert {info.decision for info in second} == {"direct"}


async def test_tasks_ask_the_ledger_without_blocking_their_loop(
    servers: tuple[FakeTarget, FakeDraft], tmp_path: Path
) -> None:
    """In an event loop the answer is waited for by a callback; the bound is the same."""
    target, draft = servers
    speculation = Speculation(
        draft="toy",
        draft_url=draft.url,
        target_backend="vllm",
        prices=PRICES,
        ledger=f"sqlite:///{tmp_path}/ledger.db",
        allowance=0.0,
        seed_usd="0.00003",
    )
    asked: dict[str, Any] = {"model": "toy", "temperature": 0, "max_tokens": 24}

    async def one(openai: AsyncOpenAI, number: int) -> cheapspec.Info:
        messages: Any = [{"role": "user", "content": f"Question {number}"}]
        found = cheapspec.info(await openai.chat.completions.create(messages=messages, **asked))
        assert found is not None
        return found

    async with AsyncOpenAI(base_url=target.base_url, api_key="k", speculation=speculation, max_retries=0) as openai:
        infos = [await one(openai, 0), *await asyncio.gather(*(one(openai, number) for number in range(1, 12)))]
    paid = sum((info.paid_usd or Decimal(0) for info in infos), Decimal(0))
    baseline = sum((info.baseline_usd or Decimal(0) for info in infos), Decimal(0))
    assert baseline < paid <= baseline + Decimal("0.00003")
