"""``cheapspec replay``: what past requests would have cost under another rule, price list or objective."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cheapspec.cli.replay_source import Source, from_files, from_ledger
from cheapspec.cli.replay_view import Answer, show, to_dict
from cheapspec.cli.report import parse_since
from cheapspec.core.allowance import Allowance
from cheapspec.core.imputation import Completed, complete
from cheapspec.core.money import Prices
from cheapspec.core.outcome import Outcome, Replayed
from cheapspec.core.planner import Rates
from cheapspec.core.policies import Policy, policy
from cheapspec.core.replay import Guard, Pace, Setting, outcomes
from cheapspec.core.speed import TargetSpeed, seconds_rates
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace
from cheapspec.errors import PriceUnknownError, SettingsError
from cheapspec.prices import PriceBook
from cheapspec.settings import Speculation

__all__ = ["Asked", "parse_list", "parse_share", "run"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options; see its help. ``prices``, ``qs``, ``qh``, ``q0``: as written."""

    ledger: str | None = None
    traces: tuple[Path, ...] = ()
    policies: tuple[str, ...] = ("planner",)
    prices: str | None = None
    qs: str = "c"
    qh: str = "c"
    q0: str | None = None
    drafters: tuple[str, ...] = ()
    oracle: bool = False
    objective: str = "cost"
    allowance: float | None = None
    seed_usd: float = 0.05
    since: str | None = None
    session: str | None = None


def run(asked: Asked, *, as_json: bool) -> int:
    """Returns the exit status.

    :raises SettingsError: misuse. :raises PriceUnknownError: nobody knows a target's price.
    :raises CheapspecError: there is nothing to replay.
    """
    if asked.traces and asked.ledger is not None:
        raise SettingsError("choose one of --ledger and --traces.")
    if asked.objective not in ("cost", "latency"):
        raise SettingsError(f"--objective {asked.objective!r}: write cost or latency.")
    if asked.traces and (asked.since or asked.session):
        raise SettingsError("--since and --session are for a ledger; a file of traces is replayed as a whole.")
    for spec in asked.policies:
        _policy(spec, Prices(Decimal(1), Decimal(1)), None)
    since = None if asked.since is None else parse_since(asked.since, time.time())
    source = from_files(asked.traces) if asked.traces else from_ledger(asked.ledger, since, asked.session)
    groups = {target: (_prices(asked.prices, target), traces) for target, traces in source.by_target().items()}
    answer = _replay(asked, source, groups)
    if as_json:
        print(json.dumps(to_dict(answer), indent=2, allow_nan=False))
    else:
        show(Console(highlight=False), answer)
    return 0


def parse_list(text: str) -> Prices:
    """``INPUT,CACHED,OUTPUT`` in dollars per million tokens.

    :raises SettingsError: it is none.
    """
    try:
        told = [Decimal(part.strip()) for part in text.split(",")]
    except InvalidOperation:
        told = []
    if len(told) != 3 or not all(price.is_finite() and price >= 0 for price in told) or not told[0]:
        raise SettingsError(
            f"--prices {text!r}: name a model or write INPUT,CACHED,OUTPUT (dollars per million tokens): 1,0.05,5."
        )
    return Prices(told[0], told[2], told[1])


def parse_share(name: str, text: str | None) -> float | None:
    """``c`` (the cached price: ``None``) or a multiple of the input price.

    :raises SettingsError: it is neither.
    """
    if text is None or text.strip().lower() == "c":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10:
        raise SettingsError(f"--{name} {text!r}: write c (the cached price) or a multiple of the input price, as 1.")
    return value


def _prices(asked: str | None, target: str) -> Prices:
    """What ``--prices`` says; else the price of the model that answered."""
    if asked is not None and "," in asked:
        return parse_list(asked)
    model, _, base_url = (asked or target).rpartition("@")
    if not model or "://" not in base_url:
        model, base_url = asked or target, ""
    known = PriceBook(Speculation().prices).quote(model, base_url) if model else None
    if known is None or known.prices is None:
        what = f"of {asked or target}" if asked or target else "of the target, which the traces do not name"
        raise PriceUnknownError(
            f"nobody knows the price {what}; give --prices INPUT,CACHED,OUTPUT in dollars per million tokens, "
            'or a row [prices."MODEL"] in cheapspec.toml.'
        )
    return known.prices


def _policy(spec: str, prices: Prices, rates: Rates | None) -> Policy:
    try:
        return policy(spec, prices, rates)
    except ValueError as error:
        raise SettingsError(f"--policy {error}.") from None


def _replay(asked: Asked, source: Source, groups: dict[str, tuple[Prices, list[RequestTrace]]]) -> Answer:
    qs, qh = parse_share("qs", asked.qs), parse_share("qh", asked.qh)
    allowances = {spec: _allowance(asked) for spec in asked.policies}
    told: dict[str, list[Replayed]] = {spec: [] for spec in asked.policies}
    tariffs: dict[str, tuple[Prices, Tariff]] = {}
    with _progress(sum(len(traces) for _, traces in groups.values()) * len(asked.policies)) as progress:
        task = progress.add_task("replaying", total=len(source.traces) * len(asked.policies))
        for target, (prices, traces) in groups.items():
            tariff = Tariff.of(prices, qs, qh)
            if asked.q0 is not None:
                fixed = parse_share("q0", asked.q0)
                tariff = replace(tariff, q0=tariff.cached if fixed is None else fixed)
            tariffs[target] = prices, tariff
            speed = source.target_speeds.get(target, TargetSpeed()).speed
            rates = seconds_rates(speed, source.draft_speed.decode)
            setting = _setting(asked, tariff, rates)
            completed = complete(traces)
            for spec in asked.policies:
                chosen = _policy(spec, prices, rates if asked.objective == "latency" else None)
                allowance = allowances[spec]
                guard = None if allowance is None else Guard(allowance, prices)
                told[spec] += _counted(progress, task, completed, chosen, setting, guard)
    results = {spec: Outcome(tuple(requests)) for spec, requests in told.items()}
    return Answer(source, tariffs, results, asked.objective, asked.oracle)


def _setting(asked: Asked, tariff: Tariff, rates: Rates) -> Setting:
    pace = None
    if asked.objective == "latency":
        pace = Pace(Tariff(rates, 0.0, 0.0 if tariff.qs < 1 else 1.0, 0.0, _seen_anew(tariff)), rates.drafting)
    return Setting(tariff, asked.drafters or None, pace=pace, oracle=asked.oracle)


def _seen_anew(tariff: Tariff) -> float | None:
    """The share of the prompt that a direct call reads anew, where the tariff states one price for all."""
    if tariff.q0 is None:
        return None
    return 1.0 if tariff.cached >= 1 else max(0.0, min(1.0, (tariff.q0 - tariff.cached) / (1 - tariff.cached)))


def _allowance(asked: Asked) -> Allowance | None:
    """One for all targets, as a client has."""
    if asked.allowance is None:
        return None
    return Allowance(Decimal(str(asked.allowance)), Decimal(str(asked.seed_usd)))


def _progress(total: int) -> Progress:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or total < 20)


def _counted(
    progress: Progress,
    task: TaskID,
    traces: Sequence[Completed],
    chosen: Policy,
    setting: Setting,
    guard: Guard | None,
) -> Iterator[Replayed]:
    for request in outcomes(traces, chosen, setting, guard):
        progress.advance(task)
        yield request
