"""What is known of an endpoint: for whom, and how long."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.probe import Facts
from cheapspec.drive.endpoints import PROBED_SECONDS
from cheapspec.drive.permits import Permits
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.settings import Settings
from cheapspec.ledger.null import NullLedger


class NoPrices:
    """No price is known."""

    def lookup(self, model: str, base_url: str) -> tuple[None, str]:
        return None, "unknown"


def runtime() -> Runtime:
    def read_settings(headers: Any, options: Any) -> Settings:
        return Settings()

    return Runtime(read_settings, (), NoPrices(), NullLedger(), Permits(Decimal(0), Decimal(0)))


def passed(**settings: Any) -> Passed:
    own = httpx2.Request("POST", "http://target.test/v1/chat/completions", json={})
    return Passed("cs-1", Settings(**settings), "direct", "not_probed", own, kind="chat", model="m")


@pytest.mark.parametrize("first", [True, False])
def test_simulated_scoring_is_no_fact_of_the_endpoint(first: bool) -> None:
    """A demo client and a real one on the same server each get a target of their own kind, whoever came first."""
    for simulated in (first, not first):
        target = runtime().facts_of(passed(backend="llamacpp", simulate_scoring=simulated), 0.0).target
        assert isinstance(target, LlamaCppTarget)
        assert target.simulate_scoring is simulated


def test_a_probe_that_found_something_holds_for_an_hour() -> None:
    """After that the endpoint is unknown again, and a probe is due."""
    shared, asked = runtime(), passed(backend="auto")
    assert shared.due_probe(asked) is not None
    shared.probed(asked, Facts(backend="vllm", can_score=True))
    now = time.monotonic()
    assert shared.facts_of(asked, now + PROBED_SECONDS - 60).target is not None
    assert shared.due_probe(asked) is None
    later = shared.facts_of(asked, now + PROBED_SECONDS + 60)
    assert (later.target, later.reason) == (None, "not_probed")
    assert shared.due_probe(asked) is not None


@pytest.mark.parametrize("reason", ["reasoning", "cannot_score"])
def test_the_reason_that_a_probe_gives_is_kept(reason: str) -> None:
    """A target that thinks is told apart from one that cannot score; both are asked again some day."""
    shared, asked = runtime(), passed(backend="auto")
    shared.probed(asked, Facts(reason=reason, evidence=("why",)))
    facts = shared.facts_of(asked, time.monotonic())
    assert (facts.target, facts.reason, facts.detail) == (None, reason, "why")
    assert shared.facts_of(asked, time.monotonic() + 3600).reason == "not_probed"
