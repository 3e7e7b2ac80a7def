"""Budgets through the public door: what is sent, refused, degraded, and what the ledger says afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from http.server import ThreadingHTTPServer
from typing import Any

import openai
import pytest
from counting_server import Handler
from ledgerkit import cap_of, reserved, rows

import cheapspec
from cheapspec import AsyncOpenAI, Budget, OpenAI, SettingsError, Speculation
from cheapspec.core.bill import read_bill, read_info
from cheapspec.core.exposure import OUTPUT_BOUND
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger

NANO = Decimal("1e-9")
PRICES = {"input": "1", "output": "10"}
COST = Decimal("0.00003")  # ten tokens in, two out
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Well?"}],
    "temperature": 0,
    "max_tokens": 100,
}


class Server(ThreadingHTTPServer):
    """Counts what it is paid for."""

    daemon_threads = True
    request_queue_size = 128
    count = 0
    lock = threading.Lock()


class Counting(Handler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with Server.lock:
            Server.count += 1
        if self.path.endswith("/embeddings"):
            embedding = {"object": "embedding", "index": 0, "embedding": [0.5]}
            usage = {"prompt_tokens": 10, "total_tokens": 10}
            self._answer({"object": "list", "data": [embedding], "model": "m", "usage": usage})
            return
        if self.path.endswith("/images/generations"):
            self._answer({"created": 1, "data": [{"url": "http://127.0.0.1/x.png"}]})
            return
        self._answer(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
            }
        )


@pytest.fixture
def server() -> Iterator[str]:
    Server.count = 0
    with Server(("127.0.0.1", 0), Counting) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


@pytest.fixture
def client(server: str, ledger: DatabaseLedger) -> Iterator[OpenAI]:
    speculation = Speculation(ledger=ledger, prices=PRICES)
    with OpenAI(base_url=server, api_key="none", speculation=speculation, max_retries=0) as made:
        yield made


def test_a_session_books_its_requests_and_what_they_cost(client: OpenAI, ledger: DatabaseLedger) -> None:
    """The reply, the request's row and the budget agree."""
    with client.session("nightly", budget=Budget(usd=5)) as session:
        told = cheapspec.info(client.chat.completions.create(**ASKED))
    assert told is not None
    assert (told.session, told.paid_usd) == ("nightly", COST)
    (request,) = rows(ledger, "requests")
    assert (request["session"], request["session_id"]) == ("nightly", session.id)
    (call,) = rows(ledger, "calls")
    assert call["worst_nano"] * NANO > COST
    (budget,) = rows(ledger, "budgets")
    assert (budget["name"], budget["reserved_nano"], budget["spent_nano"] * NANO) == ("session:nightly", 0, COST)


def test_a_refusal_is_openais_own_error_and_sends_nothing(client: OpenAI, ledger: DatabaseLedger) -> None:
    """429, ``budget_exceeded``, once however often the SDK would repeat; it is a row of its own."""
    patient = client.with_options(max_retries=5)
    with client.session("s", budget=Budget(usd="0.000001")), pytest.raises(openai.RateLimitError) as refused:
        patient.chat.completions.create(**ASKED)
    assert refused.value.code == "budget_exceeded"
    assert refused.value.response.headers["x-cheapspec-reason"] == "budget"
    assert "'session:s' has $0.000001 left" in refused.value.message
    assert Server.count == 0
    (request,) = rows(ledger, "requests")
    assert (request["decision"], request["reason"]) == ("refused", "budget")
    assert rows(ledger, "calls") == []
    assert client.chat.completions.create(**ASKED).choices


def test_b04_an_unknown_price_is_refused_unless_it_is_allowed(server: str, ledger: DatabaseLedger) -> None:
    """Without a price nobody knows what a request may cost."""
    speculation = Speculation(ledger=ledger, prices={"other": PRICES})
    with OpenAI(base_url=server, api_key="none", speculation=speculation) as client:
        with client.session("strict", budget=Budget(usd=5)), pytest.raises(openai.RateLimitError, match="unknown"):
            client.chat.completions.create(**ASKED)
        assert Server.count == 0
        with client.session("lax", budget=Budget(usd=5, unknown="allow")):
            assert client.chat.completions.create(**ASKED).choices


def test_without_a_limit_of_its_own_a_request_may_cost_what_the_model_can_write(
    client: OpenAI, ledger: DatabaseLedger
) -> None:
    """The stated bound where nobody knows the model: it is reserved, and given back but for the cost."""
    unlimited = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    with client.session("small", budget=Budget(usd=1)), pytest.raises(openai.RateLimitError, match="max_tokens"):
        client.chat.completions.create(**unlimited)
    assert Server.count == 0
    with client.session("s", budget=Budget(usd=5)):
        assert client.chat.completions.create(**unlimited).choices
    (call,) = rows(ledger, "calls")
    assert call["worst_nano"] * NANO > OUTPUT_BOUND * Decimal(10) / 1_000_000
    assert {row["spent_nano"] * NANO for row in rows(ledger, "budgets")} == {Decimal(0), COST}


def test_bypassed_calls_count_too(client: OpenAI, ledger: DatabaseLedger) -> None:
    """Embeddings at what they read; pictures, whose price nobody here knows, are refused."""
    with client.session("s", budget=Budget(usd=1)):
        client.embeddings.create(model="m", input="Well?", encoding_format="float")
        with pytest.raises(openai.RateLimitError, match="unknown"):
            client.images.generate(model="m", prompt="A cat.")
    with client.session("lax", budget=Budget(usd=1, unknown="allow")):
        client.images.generate(model="m", prompt="A cat.")
    embedded, drawn = sorted(rows(ledger, "calls"), key=lambda row: row["at"])
    assert (embedded["status"], embedded["input_tokens"], embedded["cost_nano"]) == ("ok", 10, 10_000)
    assert embedded["worst_nano"] > 10_000
    assert (drawn["status"], drawn["cost_nano"]) == ("ok", None)
    spent = {row["name"]: (row["reserved_nano"], row["spent_nano"]) for row in rows(ledger, "budgets")}
    assert spent["session:s"] == (0, 10_000)


def test_embeddings_cost_what_they_read_under_a_budget(server: str, ledger: DatabaseLedger) -> None:
    """A price without output is all that they need; a chat with the same model is refused, since what it writes has
    no price."""
    speculation = Speculation(ledger=ledger, prices={"embed": {"input": "0.02"}})
    with OpenAI(base_url=server, api_key="none", speculation=speculation, max_retries=0) as client:
        with client.session("s", budget=Budget(usd="0.000002")):
            client.embeddings.create(model="embed", input="Well?", encoding_format="float")
            with pytest.raises(openai.RateLimitError, match="budget 'session:s' has"):
                client.embeddings.create(model="embed", input="Well? " * 20, encoding_format="float")
            with pytest.raises(openai.RateLimitError, match="unknown"):
                client.chat.completions.create(**{**ASKED, "model": "embed"})
        assert Server.count == 1
        assert client.chat.completions.create(**{**ASKED, "model": "embed"}).choices
    embedded, chat = sorted(rows(ledger, "calls"), key=lambda row: row["at"])
    assert (embedded["status"], embedded["input_tokens"], embedded["cost_nano"]) == ("ok", 10, 200)
    assert (chat["worst_nano"], chat["cost_nano"]) == (None, None)
    (budget,) = rows(ledger, "budgets")
    assert (budget["reserved_nano"], budget["spent_nano"]) == (0, 200)
    told = sorted(ledger.requests(), key=lambda record: record.row.at)
    assert [read_bill(one, read_info(one)).unpriced for one in told if one.calls] == [False, True]


def test_the_kill_switch_turns_budgets_off_as_well(client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """``CHEAPSPEC_DISABLED`` leaves the plain client."""
    monkeypatch.setenv("CHEAPSPEC_DISABLED", "1")
    with client.session("s", budget=Budget(usd=0)):
        assert client.chat.completions.create(**ASKED).choices


def test_budgets_go_on_where_only_speculating_is_switched_off(server: str, ledger: DatabaseLedger) -> None:
    """For a client, or for one request."""
    speculation = Speculation(ledger=ledger, prices=PRICES)
    off = Speculation(ledger=ledger, prices=PRICES, enabled=False)
    for chosen, headers in ((off, {}), (speculation, {"x-cheapspec-disable": "1"})):
        with (
            OpenAI(base_url=server, api_key="none", speculation=chosen, max_retries=0) as client,
            client.session("s", budget=Budget(usd=0)),
            pytest.raises(openai.RateLimitError, match="'session:s'"),
        ):
            client.chat.completions.create(**ASKED, extra_headers=headers)
    assert Server.count == 0


def test_a_pool_that_was_warm_before_takes_part_through_bind(client: OpenAI) -> None:
    """Its threads are older than the session: bound work is refused under a budget of nothing, other work is sent."""

    def ask(_: int) -> bool:
        try:
            client.chat.completions.create(**ASKED)
        except openai.RateLimitError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [True, True]
        with client.session("s", budget=Budget(usd=0)) as session:
            assert list(pool.map(session.bind(ask), range(4))) == [False] * 4
            assert Server.count == 2
            assert pool.submit(ask, 0).result()
    assert Server.count == 3


def test_64_threads_share_one_cap(client: OpenAI, ledger: DatabaseLedger) -> None:
    """As many requests are sent as fit, the others are refused; nothing stays reserved."""

    def ask(_: int) -> bool:
        try:
            client.chat.completions.create(**ASKED)
        except openai.RateLimitError:
            return False
        return True

    usd = Decimal("0.0045")
    with client.session("crowd", budget=Budget(usd=usd)), ThreadPoolExecutor(64) as pool:
        answered = sum(pool.map(ask, range(64)))
    assert answered == Server.count
    assert answered > 0
    (budget,) = rows(ledger, "budgets")
    assert budget["reserved_nano"] == 0
    assert budget["spent_nano"] * NANO == answered * COST <= usd


def test_64_tasks_share_one_cap(server: str, ledger: DatabaseLedger) -> None:
    """The same in an event loop."""

    async def scenario() -> int:
        speculation = Speculation(ledger=ledger, prices=PRICES)
        async with AsyncOpenAI(base_url=server, api_key="none", speculation=speculation, max_retries=0) as client:

            async def ask() -> bool:
                try:
                    await client.chat.completions.create(**ASKED)
                except openai.RateLimitError:
                    return False
                return True

            with client.session("crowd", budget=Budget(usd="0.0045")):
                return sum(await asyncio.gather(*(ask() for _ in range(64))))

    answered = asyncio.run(scenario())
    assert answered == Server.count > 0
    (budget,) = rows(ledger, "budgets")
    assert (budget["reserved_nano"], budget["spent_nano"] * NANO) == (0, answered * COST)


def test_a_request_may_name_a_session_and_its_budget(client: OpenAI, ledger: DatabaseLedger) -> None:
    """By header or in the body: one cap a name."""
    headers = {"x-cheapspec-session": "job", "x-cheapspec-budget-usd": "1"}
    client.chat.completions.create(**ASKED, extra_headers=headers)
    client.chat.completions.create(**ASKED, extra_body={"cheapspec": {"session": "job", "budget_usd": 1}})
    (budget,) = rows(ledger, "budgets")
    assert (budget["name"], budget["spent_nano"] * NANO) == ("session:job", 2 * COST)
    with pytest.raises(openai.BadRequestError, match="name one too"):
        client.chat.completions.create(**ASKED, extra_headers={"x-cheapspec-budget-usd": "1"})


@pytest.mark.parametrize("kept", ["memory", "database"])
def test_a_request_that_names_the_budget_of_its_session_counts_once(
    kept: str, server: str, ledger: DatabaseLedger
) -> None:
    """Nothing stays reserved, and each request is charged once: 33 of them fit, each 0.00003 of 0.0021 dollars with
    room for the worst case of one more.
    """
    book = BudgetedMemoryLedger() if kept == "memory" else ledger
    speculation = Speculation(ledger=book, prices=PRICES)
    named = {"x-cheapspec-session": "x", "x-cheapspec-budget-usd": "0.0021"}
    with (
        OpenAI(base_url=server, api_key="none", speculation=speculation, max_retries=0) as client,
        client.session("x", budget=Budget("0.0021")),
    ):
        for _ in range(33):
            client.chat.completions.create(**ASKED, extra_headers=named)
    cap = cap_of("0.0021", "session:x")
    left = Decimal("0.0021") - 33 * COST
    assert reserved(book, "more", cap, str(left + NANO)).left_usd == left
    assert reserved(book, "rest", cap, str(left)).choice == 0


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x1b[2J"])
def test_the_session_that_a_request_names_is_a_name(client: OpenAI, name: str) -> None:
    """Of printable characters, as :meth:`client.session` wants it; anything else is refused before it is sent."""
    with pytest.raises(openai.BadRequestError, match="printable"):
        client.chat.completions.create(**ASKED, extra_body={"cheapspec": {"session": name}})
    assert Server.count == 0


def test_a_configured_budget_is_everybodys(server: str, ledger: DatabaseLedger) -> None:
    """With or without a session, on each client of the ledger."""
    budgets = [{"name": "team", "usd": "0.0012", "period": "month", "timezone": "Europe/Berlin"}]
    speculation = Speculation(ledger=ledger, prices=PRICES, budgets=budgets)
    for expected in (True, False):
        with OpenAI(base_url=server, api_key="none", speculation=speculation) as client:
            if expected:
                assert client.chat.completions.create(**ASKED).choices
                continue
            with pytest.raises(openai.RateLimitError, match="'budget:team'"):
                for _ in range(64):
                    client.chat.completions.create(**ASKED)
    (budget,) = rows(ledger, "budgets")
    assert budget["name"] == "budget:team"
    assert len(budget["period"]) == len("2026-11")
    assert budget["spent_nano"] * NANO <= Decimal("0.0012")
    with pytest.raises(SettingsError, match=r"\[\[budgets\]\] 'b': period = 'week'"):
        OpenAI(api_key="none", speculation=Speculation(budgets=[{"name": "b", "usd": 1, "period": "week"}]))


def test_a_budget_needs_a_ledger_that_keeps_it(server: str) -> None:
    """Switched off, a session without a budget is still a session."""
    with OpenAI(base_url=server, api_key="none", speculation=Speculation(ledger="off")) as client:
        with pytest.raises(SettingsError, match="needs a ledger"):
            client.session("s", budget=Budget(usd=1))
        with client.session("s"):
            assert client.chat.completions.create(**ASKED).choices


def test_the_ledger_in_memory_keeps_budgets_too(server: str) -> None:
    """For one process."""
    with OpenAI(base_url=server, api_key="none", speculation=Speculation(prices=PRICES), max_retries=0) as client:
        with client.session("s", budget=Budget(usd="0.0012")), pytest.raises(openai.RateLimitError):
            for _ in range(64):
                client.chat.completions.create(**ASKED)
        assert 0 < Server.count < 41


def test_a_stream_that_was_left_counts_as_its_worst_case(server: str, ledger: DatabaseLedger) -> None:
    """The server may go on and charge for it: the books have an estimate of what was seen, the budget the worst."""
    speculation = Speculation(ledger=ledger, prices=PRICES)
    with (
        OpenAI(base_url=server, api_key="none", speculation=speculation) as client,
        client.session("s", budget=Budget(usd=1)),
    ):
        client.chat.completions.create(**ASKED, stream=True).close()
    (call,) = rows(ledger, "calls")
    (budget,) = rows(ledger, "budgets")
    assert (call["status"], call["estimated"]) == ("cancelled", True)
    assert budget["spent_nano"] == call["worst_nano"] == call["budget_nano"] > call["cost_nano"] > 0
    assert budget["reserved_nano"] == 0
