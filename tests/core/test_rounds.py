"""Rounds: what a score says about the target beyond the draft, and what a request learns from its own rounds."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from engine_kit import PROMPT, Proposing, Ran, TextTarget, asked, ran

from cheapspec.core.engine import Policy
from cheapspec.core.lookup import Prediction
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.testing.scripted import ScriptedTarget
from cheapspec.testing.toy import WORDS, ToyModel

ANSWER = "The capital of France is Paris and it is big."
LONG = Policy(draft_tokens=100)


def thinking(mark: str, before: str = "") -> ToyModel:
    """A target that has a token for opening thoughts, and writes it after ``before``."""
    return ToyModel(words=(*WORDS, mark), replies={PROMPT: f"{before}{mark}\nWell."})


@pytest.mark.parametrize("mark", ["<think>", "<|channel|>", "[THINK]"])
@pytest.mark.parametrize("route", [ScriptedTarget, TextTarget])
def test_b29_a_target_that_thinks_first_is_found_out(mark: str, route: type[ScriptedTarget]) -> None:
    """The first correction opens a thought: direct with reason ``reasoning``, told as lasting, so it is paid once."""
    model = thinking(mark)
    outcome = ran(asked(), model, [Proposing([ANSWER])], target=route(model), policy=LONG)
    assert outcome.played.direct is not None and outcome.played.direct.reason == "reasoning"
    told = [note.data for note in outcome.played.notes if note.kind == "unusable"]
    assert [(data["reason"], data["lasting"]) for data in told] == [("reasoning", True)]
    assert not outcome.text and len(outcome.tally.usages) == 1 and outcome.tally.accepted_tokens == 0


def test_a_thought_further_on_is_the_hand_offs_business() -> None:
    """A mark after verified text says nothing about how the target begins its replies."""
    model = thinking("<think>", before="The capital")
    outcome = ran(asked(), model, [Proposing([ANSWER])], policy=LONG)
    assert outcome.played.purposes()[-1] == "continue" and outcome.text.startswith("The capital<think>")
    assert not [note for note in outcome.played.notes if note.kind == "unusable" and note.data["lasting"]]


# --- given text -------------------------------------------------------------------------------------------

PRICES = Prices(Decimal("0.4"), Decimal(3), Decimal("0.04"))  # an output token costs 7.5 input tokens
COLD = ContextPrices(q0=1.0, qs=1.0, qh=0.1)
QUESTION = "Say it again" + " one two three four" * 70
SAID = "The answer is one of two." + " Paris is the capital of France and Madrid of Spain." * 12


def predicted(reply: str, prediction: str) -> Ran:
    """A request of some 300 prompt tokens with a prediction, planned as any other."""
    request = replace(asked(prompt=QUESTION, max_tokens=None), prediction=prediction)
    model = ToyModel(replies={QUESTION: reply})
    return ran(request, model, [Prediction()], policy=Policy(), prices=PRICES, context_prices=COLD)


def test_a_long_prediction_that_holds_is_speculated() -> None:
    """Its tokens have no probability, yet whoever sends a prediction expects most of it to hold: more than half is
    scored at once.
    """
    outcome = predicted(SAID, SAID)
    assert outcome.tally.prompt_tokens is not None and 280 <= outcome.tally.prompt_tokens <= 320
    assert outcome.text == SAID and outcome.tally.rounds >= 1
    assert outcome.tally.accepted_tokens > 0.5 * (outcome.tally.reply_tokens or 0)


def test_a_prediction_that_keeps_failing_is_given_up() -> None:
    """A miss or two, and the target writes the rest by itself; it writes what it would have written anyway."""
    wrong = "The answer is" + " number, large, small, big, Hello, world" * 20
    outcome = predicted(SAID, wrong)
    assert outcome.text == SAID and outcome.played.purposes()[-1] == "continue"
    assert 1 <= outcome.tally.rounds <= 3
    assert outcome.tally.handoff_tokens > 0.9 * (outcome.tally.reply_tokens or 0)
