"""What came of a replay: one request, and sums over requests. Money is dollars, in floats: a replay is an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cheapspec.core.oracle import capture

__all__ = ["Outcome", "Replayed"]


@dataclass(slots=True)
class Replayed:
    """One request. ``looked_at``: positions that its rounds looked at, ``estimated`` those of them that were filled
    in. ``clairvoyant``: dollars, ``None`` when not asked for. ``seconds``: only with a :class:`Pace`.
    """

    id: str
    workload: str
    baseline: float
    paid: float = 0.0
    rounds: int = 0
    target_calls: int = 0
    scored_tokens: int = 0
    accepted_tokens: int = 0
    handoff_tokens: int = 0
    drafted_tokens: int = 0
    looked_at: int = 0
    estimated: int = 0
    refused: bool = False
    clairvoyant: float | None = None
    seconds: float = 0.0
    seconds_direct: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sums over requests."""

    requests: Sequence[Replayed] = field(default_factory=tuple[Replayed, ...])

    @property
    def paid(self) -> float:
        """Dollars of all calls."""
        return sum(request.paid for request in self.requests)

    @property
    def baseline(self) -> float:
        """Dollars of the target alone."""
        return sum(request.baseline for request in self.requests)

    @property
    def paid_over_baseline(self) -> float | None:
        """Below 1 is a saving; ``None`` without requests."""
        return self.paid / self.baseline if self.baseline else None

    @property
    def clairvoyant(self) -> float | None:
        """Dollars of the clairvoyant, ``None`` when it was not asked for."""
        known = [request.clairvoyant for request in self.requests if request.clairvoyant is not None]
        return sum(known) if len(known) == len(self.requests) else None

    @property
    def capture(self) -> float | None:
        """Saving over the clairvoyant's (:func:`cheapspec.core.oracle.capture`)."""
        best = self.clairvoyant
        return None if best is None else capture(self.paid, self.baseline, best)

    @property
    def estimated_share(self) -> float:
        """Of the positions looked at, the share that no trace knew."""
        looked_at = sum(request.looked_at for request in self.requests)
        return sum(request.estimated for request in self.requests) / looked_at if looked_at else 0.0

    def by_workload(self) -> dict[str, Outcome]:
        """The same for each workload, in the order in which they first occur."""
        groups: dict[str, list[Replayed]] = {}
        for request in self.requests:
            groups.setdefault(request.workload, []).append(request)
        return {name: Outcome(tuple(group)) for name, group in groups.items()}
