"""Servers and clients for the tests of the driver, through the doors; see ``tests/doors/doorway.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cheapspec.drive.state import infos, targets

sys.path.insert(0, str(Path(__file__).parents[1] / "doors"))
from doorway import Doorway, doorway


@pytest.fixture(autouse=True)
def forget() -> None:
    """A port or a reply's id may come again: what is known of them does not outlive a test."""
    targets.clear()
    infos.clear()


@pytest.fixture(params=["sync", "async"])
def door(request: pytest.FixtureRequest) -> str:
    """Which client."""
    return str(request.param)


@pytest.fixture
def way(door: str) -> Iterator[Doorway]:
    """A target, a draft host, and the client of this door."""
    with doorway(door) as made:
        yield made
