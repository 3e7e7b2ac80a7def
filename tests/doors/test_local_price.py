"""What drafting on one's own machine costs is a part of what was paid, and never of the baseline."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doorway import ASKED, Doorway, call, entered

import cheapspec
from cheapspec import SettingsError, Speculation
from cheapspec.core.money import LocalPrice
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.testing.faults import MissingLogprobs


def asked(way: Doorway, **settings: Any) -> cheapspec.Info:
    """The facts of one request."""
    found: list[cheapspec.Info | None] = []

    async def scenario() -> None:
        async with entered(way.client(way.speculation(**settings))) as client:
            found.append(cheapspec.info(await call(client.chat.completions.create, **ASKED)))

    way.run(scenario)
    assert found[0] is not None
    return found[0]


def test_tokens_of_the_draft_model_are_paid_for(way: Doorway, tmp_path: Path) -> None:
    """So many dollars a million tokens that it wrote: in ``paid``, in the books, not in the baseline."""
    free = asked(way)
    assert free.local_usd is None
    ledger = DatabaseLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    priced = asked(way, local_price={"per_million_tokens": 1000}, ledger=ledger)
    assert priced.decision == free.decision == "speculate"
    assert priced.local_usd is not None
    assert priced.local_usd * 1000 >= priced.drafted_tokens > 0
    assert free.paid_usd is not None
    assert priced.paid_usd == free.paid_usd + priced.local_usd
    assert priced.baseline_usd == free.baseline_usd
    with ledger.read() as connection:
        from cheapspec.ledger.schema import requests

        (row,) = connection.execute(requests.select())
    assert row.local_nano == priced.local_usd * 10**9
    assert (row.target, row.fixed_draft_tokens) == (f"toy@{way.target.base_url.rstrip('/')}", 64)
    assert (row.prompt_tokens, row.reply_tokens) == (priced.prompt_tokens, priced.reply_tokens)
    assert row.prompt_tokens > 0 < row.reply_tokens
    ledger.close()


def test_time_of_the_draft_model_is_paid_for(way: Doorway) -> None:
    """So many dollars an hour, for the seconds that drafts took."""
    info = asked(way, local_price={"per_hour": 3600})
    assert info.local_usd is not None
    assert info.local_usd == pytest.approx(Decimal(str(info.seconds.draft)), abs=Decimal("0.0001"))


def test_a_draft_that_came_to_nothing_was_paid_for_too(way: Doorway) -> None:
    """A request that went direct after all shows the loss."""
    way.target.plan("score", MissingLogprobs("absent"))
    info = asked(way, local_price={"per_million_tokens": 1000})
    assert info.decision == "direct"
    assert info.local_usd is not None and info.local_usd > 0
    assert info.saved_usd is not None and info.saved_usd < -info.local_usd


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give one of"),
        ({"per_hour": 1, "per_million_tokens": 1}, "give one of"),
        ({"per_hours": 1}, "did you mean 'per_hour'"),
        ({"gpu": 1}, "unknown key 'gpu'"),
        ({"per_hour": -1}, "0 or more"),
        ({"per_hour": "much"}, "is no number"),
        (3, "write {'per_million_tokens': 0.02}"),
    ],
)
def test_an_unusable_price_is_an_error_that_says_what_to_write(given: Any, said: str) -> None:
    """When the settings are made; a price that was read once is taken as it is."""
    with pytest.raises(SettingsError, match="local_price") as told:
        Speculation(local_price=given)
    assert said in str(told.value)
    kept = LocalPrice(per_hour=Decimal("0.5"))
    assert Speculation(local_price=kept).local_price == Speculation(local_price={"per_hour": 0.5}).local_price == kept


def test_it_can_be_set_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[speculation.local_price]``."""
    monkeypatch.chdir(tmp_path)
    Path("cheapspec.toml").write_text("[speculation.local_price]\nper_million_tokens = 0.02\n")
    assert Speculation().local_price == LocalPrice(per_million_tokens=Decimal("0.02"))
