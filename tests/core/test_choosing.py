"""Several drafters in one request: who is scored, who is asked, and what is learned from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from engine_kit import PROMPT, Proposing, Ran, asked, pinned, ran

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.effects import Op
from cheapspec.core.engine import Policy
from cheapspec.core.estimate import Count, Estimates
from cheapspec.core.lookup import Prediction
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Drafter, DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request
from cheapspec.core.speed import Speed
from cheapspec.testing.scripted import ScriptedDrafter

REPLY = "The capital of France is Paris. The capital of Spain is Madrid. Hello, world! It is big and it is old."
PRICES = Prices(Decimal(1), Decimal(10), Decimal("0.05"))
CHEAP = ContextPrices(q0=1.0, qs=0.05, qh=0.05)
PLANNED: dict[str, Any] = {"policy": Policy(), "prices": PRICES, "context_prices": CHEAP}
SURE = {(name, "static"): Count(4000, 3999, 3960) for name in ("proposing", "prediction")}
"""A workload in which given text has always held."""


@dataclass
class Failing(ScriptedDrafter):
    """A draft model whose host is not there."""

    name: str = "failing"

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        yield from ()
        return NoDraft("no_draft", "nobody there", broken=True)


def drafted(outcome: Ran) -> list[str]:
    """The drafters whose model was asked, in order."""
    return [note.data["drafter"] for note in outcome.played.notes if note.kind == "drafted"]


def test_the_draft_that_is_worth_more_is_scored() -> None:
    """A model's draft of the whole reply beats a few words of given text, wherever it stands in the order."""
    model = pinned(REPLY)
    for backwards in (False, True):
        given, asks = Proposing(["The capital of Rome"]), ScriptedDrafter(model)
        drafters: list[Drafter] = [asks, given] if backwards else [given, asks]
        outcome = ran(asked(), model, drafters, **PLANNED)
        assert outcome.text == REPLY and outcome.tally.drafter == "scripted"
        assert drafted(outcome)[:1] == ["scripted"]
        forecast = outcome.tally.forecast_usd
        assert forecast is not None and 0 < forecast < 40 * PRICES.output / 1_000_000


def test_a_model_is_not_asked_where_given_text_cannot_be_beaten() -> None:
    """A workload whose predictions always held, and a prediction of the whole reply: no draft call is made."""
    model = pinned(REPLY)
    request = replace(asked(max_tokens=None), prediction=REPLY)
    sure = Estimates(SURE)
    outcome = ran(request, model, [Prediction(), ScriptedDrafter(model)], estimates=sure, **PLANNED)
    assert outcome.text == REPLY and outcome.tally.drafter == "prediction"
    assert drafted(outcome) == [] and "draft" not in outcome.played.purposes()
    bad = Estimates({("prediction", "static"): Count(4000, 2000, 3960)})
    unsure = ran(request, model, [Prediction(), ScriptedDrafter(model)], estimates=bad, **PLANNED)
    assert drafted(unsure)[:1] == ["scripted"]


def test_nobody_is_asked_for_a_draft_that_could_not_pay() -> None:
    """At a flat price, or where the price is unknown, the request goes direct without waiting for a draft."""
    model = pinned(REPLY)
    flat = ran(asked(), model, policy=Policy(), prices=Prices(Decimal(1), Decimal(1)), context_prices=ContextPrices())
    unknown = ran(asked(), model, policy=Policy())
    for outcome, reason in ((flat, "not_worth_it"), (unknown, "price_unknown")):
        assert outcome.played.direct is not None and outcome.played.direct.reason == reason
        assert "draft" not in outcome.played.purposes() and not outcome.books.billed


def test_nobody_is_asked_when_the_time_is_over() -> None:
    """Speculating may add no second more: direct, at once."""
    outcome = ran(asked(), pinned(REPLY), **{**PLANNED, "policy": Policy(latest=0.0)})
    assert outcome.played.direct is not None and outcome.played.direct.reason == "latency"
    assert "draft" not in outcome.played.purposes()


def test_a_model_that_is_away_leaves_given_text() -> None:
    """Its failure is noted; what is at hand is scored."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, [Failing(model), Proposing(["The capital of France is Paris."])], **PLANNED)
    assert outcome.text == REPLY and outcome.tally.drafter == "proposing"
    assert [note.data["broken"] for note in outcome.played.notes if note.kind == "no_draft"] == [True]


def test_a_model_takes_over_where_a_prediction_ends() -> None:
    """Given text for the first sentence, the model for the rest, in one reply."""
    model = pinned(REPLY)
    request = replace(asked(max_tokens=None), prediction=REPLY[:63])
    sure = Estimates(SURE)
    outcome = ran(request, model, [Prediction(), ScriptedDrafter(model)], estimates=sure, **PLANNED)
    assert outcome.text == REPLY and outcome.tally.drafter == "scripted"
    assert drafted(outcome) and outcome.tally.handoff_tokens == 0


def test_what_is_left_of_a_models_draft_is_not_drafted_again() -> None:
    """The target agreed with all that was scored of it and with the token after it: the rest is there already."""
    model = pinned(REPLY)
    outcome = ran(asked(max_tokens=None), model, policy=Policy(draft_tokens=8))
    assert outcome.text == REPLY and outcome.tally.rounds > 1
    assert len(drafted(outcome)) == outcome.played.purposes().count("draft")


def test_each_round_tells_what_it_adds_to_the_estimates() -> None:
    """By drafter and bucket: tokens accepted, the one that was not, and whether the draft's end held."""
    model = pinned(REPLY)
    outcome = ran(asked(), model, [Proposing(["The capital of Rome", ""], size=4)], policy=Policy(draft_tokens=9))
    first = next(note.data["delta"] for note in outcome.played.notes if note.kind == "estimates")
    assert {key: (count.trials, count.hits) for key, count in first.items()} == {
        ("proposing", "start"): (1, 1),
        ("proposing", "static"): (3, 2),
    }
    ended = ran(asked(max_tokens=None), model, **PLANNED)
    told = [note.data["delta"] for note in ended.played.notes if note.kind == "estimates"]
    assert any(key == ("scripted", "end") and count.hits == 1 for delta in told for key, count in delta.items())


def test_the_objective_latency_weighs_seconds() -> None:
    """A target that decodes slowly is speculated for, one that is faster than a round trip is not; nor is a draft
    worth waiting for that takes longer than the target itself.
    """
    model = pinned(REPLY)
    slow, fast = Speed(0.1, 0.0001, 1.0), Speed(1.0, 0.0001, 0.001)
    assert ran(asked(), model, speed=slow, **PLANNED).tally.rounds >= 1
    assert ran(asked(), model, speed=slow, **PLANNED).tally.forecast_usd is None  # seconds are no dollars
    for outcome in (
        ran(asked(), model, speed=fast, **PLANNED),
        ran(asked(), model, speed=slow, draft_seconds={"scripted": 5.0}, **PLANNED),
    ):
        assert outcome.played.direct is not None and outcome.played.direct.reason in ("latency", "not_worth_it")
        assert "draft" not in outcome.played.purposes()


def test_a_workload_in_which_drafts_fail_goes_direct() -> None:
    """What earlier requests have shown of these drafts decides, before anything is paid."""
    model = pinned(REPLY)
    buckets = ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.99", "unknown", "end")
    bad = Estimates({("scripted", bucket): Count(4000, 40, 3900) for bucket in buckets})
    outcome = ran(asked(), model, estimates=bad, **{**PLANNED, "context_prices": ContextPrices(0.05, 1.0, 0.05)})
    assert outcome.played.direct is not None and outcome.played.direct.reason == "not_worth_it"
    assert ran(asked(), model, **PLANNED).tally.rounds >= 1


def test_given_text_without_any_word_is_no_draft() -> None:
    """Empty pieces are not a proposal."""

    class Empty(Proposing):
        def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
            return (DraftToken(""),)

    outcome = ran(asked(prompt=PROMPT), pinned(REPLY), [Empty([])], **PLANNED)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "no_draft"
