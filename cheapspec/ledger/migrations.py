"""How the ledger's tables came to be: numbered steps, each applied once, in order, in one transaction.

Rules
-----
* A step is never edited once it was released: a change is a new step. Steps are plain SQL that SQLite and
  PostgreSQL both read.
* Several processes may open a fresh ledger at once: one migrates, the others wait (SQLite's write lock, a
  PostgreSQL advisory lock) and find it done.
* A ledger made by a newer version is left alone: :class:`~cheapspec.errors.LedgerError`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from cheapspec.errors import LedgerError

__all__ = ["LATEST", "MIGRATIONS", "Migration", "migrate"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: the version that it leads to, and its statements."""

    version: int
    title: str
    statements: tuple[str, ...]


MIGRATIONS = (
    Migration(
        1,
        "Requests, calls, traces, sessions, budgets and what was learnt",
        (
            """CREATE TABLE requests (
                request_id TEXT PRIMARY KEY NOT NULL, at DOUBLE PRECISION NOT NULL, closed_at DOUBLE PRECISION,
                owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                model TEXT NOT NULL, kind TEXT NOT NULL, stream BOOLEAN NOT NULL,
                session TEXT, session_id TEXT, workload TEXT,
                decision TEXT, reason TEXT, rule TEXT, drafter TEXT, rounds INTEGER, ties INTEGER,
                drafted_tokens INTEGER, accepted_tokens INTEGER, corrected_tokens INTEGER, handoff_tokens INTEGER,
                unverified_tokens INTEGER, target_calls INTEGER,
                input_tokens INTEGER, cached_input_tokens INTEGER, output_tokens INTEGER,
                paid_nano BIGINT, baseline_nano BIGINT, baseline TEXT, priced_by TEXT, simulated BOOLEAN,
                seconds_draft DOUBLE PRECISION, seconds_verify DOUBLE PRECISION,
                seconds_handoff DOUBLE PRECISION, seconds_total DOUBLE PRECISION,
                prompt_text TEXT, reply_text TEXT)""",
            "CREATE INDEX requests_at ON requests (at)",
            "CREATE INDEX requests_session ON requests (session_id) WHERE session_id IS NOT NULL",
            "CREATE INDEX requests_open ON requests (owner) WHERE closed_at IS NULL",
            """CREATE TABLE calls (
                call_id TEXT PRIMARY KEY NOT NULL, request_id TEXT NOT NULL, side TEXT NOT NULL, purpose TEXT NOT NULL,
                billed BOOLEAN NOT NULL, status TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
                closed_at DOUBLE PRECISION, owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                worst_nano BIGINT, input_tokens INTEGER, cached_tokens INTEGER, cache_write_tokens INTEGER,
                output_tokens INTEGER, reasoning_tokens INTEGER, estimated BOOLEAN, service_tier TEXT,
                cost_nano BIGINT, budget_nano BIGINT, seconds DOUBLE PRECISION, http_status INTEGER)""",
            "CREATE INDEX calls_request ON calls (request_id)",
            "CREATE INDEX calls_open ON calls (owner) WHERE status = 'open'",
            """CREATE TABLE traces (
                request_id TEXT NOT NULL, round INTEGER NOT NULL, drafter TEXT, position INTEGER NOT NULL,
                logprobs TEXT NOT NULL, agreed TEXT NOT NULL, PRIMARY KEY (request_id, round))""",
            """CREATE TABLE sessions (
                session_id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, parent_id TEXT,
                at DOUBLE PRECISION NOT NULL, closed_at DOUBLE PRECISION, owner TEXT NOT NULL)""",
            "CREATE INDEX sessions_name ON sessions (name)",
            """CREATE TABLE budgets (
                name TEXT NOT NULL, period TEXT NOT NULL, usd_nano BIGINT NOT NULL, reserved_nano BIGINT NOT NULL,
                spent_nano BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, period))""",
            """CREATE TABLE reservations (
                request_id TEXT NOT NULL, name TEXT NOT NULL, period TEXT NOT NULL, status TEXT NOT NULL,
                amount_nano BIGINT NOT NULL, charged_nano BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
                closed_at DOUBLE PRECISION, owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (request_id, name, period))""",
            "CREATE INDEX reservations_held ON reservations (owner) WHERE status = 'held'",
            """CREATE TABLE estimates (
                workload TEXT NOT NULL, drafter TEXT NOT NULL, bucket TEXT NOT NULL, trials DOUBLE PRECISION NOT NULL,
                hits DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (workload, drafter, bucket))""",
            """CREATE TABLE capabilities (
                base_url TEXT NOT NULL, model TEXT NOT NULL, backend TEXT NOT NULL, can_score BOOLEAN,
                can_force BOOLEAN, can_continue BOOLEAN, can_judge BOOLEAN, reports_cached_tokens BOOLEAN,
                qs DOUBLE PRECISION, qh DOUBLE PRECISION, evidence TEXT NOT NULL, probed_at DOUBLE PRECISION NOT NULL,
                expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (base_url, model, backend))""",
            """CREATE TABLE certificates (
                workload TEXT NOT NULL, rule TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, threshold DOUBLE PRECISION,
                audited INTEGER NOT NULL, bad INTEGER NOT NULL, level DOUBLE PRECISION NOT NULL,
                loss_bound DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION, PRIMARY KEY (workload, rule, at))""",
        ),
    ),
    Migration(
        2,
        "What replays, estimates and an allowance shared by processes need",
        (
            "ALTER TABLE requests ADD COLUMN fixed_draft_tokens INTEGER",
            "ALTER TABLE requests ADD COLUMN local_nano BIGINT",
            "ALTER TABLE requests ADD COLUMN lossy BOOLEAN",
            "ALTER TABLE requests ADD COLUMN lenient_tokens INTEGER",
            "ALTER TABLE requests ADD COLUMN target TEXT",
            "ALTER TABLE requests ADD COLUMN prompt_tokens INTEGER",
            "ALTER TABLE requests ADD COLUMN reply_tokens INTEGER",
            "ALTER TABLE requests ADD COLUMN cached_prompt_tokens INTEGER",
            "ALTER TABLE requests ADD COLUMN forecast_nano BIGINT",
            "ALTER TABLE traces ADD COLUMN ended BOOLEAN",
            "ALTER TABLE traces ADD COLUMN model TEXT",
            # Version 1 kept no estimates yet; counts without a target would be of no use to anyone.
            "DROP TABLE estimates",
            """CREATE TABLE estimates (
                target TEXT NOT NULL, workload TEXT NOT NULL, drafter TEXT NOT NULL, bucket TEXT NOT NULL,
                trials DOUBLE PRECISION NOT NULL, hits DOUBLE PRECISION NOT NULL, predicted DOUBLE PRECISION NOT NULL,
                updated_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (target, workload, drafter, bucket))""",
            """CREATE TABLE allowances (
                account TEXT PRIMARY KEY NOT NULL, balance_nano BIGINT NOT NULL, open_nano BIGINT NOT NULL,
                at DOUBLE PRECISION NOT NULL)""",
            """CREATE TABLE risks (
                request_id TEXT NOT NULL, account TEXT NOT NULL, amount_nano BIGINT NOT NULL, owner TEXT NOT NULL,
                lease_expires DOUBLE PRECISION NOT NULL, at DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (request_id, account))""",
            "CREATE INDEX risks_owner ON risks (owner)",
        ),
    ),
    Migration(
        3,
        "What lossy rules were seen to lose, and what is promised of them; service tiers asked for and served",
        (
            # No earlier version wrote certificates.
            "DROP TABLE certificates",
            """CREATE TABLE certificates (
                certificate_id TEXT PRIMARY KEY NOT NULL, at DOUBLE PRECISION NOT NULL, workload TEXT NOT NULL,
                rule TEXT NOT NULL, prompt_version TEXT NOT NULL, draft TEXT NOT NULL, target TEXT NOT NULL,
                fingerprint TEXT, comparison TEXT NOT NULL, threshold DOUBLE PRECISION, n INTEGER NOT NULL,
                failures INTEGER NOT NULL, accepted INTEGER NOT NULL, loss DOUBLE PRECISION NOT NULL,
                confidence DOUBLE PRECISION NOT NULL, seen_until DOUBLE PRECISION NOT NULL,
                expires_at DOUBLE PRECISION NOT NULL, chance DOUBLE PRECISION, revoked_at DOUBLE PRECISION,
                revoked_why TEXT)""",
            """CREATE TABLE shadows (
                request_id TEXT NOT NULL, rule TEXT NOT NULL, kind TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
                workload TEXT NOT NULL, prompt_version TEXT NOT NULL, draft TEXT NOT NULL, target TEXT NOT NULL,
                fingerprint TEXT, outcome TEXT NOT NULL, score DOUBLE PRECISION, comparison TEXT NOT NULL,
                equal BOOLEAN, bad BOOLEAN, chance DOUBLE PRECISION, why TEXT NOT NULL, draft_text TEXT,
                PRIMARY KEY (request_id, rule, kind))""",
            "CREATE INDEX shadows_workload ON shadows (workload, target, at)",
            "ALTER TABLE calls ADD COLUMN asked_tier TEXT",
            "ALTER TABLE calls ADD COLUMN price_flags TEXT",
        ),
    ),
)
LATEST = MIGRATIONS[-1].version

_ADVISORY_LOCK = 0x63687370


def migrate(connection: Any, dialect: str, *, to: int = LATEST) -> int:
    """Bring the tables up to version ``to``; returns the version that they had.

    ``connection``: a DBAPI connection without an open transaction; ``dialect``: ``sqlite`` or ``postgresql``.

    :raises LedgerError: the tables were made by a newer version.
    """
    cursor = connection.cursor()
    try:
        if dialect == "sqlite":
            cursor.execute("BEGIN IMMEDIATE")
        else:
            cursor.execute(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version INTEGER PRIMARY KEY NOT NULL, applied_at DOUBLE PRECISION NOT NULL)"
        )
        cursor.execute("SELECT COALESCE(MAX(version), 0) FROM schema_version")
        found = int(cursor.fetchone()[0])
        if found > LATEST:
            raise LedgerError(
                f"the ledger has version {found} of the tables, this cheapspec knows {LATEST}: upgrade cheapspec, "
                "or give it another ledger"
            )
        for step in MIGRATIONS:
            if found < step.version <= to:
                for statement in step.statements:
                    cursor.execute(statement)
                cursor.execute(f"INSERT INTO schema_version VALUES ({step.version}, {time.time()!r})")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        cursor.close()
    return found
