"""What a probe found serves the next process, a name is confirmed beside the first request, a contradiction revokes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doorway import ANSWER, ASKED, Doorway, call, doorway, entered
from sqlalchemy import select

import cheapspec
from cheapspec.drive.state import infos, targets
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import calls, capabilities
from cheapspec.testing.faults import Status
from cheapspec.testing.wire import Action


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[DatabaseLedger]:
    made = DatabaseLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield made
    made.close()


@pytest.fixture
def sync_way() -> Iterator[Doorway]:
    with doorway("sync") as made:
        yield made


async def quiet() -> None:
    """Until no probe is under way."""
    for _ in range(1000):
        if not any(thread.name == "cheapspec-probe" for thread in threading.enumerate()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the probe did not end")


def told(reply: Any) -> tuple[str, str | None]:
    found = cheapspec.info(reply)
    assert found is not None
    return found.decision, found.reason


def client_of(way: Doorway, ledger: DatabaseLedger, **more: Any) -> Any:
    """A client whose ledger has been read: on an event loop nobody waits for that."""
    client = way.client(way.speculation(ledger=ledger, **more))
    was_read(ledger)
    return client


def was_read(ledger: DatabaseLedger) -> None:
    deadline = time.monotonic() + 20
    while not ledger.read_capabilities():
        assert time.monotonic() < deadline, "it was never read"
        time.sleep(0.01)


def test_a_new_process_need_not_probe_again(sync_way: Doorway, ledger: DatabaseLedger) -> None:
    """The second client knows nothing but the ledger: its first request speculates, and no probe is paid."""

    async def scenario() -> None:
        async with entered(client_of(sync_way, ledger, target_backend="auto")) as client:
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "not_probed")
            await quiet()
        assert ledger.flush()
        targets.clear()
        infos.clear()
        sync_way.target.clear()
        other = DatabaseLedger(ledger.url)
        async with entered(client_of(sync_way, other, target_backend="auto")) as client:
            reply = await call(client.chat.completions.create, **ASKED)
            assert told(reply) == ("speculate", None)
            assert reply.choices[0].message.content == ANSWER
        other.close()

    sync_way.run(scenario)
    assert sync_way.target.of("version") == []
    with ledger.read() as connection:
        [row] = connection.execute(select(capabilities)).all()
        probes = connection.execute(select(calls).where(calls.c.purpose == "probe", calls.c.billed)).all()
    assert (row.model, row.backend, row.can_score, row.can_continue, row.can_judge) == ("toy", "auto", True, True, True)
    assert row.expires_at > row.probed_at
    assert probes and all(probe.status == "ok" and probe.cost_nano > 0 for probe in probes)


def test_no_probe_is_paid_before_the_ledger_was_read(sync_way: Doorway, ledger: DatabaseLedger) -> None:
    """A request that comes while it is being read goes direct and is not probed; a later one is."""
    known = [False]
    ledger.read_capabilities = lambda: known[0]  # type: ignore[method-assign]

    async def scenario() -> None:
        given = sync_way.speculation(ledger=ledger, target_backend="auto")
        async with entered(sync_way.client(given)) as client:
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "not_probed")
            await quiet()
            assert sync_way.purposes() == ["direct"] and sync_way.target.of("version") == []
            known[0] = True
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "not_probed")
            await quiet()
            assert told(await call(client.chat.completions.create, **ASKED)) == ("speculate", None)

    sync_way.run(scenario)


def test_a_named_backend_serves_at_once_and_is_confirmed_beside_it(
    sync_way: Doorway, ledger: DatabaseLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """The first request speculates; a server that is not what it was named is found out for the next."""
    prices = {"input": 1, "cached_input": 0.01, "output": 100}
    settings = {"target_backend": "vllm", "draft_tokens": None, "prices": prices}

    async def scenario() -> None:
        async with entered(client_of(sync_way, ledger, **settings)) as client:
            assert told(await call(client.chat.completions.create, **ASKED))[1] != "not_probed"
            await quiet()
            assert sync_way.target.of("version") == [], "it was named, so it is not asked who it is"
            assert ledger.flush()
        targets.clear()
        sync_way.target.capabilities = "plain"
        targets_of_old = DatabaseLedger("sqlite:///" + str(Path(ledger.url.removeprefix("sqlite:///")).parent / "b.db"))
        async with entered(client_of(sync_way, targets_of_old, **settings)) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "cannot_score")
        targets_of_old.close()

    sync_way.run(scenario)
    with ledger.read() as connection:
        [row] = connection.execute(select(capabilities)).all()
    assert (row.backend, row.can_score) == ("vllm", True)


def test_fixed_draft_tokens_make_no_calls_beside_the_request(sync_way: Doorway, ledger: DatabaseLedger) -> None:
    """Tests and measurements count calls, so a named backend is then taken at its word."""

    async def scenario() -> None:
        async with entered(client_of(sync_way, ledger)) as client:
            assert told(await call(client.chat.completions.create, **ASKED)) == ("speculate", None)
            await quiet()

    sync_way.run(scenario)
    assert sync_way.purposes() == ["score"]
    with ledger.read() as connection:
        assert connection.execute(select(capabilities)).all() == []


class _NoNumbers(Action):
    """A gateway that begins to drop what it was asked for."""

    def reply(self, data: dict[str, Any], body: Any) -> dict[str, Any]:
        choices = [{**choice, "prompt_logprobs": None} for choice in data["choices"]]
        return {**data, "choices": choices}


def test_a_contradiction_revokes_what_was_kept(sync_way: Doorway, ledger: DatabaseLedger) -> None:
    """Scores that cease to come end it in memory and in the ledger, so that nobody relies on it again."""

    async def scenario() -> None:
        async with entered(client_of(sync_way, ledger, target_backend="auto")) as client:
            await call(client.chat.completions.create, **ASKED)
            await quiet()
            assert told(await call(client.chat.completions.create, **ASKED)) == ("speculate", None)
            sync_way.target.plan("score", _NoNumbers())
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "cannot_score")
            assert told(await call(client.chat.completions.create, **ASKED)) == ("direct", "cannot_score")

    sync_way.run(scenario)
    assert ledger.flush()
    with ledger.read() as connection:
        [row] = connection.execute(select(capabilities)).all()
    assert row.expires_at < row.probed_at + 3600


def test_what_a_server_repeats_of_the_key_is_not_kept(sync_way: Doorway, ledger: DatabaseLedger) -> None:
    """A refusal that says the key again stands in the ledger without it."""
    said = {"error": {"message": "prompt_logprobs is not supported for key sk-very-secret", "type": "x"}}
    sync_way.target.capabilities = "plain"
    sync_way.target.plan("score", Status(400, body=said))

    async def scenario() -> None:
        async with entered(
            sync_way.client(sync_way.speculation(ledger=ledger, target_backend="auto"), api_key="sk-very-secret")
        ) as client:
            was_read(ledger)
            await call(client.chat.completions.create, **ASKED)
            await quiet()

    sync_way.run(scenario)
    assert ledger.flush()
    with ledger.read() as connection:
        [row] = connection.execute(select(capabilities)).all()
    assert "not supported for key ***" in row.evidence
    assert "sk-very-secret" not in row.evidence
