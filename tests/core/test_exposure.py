"""What a call can cost at most, before it goes out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cheapspec.core.exposure import exposure
from cheapspec.core.money import Prices

PRICES = Prices(Decimal("0.40"), Decimal(3), cached_input=Decimal("0.04"))
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Well?"}]}


@pytest.mark.parametrize(
    ("more", "kind", "output"),
    [
        ({"max_tokens": 100}, "chat", 100),
        ({"max_completion_tokens": 50, "max_tokens": 100}, "chat", 50),
        ({"max_tokens": 100, "n": 3}, "chat", 300),
        ({"max_tokens": 100, "n": True}, "chat", 100),
        ({"prompt": "a"}, "completion", 16),
        ({"prompt": ["a", "b"], "max_tokens": 10}, "completion", 20),
        ({"prompt": [[1, 2], [3]], "max_tokens": 10}, "completion", 20),
        ({"prompt": [1, 2, 3], "max_tokens": 10, "best_of": 4}, "completion", 40),
        ({"prompt": "a", "n_predict": 7}, "completion", 7),
        ({"max_tokens": 10, "service_tier": "auto"}, "chat", 10),
    ],
)
def test_output_is_bounded_by_what_the_request_says(more: dict[str, Any], kind: str, output: int) -> None:
    """Every token of the body is a byte at least, every answer as long as it may be."""
    assert exposure({**ASKED, **more}, 1000, kind, PRICES) == (1000 * PRICES.input + output * PRICES.output) / 1_000_000


def test_without_a_limit_the_models_own_counts() -> None:
    """And without that the worst case is unknown."""
    assert exposure(ASKED, 1000, "chat", PRICES, 2000) == (1000 * PRICES.input + 2000 * PRICES.output) / 1_000_000
    assert exposure(ASKED, 1000, "chat", PRICES) is None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
        {**ASKED, "audio": {"voice": "x"}},
        {**ASKED, "modalities": ["text", "audio"]},
        {**ASKED, "modalities": 5},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
        {"messages": [{"role": "user", "content": {"type": "image_url"}}]},
        {"messages": {"role": "user"}},
        {"messages": [], "input": [{"type": "item_reference", "id": "msg_1"}]},
        {**ASKED, "web_search_options": {}},
        {**ASKED, "tools": [{"type": "web_search"}]},
        {**ASKED, "tools": ["x"]},
        {**ASKED, "max_tokens": "many"},
        {**ASKED, "max_tokens": -1},
        {"messages": ["no mapping"], "max_tokens": None},
    ],
)
def test_what_bytes_do_not_bound_is_unknown(body: dict[str, Any]) -> None:
    """Pictures, sound and nonsense."""
    assert exposure({"max_tokens": 10, **body}, 1000, "chat", PRICES) is None


def test_other_routes_that_are_billed_by_tokens() -> None:
    """Responses by their own limit, embeddings by what they read; a conversation kept elsewhere has no bound."""
    asked = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "max_output_tokens": 9}
    assert exposure(asked, 100, "responses", PRICES) == (100 * PRICES.input + 9 * PRICES.output) / 1_000_000
    items: list[dict[str, Any]] = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "text"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]},
    ]
    assert exposure({**asked, "input": items}, 100, "responses", PRICES) is not None
    elsewhere: list[dict[str, Any]] = [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "u"}},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "u"}]},
        {"type": "something_new"},
    ]
    for item in elsewhere:
        assert exposure({**asked, "input": [item]}, 100, "responses", PRICES) is None
    for more in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}):
        assert exposure({**asked, **more}, 100, "responses", PRICES) is None
    assert exposure({"input": "a"}, 100, "responses", PRICES) is None
    assert exposure({"input": ["a", "b"]}, 100, "embeddings", PRICES) == 100 * PRICES.input / 1_000_000
    tools = {**ASKED, "max_tokens": 9, "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert exposure(tools, 100, "chat", PRICES) is not None


def test_a_model_that_writes_nothing_bounds_no_reply() -> None:
    """A price of input alone is enough for embeddings, and for nothing else."""
    prices = Prices(Decimal("0.02"), Decimal(0), input_only=True)
    assert exposure({"input": "a"}, 100, "embeddings", prices) == Decimal("0.000002")
    assert exposure({"messages": [], "max_tokens": 9}, 100, "chat", prices) is None


def test_text_parts_are_text() -> None:
    """A list of text parts is as good as a string; a strange message is the server's to refuse."""
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, "x"], "max_tokens": 1}
    assert exposure(body, 10, "chat", PRICES) is not None
    assert exposure({"messages": [{"content": ["x"]}], "max_tokens": 1}, 10, "chat", PRICES) is None


def test_without_a_price_or_a_route_it_is_unknown() -> None:
    """Never zero."""
    assert exposure({**ASKED, "max_tokens": 1}, 10, "chat", None) is None
    assert exposure({"input": "a"}, 10, "other", PRICES) is None
    assert exposure({"prompt": "a"}, 10, "completion", PRICES) is not None


def test_what_is_beyond_all_measure_is_unknown() -> None:
    """More than 64 bits of nano-dollars hold, or more than decimal arithmetic does."""
    assert exposure({**ASKED, "max_tokens": 10**30}, 10, "chat", PRICES) is None
    beyond = Prices(Decimal("1e999999"), Decimal("1e999999"))
    assert exposure({**ASKED, "max_tokens": 10**6}, 10**6, "chat", beyond) is None


def test_the_dearest_of_everything_counts() -> None:
    """Surcharges for writing the cache, steps, fees, and the dearer of two tiers; an unpriced tier is unknown."""
    long = Prices(Decimal(2), Decimal(4))
    fast = Prices(Decimal(1), Decimal(9))
    prices = Prices(
        Decimal(1),
        Decimal(5),
        cache_write=Decimal("1.25"),
        request=Decimal("0.01"),
        tiers=(("priority", fast),),
        steps=((500, long),),
    )
    body = {**ASKED, "max_tokens": 100}
    fee = Decimal("0.01")
    assert exposure(body, 100, "chat", prices) == (100 * Decimal("1.25") + 100 * 5) / Decimal(1_000_000) + fee
    assert exposure(body, 600, "chat", prices) == (600 * Decimal(2) + 100 * 5) / Decimal(1_000_000) + fee
    tiered = {**body, "service_tier": "priority"}
    standard = exposure(body, 100, "chat", prices)
    assert standard is not None
    assert exposure(tiered, 100, "chat", prices) == max(standard, (100 * Decimal(1) + 900) / Decimal(1_000_000))
    assert exposure({**body, "service_tier": "flex"}, 100, "chat", prices) is None
    assert exposure({**body, "service_tier": 7}, 100, "chat", prices) == standard


@pytest.mark.parametrize("tier", [{}, {"service_tier": "auto"}, {"service_tier": None}])
def test_any_tier_may_serve_what_names_none(tier: dict[str, Any]) -> None:
    """A project may have priority for its default: what leaves it open may cost as much."""
    dear = Prices(Decimal(10), Decimal(50))
    prices = Prices(Decimal(1), Decimal(5), tiers=(("flex", Prices(Decimal(1), Decimal(2))), ("priority", dear)))
    body = {**ASKED, "max_tokens": 100}
    assert exposure({**body, **tier}, 100, "chat", prices) == Decimal("0.006")
    assert exposure({**body, "service_tier": "default"}, 100, "chat", prices) == Decimal("0.0006")
