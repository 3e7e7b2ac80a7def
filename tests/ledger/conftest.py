"""Every test of the database ledger runs on SQLite; under ``make services`` on a real PostgreSQL too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresql import postgresql

from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.store import Store


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.services)


def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of the kind that the fixture's parameter says."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server = request.getfixturevalue("postgresql_server")
    name = f"ledger_{uuid.uuid4().hex[:12]}"
    connection = Store(f"{server}/postgres").connect_as_is()
    connection.autocommit = True
    connection.execute(f"CREATE DATABASE {name}")
    connection.close()
    return f"{server}/{name}"


@pytest.fixture(params=["sqlite", POSTGRESQL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[DatabaseLedger]:
    made = DatabaseLedger(url)
    yield made
    made.close()


@pytest.fixture(params=["memory", "sqlite", POSTGRESQL])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BudgetedMemoryLedger | DatabaseLedger]:
    """A ledger that keeps budgets, of each kind."""
    if request.param == "memory":
        yield BudgetedMemoryLedger()
        return
    made = DatabaseLedger(fresh_url(request, tmp_path))
    yield made
    made.close()
