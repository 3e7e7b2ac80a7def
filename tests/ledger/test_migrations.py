"""Numbered migrations: from nothing and from every version there was, to the tables that the queries expect."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, inspect

from cheapspec.core.info import Info
from cheapspec.core.ports import RequestRow
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.migrations import LATEST, MIGRATIONS, migrate
from cheapspec.ledger.schema import allowances, certificates, estimates, metadata, risks, shadows, traces
from cheapspec.ledger.store import Store

SNAPSHOTS = Path(__file__).parents[1] / "data" / "ledger"


def described(store: Store) -> dict[str, Any]:
    """Tables, columns (type's family, nullable), keys and indexes, as the database tells them."""
    store.connect().close()
    seen = MetaData()
    with store.engine.connect() as connection:
        seen.reflect(connection)
        inspector = inspect(connection)
        return {
            table.name: (
                {
                    column.name: (column.type._type_affinity.__name__, column.nullable, column.primary_key)
                    for column in table.columns
                },
                sorted((index["name"], tuple(index["column_names"])) for index in inspector.get_indexes(table.name)),
            )
            for table in seen.tables.values()
        }


def expected() -> dict[str, Any]:
    return {
        table.name: (
            {
                column.name: (column.type._type_affinity.__name__, column.nullable, column.primary_key)
                for column in table.columns
            },
            sorted((str(index.name), tuple(column.name for column in index.columns)) for index in table.indexes),
        )
        for table in metadata.tables.values()
    }


def test_the_tables_that_migrations_make_are_those_of_the_schema(url: str) -> None:
    """Column by column and index by index."""
    made = described(Store(url))
    assert made.keys() == expected().keys()
    for name, table in expected().items():
        assert made[name] == table, name


def test_migrations_are_numbered_without_gaps_and_run_once(url: str) -> None:
    """A second opening finds them done."""
    assert [step.version for step in MIGRATIONS] == list(range(1, LATEST + 1))
    store = Store(url)
    for found in (0, LATEST):
        raw = store.connect_as_is()
        assert migrate(raw, store.dialect) == found
        cursor = raw.cursor()
        cursor.execute("SELECT version FROM schema_version ORDER BY version")
        assert [row[0] for row in cursor.fetchall()] == list(range(1, LATEST + 1))
        raw.close()


def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    """All steps of an opening stand in one transaction."""
    store = Store(url)
    raw = store.connect_as_is()
    cursor = raw.cursor()
    cursor.execute("CREATE TABLE certificates (x INTEGER)")  # in the way of the last statement
    raw.commit()
    with pytest.raises(store.engine.dialect.loaded_dbapi.Error):
        migrate(raw, store.dialect)
    with store.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["certificates"]
    raw.close()


def test_a_crowd_that_opens_a_fresh_ledger_migrates_it_once(url: str) -> None:
    """One does, the others wait and find it done."""
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            Store(url).connect().close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=connect) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert described(Store(url)).keys() == expected().keys()


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_rows_of_every_earlier_version_survive(tmp_path: Path, version: int) -> None:
    """A ledger as that version left it (a snapshot, never edited) is opened, read and written to."""
    path = tmp_path / "ledger.db"
    store = Store(f"sqlite:///{path}")
    raw = store.connect_as_is()
    raw.executescript((SNAPSHOTS / f"version_{version}.sql").read_text("utf-8"))
    raw.close()
    ledger = DatabaseLedger(f"sqlite:///{path}")
    kept = {record.row.request_id: record for record in ledger.requests()}
    assert kept["cs-kept"].info is not None
    assert kept["cs-kept"].info["paid_usd"] == "0.000412"
    assert [call.status for call in kept["cs-kept"].calls] == ["ok", "expired"]
    assert kept["cs-kept"].calls[1].cost_usd is not None
    assert [one.request_id for one in ledger.shadow_rows()] == ["cs-kept"] * (version >= 3)
    assert [one.valid(one.at) for one in ledger.certificate_rows()] == [True] * (version >= 3)
    ledger.close()


def test_a_ledger_of_version_1_is_upgraded_where_it_stands(url: str) -> None:
    """On both databases: its rows are read with the new facts unknown, and new rows carry them."""
    store = Store(url)
    raw = store.connect_as_is()
    assert migrate(raw, store.dialect, to=1) == 0
    cursor = raw.cursor()
    cursor.execute(
        "INSERT INTO requests (request_id, at, closed_at, owner, lease_expires, model, kind, stream, decision, rule, "
        "paid_nano, baseline_nano, baseline) VALUES ('cs-old', 1.0, 2.0, 'o', 60.0, 'm', 'chat', "
        f"{'0' if store.dialect == 'sqlite' else 'false'}, 'speculate', 'exact', 412000, 980000, 'exact')"
    )
    cursor.execute("INSERT INTO traces VALUES ('cs-old', 1, 'ollama:m', 0, '[-0.1]', '1')")
    raw.commit()
    assert migrate(raw, store.dialect) == 1
    raw.close()
    ledger = DatabaseLedger(url)
    told = {"target": "m@https://api.example/v1", "prompt_tokens": 40, "cached_prompt_tokens": 0, "reply_tokens": 7}
    more = {"lossy": True, "fixed_draft_tokens": 8, "local_usd": Decimal("0.0001"), "forecast_usd": Decimal("-0.0002")}
    fresh = Info("speculate", "cs-new", lenient_tokens=3, **told, **more)  # type: ignore[arg-type]
    ledger.open_request(RequestRow("cs-new", 3.0, "m", "chat", False))
    ledger.close_request("cs-new", fresh.to_dict())
    old, new = (Info.from_dict(record.info or {}) for record in ledger.requests())
    assert (old.paid_usd, old.baseline, old.target, old.prompt_tokens) == (Decimal("0.000412"), "exact", None, None)
    assert (old.lossy, old.fixed_draft_tokens, old.local_usd, old.forecast_usd) == (False, None, None, None)
    assert new == fresh
    with ledger.read() as connection:
        (trace,) = connection.execute(traces.select()).all()
        assert (trace.ended, trace.model) == (None, None)
        for table in (estimates, allowances, risks, shadows, certificates):
            assert connection.execute(table.select()).all() == []
    ledger.close()
