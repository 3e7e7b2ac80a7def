"""A user name and a password in a base URL reach the server, and nothing that is kept, logged or shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from doorway import ASKED, Doorway, call, entered

import cheapspec
from cheapspec.drive.urls import api_base, masked, shown_url
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.schema import metadata
from cheapspec.testing.faults import CloseAfterBody
from cheapspec.testing.server import refusing_url

SECRET = "hunter2secret"


def with_password(url: str) -> str:
    return url.replace("://", f"://someone:{SECRET}@")


@pytest.mark.parametrize("settings", [{}, {"prices": None}, {"target_backend": "auto", "draft_tokens": None}])
def test_a_password_in_the_base_url_is_kept_nowhere(
    settings: dict[str, Any], way: Doorway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the log nor in a reply's facts nor in any table of the ledger, whatever became of the request."""
    ledger = DatabaseLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    caplog.set_level(logging.DEBUG, "cheapspec")
    replies: list[Any] = []

    async def scenario() -> None:
        given = way.speculation(ledger=ledger, **settings)
        async with entered(way.client(given, base_url=with_password(way.target.base_url))) as client:
            for _ in range(2):
                replies.append(await call(client.chat.completions.create, **ASKED))

    way.run(scenario)
    with ledger.read() as connection:
        kept = [str(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(table.select())]
    ledger.close()
    told = [cheapspec.info(reply) for reply in replies]
    assert all(one is not None and one.target == f"toy@{way.target.base_url}" for one in told)
    assert any("toy@" in row for row in kept)
    everything = "\n".join([*kept, caplog.text, json.dumps([one.to_dict() for one in told if one is not None])])
    assert SECRET not in everything
    assert "someone" not in everything


def test_a_password_in_the_base_url_is_in_no_message_of_a_failure(
    way: Doorway, caplog: pytest.LogCaptureFixture
) -> None:
    """A scoring call that breaks off is told of without what its URL carries."""
    way.target.plan("score", CloseAfterBody())
    caplog.set_level(logging.DEBUG, "cheapspec")

    async def scenario() -> None:
        async with entered(way.client(base_url=with_password(way.target.base_url), max_retries=0)) as client:
            with pytest.raises(openai.APIConnectionError) as raised:
                await call(client.chat.completions.create, **ASKED)
            assert SECRET not in str(raised.value)

    way.run(scenario)
    assert "direct" in caplog.text
    assert SECRET not in caplog.text


def test_a_password_of_a_draft_host_is_in_no_message(way: Doorway, caplog: pytest.LogCaptureFixture) -> None:
    """A draft host that is away is told of without it."""
    caplog.set_level(logging.DEBUG, "cheapspec")

    async def scenario() -> None:
        with refusing_url() as url:
            given = way.speculation(draft=f"llamacpp:{with_password(url)}")
            async with entered(way.client(given)) as client:
                await call(client.chat.completions.create, **ASKED)

    way.run(scenario)
    assert "127.0.0.1" in caplog.text
    assert SECRET not in caplog.text


def test_an_endpoint_is_named_without_secrets() -> None:
    """No user name, password or query; escapes of the path stay."""
    url = httpx2.URL(f"https://someone:{SECRET}@h:8443/a%20b/v1/chat/completions?api_key=1")
    assert api_base(url) == "https://h:8443/a%20b/v1"
    assert shown_url(f"http://:{SECRET}@h:1/v1") == "http://h:1/v1"


@pytest.mark.parametrize(
    "said",
    [
        f"no such host https://someone:p%40{SECRET}@h/v1",
        f"bad password p@{SECRET}",
        "Basic c29tZW9uZTpwQGh1bnRlcjJzZWNyZXQ= refused",
        f"key query-{SECRET} is unknown",
        f"Bearer header-{SECRET}",
    ],
)
def test_what_others_say_is_masked(said: str) -> None:
    """A message that repeats what the request carried (URL, header made of it, query, key) loses it."""
    url = f"https://someone:p%40{SECRET}@h/v1/chat/completions?api_key=query-{SECRET}&api-version=2024-10-21"
    request = httpx2.Request("POST", url, headers={"authorization": f"Bearer header-{SECRET}"})
    shown = masked(said + " in 2024-10-21", request)
    assert SECRET not in shown
    assert "c29tZW9uZ" not in shown
    assert "***" in shown
    assert "2024-10-21" in shown
