"""What each rule would have saved on past requests: dollars at the user's prices, in floats, since it is an estimate.

Rules
-----
* ``exact``: replayed with the engine's planner, its learning from nothing on, and its allowance
  (:mod:`cheapspec.core.replay`), under a stated price of a context token in scoring calls, qs.
* ``answer``: the target gives only the final answer and the draft is kept where its own is the same. The recorded
  reply's answer stands in for the short one. What a verdict and a rejection cost: :mod:`cheapspec.rules.breakeven`.
* ``validator``: a draft that is valid JSON is kept, without any call. How many of those differ from the reply is said
  beside it: that is what such a check does not see.
* Requests that a rule cannot serve cost what they did, on both sides. Losses are losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cheapspec.core.allowance import Allowance
from cheapspec.core.imputation import complete
from cheapspec.core.money import Prices, format_usd
from cheapspec.core.outcome import Replayed
from cheapspec.core.policies import Planned
from cheapspec.core.replay import Guard, Setting, outcomes
from cheapspec.core.tariff import Tariff
from cheapspec.estimating.answers import Compared
from cheapspec.estimating.cases import Case
from cheapspec.rules.breakeven import Host, costs, shape

__all__ = ["Saving", "Sums", "exact", "verdicts"]


@dataclass(frozen=True, slots=True)
class Sums:
    """Of some requests. ``served``: those that the rule had a say in; ``accepted``: whose draft was kept (of ``exact``:
    that were speculated on); ``differing``: of them, those whose answer is not the reply's. ``clairvoyant``: dollars of
    who knows every run length, ``None`` not asked for.
    """

    requests: int = 0
    served: int = 0
    accepted: int = 0
    differing: int = 0
    baseline: float = 0.0
    paid: float = 0.0
    clairvoyant: float | None = None

    def __add__(self, other: Sums) -> Sums:
        known = self.clairvoyant is not None and other.clairvoyant is not None
        return Sums(
            self.requests + other.requests,
            self.served + other.served,
            self.accepted + other.accepted,
            self.differing + other.differing,
            self.baseline + other.baseline,
            self.paid + other.paid,
            (self.clairvoyant or 0.0) + (other.clairvoyant or 0.0) if known else None,
        )

    @property
    def paid_over_baseline(self) -> float | None:
        """Below 1 is a saving; ``None`` where nothing cost anything."""
        return self.paid / self.baseline if self.baseline else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; dollars as strings."""
        ratio = self.paid_over_baseline
        return {
            "requests": self.requests,
            "served": self.served,
            "accepted": self.accepted,
            "differing": self.differing,
            "baseline_usd": _usd(self.baseline),
            "paid_usd": _usd(self.paid),
            "saved_usd": _usd(self.baseline - self.paid),
            "paid_over_baseline": None if ratio is None else round(ratio, 4),
            "clairvoyant_usd": None if self.clairvoyant is None else _usd(self.clairvoyant),
        }


@dataclass(frozen=True, slots=True)
class Saving:
    """One rule. ``assuming``: in a few words; ``lossy``: it may give another text than the target's."""

    rule: str
    assuming: str
    lossy: bool
    workloads: Mapping[str, Sums]

    @property
    def all(self) -> Sums:
        """All workloads together."""
        every = list(self.workloads.values())
        return sum(every[1:], every[0]) if every else Sums()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "rule": self.rule,
            "assuming": self.assuming,
            "lossy": self.lossy,
            "all": self.all.to_dict(),
            "workloads": {name: sums.to_dict() for name, sums in self.workloads.items()},
        }


def exact(
    cases: Sequence[Case],
    prices: Mapping[str, Prices],
    *,
    qs: float | None,
    allowance: Allowance,
    longest: int = 512,
    oracle: bool = False,
) -> Saving:
    """``prices`` by model: cases of other models are left out. ``qs``: a multiple of the input price, ``None``: the
    cached price.
    """
    parts: list[tuple[str, Sums]] = []
    for model, listed in prices.items():
        some = [case for case in cases if case.model == model]
        setting = Setting(Tariff.of(listed, qs), max_draft_tokens=longest, oracle=oracle)
        completed = complete([case.trace for case in some if not case.reason])  # the others would be filled in
        told = iter(outcomes(completed, Planned(listed), setting, Guard(allowance, listed)))
        for case in some:
            sums = _direct(setting, case) if case.reason else _replayed(next(told))
            parts.append((case.trace.workload, sums))
    price = "at the cached price" if qs is None else f"at {qs:g} of the input price"
    return Saving("exact", f"scoring reads the prompt {price}", False, _grouped(parts))


def _replayed(one: Replayed) -> Sums:
    return Sums(1, 1, int(one.rounds > 0), 0, one.baseline, one.paid, one.clairvoyant)


def _direct(setting: Setting, case: Case) -> Sums:
    cost = setting.tariff.direct(case.trace)
    return Sums(1, 0, 0, 0, cost, cost, cost if setting.oracle else None)


def verdicts(cases: Sequence[Case], prices: Mapping[str, Prices]) -> list[Saving]:
    """The rules that keep a whole draft or nothing, as far as answers could be compared."""
    kinds = {case.compared.kind for case in cases if case.compared is not None}
    savings: list[Saving] = []
    if "number" in kinds:
        assuming = "the target's short answer is that of its whole reply"
        savings.append(Saving("answer", assuming, True, _grouped(_each(cases, prices, "number", _answer))))
    if "json" in kinds:
        assuming = "valid JSON is all that is checked"
        savings.append(Saving("validator", assuming, True, _grouped(_each(cases, prices, "json", _validator))))
    return savings


_Rule = Callable[[Case, Compared, Prices, Tariff], Sums]


def _each(cases: Sequence[Case], prices: Mapping[str, Prices], kind: str, rule: _Rule) -> Iterable[tuple[str, Sums]]:
    for case in cases:
        listed = prices.get(case.model)
        if listed is None:
            continue
        tariff, compared = Tariff.of(listed), case.compared
        baseline = tariff.direct(case.trace)
        if compared is None or compared.kind != kind:
            yield case.trace.workload, Sums(1, 0, 0, 0, baseline, baseline)
        else:
            yield case.trace.workload, rule(case, compared, listed, tariff)


def _answer(case: Case, compared: Compared, prices: Prices, tariff: Tariff) -> Sums:
    trace, host, baseline = case.trace, Host.of(prices), tariff.direct(case.trace)
    if not compared.valid or host is None:  # nothing to compare with: direct at once
        return Sums(1, 1, 0, 0, baseline, baseline)
    q0 = tariff.context(trace).q0
    priced = costs(host, shape("answer"), trace.prompt_tokens, trace.reply_tokens, read=q0)
    paid = tariff.rates.input * (priced.accepted if compared.equal else priced.rejected)
    return Sums(1, 1, int(compared.equal), 0, baseline, paid)


def _validator(case: Case, compared: Compared, prices: Prices, tariff: Tariff) -> Sums:
    baseline = tariff.direct(case.trace)
    differing = compared.valid and not compared.equal
    return Sums(1, 1, int(compared.valid), int(differing), baseline, 0.0 if compared.valid else baseline)


def _grouped(parts: Iterable[tuple[str, Sums]]) -> dict[str, Sums]:
    groups: dict[str, Sums] = {}
    for name, sums in parts:
        groups[name] = groups[name] + sums if name in groups else sums
    return groups


def _usd(amount: float) -> str | None:
    return format_usd(Decimal(repr(amount)))
