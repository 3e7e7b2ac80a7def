"""``cheapspec tune``: from requests tried in shadow to thresholds and certificates of lossy rules.

Nothing is sent anywhere. What it stores is the certificate, or that a batch was looked at in vain; clients on the same
ledger use a certificate as long as nothing that it names has changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.console import Console

from cheapspec.cli.replay import parse_list
from cheapspec.cli.report import opened_ledger
from cheapspec.core.money import Prices, format_usd
from cheapspec.core.records import LedgerReader
from cheapspec.core.shadows import ShadowBook, ShadowReader, ShadowRow
from cheapspec.errors import LedgerError, SettingsError
from cheapspec.estimating.tuning import Outlook, Tuned, batches, outlook, row_of, tune
from cheapspec.prices import PriceBook
from cheapspec.rules.certificates import needed, promised
from cheapspec.settings import Speculation

__all__ = ["Asked", "run"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options; see its help."""

    workload: str | None = None
    loss: float = 0.01
    confidence: float = 0.95
    ledger: str | None = None
    prices: str | None = None
    store: bool = True


def run(asked: Asked, *, as_json: bool) -> int:
    """Returns the exit status: 1 where no rule got a certificate.

    :raises SettingsError: misuse. :raises LedgerError: the ledger cannot be read, or keeps no findings.
    """
    try:
        promised(1, 0, asked.loss, asked.confidence)
    except ValueError as problem:
        raise SettingsError(f"tune: {problem}.") from None
    with opened_ledger(asked.ledger) as (ledger, missing):
        if not isinstance(ledger, ShadowReader) or not isinstance(ledger, ShadowBook):
            raise LedgerError(f"nothing to tune: a {type(ledger).__name__} keeps no findings.")
        rows = list(ledger.shadow_rows(workload=asked.workload))
        looks = ledger.certificate_rows()
        tuned = [
            tune(batch, asked.loss, asked.confidence)
            for batch in batches(rows, looks, needed(0, asked.loss, asked.confidence))
        ]
        told = [(one, _outlook(asked, ledger, one)) for one in tuned]
        if asked.store:
            for one in tuned:
                kept = row_of(one, time.time(), asked.loss, asked.confidence)
                if kept is not None:
                    ledger.put_certificate(kept)
            flush = getattr(ledger, "flush", None)
            if flush is not None and not flush():
                raise LedgerError("the certificates could not be stored.")
    if as_json:
        print(json.dumps(_json(asked, told), indent=2, allow_nan=False))
    elif not told:
        where = "" if asked.workload is None else f" of workload {asked.workload!r}"
        print(missing or f"No request{where} was tried in shadow yet: set Speculation(accept=[…], shadow=300).")
    else:
        _show(Console(highlight=False), asked, told)
    return 0 if any(one.certificate is not None for one in tuned) else 1


def _outlook(asked: Asked, ledger: object, tuned: Tuned) -> Outlook | None:
    """With the lengths that the ledger has of the batch's requests."""
    model, _, base_url = tuned.batch.scope.target.partition("@")
    if asked.prices is not None and "," in asked.prices:
        prices: Prices | None = parse_list(asked.prices)
    else:
        prices = PriceBook(Speculation().prices).quote(asked.prices or model, base_url).prices
    prompt, reply = _lengths(ledger, tuned.batch.rows)
    return outlook(tuned, prices, prompt, reply)


def _lengths(ledger: object, rows: Iterable[ShadowRow]) -> tuple[float | None, float | None]:
    wanted = {row.request_id: row.at for row in rows}
    if not wanted or not isinstance(ledger, LedgerReader):
        return None, None
    since, until = min(wanted.values()) - 86400, max(wanted.values()) + 1
    told: list[Mapping[str, Any]] = [
        record.info
        for record in ledger.requests(since=since, until=until)
        if record.row.request_id in wanted and record.info is not None
    ]
    return tuple(  # type: ignore[return-value]
        fmean(known) if (known := [info[name] for info in told if info.get(name) is not None]) else None
        for name in ("prompt_tokens", "reply_tokens")
    )


def _json(asked: Asked, told: Iterable[tuple[Tuned, Outlook | None]]) -> dict[str, Any]:
    return {
        "loss": asked.loss,
        "confidence": asked.confidence,
        "rules": [
            {
                **asdict(one.batch.scope),
                "n": len(one.batch.rows),
                "failures": None if one.trial is None else one.trial.failures,
                "accepted": None if one.trial is None else one.trial.accepted,
                "loss_bound": None if one.trial is None else round(one.trial.bound(asked.confidence), 6),
                "threshold": None if one.certificate is None else one.certificate.threshold,
                "certified": one.certificate is not None,
                "missing": one.missing or None,
                "uncompared": one.batch.uncompared,
                "other_fingerprints": one.batch.others,
                "used_up": one.batch.used,
                "trials": [asdict(trial) for trial in one.trials],
                "break_even": None if found is None else found.break_even,
                "expected_saving_share": None if found is None else round(found.saving, 4),
                "direct_usd": None if found is None else format_usd(found.direct_usd),
            }
            for one, found in told
        ],
    }


def _show(console: Console, asked: Asked, told: Iterable[tuple[Tuned, Outlook | None]]) -> None:
    for one, found in told:
        scope, trial = one.batch.scope, one.trial
        console.print(f"[bold]{_plain(scope.rule)}[/]  workload {_plain(scope.workload or 'without a name')}")
        console.print(
            f"  draft {_plain(scope.draft)}, target {_plain(scope.target)}, {_plain(scope.fingerprint or '–')}"
        )
        if trial is not None:
            console.print(
                f"  {trial.n:,} audited requests, {trial.accepted:,} accepted, {trial.failures:,} of them bad"
                f"{f' at threshold {trial.threshold:g}' if one.batch.graded else ''}; "
                f"at most {trial.bound(asked.confidence):.2%} lost, with {asked.confidence:.0%} confidence"
            )
        if one.certificate is not None:
            promise = f"at most {asked.loss:.2%} lost, with {asked.confidence:.0%} confidence"
            console.print(f"  [green]certified[/]: {promise}, compared by {_plain(scope.comparison)}")
        else:
            console.print(f"  [yellow]no certificate[/]: {_plain(one.missing)}")
        if found is not None:
            even = "it never pays here" if found.break_even is None else f"it pays from {found.break_even:.0%} accepted"
            console.print(f"  {even}; {found.accepted:.0%} were: expected saving {found.saving:.0%} of the direct cost")
        for count, what in (
            (one.batch.uncompared, "compared with nothing"),
            (one.batch.others, "of another fingerprint or comparison"),
            (one.batch.used, "looked at before"),
        ):
            if count:
                console.print(f"  [dim]{count:,} more findings {'is' if count == 1 else 'are'} left out: {what}[/]")


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
