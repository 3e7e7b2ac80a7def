"""Asking a drafter outside a request: what it would write next, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.bench.asking import DraftAsker
from cheapspec.core.request import Request
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Status
from cheapspec.testing.toy import ToyModel

MESSAGES = ({"role": "user", "content": "Where?"},)
REQUEST = Request("chat", {"messages": list(MESSAGES)}, "toy", False, MESSAGES)
TEXT = "In the old house behind the mill."


@pytest.fixture
def host() -> Iterator[FakeDraft]:
    model = ToyModel(3)
    model.replies["Where?"] = TEXT
    with FakeDraft(model=model) as server:
        yield server


@pytest.fixture
def asker(host: FakeDraft) -> Iterator[DraftAsker]:
    asker = DraftAsker(OllamaDrafter("toy", host.url), REQUEST, window=200)
    yield asker
    asker.close()


def test_it_tells_what_the_drafter_writes_and_where_it_ends(asker: DraftAsker) -> None:
    """The tokens join to the rest of the text; the end of the turn comes last."""
    told = asker("In the old")
    assert b"".join(token.data for token in told).decode() == TEXT.removeprefix("In the old")
    assert [token.end for token in told] == [False] * (len(told) - 1) + [True]
    assert all(token.logprob is not None and token.logprob <= 0 for token in told[:-1])


def test_a_host_that_fails_has_no_draft(asker: DraftAsker, host: FakeDraft) -> None:
    """An error, and a host that is gone, are no draft; nothing is raised."""
    host.plan("draft", Status(500, body={"error": "broken"}), times=1)
    assert not asker("")
    gone = DraftAsker(OllamaDrafter("toy", "http://127.0.0.1:1"), REQUEST)
    assert not gone("")
    gone.close()
