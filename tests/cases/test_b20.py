"""B20: log-probabilities that are no usable numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from casepair import Pair

from cheapspec.testing.faults import BadLogprobs, MissingLogprobs, NaNLogprobs, Status
from cheapspec.testing.wire import Action

REPLY = "One, two, three in Paris."
NOTHING_USABLE: dict[str, Action] = {
    "a-nan": NaNLogprobs(),
    "a-infinity": BadLogprobs(-math.inf),
    "b-placeholder": BadLogprobs(-9999.0),
    "d-one-null": MissingLogprobs("placeholder"),
    "d-all-null": MissingLogprobs("nulls"),
    "e-500": Status(500, message="Out of range float values are not JSON compliant: nan"),
}


@pytest.mark.parametrize("fault", NOTHING_USABLE.values(), ids=NOTHING_USABLE.keys())
@pytest.mark.parametrize("stream", [False, True])
def test_b20_nothing_usable_is_nothing_accepted(stream: bool, fault: Action, any_pair: Pair) -> None:
    """Without a usable number nothing of the draft counts: the target's own answer is the reply."""
    any_pair.says(REPLY, "One, two, four in Rome.")
    any_pair.target.plan("score", fault)
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.finish == "stop"
    assert outcome.told.accepted_tokens == 0
    assert outcome.told.decision == "direct"


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_b20e_a_500_of_scorings_own_takes_no_attempt(stream: bool, retries: int, any_pair: Pair) -> None:
    """The target alone would have answered, so it does, even to a caller who wants no repeats."""
    any_pair.says(REPLY, "One, two, four in Rome.")
    any_pair.options["max_retries"] = retries
    any_pair.target.plan("score", NOTHING_USABLE["e-500"])
    outcome = any_pair.ask(stream=stream)
    assert outcome.error is None
    assert outcome.text == REPLY
    assert any_pair.purposes() == ["score", "direct"]


@pytest.mark.parametrize("value", [math.nan, -math.inf, -9999.0])
def test_b20_a_hole_in_the_numbers_ends_acceptance(value: float, pair: Pair) -> None:
    """Tokens before the first unusable number may be accepted, none at it or after it."""
    pair.says(REPLY)
    asked = pair.target.model.render(pair.body()["messages"])
    usable = len(pair.target.model.encode(asked)) + 4
    pair.target.plan("score", BadLogprobs(value, start=usable), times=1)
    pair.hand_off_after(1)
    outcome = pair.ask()
    assert outcome.text == REPLY
    assert outcome.told.accepted_tokens == 4
    assert outcome.told.unverified_tokens >= 1


def test_b20_facts_stay_strict_json(pair: Pair) -> None:
    """What a NaN in a reply leaves in facts and ledger is strict JSON."""
    pair.says(REPLY)
    pair.target.plan("score", NaNLogprobs())
    outcome = pair.ask()
    told: Any = outcome.told.to_dict()
    json.dumps(told, allow_nan=False)
    json.dumps(dict(pair.row().info or {}), allow_nan=False)
    json.dumps(pair.ledger.totals().to_dict(), allow_nan=False)
