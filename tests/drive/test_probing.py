"""``target_backend="auto"``: an endpoint is asked in the background what it can do, never in a request's path."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2
import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, entered

import cheapspec
from cheapspec.core.effects import Op
from cheapspec.testing.faults import Hang


def auto(way: Doorway) -> Any:
    return way.client(way.speculation(target_backend="auto"))


async def settled(way: Doorway) -> None:
    """Wait for the probe's last row."""

    def done() -> bool:
        probes = [record for row in way.ledger.requests() for record in row.calls if record.row.purpose == "probe"]
        busy = any(thread.name == "cheapspec-probe" for thread in threading.enumerate())
        tasks = [task for task in asyncio.all_tasks() if "probing" in repr(task) or "obey" in repr(task)]
        return bool(probes) and not busy and not tasks

    for _ in range(500):
        if done():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the probe did not end")


def facts(reply: Any) -> tuple[str, str | None]:
    told = cheapspec.info(reply)
    assert told is not None
    return told.decision, told.reason


def test_the_first_request_is_direct_and_later_ones_speculate(way: Doorway) -> None:
    """The first goes direct with ``not_probed``; the probe's calls are booked; then requests speculate."""

    async def scenario() -> None:
        async with entered(auto(way)) as client:
            first = await call(client.chat.completions.create, **ASKED)
            assert facts(first) == ("direct", "not_probed")
            await settled(way)
            second = await call(client.chat.completions.create, **ASKED)
            assert facts(second) == ("speculate", None)
            assert second.choices[0].message.content == ANSWER

    way.run(scenario)
    probes = [record for record in way.ledger.requests()[0].calls if record.row.purpose == "probe"]
    billed = [record for record in probes if record.row.billed]
    assert billed
    assert {record.status for record in probes} <= {"ok", "failed"}
    assert all(record.cost_usd for record in billed if record.status == "ok")
    told = way.ledger.requests()[0].info
    assert told is not None
    assert told["paid_usd"] == told["baseline_usd"], "the probe is no part of the request's own bill"


def test_one_probe_for_many_requests(way: Doorway) -> None:
    """While a probe is under way nobody makes another, and nobody waits for it."""
    way.target.plan("version", Hang(0.5))

    async def scenario() -> None:
        async with entered(auto(way)) as client:
            for _ in range(3):
                assert facts(await call(client.chat.completions.create, **ASKED)) == ("direct", "not_probed")
            await settled(way)

    way.run(scenario)
    assert len(way.target.of("version")) == 1


def test_an_endpoint_that_cannot_score_is_told_once(way: Doorway) -> None:
    """After a probe that found nothing, requests go direct with ``cannot_score`` and no further probe."""
    way.target.capabilities = "plain"

    async def scenario() -> None:
        async with entered(auto(way)) as client:
            await call(client.chat.completions.create, **ASKED)
            await settled(way)
            before = len(way.target.requests)
            assert facts(await call(client.chat.completions.create, **ASKED)) == ("direct", "cannot_score")
            assert len(way.target.requests) == before + 1

    way.run(scenario)


def test_a_probe_that_breaks_is_made_again(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that raises, or whose calls break, leaves the endpoint unknown, not blocked."""

    def broken(model: str, backend: str) -> Op[Any]:
        made.append(model)
        raise RuntimeError("a fault of the probe's own")
        yield

    made: list[str] = []
    monkeypatch.setattr("cheapspec.drive.endpoints.probe", broken)

    async def scenario() -> None:
        async with entered(auto(way)) as client:
            for number in range(2):
                assert facts(await call(client.chat.completions.create, **ASKED)) == ("direct", "not_probed")
                for _ in range(200):
                    if len(made) > number:
                        break
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)

    way.run(scenario)
    assert made == ["toy", "toy"]


@pytest.mark.parametrize("host", ["api.openai.com", "openrouter.ai", "x.openai.azure.com", "api.groq.com"])
def test_known_hosts_are_not_probed(host: str, way: Doorway) -> None:
    """A host that is known not to score gets the caller's own request and nothing else."""
    sent: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.path)
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "chatcmpl-9", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx2.Response(200, json={**body, "choices": [choice], "usage": usage})

    async def scenario() -> None:
        kind = openai.DefaultAsyncHttpxClient if way.door == "async" else openai.DefaultHttpxClient
        http = kind(transport=httpx2.MockTransport(answer))
        speculation = way.speculation(target_backend="auto")
        async with entered(way.client(speculation, base_url=f"https://{host}/v1", http_client=http)) as client:
            assert facts(await call(client.chat.completions.create, **ASKED)) == ("direct", "cannot_score")

    way.run(scenario)
    assert sent == ["/v1/chat/completions"]
