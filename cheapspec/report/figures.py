"""A report's figures: frozen data, and what follows from it.

Rules
-----
* Money sums hold priced requests only; beside them stands how many have no known price, and what is known to
  have been paid for those. Where no request is priced the sums are unknown, not 0.
* ``saved`` is baseline minus paid, and negative where speculation cost more. Nothing hides a loss.
* Calls are compared with two clients, each named: one that asks once a request (the usual one; speculation
  seldom beats it), and one that asks once a token. Pass-throughs are in neither.
* Times of replies are compared where their end was seen: not of streams that were passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cheapspec.core.money import format_usd, money_context, saved_usd
from cheapspec.report.entries import DECISIONS

__all__ = ["Calibration", "Forecast", "Group", "Headroom", "Latency", "Lossy", "Reason", "Report", "Sums", "Tokens"]


@dataclass(frozen=True, slots=True)
class Sums:
    """Counts and dollars of a set of requests, and of the ``probes`` that belonged to none. ``priced`` of them have a
    known paid sum and baseline; ``priced_paid``, ``priced_baseline`` and ``estimated`` (the part of the baseline that
    is estimated) are theirs. ``unpriced_known``: what is known to have been paid for all others.
    """

    requests: int = 0
    speculated: int = 0
    direct: int = 0
    bypassed: int = 0
    refused: int = 0
    unsettled: int = 0
    probes: int = 0
    priced: int = 0
    unpriced: int = 0
    priced_paid: Decimal = Decimal(0)
    priced_baseline: Decimal = Decimal(0)
    estimated: Decimal = Decimal(0)
    unpriced_known: Decimal = Decimal(0)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, name) + getattr(other, name) for name in Sums.__slots__))

    @property
    def paid_usd(self) -> Decimal | None:
        """Dollars paid for the priced requests; ``None`` when there are only others."""
        return self.priced_paid if self.priced or not self.unpriced else None

    @property
    def baseline_usd(self) -> Decimal | None:
        """Dollars that the target alone would have cost for the priced requests."""
        return self.priced_baseline if self.priced or not self.unpriced else None

    @property
    def saved_usd(self) -> Decimal | None:
        """Baseline minus paid; negative when speculation cost more."""
        return saved_usd(self.paid_usd, self.baseline_usd)

    @property
    def saved_share(self) -> float | None:
        """Saved over baseline; ``None`` without a baseline."""
        saved = self.saved_usd
        return float(saved) / float(self.priced_baseline) if saved is not None and self.priced_baseline else None

    @property
    def estimated_share(self) -> float | None:
        """The part of the baseline, in dollars, that is estimated rather than billed; ``None`` without a baseline."""
        return float(self.estimated) / float(self.priced_baseline) if self.priced_baseline else None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "requests": self.requests,
            "speculated": self.speculated,
            "direct": self.direct,
            "bypassed": self.bypassed,
            "paid_usd": format_usd(self.paid_usd),
            "baseline_usd": format_usd(self.baseline_usd),
            "saved_usd": format_usd(self.saved_usd),
            "saved_share": _rounded(self.saved_share),
            "unpriced_requests": self.unpriced,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """The requests that have ``name`` in common: a session's (``None``: outside any), a model's or a day's (UTC)."""

    name: str | None
    sums: Sums


@dataclass(frozen=True, slots=True)
class Reason:
    """Why so many requests were not speculated. ``decision``: direct, bypass or refused."""

    decision: str
    reason: str
    requests: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Target tokens. ``drafted``: for the target to look at token by token, not what a rule judged as a whole;
    ``unverified``: of these, what nobody could say of whether the target agrees. ``lenient``: accepted, though the
    target would not have written them.
    """

    drafted: int = 0
    accepted: int = 0
    corrected: int = 0
    handoff: int = 0
    unverified: int = 0
    lenient: int = 0
    input: int = 0
    cached_input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from asking to the end of the reply: median and 95th percentile of ``requests`` requests."""

    requests: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Lossy:
    """Replies accepted under a rule that may differ from the target, and how many were compared with it.

    ``agreement`` and its 95 % ``interval`` are ``None`` until requests have been audited.
    """

    accepted: int = 0
    audited: int = 0
    agreement: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the planner expected of the ``requests`` that have a forecast and a known bill, and what came of it."""

    requests: int = 0
    expected_usd: Decimal = Decimal(0)
    saved_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well acceptance was predicted: the expected calibration error (0 to 1,
    :func:`cheapspec.core.estimate.calibration_error`) over ``trials`` draft tokens, older ones counting less. It is of
    all that the ledger has learnt, whatever requests a report is of.
    """

    target: str
    drafter: str
    workload: str
    trials: float
    error: float


@dataclass(frozen=True, slots=True)
class Headroom:
    """What may still be lost in one account of the allowance (:mod:`cheapspec.core.allowance`), now: ``balance_usd``
    (what was saved and may be lost again, the allowance's share of the baselines included; negative for losses), less
    ``open_usd`` (the worst cases of requests under way), and ``seed_usd``. Dollars.
    """

    account: str
    balance_usd: Decimal
    open_usd: Decimal
    seed_usd: Decimal

    @property
    def usd(self) -> Decimal:
        """The most that a step of a new request may risk."""
        with money_context():
            return self.balance_usd - self.open_usd + self.seed_usd


@dataclass(frozen=True, slots=True)
class Report:
    """Totals of a ledger, or of one session or time of it.

    ``start`` and ``end``: seconds since the epoch (UTC), as asked for, else of the first and last request.
    ``latency``: by decision (``speculated``, ``direct``, ``bypassed``) and of ``all``. ``seconds``: where the time
    of speculated requests went. ``simulated``: requests whose bill is simulated (demo, bench). ``fixed``: requests with
    a fixed ``draft_tokens``, planner and allowance off. ``tier_differs``, ``tier_unpriced``: requests that another
    service tier served than was asked for, or one without a price. ``local_usd``: the price of local drafting, part of
    what was paid; ``None`` where it has none. ``forgotten``: requests that the ledger no longer keeps whole, so that
    they are in no figure here. ``allowance``: what may still be lost, by account.
    """

    start: float | None
    end: float | None
    session: str | None
    sums: Sums
    sessions: tuple[Group, ...] = ()
    models: tuple[Group, ...] = ()
    days: tuple[Group, ...] = ()
    reasons: tuple[Reason, ...] = ()
    tokens: Tokens = field(default_factory=Tokens)
    rounds: int = 0
    target_calls: int = 0
    calls_saved_per_request_client: int = 0
    calls_saved_per_token_client: int = 0
    lossy: Lossy = field(default_factory=Lossy)
    latency: Mapping[str, Latency] = field(default_factory=dict[str, Latency])
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    simulated: int = 0
    forgotten: int = 0
    fixed: int = 0
    local_usd: Decimal | None = None
    forecast: Forecast = field(default_factory=Forecast)
    calibration: tuple[Calibration, ...] = ()
    tier_differs: int = 0
    tier_unpriced: int = 0
    allowance: tuple[Headroom, ...] = ()

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; ``None`` when nothing was drafted."""
        return self.tokens.accepted / self.tokens.drafted if self.tokens.drafted else None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a round gained, its correction or bonus token included; ``None`` without rounds."""
        return (self.tokens.accepted + self.tokens.corrected) / self.rounds if self.rounds else None

    @property
    def by_reason(self) -> dict[str, int]:
        """How many requests were not speculated for which reason, the most frequent first."""
        counts: dict[str, int] = {}
        for reason in self.reasons:
            counts[reason.reason] = counts.get(reason.reason, 0) + reason.requests
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 80) -> str:
        """What ``cheapspec report`` prints, without colours, ``width`` columns wide."""
        from cheapspec.report.text import plain  # it is built on this module

        return plain(self, width)

    def html(self) -> str:
        """One page with charts that needs nothing else (``cheapspec report --html``)."""
        from cheapspec.report.page import page

        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON: money as strings in dollars, unknown ``null``, times in seconds."""
        sums, tokens, interval = self.sums, self.tokens, self.lossy.interval
        whole = self.latency.get("all")
        return {
            "from": self.start,
            "to": self.end,
            "session": self.session,
            "sessions": [{"session": group.name, **group.sums.to_dict()} for group in self.sessions],
            "requests": {
                "total": sums.requests,
                **{name: getattr(sums, name) for name in DECISIONS.values()},
                "by_reason": self.by_reason,
            },
            "tokens": {name: getattr(tokens, name) for name in Tokens.__slots__},
            "acceptance_rate": _rounded(self.acceptance_rate),
            "rounds": self.rounds,
            "tokens_per_round": _rounded(self.tokens_per_round),
            "target_calls": self.target_calls,
            "calls_saved": {
                "per_request_client": self.calls_saved_per_request_client,
                "per_token_client": self.calls_saved_per_token_client,
            },
            "paid_usd": format_usd(sums.paid_usd),
            "baseline_usd": format_usd(sums.baseline_usd),
            "saved_usd": format_usd(sums.saved_usd),
            "saved_share": _rounded(sums.saved_share),
            "baseline_estimated_share": _rounded(sums.estimated_share),
            "unpriced_requests": sums.unpriced,
            "unpriced_known_usd": format_usd(sums.unpriced_known),
            "lossy": {
                "accepted": self.lossy.accepted,
                "audited": self.lossy.audited,
                "agreement": _rounded(self.lossy.agreement),
                "agreement_interval": None if interval is None else [_rounded(end) for end in interval],
            },
            "latency": {
                "p50": None if whole is None else _rounded(whole.p50),
                "p95": None if whole is None else _rounded(whole.p95),
                "by_decision": {
                    name: {"requests": one.requests, "p50": _rounded(one.p50), "p95": _rounded(one.p95)}
                    for name, one in self.latency.items()
                    if name != "all"
                },
                "seconds": {name: _rounded(value) for name, value in self.seconds.items()},
            },
            "by_model": [{"model": group.name, **group.sums.to_dict()} for group in self.models],
            "by_day": [{"day": group.name, **group.sums.to_dict()} for group in self.days],
            "simulated_requests": self.simulated,
            "fixed_draft_tokens_requests": self.fixed,
            "local_drafting_usd": format_usd(self.local_usd),
            "forecast": {
                "requests": self.forecast.requests,
                "expected_usd": format_usd(self.forecast.expected_usd),
                "saved_usd": format_usd(self.forecast.saved_usd),
            },
            "calibration": [
                {
                    "target": one.target,
                    "drafter": one.drafter,
                    "workload": one.workload,
                    "trials": round(one.trials),
                    "error": _rounded(one.error),
                }
                for one in self.calibration
            ],
            "forgotten_requests": self.forgotten,
            "probes": sums.probes,
            "service_tiers": {"differs": self.tier_differs, "unpriced": self.tier_unpriced},
            "allowance": [
                {
                    "account": one.account,
                    "balance_usd": format_usd(one.balance_usd),
                    "open_usd": format_usd(one.open_usd),
                    "seed_usd": format_usd(one.seed_usd),
                    "headroom_usd": format_usd(one.usd),
                }
                for one in self.allowance
            ],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
