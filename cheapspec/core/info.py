"""What one reply cost and saved: the extra key ``cheapspec`` of a reply, typed.

Figures that follow from others are computed, never stored, so they cannot contradict each other:
the acceptance rate, the saving, and the calls that a client asking for one token a call would have
made on top. Unknown money is ``None`` (JSON ``null``), never 0; token counts are the target's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from cheapspec.core.money import format_usd, saved_usd
from cheapspec.core.untyped import as_list, is_mapping

__all__ = ["Info", "Seconds"]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time of a request went, in seconds."""

    draft: float = 0.0
    verify: float = 0.0
    handoff: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Info:
    """Facts of one request.

    ``decision``: ``speculate``, ``direct``, ``bypass`` or ``refused``, and ``probe`` of what was no request but asked
    what the target can do; ``reason``: why not speculated.
    ``baseline``: whether ``baseline_usd`` is ``exact`` or ``estimated``. ``priced_by``: ``provider``,
    ``user``, ``genai-prices`` or ``unknown``. ``simulated``: the figures price a forced target as if it
    scored (demo and bench); the key is in the dict only then.

    The dict has the keys of the following only where they say something. ``lossy``: tokens were accepted on a rule
    under which they need not be the target's, ``lenient_tokens``: how many it would not have written itself.
    ``fixed_draft_tokens``: the caller's ``draft_tokens=N``. ``local_usd``: the price of local drafting, a part of
    ``paid_usd``. ``forecast_usd``: the gain that the planner expected. ``target``: ``MODEL@BASE_URL``.
    ``prompt_tokens``, ``cached_prompt_tokens``, ``reply_tokens``: what the direct call alone would have been billed,
    the counts under the baseline. ``verdicts``: what each rule said about a whole draft (``rule``, ``version`` of its
    prompt, ``outcome``, ``score``, ``why``, ``chance``, ``drafter``); in a lossy reply the last one is its warrant, and
    all of its tokens are ``unverified_tokens``.
    """

    decision: str
    request_id: str
    reason: str | None = None
    rule: str | None = None
    drafter: str | None = None
    session: str | None = None
    rounds: int = 0
    ties: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    corrected_tokens: int = 0
    handoff_tokens: int = 0
    unverified_tokens: int = 0
    lenient_tokens: int = 0
    target_calls: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    paid_usd: Decimal | None = None
    baseline_usd: Decimal | None = None
    baseline: str = "estimated"
    priced_by: str = "unknown"
    seconds: Seconds = field(default_factory=Seconds)
    simulated: bool = False
    lossy: bool = False
    fixed_draft_tokens: int | None = None
    local_usd: Decimal | None = None
    forecast_usd: Decimal | None = None
    target: str | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    reply_tokens: int | None = None
    verdicts: tuple[Mapping[str, Any], ...] = ()

    @property
    def on_trust(self) -> bool:
        """The whole reply went out on a rule's word: no token of it was compared with one of the target's."""
        return self.decision == "speculate" and self.lossy and self.rounds == 0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; ``None`` when nothing was drafted, or no token was looked at."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens and not self.on_trust else None

    @property
    def saved_usd(self) -> Decimal | None:
        """Baseline minus paid; negative when speculation cost more; ``None`` when either is unknown."""
        return saved_usd(self.paid_usd, self.baseline_usd)

    @property
    def calls_saved_per_token_client(self) -> int:
        """Target calls fewer than one a reply token, for a reply that was speculated; else 0."""
        if self.decision != "speculate":
            return 0
        if self.on_trust:
            return (self.reply_tokens or 0) - self.target_calls
        return self.accepted_tokens + self.corrected_tokens + self.handoff_tokens - self.target_calls

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON (no NaN, no infinity): money as strings in dollars, times in seconds."""
        rate = self.acceptance_rate
        out: dict[str, Any] = {
            "decision": self.decision,
            "reason": self.reason,
            "rule": self.rule,
            "drafter": self.drafter,
            "request_id": self.request_id,
            "session": self.session,
            "rounds": self.rounds,
            "ties": self.ties,
            "drafted_tokens": self.drafted_tokens,
            "accepted_tokens": self.accepted_tokens,
            "corrected_tokens": self.corrected_tokens,
            "handoff_tokens": self.handoff_tokens,
            "acceptance_rate": None if rate is None else round(rate, 4),
            "unverified_tokens": self.unverified_tokens,
            "target_calls": self.target_calls,
            "calls_saved_per_token_client": self.calls_saved_per_token_client,
            "input_tokens": self.input_tokens,
            "cached_input_tokens": self.cached_input_tokens,
            "output_tokens": self.output_tokens,
            "paid_usd": format_usd(self.paid_usd),
            "baseline_usd": format_usd(self.baseline_usd),
            "saved_usd": format_usd(self.saved_usd),
            "baseline": self.baseline,
            "priced_by": self.priced_by,
            "seconds": {name: _seconds(getattr(self.seconds, name)) for name in _TIMES},
        }
        for name in ("simulated", "lossy", "lenient_tokens"):
            if value := getattr(self, name):
                out[name] = value
        if self.verdicts:
            out["verdicts"] = [dict(one) for one in self.verdicts]
        for name in ("target", *_ALONE):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        for name in ("local_usd", "forecast_usd"):
            if (usd := getattr(self, name)) is not None:
                out[name] = format_usd(usd)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Info:
        """The typed form of :meth:`to_dict`'s result; computed and unknown keys are passed over.

        Raises ``ValueError`` naming the key when a value has the wrong type or the dict is not one of ours.
        """
        times: Mapping[str, Any] = _read(data, "seconds", Mapping, {})
        values: dict[str, Any] = {"decision": _required(data, "decision"), "request_id": _required(data, "request_id")}
        values |= {name: _read(data, name, str, None) for name in ("reason", "rule", "drafter", "session", "target")}
        values |= {name: _read(data, name, int, 0) for name in _COUNTS}
        values |= {name: _read(data, name, int, None) for name in _ALONE}
        values |= {name: _money(data, name) for name in ("paid_usd", "baseline_usd", "local_usd", "forecast_usd")}
        values["baseline"] = _read(data, "baseline", str, "estimated")
        values["priced_by"] = _read(data, "priced_by", str, "unknown")
        values["seconds"] = Seconds(*(float(_read(times, name, (int, float), 0.0)) for name in _TIMES))
        values |= {name: _read(data, name, bool, False) for name in ("simulated", "lossy")}
        values["verdicts"] = tuple(one for one in as_list(data.get("verdicts")) if is_mapping(one))
        return cls(**values)


_TIMES = ("draft", "verify", "handoff", "total")
_ALONE = ("fixed_draft_tokens", "prompt_tokens", "cached_prompt_tokens", "reply_tokens")
_COUNTS = (
    "rounds",
    "ties",
    "drafted_tokens",
    "accepted_tokens",
    "corrected_tokens",
    "handoff_tokens",
    "unverified_tokens",
    "lenient_tokens",
    "target_calls",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
)


def _seconds(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _read(data: Mapping[str, Any], key: str, kinds: type | tuple[type, ...], default: Any) -> Any:
    value = data.get(key)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise ValueError(f"cheapspec info: {key!r} is {value!r}")
    return value


def _required(data: Mapping[str, Any], key: str) -> str:
    value = _read(data, key, str, None)
    if not value:
        raise ValueError(f"cheapspec info: {key!r} is missing")
    return str(value)


def _money(data: Mapping[str, Any], key: str) -> Decimal | None:
    text = _read(data, key, str, None)
    if not text:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"cheapspec info: {key!r} is {text!r}") from None
