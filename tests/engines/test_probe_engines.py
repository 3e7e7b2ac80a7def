"""``target_backend="auto"``: the first request goes direct, the probe runs beside it, the next one speculates.

Whatever the endpoint is (vLLM, vLLM behind a gateway, llama.cpp), the user's request never waits for the probe,
and what the probe costs is in the books.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from asking import ask_alone
from relay import gateway

from cheapspec import OpenAI, Speculation, info
from cheapspec.backends.probe import PROBE_CALLS
from cheapspec.core.info import Info
from cheapspec.embedded import EmbeddedServer
from cheapspec.ledger.memory import CallRecord, MemoryLedger

PATIENCE = 120.0  # seconds for a probe on a busy machine


@pytest.fixture(params=["vllm", "gateway", "llamacpp"])
def endpoint(
    request: pytest.FixtureRequest, vllm_url: str, vllm_model: str, llamacpp_targets: dict[str, EmbeddedServer]
) -> Iterator[tuple[str, str]]:
    """API base and model of a target that nobody has asked yet: a gateway's port is always a new one."""
    server = llamacpp_targets["f16"]
    match request.param:
        case "llamacpp":
            yield f"{server.url}/v1", server.model
        case "vllm":
            yield f"{vllm_url}/v1", vllm_model
        case _:
            with gateway(vllm_url) as front:
                yield f"{front.url}/v1", vllm_model


def test_the_probe_finds_the_endpoint_outside_of_the_users_request(
    endpoint: tuple[str, str], drafts: dict[str, EmbeddedServer]
) -> None:
    """First ``not_probed``, then ``speculate``, the same text both times; the probe's calls are billed and booked."""
    base_url, model = endpoint
    ledger = MemoryLedger()
    speculation = Speculation(
        draft=f"llamacpp:{drafts['drop1'].url}", draft_tokens=8, draft_timeout=PATIENCE, ledger=ledger
    )
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "Name three rivers."}],
        "temperature": 0,
        "max_tokens": 24,
    }
    alone = ask_alone(base_url, body)
    with OpenAI(base_url=base_url, api_key="none", timeout=300, max_retries=0, speculation=speculation) as client:
        told: list[Info] = []
        texts: list[str | None] = []
        deadline = time.monotonic() + PATIENCE
        while not told or (told[-1].reason == "not_probed" and time.monotonic() < deadline):
            if told:
                time.sleep(1)
            create: Any = client.chat.completions.create
            reply = create(**body)
            found = info(reply)
            assert found is not None
            told.append(found)
            texts.append(reply.choices[0].message.content)
    assert (told[0].decision, told[0].reason) == ("direct", "not_probed")
    assert told[-1].decision == "speculate", told[-1]
    assert told[-1].rounds >= 1
    assert set(texts) == {alone.text}
    probed = {one.request_id: probe_calls(ledger.calls(one.request_id)) for one in told}
    assert [bool(calls) for calls in probed.values()] == [True] + [False] * (len(told) - 1), "one probe for all"
    fewest, most = PROBE_CALLS
    assert fewest <= len(probed[told[0].request_id]) <= most
    for call in probed[told[0].request_id]:
        assert call.status == "ok"
        assert call.usage is not None
        assert call.usage.output_tokens > 0


def probe_calls(calls: list[CallRecord]) -> list[CallRecord]:
    """Those that the probe made and a provider would charge for."""
    return [call for call in calls if call.row.purpose == "probe" and call.row.billed]
