"""``cheapspec estimate``: past requests and replies, drafted along on this machine; what each rule would have saved."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import httpx2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cheapspec.cli.estimate_view import Answer, show, to_dict
from cheapspec.cli.replay import parse_list, parse_share
from cheapspec.core.allowance import Allowance
from cheapspec.core.money import Prices
from cheapspec.core.ports import Drafter
from cheapspec.doors import DEFAULT_MAX_DRAFT_TOKENS, Shared
from cheapspec.drive.drafts import DraftHosts
from cheapspec.drive.urls import cannot_score
from cheapspec.errors import CheapspecError, SettingsError
from cheapspec.estimating.along import Along, DraftFailed
from cheapspec.estimating.cases import Case, Cases
from cheapspec.estimating.logs import Logged, Logs, read_logs
from cheapspec.estimating.savings import Saving, exact, verdicts
from cheapspec.prices import PriceBook
from cheapspec.settings import Speculation

__all__ = ["Asked", "run"]

_INTERRUPTED = 130
_IN_A_ROW = 3  # failures of a draft host, after which it is given up


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options; see its help."""

    files: tuple[Path, ...]
    draft: str | None = None
    prices: str | None = None
    base_url: str = ""
    qs: str | None = None
    limit: int | None = None
    sample: int | None = None
    assume_temperature: float | None = None
    workload: str | None = None
    answers: bool = True
    oracle: bool = False


@dataclass(slots=True)
class _Drafted:
    cases: list[Case] = field(default_factory=list[Case])
    failed: Counter[str] = field(default_factory=Counter[str])
    interrupted: bool = False


def run(asked: Asked, *, as_json: bool) -> int:
    """Returns the exit status; 130 when interrupted, with what was measured until then.

    :raises SettingsError: misuse. :raises CheapspecError: there is nothing to estimate, or nothing that drafts.
    """
    options = {"draft": asked.draft, "assume_temperature": asked.assume_temperature, "ledger": "off"}
    given = {name: value for name, value in options.items() if value is not None}
    speculation = Speculation().override(given, "estimate")
    drafters = Shared(speculation).runtime.drafters
    if not drafters:
        raise SettingsError("estimate needs a draft: give --draft, or set CHEAPSPEC_DRAFT.")
    logs = read_logs(asked.files)
    if not logs.requests:
        told = ", ".join(f"{count:,} {name}" for name, count in logs.odd.most_common()) or "no lines"
        raise CheapspecError(f"{_names(asked)}: no request with its reply is in there, only {told}.")
    chosen = _chosen(logs.requests, asked)
    prices, unpriced = _prices(asked, chosen, speculation)
    chosen = [logged for logged in chosen if logged.model in prices]
    console = Console(stderr=True)
    drafted = _draft(console, chosen, drafters, speculation, asked)
    answer = Answer(
        files=_names(asked),
        drafters=tuple(drafter.name for drafter in drafters),
        logs=Logs([], logs.odd, logs.lines),
        found=len(logs.requests),
        cases=drafted.cases,
        left_out=unpriced + drafted.failed,
        prices=prices,
        savings=_savings(asked, drafted.cases, prices, speculation),
        never_scores=_host(asked.base_url) if cannot_score(_host(asked.base_url)) else None,
        interrupted=drafted.interrupted,
    )
    if as_json:
        print(json.dumps(to_dict(answer), indent=2, allow_nan=False))
    else:
        show(Console(highlight=False), answer)
    return _INTERRUPTED if drafted.interrupted else 0


def _names(asked: Asked) -> str:
    return ", ".join(map(str, asked.files))


def _host(base_url: str) -> str:
    try:
        return httpx2.URL(base_url).host
    except httpx2.InvalidURL:
        raise SettingsError(f"--base-url {base_url!r} is no URL.") from None


def _chosen(requests: Sequence[Logged], asked: Asked) -> list[Logged]:
    """The first ``--limit`` of a random ``--sample``, in their order; the same ones every time."""
    picked = list(requests)
    if asked.sample is not None and asked.sample < len(picked):
        places = random.Random(len(picked)).sample(range(len(picked)), asked.sample)
        picked = [picked[place] for place in sorted(places)]
    return picked[: asked.limit]


def _prices(
    asked: Asked, requests: Sequence[Logged], speculation: Speculation
) -> tuple[dict[str, Prices], Counter[str]]:
    """By model, and how many requests have none."""
    book, known, unknown = PriceBook(speculation.prices), dict[str, Prices](), Counter[str]()
    fixed = None if asked.prices is None or "," not in asked.prices else parse_list(asked.prices)
    for logged in requests:
        if logged.model in known:
            continue
        listed = fixed or book.quote(asked.prices or logged.model, asked.base_url).prices
        if listed is None:
            unknown[f"of unknown price ({asked.prices or logged.model or 'no model named'})"] += 1
        else:
            known[logged.model] = listed
    if not known:
        raise CheapspecError(
            "nobody knows the price of these models; give --prices MODEL or INPUT,CACHED,OUTPUT in dollars per million "
            'tokens, or a row [prices."MODEL"] in cheapspec.toml: '
            + ", ".join(f"{count:,} {name}" for name, count in unknown.most_common(3))
        )
    return known, unknown


def _draft(
    console: Console, requests: Sequence[Logged], drafters: Sequence[Drafter], speculation: Speculation, asked: Asked
) -> _Drafted:
    """Run the drafters along; an interrupt keeps what is done."""
    drafted, in_a_row = _Drafted(), 0
    longest = speculation.max_draft_tokens or DEFAULT_MAX_DRAFT_TOKENS
    with _progress(console) as progress, DraftHosts() as hosts:
        cases = Cases(
            Along(drafters, hosts, longest),
            assume_temperature=speculation.assume_temperature,
            workload=asked.workload,
            answers=asked.answers,
        )
        task = progress.add_task("drafting along", total=len(requests))
        try:
            for logged in requests:
                try:
                    drafted.cases.append(cases.case(logged))
                    in_a_row = 0
                except DraftFailed as error:
                    in_a_row += 1
                    drafted.failed["whose draft failed"] += 1
                    if in_a_row == _IN_A_ROW or in_a_row == len(requests):
                        raise CheapspecError(f"the draft host does not draft: {error}") from None
                progress.advance(task)
        except KeyboardInterrupt:
            drafted.interrupted = True
    return drafted


@contextmanager
def _progress(console: Console) -> Generator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield progress


def _savings(asked: Asked, cases: Sequence[Case], prices: dict[str, Prices], speculation: Speculation) -> list[Saving]:
    shares = [parse_share("qs", asked.qs)] if asked.qs is not None else [None, 1.0]
    longest = speculation.max_draft_tokens or DEFAULT_MAX_DRAFT_TOKENS
    told: list[Saving] = []
    for qs in shares:
        allowance = Allowance(Decimal(str(speculation.allowance)), speculation.seed_usd)
        told.append(exact(cases, prices, qs=qs, allowance=allowance, longest=longest, oracle=asked.oracle))
    return [*told, *verdicts(cases, prices)]
