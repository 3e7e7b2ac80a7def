"""Write a small, invented ledger that the documents show reports of: ``python scripts/sample_ledger.py FILE``.

Its figures are no measurement. The second model is one on which speculation does not pay.
"""

from __future__ import annotations

import random
import sys
from decimal import Decimal
from pathlib import Path

from cheapspec.core.effects import Usage
from cheapspec.core.estimate import Count
from cheapspec.core.money import Prices, cost, format_usd
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.ledger.database import DatabaseLedger

START = 1795420800.0
"""2026-11-23 08:00 UTC, a Monday."""

PRICES = Prices(Decimal("0.40"), Decimal("3.00"), Decimal("0.04"))
MODELS = {"large-coder": (0.6, 1.0), "large-writer": (0.0, 0.12)}
"""Model → between which shares of a draft it accepts."""

LEARNT = {"large-coder": Count(9000, 7100, 7320), "large-writer": Count(4200, 300, 410)}
"""Model → draft tokens that were judged, accepted, and expected to be accepted."""

REASONS = [("direct", "not_worth_it")] * 3 + [("direct", "temperature_unset")] * 2 + [("bypass", "tools")] * 4


def write(path: Path, requests: int = 400) -> None:
    """A week of requests in three sessions."""
    chance = random.Random(7)
    ledger = DatabaseLedger(f"sqlite:///{path}")
    for number in range(requests):
        at = START + 5 * 86_400 * number / requests
        model = "large-coder" if chance.random() < 0.7 else "large-writer"
        session = chance.choice(["nightly-tests", "nightly-tests", "summaries", None])
        row = RequestRow(f"req-{number:04}", at, model, "chat", stream=False, session=session)
        ledger.open_request(row)
        if chance.random() < 0.62:
            _speculated(ledger, row, chance)
        else:
            _passed(ledger, row, chance)
    for model, (trials, hits, predicted) in {
        "large-coder": (9000, 7100, 7320),
        "large-writer": (4200, 300, 410),
    }.items():
        delta = {("ollama:qwen2.5:3b", "0.9"): Count(trials, hits, predicted)}
        ledger.add_estimates(f"{model}@https://api.example/v1", "5d1f0c2e", delta)
    if not ledger.flush() or ledger.lost:
        sys.exit(f"{path} could not be written.")
    ledger.close()


def _speculated(ledger: DatabaseLedger, row: RequestRow, chance: random.Random) -> None:
    prompt, reply = chance.randint(150, 900), chance.randint(60, 260)
    drafted = min(reply, chance.randint(40, 200))
    accepted = int(drafted * chance.uniform(*MODELS[row.model]))
    left = max(reply - accepted - 1, 0)
    calls = [("score", Usage(prompt + drafted, 1, 0))]
    if left:
        calls.append(("continue", Usage(prompt + accepted + 1, left, prompt)))
    paid = sum((_call(ledger, row, place, purpose, usage) for place, (purpose, usage) in enumerate(calls)), Decimal(0))
    alone = cost(Usage(prompt, reply, 0), PRICES) or Decimal(0)
    seconds = {"draft": drafted / 90, "verify": 0.12 + drafted / 2000, "handoff": left / 70}
    ledger.close_request(
        row.request_id,
        {
            "decision": "speculate",
            "request_id": row.request_id,
            "rule": "exact",
            "drafter": "ollama:qwen2.5:3b",
            "session": row.session,
            "rounds": 1,
            "drafted_tokens": drafted,
            "accepted_tokens": accepted,
            "corrected_tokens": 1,
            "handoff_tokens": left,
            "target_calls": len(calls),
            "paid_usd": format_usd(paid),
            "baseline_usd": format_usd(alone),
            "forecast_usd": format_usd((alone - paid) * Decimal("0.9")),
            "baseline": "estimated",
            "priced_by": "user",
            "seconds": {**seconds, "total": sum(seconds.values())},
        },
    )


def _passed(ledger: DatabaseLedger, row: RequestRow, chance: random.Random) -> None:
    decision, reason = chance.choice(REASONS)
    usage = Usage(chance.randint(150, 900), chance.randint(60, 260), 0)
    told = _call(ledger, row, 0, "direct", usage, priced=chance.random() > 0.04)
    usd = format_usd(told) if told else None
    ledger.close_request(
        row.request_id,
        {
            "decision": decision,
            "request_id": row.request_id,
            "reason": reason,
            "session": row.session,
            "target_calls": 1,
            "paid_usd": usd,
            "baseline_usd": usd,
            "baseline": "exact",
            "priced_by": "user" if usd else "unknown",
            "seconds": {"total": 0.15 + usage.output_tokens / 70},
        },
    )


def _call(
    ledger: DatabaseLedger, row: RequestRow, place: int, purpose: str, usage: Usage, *, priced: bool = True
) -> Decimal:
    usd = cost(usage, PRICES) if priced else None
    call_id = f"{row.request_id}.{place}"
    ledger.open_call(CallRow(call_id, row.request_id, "target", purpose, True, row.at))
    ledger.close_call(Call(call_id, "ok", usage, format_usd(usd), 0.5, 200))
    return usd or Decimal(0)


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute())
