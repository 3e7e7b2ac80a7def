"""What a probe found out about one endpoint."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What replies showed about one (base URL, model).

    ``qs``, ``qh``: share of a known context that a scoring call, or a continuation, pays at the uncached
    price; ``None``: no reply showed that a cache was used (which does not show that there is none).
    ``max_context``: tokens. ``eos_ids``: ids known to end a turn. ``route``: vLLM's way, ``ids`` or
    ``text``. ``evidence``: sentences, one a finding. ``reason``: empty when the endpoint gives evidence
    about given text, else a reason of the public list; ``not_probed``: ask again.
    """

    backend: str = "generic"
    can_score: bool = False
    can_force: bool = False
    can_continue: bool = False
    reports_cached_tokens: bool = False
    max_context: int | None = None
    qs: float | None = None
    qh: float | None = None
    eos_ids: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    reason: str = ""
    route: str | None = None
