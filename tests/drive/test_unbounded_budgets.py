"""What nobody can bound before it goes out is not sent under a budget that has to hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cheapspec import Budget, OpenAI, Speculation
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

PRICES: dict[str, Any] = {
    "input": 1,
    "output": 10,
    "tiers": {"priority": {"input": 20, "output": 200}, "flex": {"input": 0.5, "output": 5}},
}
ASKED: dict[str, Any] = {"model": "toy", "max_tokens": 50, "messages": [{"role": "user", "content": "Well?"}]}


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    with FakeTarget(model=ToyModel(3)) as made:
        yield made


@pytest.fixture
def client(target: FakeTarget) -> Iterator[OpenAI]:
    speculation = Speculation(prices=PRICES, ledger=BudgetedMemoryLedger())
    with OpenAI(base_url=target.base_url, api_key="k", speculation=speculation, max_retries=0) as made:
        yield made


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "u"}},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "u"}]},
    ],
    ids=lambda item: item["type"],
)
def test_items_that_lie_elsewhere_are_refused(item: dict[str, Any], client: OpenAI, target: FakeTarget) -> None:
    """A short reference may stand for a million tokens: refused before it is sent."""
    with client.session("s", budget=Budget("0.01")), pytest.raises(openai.RateLimitError, match="unknown"):
        client.responses.create(model="toy", input=[item], max_output_tokens=10)  # type: ignore[list-item]
    assert target.requests == []


def test_sound_by_its_id_is_refused(client: OpenAI, target: FakeTarget) -> None:
    """An earlier spoken reply is read again, at a price that its id does not tell."""
    messages: Any = [{"role": "assistant", "audio": {"id": "audio_1"}}, *ASKED["messages"]]
    with client.session("s", budget=Budget("0.01")), pytest.raises(openai.RateLimitError, match="unknown"):
        client.chat.completions.create(**{**ASKED, "messages": messages})
    assert target.requests == []


def test_b05_a_budget_reserves_the_dearest_tier_that_may_serve(client: OpenAI, target: FakeTarget) -> None:
    """Where the request leaves the tier open, the project's default may be priority; one that names it is bounded."""
    with client.session("s", budget=Budget("0.0012")):
        for more in ({}, {"service_tier": "auto"}, {"service_tier": "priority"}):
            with pytest.raises(openai.RateLimitError, match="may cost"):
                client.chat.completions.create(**{**ASKED, **more})
        assert target.requests == []
        client.chat.completions.create(**ASKED, service_tier="default")
    assert len(target.requests) == 1
