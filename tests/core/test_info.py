"""Info: the typed form of a reply's extra key ``cheapspec``."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from cheapspec.core.info import Info, Seconds

EXAMPLE = Info(
    decision="speculate",
    request_id="csr_1",
    rule="exact",
    drafter="ollama:qwen2.5:3b",
    session="s",
    rounds=3,
    drafted_tokens=96,
    accepted_tokens=80,
    corrected_tokens=2,
    handoff_tokens=14,
    target_calls=4,
    input_tokens=700,
    cached_input_tokens=512,
    output_tokens=17,
    paid_usd=Decimal("0.000412"),
    baseline_usd=Decimal("0.000980"),
    baseline="exact",
    priced_by="provider",
    seconds=Seconds(0.41, 0.22, 0.30, 0.95),
)


def test_facts_that_say_nothing_have_no_key_and_all_others_come_back() -> None:
    """What few requests have is in the dict of those that have it, and survives the way there and back."""
    told = {"target": "m@https://api.example/v1", "prompt_tokens": 40, "cached_prompt_tokens": 0, "reply_tokens": 7}
    money = {"local_usd": Decimal("0.0001"), "forecast_usd": Decimal("-0.0002")}
    full = replace(EXAMPLE, lossy=True, simulated=True, fixed_draft_tokens=8, **told, **money)  # type: ignore[arg-type]
    made = json.loads(json.dumps(full.to_dict()))
    assert made.keys() - EXAMPLE.to_dict().keys() == {"lossy", "simulated", "fixed_draft_tokens", *told, *money}
    assert (made["forecast_usd"], made["cached_prompt_tokens"]) == ("-0.000200", 0)
    assert Info.from_dict(made) == full


def test_the_dict_has_exactly_the_promised_keys() -> None:
    """Names, order and types of the keys are a public promise."""
    assert EXAMPLE.to_dict() == {
        "decision": "speculate",
        "reason": None,
        "rule": "exact",
        "drafter": "ollama:qwen2.5:3b",
        "request_id": "csr_1",
        "session": "s",
        "rounds": 3,
        "ties": 0,
        "drafted_tokens": 96,
        "accepted_tokens": 80,
        "corrected_tokens": 2,
        "handoff_tokens": 14,
        "acceptance_rate": 0.8333,
        "unverified_tokens": 0,
        "target_calls": 4,
        "calls_saved_per_token_client": 92,
        "input_tokens": 700,
        "cached_input_tokens": 512,
        "output_tokens": 17,
        "paid_usd": "0.000412",
        "baseline_usd": "0.000980",
        "saved_usd": "0.000568",
        "baseline": "exact",
        "priced_by": "provider",
        "seconds": {"draft": 0.41, "verify": 0.22, "handoff": 0.30, "total": 0.95},
    }


def test_a_simulated_price_says_so() -> None:
    """The key ``simulated`` is there only when the figures are simulated, and survives the round trip."""
    simulated = Info("speculate", "csr_1", simulated=True)
    assert simulated.to_dict()["simulated"] is True
    assert Info.from_dict(simulated.to_dict()).simulated
    assert "simulated" not in EXAMPLE.to_dict()


def test_a_loss_is_a_negative_saving_and_unknown_is_null() -> None:
    """Savings keep their sign; unknown money is null, never 0."""
    loss = Info("speculate", "csr_1", paid_usd=Decimal("0.004205"), baseline_usd=Decimal("0.0014"))
    assert loss.to_dict()["saved_usd"] == "-0.002805"
    for half in (Info("direct", "a", paid_usd=Decimal(1)), Info("direct", "a", baseline_usd=Decimal(1))):
        assert half.saved_usd is None
        assert half.to_dict()["saved_usd"] is None


def test_a_direct_reply_claims_nothing() -> None:
    """Without a draft there is no acceptance rate, and no call is said to be saved."""
    direct = Info("direct", "csr_1", reason="tools", target_calls=1, output_tokens=40)
    assert direct.acceptance_rate is None
    assert direct.calls_saved_per_token_client == 0


def test_the_dict_is_strict_json() -> None:
    """A clock that misbehaves gives null, never NaN."""
    odd = Info("direct", "csr_1", seconds=Seconds(math.nan, math.inf, 0.123456, 1))
    assert json.loads(json.dumps(odd.to_dict(), allow_nan=False))["seconds"] == {
        "draft": None,
        "verify": None,
        "handoff": 0.1235,
        "total": 1,
    }


def test_the_dict_reads_back_as_the_same_info() -> None:
    """Through JSON and back nothing is lost; keys that a later version adds are passed over."""
    data = json.loads(json.dumps(EXAMPLE.to_dict())) | {"of_a_later_version": 1}
    assert Info.from_dict(data) == EXAMPLE
    assert Info.from_dict({"decision": "direct", "request_id": "x"}) == Info("direct", "x")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"decision": None}, "decision"),
        ({"request_id": ""}, "request_id"),
        ({"rounds": "3"}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"reason": 1}, "reason"),
        ({"paid_usd": 0.1}, "paid_usd"),
        ({"paid_usd": "a lot"}, "paid_usd"),
        ({"seconds": []}, "seconds"),
        ({"seconds": {"draft": "1"}}, "draft"),
        ({"simulated": 1}, "simulated"),
    ],
)
def test_a_foreign_dict_is_refused_by_key(change: dict[str, Any], key: str) -> None:
    """A server's own key of the same name is not mistaken for ours."""
    with pytest.raises(ValueError, match=key):
        Info.from_dict(EXAMPLE.to_dict() | change)


def test_verdicts_come_back_and_what_is_none_is_passed_over() -> None:
    """What the rules said survives the way there and back as plain JSON; a reply without any has no such key."""
    told = {"rule": "agree(x)", "outcome": "accept", "score": 1.0, "why": "2 of 2", "drafter": "d"}
    info = replace(EXAMPLE, rounds=0, lossy=True, rule="agree(x)", verdicts=(told,), reply_tokens=None)
    back = Info.from_dict(json.loads(json.dumps(info.to_dict())))
    assert back.verdicts == (told,)
    assert (back.on_trust, back.acceptance_rate, back.calls_saved_per_token_client) == (True, None, -4)
    assert "verdicts" not in EXAMPLE.to_dict()
    assert Info.from_dict({**EXAMPLE.to_dict(), "verdicts": ["nonsense", told]}).verdicts == (told,)
