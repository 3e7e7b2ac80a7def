"""A small budget is not reserved away: it pays for as many requests as it can, speculated ones, and never for more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import cheapspec
from cheapspec import AsyncOpenAI, Budget, OpenAI, Speculation
from cheapspec.core.exposure import OUTPUT_BOUND
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.prices import PriceBook
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

PRICES = {"input": "0.40", "cached_input": "0.04", "output": "3.00"}
ANSWER = "The invoice is due on the third of March, and the total is what both parties agreed on in writing. " * 2
LETTER = "Please read the following letter and say when the invoice is due and how much it is. " * 3


def question(number: int) -> str:
    """Each begins differently: nothing of it is in the target's cache."""
    return f"Letter number {number}. {LETTER}"


@pytest.fixture
def servers() -> Iterator[tuple[FakeTarget, FakeDraft]]:
    """A target, and a draft that says the same."""
    with FakeTarget(model=ToyModel(3)) as target, FakeDraft(model=ToyModel(3)) as draft:
        for server in (target, draft):
            server.model.replies |= {question(number): ANSWER for number in range(20)}
        yield target, draft


def settings(servers: tuple[FakeTarget, FakeDraft], **more: Any) -> dict[str, Any]:
    target, draft = servers
    given: dict[str, Any] = {"draft": "toy", "draft_url": draft.url, "target_backend": "vllm", "prices": PRICES}
    speculation = Speculation(**{**given, "ledger": BudgetedMemoryLedger(), **more})
    return {"base_url": target.base_url, "api_key": "k", "speculation": speculation, "max_retries": 0}


def asked(limit: int, number: int = 0, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question(number)}]
    return {"model": "toy", "messages": messages, "temperature": 0, "max_tokens": limit, **more}


def told(reply: Any) -> cheapspec.Info:
    found = cheapspec.info(reply)
    assert found is not None
    return found


@pytest.mark.parametrize("factor", [1.2, 2], ids=["a tight limit", "a limit twice the reply"])
def test_a_budget_of_twenty_requests_speculates_on_twenty(servers: tuple[FakeTarget, FakeDraft], factor: float) -> None:
    """What twenty requests cost the target alone is enough to speculate on all of them, and the cap holds."""
    limit = int(factor * len(servers[0].model.encode(ANSWER)))
    with OpenAI(**settings(servers, enabled=False)) as client:
        alone = told(client.chat.completions.create(**asked(limit))).paid_usd
    assert alone is not None
    cap = 20 * alone
    with OpenAI(**settings(servers)) as client, client.session("s", budget=Budget(usd=cap)):
        infos = [told(client.chat.completions.create(**asked(limit, number))) for number in range(20)]
    assert [(info.decision, info.reason) for info in infos] == [("speculate", None)] * 20
    paid = sum((info.paid_usd or Decimal(0) for info in infos), Decimal(0))
    assert paid < cap
    assert all(info.saved_usd is not None and info.saved_usd > 0 for info in infos)


def test_what_is_left_goes_direct_before_it_is_refused(servers: tuple[FakeTarget, FakeDraft]) -> None:
    """Room for a request and not for scoring: direct, reason ``budget``; not even that: refused."""
    with OpenAI(**settings(servers)) as client:
        direct = {**asked(200), "extra_body": {"cheapspec": {"enabled": False}}}
        with client.session("a", budget=Budget(usd=1)):
            client.chat.completions.create(**direct)
        alone = Decimal(client._cheapspec.ledger.requests()[-1].calls[-1].row.worst_usd or 0)
        with client.session("b", budget=Budget(usd=alone + Decimal("0.000001"))):
            info = told(client.chat.completions.create(**asked(200)))
            assert (info.decision, info.reason) == ("direct", "budget")
        with (
            client.session("c", budget=Budget(usd=alone - Decimal("0.000001"))),
            pytest.raises(cheapspec.RateLimitError),
        ):
            client.chat.completions.create(**asked(200))


@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_stream_is_settled_at_what_it_used(servers: tuple[FakeTarget, FakeDraft], door: str) -> None:
    """A direct stream under a budget counts its usage when it is over, not its worst case."""
    ledger = BudgetedMemoryLedger()
    given = settings(servers, ledger=ledger)
    body = {**asked(10_000, stream=True), "temperature": 0.5, "n": 1, "logprobs": True}

    async def scenario() -> cheapspec.Info:
        async with AsyncOpenAI(**given) as client:
            with client.session("s", budget=Budget(usd=1)):
                stream: Any = await client.chat.completions.create(**body)
                async for _ in stream:
                    pass
                return told(stream)

    if door == "async":
        info = asyncio.run(scenario())
    else:
        with OpenAI(**given) as client, client.session("s", budget=Budget(usd=1)):
            stream: Any = client.chat.completions.create(**body)
            for _ in stream:
                pass
            info = told(stream)
    assert (info.decision, info.reason) == ("bypass", "logprobs")
    assert info.paid_usd is not None
    account = ledger._accounts["session:s", ""]
    assert (account.reserved, Decimal(account.spent) / 10**9) == (0, info.paid_usd)


def test_the_models_own_limit_is_read_from_the_price_list() -> None:
    """A listed model's context window bounds its reply; an unknown one is unknown, and then a stated bound counts."""
    book = PriceBook()
    assert book.output_limit("gpt-4", "https://api.openai.com/v1") == 8192
    assert book.output_limit("gpt-4", "https://api.openai.com/v1") == 8192, "remembered"
    assert book.output_limit("toy", "http://127.0.0.1:8000/v1") is None
    for number in range(1100):
        book.output_limit(f"toy-{number}", "http://127.0.0.1:8000/v1")
    assert len(book._windows) <= 1024
    assert OUTPUT_BOUND > 128_000
