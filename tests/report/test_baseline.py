"""The baseline is what direct would have cost with its own prompt cache: a loss must look like one."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from io import StringIO

import openai
import pytest
from reportkit import NOON
from rich.console import Console

from cheapspec import OpenAI, Speculation, info
from cheapspec.core.effects import Usage
from cheapspec.core.money import Prices
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.tally import Tally
from cheapspec.drive.state import targets
from cheapspec.ledger import MemoryLedger
from cheapspec.report import report_of
from cheapspec.report.text import show
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

PRICES = Prices(Decimal(1), Decimal(5), Decimal("0.1"))
"""Output five times, cached input a tenth of input."""


def booked(tally: Tally) -> MemoryLedger:
    """The ledger of one speculated request with these counts."""
    ledger = MemoryLedger()
    ledger.open_request(RequestRow("r", NOON, "m", "chat", stream=False))
    for number, usage in enumerate(tally.usages):
        ledger.open_call(CallRow(f"r.{number}", "r", "target", "score", True, NOON))
        alone = Tally(usages=[usage])
        ledger.close_call(Call(f"r.{number}", "ok", usage, str(alone.paid(PRICES)), 0.1, 200))
    ledger.close_request("r", tally.info("r", PRICES, "user").to_dict())
    return ledger


def printed(ledger: MemoryLedger) -> str:
    """The report as a terminal of 80 columns without colours shows it."""
    out = StringIO()
    show(Console(file=out, width=80, color_system=None, highlight=False), report_of(ledger))
    return out.getvalue()


@pytest.fixture
def pair() -> Iterator[tuple[FakeTarget, FakeDraft]]:
    """A target whose scoring skips its prompt cache, as vLLM's does, and a draft host."""
    targets.clear()
    with FakeTarget(model=ToyModel(3)) as target, FakeDraft(model=ToyModel(3)) as draft:
        yield target, draft


def test_the_trap_a_cached_prompt_scored_uncached_is_a_loss() -> None:
    """4,000 prompt tokens that direct finds cached, 200 reply tokens all accepted: paid 4,205, direct 1,400."""
    tally = Tally(cached_share=1.0, drafted_tokens=200, accepted_tokens=200, rounds=1)
    tally.spend(Usage(4200, 1, 0))
    tally.finish(1.0, 4000, 200)
    ledger = booked(tally)
    sums = report_of(ledger).sums
    assert sums.paid_usd == Decimal(4205) / 10**6
    assert sums.baseline_usd == Decimal(1400) / 10**6
    assert sums.saved_usd == Decimal(-2805) / 10**6
    assert sums.saved_share == pytest.approx(1 - 4205 / 1400)
    text = printed(ledger)
    assert "−$0.002805" in text
    assert "−200 %" in text
    assert "more was paid than the target alone" in text


def test_the_same_call_saves_where_direct_would_not_have_been_cached() -> None:
    """A prompt that nobody asked before costs direct its full price: then 16 % are saved, and said plainly."""
    tally = Tally(drafted_tokens=200, accepted_tokens=200, rounds=1)
    tally.spend(Usage(4200, 1, 0))
    tally.finish(1.0, 4000, 200)
    ledger = booked(tally)
    assert report_of(ledger).sums.saved_share == pytest.approx(1 - 4205 / 5000)
    assert "16 %" in printed(ledger)
    assert "more was paid" not in printed(ledger)


def test_what_the_first_call_found_cached_counts_for_direct_too() -> None:
    """The baseline takes the larger of what was reported and what earlier calls had put there."""
    tally = Tally(cached_share=0.25, drafted_tokens=10, accepted_tokens=10, rounds=1)
    tally.spend(Usage(1010, 1, 800))
    tally.finish(1.0, 1000, 10)
    assert report_of(booked(tally)).sums.baseline_usd == (200 + 80 + 50) / Decimal(10**6)


def test_a_speculated_baseline_is_marked_as_estimated_a_billed_one_is_not(
    pair: tuple[FakeTarget, FakeDraft],
) -> None:
    """Through the client: the direct call was really billed, so its baseline is exact; the other never happened."""
    ledger = MemoryLedger()
    with client(pair, ledger) as speculating:
        pair[0].model.replies["Where?"] = pair[1].model.replies["Where?"] = "Paris"
        told = info(ask(speculating, "Where?"))
        assert told is not None
        assert (told.decision, told.baseline) == ("speculate", "estimated")
        assert report_of(ledger).sums.estimated_share == 1.0
        told = info(ask(speculating.copy(speculation=speculation(pair, ledger, enabled=False)), "Where?"))
        assert told is not None
        assert (told.decision, told.baseline) == ("bypass", "exact")
    sums = report_of(ledger).sums
    assert (sums.speculated, sums.bypassed, sums.priced) == (1, 1, 2)
    share = sums.estimated_share
    assert share is not None
    assert 0 < share < 1
    assert "of it estimated, the rest billed" in printed(ledger)


def test_asking_again_is_a_loss_though_every_token_is_accepted(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """Through the client: the second time direct would have read the long prompt from the cache, scoring pays it whole.

    The bill of what the target alone really charges for the second turn is the check.
    """
    target, draft = pair
    question = "Steps: one, two, three. " * 60 + "Where?"
    target.model.replies[question] = draft.model.replies[question] = "Paris is the capital of France."
    ledger = MemoryLedger()
    with client(pair, ledger) as speculating:
        first, second = (info(ask(speculating, question)) for _ in range(2))
        plain = info(ask(speculating.copy(speculation=speculation(pair, ledger, enabled=False)), question))
    assert first is not None and second is not None and plain is not None
    assert (first.decision, second.decision) == ("speculate", "speculate")
    assert second.accepted_tokens == second.drafted_tokens > 0
    assert first.saved_usd is not None and second.saved_usd is not None
    assert first.saved_usd > 0 > second.saved_usd
    assert second.baseline_usd is not None and plain.paid_usd is not None
    assert second.baseline_usd <= plain.paid_usd * Decimal("1.05")
    saved = report_of(ledger).sums.saved_usd
    assert saved is not None
    assert saved == first.saved_usd + second.saved_usd


def client(pair: tuple[FakeTarget, FakeDraft], ledger: MemoryLedger) -> OpenAI:
    """A client of the pair."""
    plain = openai.DefaultHttpxClient(verify=False)  # without certificates to load it is made in a moment
    return OpenAI(
        base_url=pair[0].base_url, api_key="k", http_client=plain, speculation=speculation(pair, ledger), timeout=20
    )


def speculation(pair: tuple[FakeTarget, FakeDraft], ledger: MemoryLedger, *, enabled: bool = True) -> Speculation:
    """A fixed draft length: no planner may decline the loss that these tests are about."""
    return Speculation(
        draft=f"ollama:{pair[1].name}",
        draft_url=pair[1].url,
        target_backend="vllm",
        draft_tokens=64,
        draft_timeout=5.0,
        prices={"input": 1, "cached_input": 0.1, "output": 5},
        ledger=ledger,
        enabled=enabled,
    )


def ask(asking: OpenAI, question: str) -> object:
    """One chat request at temperature 0."""
    return asking.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64
    )
