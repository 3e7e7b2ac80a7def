"""What a probe found out about one endpoint, and how that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What replies showed about one (base URL, model).

    ``can_judge``: it tells the log-probability of a token that it generates, with alternatives, which a verdict
    needs; or it told a right draft from a wrong one (``cheapspec doctor``). ``qs``, ``qh``: share of a known context
    that a scoring call, or a continuation, pays at the uncached price; ``None``: no reply showed that a cache was used
    (which does not show that there is none).
    ``eos_ids``: ids known to end a turn. ``route``: vLLM's way, ``ids`` or ``text``. ``shift``: how many positions late
    llama-cpp-python tells its numbers. ``says_again``: a continuation begins with the beginning that was sent.
    ``plain_sampling``: what a request does not say changes nothing at this endpoint; ``None``: not found out.
    ``hidden_defaults``: fields that change something when a request does not say them, as far as found. ``evidence``:
    one sentence a finding. ``reason``: empty where the endpoint gives evidence about given text, else a reason of the
    public list; ``not_probed``: ask again.
    """

    backend: str = "generic"
    can_score: bool = False
    can_force: bool = False
    can_continue: bool = False
    can_judge: bool = False
    reports_cached_tokens: bool = False
    qs: float | None = None
    qh: float | None = None
    eos_ids: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    reason: str = ""
    route: str | None = None
    shift: int | None = None
    says_again: bool | None = None
    plain_sampling: bool | None = None
    hidden_defaults: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            **asdict(self),
            "eos_ids": list(self.eos_ids),
            "evidence": list(self.evidence),
            "hidden_defaults": list(self.hidden_defaults),
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Facts:
        """Out of :meth:`to_dict`'s JSON, as this or another version wrote it.

        Raises ``TypeError`` or ``ValueError`` where it is something else.
        """
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in told.items() if name in known}
        for name in ("eos_ids", "evidence", "hidden_defaults"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)
