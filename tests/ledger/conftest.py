"""Every test of the database ledger runs on SQLite; under ``make services`` on a real PostgreSQL too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresql import postgresql

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.store import Store


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server = request.getfixturevalue("postgresql_server")
    name = f"ledger_{uuid.uuid4().hex[:12]}"
    connection = Store(f"{server}/postgres").connect_as_is()
    connection.autocommit = True
    connection.execute(f"CREATE DATABASE {name}")
    connection.close()
    return f"{server}/{name}"


@pytest.fixture
def ledger(url: str) -> Iterator[DatabaseLedger]:
    made = DatabaseLedger(url)
    yield made
    made.close()
