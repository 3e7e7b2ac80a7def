"""B42: event loops, forks, copies, pickles."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from casepair import QUESTION, Pair, servers

import cheapspec
from cheapspec import AsyncOpenAI, OpenAI, Speculation
from cheapspec.errors import CheapspecError

REPLY = "One, two, three in Paris."


def test_b42a_one_async_client_in_two_loops() -> None:
    """An async client that was used in one event loop works in a second, or says clearly that it does not."""
    with servers("async") as pair:
        pair.says(REPLY)
        client = AsyncOpenAI(speculation=pair.speculation(), **pair.client_options())

        async def ask() -> str:
            reply: Any = await client.chat.completions.create(**pair.body())
            return str(reply.choices[0].message.content)

        assert [asyncio.run(ask()), asyncio.run(ask())] == [REPLY, REPLY]
        asyncio.run(client.close())


@pytest.mark.parametrize("deep", [False, True], ids=["copy", "deepcopy"])
def test_b42b_a_copied_client_keeps_its_books(deep: bool) -> None:
    """copy() and deepcopy give a working client whose requests stand in the same ledger."""
    with servers("sync") as pair:
        pair.says(REPLY)
        with OpenAI(speculation=pair.speculation(), **pair.client_options()) as client:
            other = copy.deepcopy(client) if deep else client.copy()
            for one in (client, other):
                assert one.chat.completions.create(**pair.body()).choices[0].message.content == REPLY
        requests = pair.ledger.requests()
        assert len(requests) == 2
        assert {(request.info or {}).get("decision") for request in requests} == {"speculate"}


def test_b42b_a_copied_async_client_works() -> None:
    """The async client can be deep-copied, too."""
    with servers("async") as pair:
        pair.says(REPLY)

        async def ask() -> str:
            async with AsyncOpenAI(speculation=pair.speculation(), **pair.client_options()) as client:
                reply: Any = await copy.deepcopy(client).chat.completions.create(**pair.body())
                return str(reply.choices[0].message.content)

        assert asyncio.run(ask()) == REPLY


def _fail(name: str) -> None:
    if name == "SettingsError":
        Speculation(draft="ollama:x", alowance=1)  # type: ignore[call-arg]
    raise getattr(cheapspec.errors, name)(f"{name} says why")


@pytest.mark.parametrize(
    "name", ["CheapspecError", "SettingsError", "CapabilityError", "LedgerError", "PriceUnknownError"]
)
def test_b42c_errors_come_back_from_a_worker(name: str) -> None:
    """Our exceptions survive pickling with type and message, so a pool neither hangs nor hides them."""
    kind: type[CheapspecError] = getattr(cheapspec.errors, name)
    again = pickle.loads(pickle.dumps(kind("the message")))
    assert type(again) is kind
    assert str(again) == "the message"


def test_b42c_a_process_pool_reports_a_settings_error() -> None:
    """A worker's settings error arrives in the parent with its message."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(_fail, "SettingsError").exception(timeout=60)
    assert isinstance(found, CheapspecError)
    assert "alowance" in str(found)
    assert "allowance" in str(found)


FORK = """
import os, sys, warnings
warnings.simplefilter("error")
from cheapspec import OpenAI, Speculation, info
base, draft = sys.argv[1:]
client = OpenAI(base_url=base, api_key="k", max_retries=0, timeout=10,
                speculation=Speculation(draft="ollama:toy:latest", draft_url=draft, target_backend="vllm",
                                        draft_tokens=64, draft_timeout=5))
def ask():
    reply = client.chat.completions.create(model="toy", temperature=0, messages=[{"role": "user", "content": "Where?"}])
    assert info(reply).decision == "speculate", info(reply)
    return reply.choices[0].message.content
first = ask()
warnings.simplefilter("ignore")  # later Pythons warn of any fork with threads
child = os.fork()
text = ask()
assert text == first
if child == 0:
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(child, 0)
print(first, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_b42d_after_a_fork_each_process_has_its_own_connections() -> None:
    """A client that was used before a fork works in both processes, on connections of their own."""
    with servers("sync") as pair:
        pair.says(REPLY, question=QUESTION)
        command = [sys.executable, "-c", FORK, pair.target.base_url, pair.draft.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"{REPLY} 0"
        assert len(pair.target.of("score")) == 3
        assert pair.draft.connections_opened >= 2


def test_b42_the_pair_is_what_it_says(pair: Pair) -> None:
    """The unforked, uncopied client does the same: the cases above fail for their own reasons only."""
    pair.says(REPLY)
    assert pair.ask().told.decision == "speculate"
