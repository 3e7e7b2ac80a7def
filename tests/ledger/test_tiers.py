"""Service tiers, from the request to the report: what was asked for, what served, and what that does to the price."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from counting_server import Handler
from ledgerkit import rows

import cheapspec
from cheapspec import Budget, OpenAI, Speculation
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.report.rows import csv_lines

PRICES = {"input": 1, "output": 10, "tiers": {"flex": {"input": "0.5", "output": 5}}}
STANDARD, FLEX = 30_000, 15_000
"""Nano-dollars of the server's reply."""


class Serving(Handler):
    """Answers with the tier that the request's model is named after."""

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        reply: dict[str, Any] = {
            "id": f"chatcmpl-{model}",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
        }
        self._answer(reply if model == "silent" else {**reply, "service_tier": model})


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Serving) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


def ask(server: str, ledger: Any, served: str) -> cheapspec.Info | None:
    """A request for the flex tier that ``served`` serves."""
    speculation = Speculation(ledger=ledger, prices=PRICES)
    with (
        OpenAI(base_url=server, api_key="none", speculation=speculation, max_retries=0) as client,
        client.session("s", budget=Budget(usd=1)),
    ):
        messages: Any = [{"role": "user", "content": "Well?"}]
        flex: Any = "flex"
        asked = client.chat.completions.create(
            model=served, messages=messages, temperature=0, max_tokens=9, service_tier=flex
        )
        return cheapspec.info(asked)


@pytest.mark.parametrize(
    ("served", "cost", "counted", "flags"),
    [
        ("flex", FLEX, FLEX, ()),
        ("default", STANDARD, STANDARD, ("tier_differs",)),
        ("silent", FLEX, FLEX, ()),
        ("priority", None, None, ("tier_differs", "tier_unpriced")),
    ],
)
def test_b05_both_tiers_are_recorded_and_what_is_odd_is_flagged(
    server: str, ledger: DatabaseLedger, served: str, cost: int | None, counted: int | None, flags: tuple[str, ...]
) -> None:
    """The tier that served sets the price, budgets count the dearer, and the row says both and why."""
    told = ask(server, ledger, served)
    assert told is not None
    assert told.paid_usd == (None if cost is None else Decimal(cost).scaleb(-9))
    (call,) = rows(ledger, "calls")
    assert (call["asked_tier"], call["service_tier"]) == ("flex", None if served == "silent" else served)
    assert (call["cost_nano"], call["price_flags"]) == (cost, " ".join(sorted(flags, reverse=True)) or None)
    (budget,) = rows(ledger, "budgets")
    assert budget["spent_nano"] == (call["worst_nano"] if counted is None else counted)
    (record,) = ledger.requests()
    assert sorted(record.calls[0].flags) == sorted(flags)
    assert record.calls[0].row.service_tier == "flex"


@pytest.mark.parametrize("memory", [True, False])
def test_b05_reports_say_which_requests_another_tier_served(server: str, ledger: DatabaseLedger, memory: bool) -> None:
    """In words, in the JSON and in the lines for spreadsheets."""
    book: Any = BudgetedMemoryLedger() if memory else ledger
    for served in ("flex", "default", "priority"):
        ask(server, book, served)
    report = cheapspec.report.report_of(book)
    assert report.to_dict()["service_tiers"] == {"differs": 2, "unpriced": 1}
    said = " ".join(report.text(120).split())
    assert "2 requests were served by another service tier than was asked for" in said
    assert "no price is known for the service tier of 1 request" in said
    lines = list(csv.DictReader(csv_lines(book.requests())))
    assert [(line["asked_tier"], line["service_tier"], line["price_flags"]) for line in lines] == [
        ("flex", "flex", ""),
        ("flex", "default", "tier_differs"),
        ("flex", "priority", "tier_differs tier_unpriced"),
    ]
