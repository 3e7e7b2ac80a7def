"""B03: a streamed call's usage is asked for, and its cost is never a silent zero.

A *direct* stream passes through byte for byte in this version: whether it carries usage is between caller and
server, and its cost is unknown (never 0) where it does not.
"""

from __future__ import annotations

from typing import Any

import pytest
from casepair import Outcome, Pair

from cheapspec.testing.faults import NoUsage, RefuseStreamOptions

REPLY = "One, two, three in Paris."
ROUTES = {"hand-off": 0, "direct": 0.7}
SILENT = [{}, {"stream_options": {"include_usage": False}}]


@pytest.fixture(params=["hand-off"])
def route(request: pytest.FixtureRequest, pair: Pair) -> str:
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    return str(request.param)


def ask(pair: Pair, route: str, **more: Any) -> Outcome:
    outcome = pair.ask(stream=True, temperature=ROUTES[route], seed=1, top_p=0.01, **more)
    assert outcome.error is None
    assert outcome.text == REPLY
    return outcome


def usage_chunks(outcome: Outcome) -> list[Any]:
    return [chunk for chunk in outcome.chunks if chunk.usage is not None]


@pytest.mark.parametrize("asked", SILENT, ids=["unset", "false"])
def test_b03ad_usage_is_asked_for_and_hidden(asked: dict[str, Any], route: str, pair: Pair) -> None:
    """A caller who did not ask for the usage chunk sees none, yet what was paid is known."""
    outcome = ask(pair, route, **asked)
    assert usage_chunks(outcome) == []
    assert all(chunk.choices for chunk in outcome.chunks), "the extra chunk without choices is ours, not the caller's"
    assert pair.paid[-1].body["stream_options"]["include_usage"] is True
    last = pair.calls()[-1]
    assert last.usage is not None
    assert not last.usage.estimated
    assert last.cost_usd is not None
    assert last.cost_usd > 0


@pytest.mark.parametrize("route", ROUTES, indirect=True)
def test_b03_a_caller_who_asks_gets_it(route: str, pair: Pair) -> None:
    """Exactly one chunk carries usage, the last; it is what the target alone would have reported."""
    outcome = ask(pair, route, stream_options={"include_usage": True})
    [chunk] = usage_chunks(outcome)
    assert chunk is outcome.chunks[-1]
    assert chunk.usage.completion_tokens == len(pair.target.model.encode(REPLY)) + 1
    assert chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens


def test_b03b_refused_option_is_left_out_once(route: str, pair: Pair) -> None:
    """A server that answers 400 to stream_options is asked once more without; that 400 never reaches the caller."""
    pair.target.plan("any", RefuseStreamOptions())
    ask(pair, route)
    tries = [exchange for exchange in pair.paid if exchange.body.get("stream")]
    assert [exchange.status for exchange in tries] == [400, 200]
    assert "stream_options" not in tries[-1].body


def test_b03c_no_usage_at_all_is_estimated(route: str, pair: Pair) -> None:
    """A server that never reports usage leaves an estimate that is marked as one, not a zero."""
    pair.target.plan("any", NoUsage())
    outcome = pair.ask(stream=True, temperature=ROUTES[route], seed=1, top_p=0.01)
    assert outcome.text == REPLY
    last = pair.calls()[-1]
    assert last.usage is not None
    assert last.usage.estimated
    assert last.cost_usd is not None
    assert last.cost_usd > 0
