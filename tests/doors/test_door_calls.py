"""What the caller set for calls holds for every call that we make for them, and draft hosts see none of it."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest
from doorway import ASKED, Doorway, call, entered

from cheapspec.testing.faults import Status


def hooks(way: Doorway, seen: list[httpx2.Request], answered: list[httpx2.Response]) -> Any:
    """An HTTP client that writes down what passes."""

    async def request_hook(request: httpx2.Request) -> None:
        seen.append(request)

    async def response_hook(response: httpx2.Response) -> None:
        answered.append(response)

    if way.door == "async":
        return way.http(event_hooks={"request": [request_hook], "response": [response_hook]})
    return way.http(event_hooks={"request": [seen.append], "response": [answered.append]})


def test_event_hooks_see_each_target_call_once(way: Doorway) -> None:
    """The caller's hooks see exactly what the target sees, in that order, and never a draft call."""
    seen: list[httpx2.Request] = []
    answered: list[httpx2.Response] = []

    async def scenario() -> None:
        async with entered(way.client(http_client=hooks(way, seen, answered))) as client:
            await call(client.chat.completions.create, **ASKED)
            await call(client.chat.completions.create, **ASKED, stream=False, n=2)

    way.run(scenario)
    paths = [exchange.path for exchange in way.target.requests]
    assert [request.url.path for request in seen] == paths
    assert [response.request.url.path for response in answered] == paths
    assert len(way.draft.requests) > 0


def test_headers_query_and_key_are_on_every_target_call(way: Doorway) -> None:
    """``extra_headers``, ``extra_query`` and the key go to the target each time; the draft host sees none."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            more = {"extra_headers": {"x-team": "blue"}, "extra_query": {"trace": "7"}}
            await call(client.chat.completions.create, **ASKED, **more)

    way.run(scenario)
    assert len(way.target.requests) >= 2
    for exchange in way.target.requests:
        assert exchange.headers["x-team"] == "blue"
        assert exchange.query == "trace=7"
        assert exchange.headers["authorization"] == "Bearer target-key"
    for exchange in way.draft.requests:
        assert "target-key" not in repr(exchange.headers)
        assert "x-team" not in exchange.headers
        assert exchange.query == ""


def test_time_outs_of_one_request(way: Doorway) -> None:
    """A time-out given with one request is that of each of its calls."""
    seen: list[httpx2.Request] = []

    async def scenario() -> None:
        async with entered(way.client(http_client=hooks(way, seen, []))) as client:
            await call(client.chat.completions.create, **ASKED, timeout=3.25)

    way.run(scenario)
    assert len(seen) >= 2
    assert {request.extensions["timeout"]["read"] for request in seen} == {3.25}


def test_one_idempotency_key_a_call(way: Doorway) -> None:
    """A repeated hand-off carries the key of its first attempt; other calls have their own."""
    way.draft.model.replies["Where?"] = "One, two"
    way.draft.plan("draft", Status(503, body={"error": "server busy"}), after=1)
    way.target.plan("continue", Status(503, {"retry-after": "0"}), times=1)

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    first, second = (exchange.headers["idempotency-key"] for exchange in way.target.of("continue"))
    assert first == second
    others = {exchange.headers["idempotency-key"] for exchange in way.target.of("score", "tokenize")}
    assert first not in others
    assert len(others) == len(way.target.of("score", "tokenize"))


def test_environment_proxies_are_the_clients_affair(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment carries target calls, as with plain openai; a loopback draft host is reached
    without it.
    """
    monkeypatch.setenv("HTTP_PROXY", way.target.url)  # the stand-in plays proxy: it serves no absolute URLs

    async def scenario() -> None:
        async with entered(way.client(base_url="http://target.invalid/v1")) as client:
            with pytest.raises(openai.NotFoundError):
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    assert way.target.requests
    assert {exchange.headers["host"] for exchange in way.target.requests} == {"target.invalid"}
    assert {exchange.headers["host"] for exchange in way.draft.requests} == {way.draft.url.removeprefix("http://")}
