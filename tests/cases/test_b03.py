"""B03: a streamed call's usage is asked for, and its cost is never a silent zero.

A *direct* or bypassed stream is the caller's own request: it is asked for its usage too, and but for the chunk with
the answer every byte of it reaches the caller as it came.
"""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import Any

import openai
import pytest
from casepair import Outcome, Pair

from cheapspec import AsyncOpenAI, OpenAI, info
from cheapspec.testing.faults import Comments, Gzip, Html200, NoUsage, Preamble, Refuse, RefuseStreamOptions, Status
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ROUTES: dict[str, dict[str, Any]] = {
    "hand-off": {"temperature": 0},
    "direct": {"temperature": ...},
    "bypass": {"temperature": 0, "tools": [TOOL]},
}
PASSED = ["direct", "bypass"]
SILENT = [{}, {"stream_options": {"include_usage": False}}, {"stream_options": None}]


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, pair: Pair) -> str:
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    return str(request.param)


def ask(pair: Pair, route: str, **more: Any) -> Outcome:
    outcome = pair.ask(stream=True, **ROUTES[route], **more)
    assert outcome.error is None
    assert outcome.text == REPLY
    return outcome


def usage_chunks(outcome: Outcome) -> list[Any]:
    return [chunk for chunk in outcome.chunks if chunk.usage is not None]


@pytest.mark.parametrize("asked", SILENT, ids=["unset", "false", "null"])
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
    assert outcome.told.paid_usd is not None
    assert outcome.told.paid_usd >= last.cost_usd
    assert outcome.told.output_tokens >= last.usage.output_tokens > 0


def test_b03_a_caller_who_asks_gets_it(route: str, pair: Pair) -> None:
    """Exactly one chunk carries usage, the last; it is what the target alone would have reported."""
    outcome = ask(pair, route, stream_options={"include_usage": True})
    [chunk] = usage_chunks(outcome)
    assert chunk is outcome.chunks[-1]
    assert chunk.usage.completion_tokens == len(pair.target.model.encode(REPLY)) + 1
    assert chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens
    if route in PASSED:
        assert outcome.told.output_tokens == chunk.usage.completion_tokens
        assert outcome.told.baseline == "exact"


def test_b03b_refused_option_is_left_out_once(route: str, pair: Pair) -> None:
    """A server that answers 400 to stream_options is asked once more without; that 400 never reaches the caller."""
    pair.target.plan("any", RefuseStreamOptions())
    ask(pair, route)
    tries = [exchange for exchange in pair.paid if exchange.body.get("stream")]
    assert [exchange.status for exchange in tries] == [400, 200]
    assert "stream_options" not in tries[-1].body
    refused, answered = pair.calls()[-2:]
    assert (refused.status, refused.cost_usd, answered.status) == ("failed", None, "ok")


NAMELESS: dict[str, Action] = {
    "pydantic": Refuse(
        '{"type":"extra_forbidden","msg":"Extra inputs are not permitted"}', lambda b: "stream_options" in b
    ),
    "no reason": Status(400, body=b"Bad Request"),
}


@pytest.mark.parametrize("name", NAMELESS)
@pytest.mark.parametrize("route", PASSED, indirect=True)
def test_b03b_a_refusal_is_remembered(name: str, route: str, pair: Pair) -> None:
    """One that does not name the field is understood too; the next request to the endpoint is sent as it is."""
    pair.target.plan("direct", NAMELESS[name], times=1)
    outcomes = pair.ask_again(2, stream=True, **ROUTES[route])
    assert [outcome.text for outcome in outcomes] == [REPLY, REPLY]
    asked = ["stream_options" in exchange.body for exchange in pair.target.of("direct")]
    assert asked == [True, False, False]


@pytest.mark.parametrize("route", PASSED, indirect=True)
def test_b03b_another_refusal_is_the_callers(route: str, pair: Pair) -> None:
    """What is wrong with the request itself is asked once, and raised as ever."""
    error = {
        "message": "Unsupported parameter: 'top_k'",
        "type": "invalid_request_error",
        "param": "top_k",
        "code": None,
    }
    pair.target.plan("direct", Status(400, body={"error": error}))
    outcome = pair.ask(stream=True, **ROUTES[route])
    assert isinstance(outcome.error, openai.BadRequestError)
    assert len(pair.target.of("direct")) == 1


def test_b03c_no_usage_at_all_is_estimated(route: str, pair: Pair) -> None:
    """A server that never reports usage leaves an estimate that is marked as one, not a zero."""
    pair.target.plan("any", NoUsage())
    outcome = ask(pair, route)
    last = pair.calls()[-1]
    assert last.usage is not None
    assert last.usage.estimated
    assert last.cost_usd is not None
    assert last.cost_usd > 0
    assert outcome.told.baseline == "estimated"
    assert outcome.told.paid_usd is not None
    if route in PASSED:
        assert last.usage.output_tokens >= len(REPLY) // 4
        assert outcome.told.prompt_tokens is None, "replay counts what was reported"


SWITCHES: dict[str, dict[str, Any]] = {"setting": {"ask_usage": False}, "no ledger": {"ledger": "off"}}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("route", PASSED, indirect=True)
def test_b03_nobody_is_asked_where_nobody_wants_to_know(switch: str, route: str, pair: Pair) -> None:
    """Switched off, or without a ledger, the request leaves as it came; its cost is an estimate."""
    pair.settings |= SWITCHES[switch]
    outcome = ask(pair, route)
    assert "stream_options" not in pair.paid[-1].body
    assert outcome.told.baseline == "estimated"
    assert outcome.told.paid_usd is not None
    assert outcome.told.paid_usd > 0


def test_b03_the_kill_switch_leaves_the_request_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything off means everything."""
    pair.says(REPLY)
    monkeypatch.setenv("CHEAPSPEC_DISABLED", "1")
    assert pair.ask(stream=True).text == REPLY
    assert "stream_options" not in pair.paid[-1].body


# --- every other byte ------------------------------------------------------------------------------


def raw(pair: Pair, kind: str, **more: Any) -> bytes:
    """The bytes of the body as ``with_streaming_response`` gives them, of our client or of openai's own."""
    body = pair.body(stream=True, temperature=..., extra_body=more or None)
    options = {**pair.client_options(), "max_retries": 0}

    async def scenario() -> bytes:
        client: Any = (
            AsyncOpenAI(speculation=pair.speculation(), **options) if kind == "ours" else openai.AsyncOpenAI(**options)
        )
        async with client, client.chat.completions.with_streaming_response.create(**body) as response:
            return b"".join([chunk async for chunk in response.iter_bytes()])

    if pair.door == "async":
        return asyncio.run(scenario())
    client: Any = OpenAI(speculation=pair.speculation(), **options) if kind == "ours" else openai.OpenAI(**options)
    with client, client.chat.completions.with_streaming_response.create(**body) as response:
        return b"".join(response.iter_bytes())


def without_ids(body: bytes) -> bytes:
    """Ids and times differ from request to request."""
    return re.sub(rb'"(id|created|system_fingerprint)": ?("[^"]*"|\d+)', b"", body)


BYTES: dict[str, tuple[Action, ...]] = {
    "plain": (),
    "comments": (Comments(),),
    "preamble": (Preamble(),),
    "gzip": (Gzip(),),
    "gzip comments": (Gzip(), Comments()),
    "html": (Html200(),),
}


@pytest.mark.parametrize("name", BYTES)
def test_b03_every_other_byte_is_as_it_came(name: str, pair: Pair) -> None:
    """Comments, odd frames, web pages, compressed or not: openai's own client and ours read the same bytes."""
    pair.says(REPLY)
    for action in BYTES[name]:
        pair.target.plan("direct", action)
    plain, ours = raw(pair, "openai"), raw(pair, "ours")
    assert without_ids(ours) == without_ids(plain)
    assert plain
    asked = pair.target.of("direct")[-1].body
    assert asked["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("door", ["sync"], indirect=True)
def test_b03_the_stream_can_be_asked_for_its_facts(pair: Pair) -> None:
    """While it is under way the decision is known; when it is over, tokens and money, equal to those of the call."""
    pair.says(REPLY)
    with OpenAI(speculation=pair.speculation(), **pair.client_options()) as client:
        stream: Any = client.chat.completions.create(**pair.body(stream=True, temperature=...))
        before = info(stream)
        assert before is not None
        assert (before.decision, before.reason, before.paid_usd) == ("direct", "temperature_unset", None)
        list(stream)
        after = info(stream)
    assert after is not None
    call = pair.calls()[-1]
    assert call.usage is not None
    assert (after.paid_usd, after.baseline_usd) == (call.cost_usd, call.cost_usd)
    assert (after.prompt_tokens, after.reply_tokens) == (call.usage.input_tokens, call.usage.output_tokens)
    assert after.target == f"toy@{pair.target.base_url.rstrip('/')}"
    assert call.cost_usd == Decimal(call.usage.input_tokens + 10 * call.usage.output_tokens) / 1_000_000
