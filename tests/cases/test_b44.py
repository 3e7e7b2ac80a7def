"""B44: the caller's credentials stay on the target's side."""

from __future__ import annotations

import logging

import pytest
from casepair import Pair

from cheapspec.testing.faults import Status

REPLY = "One, two, three in Paris."
SECRETS = ("target-key", "cookie-secret", "header-secret", "query-secret")


def ask(pair: Pair) -> None:
    headers = {"Cookie": "s=cookie-secret", "x-api-key": "header-secret"}
    pair.ask(extra_headers=headers, extra_query={"token": "query-secret"})


def test_b44c_the_draft_host_never_sees_them(pair: Pair) -> None:
    """No key, cookie, header or query of the caller's goes to the draft host, in no call."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(2)
    ask(pair)
    assert pair.draft.requests
    for exchange in pair.draft.requests:
        assert not {"authorization", "cookie", "x-api-key", "api-key"} & set(exchange.headers)
        seen = f"{exchange.headers} {exchange.query} {exchange.content!r}"
        assert not [secret for secret in SECRETS if secret in seen]


def test_b44_every_target_call_carries_them(pair: Pair) -> None:
    """Scoring, tokenizing and hand-off go out as the caller's own request does: key, headers, query."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    ask(pair)
    assert {"score", "continue"} <= set(pair.purposes())
    for exchange in pair.target.requests:
        assert exchange.headers["authorization"] == "Bearer target-key"
        assert exchange.headers["x-api-key"] == "header-secret"
        assert "token=query-secret" in exchange.query


def test_b44de_logs_and_ledger_never_hold_them(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Even when the target's error repeats the key, neither our log at DEBUG nor the ledger shows it."""
    pair.says(REPLY)
    pair.target.plan("score", Status(401, message="Incorrect API key provided: target-key"))
    pair.target.plan("direct", Status(401, message="Incorrect API key provided: target-key"))
    with caplog.at_level(logging.DEBUG, "cheapspec"):
        ask(pair)
    ours = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("cheapspec"))
    books = repr(pair.ledger.requests())
    assert ours
    assert not [secret for secret in SECRETS if secret in ours + books]
