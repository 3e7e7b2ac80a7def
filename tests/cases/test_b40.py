"""B40: a time-out after sending may mean double billing."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import CloseAfterBody, CutAfter, Hang
from cheapspec.testing.server import refusing_url
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."
LOST: dict[str, tuple[Action, type[Exception]]] = {
    "late": (Hang(5.0), openai.APITimeoutError),
    "closed": (CloseAfterBody(), openai.APIConnectionError),
}


@pytest.fixture(autouse=True)
def _impatient(pair: Pair) -> None:
    pair.says(REPLY, "One, two")
    pair.options["timeout"] = 0.6
    pair.settings["draft_timeout"] = 5.0


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("stream", [False, True])
def test_b40_a_lost_score_is_booked_and_not_repeated(stream: bool, name: str, pair: Pair) -> None:
    """A scoring call that may have been billed is not sent again: the request goes direct, the row says so."""
    pair.target.plan("score", LOST[name][0])
    outcome = pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert pair.purposes() == ["score", "direct"]
    lost = pair.calls()[0]
    assert lost.status == "possibly_billed"
    assert lost.cost_usd or lost.unpriced, "what it may have cost is estimated or unknown, not zero"


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("stream", [False, True])
def test_b40_everything_lost_is_bounded(stream: bool, name: str, pair: Pair) -> None:
    """When every call is lost, score and direct together are max_retries + 1 requests, then openai's own error."""
    fault, kind = LOST[name]
    pair.options["max_retries"] = 1
    for purpose in ("score", "continue", "direct"):
        pair.target.plan(purpose, fault)
    outcome = pair.ask(stream=stream)
    assert type(outcome.error) is kind
    assert len(pair.paid) == 2
    assert [call.status for call in pair.calls()] == ["possibly_billed"] * len(pair.calls())


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("stream", [False, True])
def test_b40_direct_alone_is_the_sdks_own_rule(stream: bool, name: str, pair: Pair) -> None:
    """A request that was never speculated is repeated by the SDK as ever: max_retries + 1 requests."""
    fault, kind = LOST[name]
    pair.options["max_retries"] = 1
    pair.target.plan("direct", fault)
    outcome = pair.ask(stream=stream, temperature=...)
    assert type(outcome.error) is kind
    assert len(pair.paid) == 2


def test_b40_a_repeat_carries_the_same_idempotency_key(pair: Pair) -> None:
    """A hand-off that is repeated after a cut names itself by one key, another call by another."""
    pair.hand_off_after(1)
    pair.target.plan("continue", CloseAfterBody(), times=1)
    outcome = pair.ask(stream=True)
    keys = [exchange.headers.get("idempotency-key") for exchange in pair.target.of("continue")]
    assert all(keys)
    assert len(set(keys)) == 1
    assert len(keys) == 2
    assert keys[0] not in {exchange.headers.get("idempotency-key") for exchange in pair.target.of("score")}
    assert outcome.error is None
    assert outcome.text == REPLY


def test_b40_a_cut_stream_is_not_free(pair: Pair) -> None:
    """A hand-off cut in its middle is booked with what it had written, not as free."""
    pair.hand_off_after(1)
    pair.options["max_retries"] = 0
    pair.target.plan("continue", CutAfter(2))
    outcome = pair.ask(stream=True)
    assert isinstance(outcome.error, openai.APIError)
    cut = next(call for call in pair.calls() if call.row.purpose == "continue")
    assert cut.status in ("failed", "possibly_billed")
    assert cut.cost_usd
    assert cut.usage is not None
    assert cut.usage.output_tokens > 0
    assert cut.usage.estimated


@pytest.mark.parametrize("temperature", [0, ...], ids=["speculated", "direct"])
def test_b40_a_refused_connection_costs_nothing(temperature: object, pair: Pair) -> None:
    """Nobody listens: repeated, raised as a connection error, and no row claims a charge."""
    with refusing_url() as url:
        pair.options["base_url"] = f"{url}/v1"
        pair.options["max_retries"] = 1
        outcome = pair.ask(temperature=temperature)
    assert type(outcome.error) is openai.APIConnectionError
    assert pair.ledger.requests()
    assert {call.status for call in pair.calls() if call.row.billed} <= {"failed"}
    assert not pair.ledger.totals().paid_usd
