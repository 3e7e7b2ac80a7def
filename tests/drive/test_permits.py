"""The allowance through the public door: a client loses no more than was stated, whatever its drafts are worth."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import cheapspec
from cheapspec import OpenAI, Speculation
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
    seed = Decimal("0.00012")
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
