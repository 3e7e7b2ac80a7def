"""What one run of the engine is given: a request, what it may be drafted and scored by, and what is known beforehand.

Nothing in here changes while the engine runs but the tally, which is what it hands back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cheapspec.core.estimate import Estimates
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Drafter, Permit, Target
from cheapspec.core.request import Request
from cheapspec.core.sampling import Draws, SeededDraws
from cheapspec.core.speed import Speed
from cheapspec.core.tally import Tally

__all__ = ["Job", "Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about one request.

    ``draft_tokens``: fixed tokens a round (planner off), ``None``: the planner decides.
    ``max_draft_tokens``: the longest draft asked for. ``tie_nats``: how far below the top a token may
    be and still count as a tie. ``lenient_nats``: how far below it a token may be under the lenient rule, ``None``:
    the exact rule. ``draft_seconds``: deadline of one draft. ``simulate_scoring``: a
    forced target is priced as if it scored (demo and bench). ``latest``: when speculating ends, on the
    driver's clock; ``None``: never.
    """

    draft_tokens: int | None = None
    max_draft_tokens: int = 512
    tie_nats: float = 0.0
    lenient_nats: float | None = None
    draft_seconds: float = 20.0
    simulate_scoring: bool = False
    latest: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one run needs; ``at`` is the driver's clock at its start, in seconds. ``draws``: where chance comes
    from at temperature above 0. ``estimates``: what is known of its workload. ``speed`` set: the objective is
    latency, planned in seconds; ``draft_seconds``: of a token, by drafter.
    """

    request: Request
    target: Target
    drafters: Sequence[Drafter]
    tally: Tally
    policy: Policy = field(default_factory=Policy)
    prices: Prices | None = None
    context_prices: ContextPrices = field(default_factory=ContextPrices)
    at: float = 0.0
    draws: Draws = field(default_factory=lambda: SeededDraws(0))
    permit: Permit | None = None
    estimates: Estimates = field(default_factory=Estimates)
    speed: Speed | None = None
    draft_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
