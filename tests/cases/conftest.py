"""The pairs of servers that the case tests ask; see :mod:`casepair`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from casepair import Pair, servers

from cheapspec.drive.state import targets


@pytest.fixture(autouse=True)
def forget_targets() -> None:
    """A port may come again: what is known of an endpoint does not outlive its test."""
    targets.clear()


@pytest.fixture(params=["sync", "async"])
def door(request: pytest.FixtureRequest) -> str:
    """Which client."""
    return str(request.param)


@pytest.fixture
def pair(door: str) -> Iterator[Pair]:
    """A vLLM-like target that is driven by token ids, and a draft host."""
    with servers(door) as made:
        yield made


@pytest.fixture
def text_pair(door: str) -> Iterator[Pair]:
    """The same behind a gateway without /tokenize: everything goes by text, through the chat route."""
    with servers(door, capabilities="no_tokenize") as made:
        yield made


@pytest.fixture(params=["ids", "text"])
def any_pair(door: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both routes, one after the other."""
    with servers(door, capabilities="vllm" if request.param == "ids" else "no_tokenize") as made:
        yield made
