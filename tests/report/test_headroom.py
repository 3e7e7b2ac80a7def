"""What speculation may still lose, as reports show it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from cheapspec import OpenAI, Speculation
from cheapspec.ledger import MemoryLedger
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.report import Headroom, report_of

SEED = Decimal("0.05")
CAP = Decimal("0.5")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[DatabaseLedger]:
    """One request earned two cents, one lost three in a workload, and one is under way in a session."""
    made = DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")
    made.release("r1", ["all"], Decimal("0.02"), CAP, None)
    made.release("r2", ["all", "workload:chat"], Decimal("-0.03"), CAP, None)
    assert made.hold("r3", ["all", "session:nightly"], Decimal("0.01"), SEED).wait(20)
    yield made
    made.close()


def test_each_account_says_what_is_left(ledger: DatabaseLedger) -> None:
    """Balance less what is at risk, and the seed; that of all requests first, then who has least."""
    found = report_of(ledger, seed=SEED).allowance
    assert found == (
        Headroom("all", Decimal("-0.01"), Decimal("0.01"), SEED),
        Headroom("workload:chat", Decimal("-0.03"), Decimal(0), SEED),
        Headroom("session:nightly", Decimal(0), Decimal("0.01"), SEED),
    )
    assert [one.usd for one in found] == [Decimal("0.03"), Decimal("0.02"), Decimal("0.04")]


def test_it_is_in_the_json_the_text_and_the_page(ledger: DatabaseLedger) -> None:
    """Each with all accounts by name."""
    with OpenAI(api_key="none", speculation=Speculation(ledger=ledger, seed_usd="0.05")) as client:
        report = client.report()
    assert report.to_dict()["allowance"][0] == {
        "account": "all",
        "balance_usd": "-0.010000",
        "open_usd": "0.010000",
        "seed_usd": "0.050000",
        "headroom_usd": "0.030000",
    }
    text, page = report.text(100), report.html()
    for name in ("all requests", "workload chat", "session nightly"):
        assert name in text
        assert name in page
    assert "$0.030000" in text and "$0.030000" in page


def test_a_session_s_report_has_its_own_account_and_the_common_one(ledger: DatabaseLedger) -> None:
    """Others' are no business of it."""
    found = report_of(ledger, session="nightly", seed=SEED).allowance
    assert [one.account for one in found] == ["all", "session:nightly"]


def test_a_ledger_without_accounts_has_none(ledger: DatabaseLedger) -> None:
    """In memory the allowance is the client's own; and nobody is told of a seed that nobody named."""
    assert report_of(MemoryLedger(), seed=SEED).allowance == ()
    assert report_of(ledger).allowance == ()
