"""What a client learns from its requests, through the public door: acceptance, speeds, and what a context costs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cheapspec.backends.targets import target_for
from cheapspec.core.effects import Note, Usage
from cheapspec.core.estimate import Count
from cheapspec.core.money import Prices
from cheapspec.core.planner import call_prices
from cheapspec.core.ports import Target
from cheapspec.core.request import Request
from cheapspec.core.speed import PRIOR
from cheapspec.drive.contexts import context_prices
from cheapspec.drive.learning import Learning, workload_of
from cheapspec.drive.settings import Settings
from cheapspec.drive.state import TargetFacts
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.testing.scripted import ScriptedTarget
from cheapspec.testing.toy import ToyModel

PRICES = Prices(Decimal(1), Decimal(5), Decimal("0.1"))
SCRIPTED: Target = ScriptedTarget(ToyModel())


def asked(system: str | None) -> Request:
    told = [{"role": "user", "content": "hi"}]
    messages = told if system is None else [{"role": "system", "content": system}, *told]
    return Request("chat", {}, "m", False, messages=tuple(messages))


def test_a_workload_is_the_callers_tag_or_the_system_prompt() -> None:
    """The session does not matter; without either all requests of the target are one workload."""
    assert workload_of(Settings(workload="mail", session="s"), asked("Be brief.")) == "mail"
    assert workload_of(Settings(session="s"), asked("Be brief.")) == workload_of(Settings(), asked("Be brief."))
    assert workload_of(Settings(), asked("Be brief.")) != workload_of(Settings(), asked("Be long."))
    assert workload_of(Settings(session="s"), asked(None)) == "" == workload_of(Settings(), None)


@pytest.mark.parametrize("ledger", [MemoryLedger(), NullLedger()])
def test_observations_are_kept_with_or_without_a_ledger(ledger: MemoryLedger | NullLedger) -> None:
    """A ledger that is off still lets this process learn."""
    learning = Learning(ledger)
    told = learning.observe("m@u", "w", Note("estimates", {"delta": {("d", "0.9"): Count(1000, 500, 970)}}))
    assert told and not learning.observe("m@u", "w", Note("unusable", {}))
    assert learning.estimates("m@u", "w").rate(-0.05, "d") == pytest.approx(0.5, abs=0.03)
    assert learning.estimates("m@u", "new").rate(-0.05, "d") == pytest.approx(0.5, abs=0.03)  # its other workloads
    assert learning.estimates("other@u", "w").rate(-0.05, "d") == pytest.approx(0.97)


def test_speeds_are_measured_by_target_and_by_drafter() -> None:
    """From calls that told their usage; an estimate teaches nothing."""
    learning = Learning(NullLedger())
    assert learning.speed("m@u") == PRIOR and learning.draft_seconds() == {}
    for output in (1, 50, 200) * 20:
        learning.called("m@u", Usage(100, output, 90), 0.2 + 0.05 * output)
    learning.called("m@u", Usage(100, 50, estimated=True), 900.0)
    learning.called("m@u", None, 900.0)
    assert learning.speed("m@u").decode == pytest.approx(0.05, rel=0.1)
    assert learning.speed("other@u") == PRIOR
    for _ in range(50):
        assert learning.observe("m@u", "w", Note("drafted", {"drafter": "d", "tokens": 100, "seconds": 1.0}))
    assert learning.draft_seconds()["d"] == pytest.approx(0.01, rel=0.05)


def test_a_context_costs_what_was_probed() -> None:
    """qs and qh are the shares computed anew; the rest is read at the cached price."""
    facts = TargetFacts(SCRIPTED, qs=0.25, qh=0.5)
    context = context_prices(PRICES, facts, 0.0)
    assert (context.q0, context.first) == (1.0, 1.0)
    assert context.qs == pytest.approx(0.25 + 0.75 * 0.1) and context.qh == pytest.approx(0.5 + 0.5 * 0.1)
    warm = context_prices(PRICES, facts, 0.8)
    assert warm.q0 == pytest.approx(0.2 + 0.8 * 0.1)
    assert warm.first == pytest.approx(0.2 + 0.8 * context.qs)


def test_what_was_not_probed_is_assumed_on_the_dear_side_for_scoring() -> None:
    """Scoring computes everything anew, a hand-off finds what was just scored; without a cached price all is 1."""
    context = context_prices(PRICES, TargetFacts(SCRIPTED), 0.0)
    assert context.qs == 1.0 and context.qh == pytest.approx(0.1)
    flat = context_prices(Prices(Decimal(1), Decimal(5)), TargetFacts(SCRIPTED, qs=0.0, qh=0.0), 0.7)
    assert (flat.q0, flat.qs, flat.qh, flat.first) == (1.0, 1.0, 1.0, 1.0)
    assert context_prices(None, TargetFacts(SCRIPTED), 0.0).first == 1.0


@pytest.mark.parametrize(("backend", "share"), [("sglang", 0.1), ("llamacpp", 0.1), ("vllm", 1.0), ("together", 1.0)])
def test_a_dialect_says_whether_scoring_reads_its_cache(backend: str, share: float) -> None:
    """Where no probe measured it; what was measured goes before."""
    assert context_prices(PRICES, TargetFacts(target_for(backend)), 0.0).qs == pytest.approx(share)
    assert context_prices(PRICES, TargetFacts(target_for(backend), qs=0.5), 0.0).qs == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("tier", "tokens", "expected"),
    [(None, 10, "1"), ("flex", 10, "0.5"), ("unheard of", 10, "1"), (None, 300_000, "2"), ("flex", 300_000, "0.7")],
)
def test_a_plan_uses_the_prices_of_the_tier_and_of_the_prompts_length(
    tier: str | None, tokens: int, expected: str
) -> None:
    """As the bill will; of a tier without a price the standard one's."""
    flex = Prices(Decimal("0.5"), Decimal(2), steps=((200_000, Prices(Decimal("0.7"), Decimal(3))),))
    dear = Prices(Decimal(2), Decimal(9))
    prices = Prices(Decimal(1), Decimal(5), tiers=(("flex", flex),), steps=((200_000, dear),))
    used = call_prices(prices, tier, tokens)
    assert used is not None and used.input == Decimal(expected)
    assert call_prices(None, tier, tokens) is None


def test_writing_the_cache_has_its_price() -> None:
    """What the first scoring call reads cold it also writes, at the surcharge."""
    prices = Prices(Decimal(1), Decimal(5), Decimal("0.1"), cache_write=Decimal("1.25"))
    assert context_prices(prices, TargetFacts(SCRIPTED, qs=0.0), 0.0).first == pytest.approx(1.25)
    assert context_prices(prices, TargetFacts(SCRIPTED, qs=0.0), 0.5).first == pytest.approx(0.05 + 0.625)
