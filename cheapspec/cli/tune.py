"""``cheapspec tune``: from requests tried in shadow to thresholds and certificates of lossy rules.

Nothing is sent to a target, but for past requests (``--logs``) with ``--spend``. What it stores is the certificate, or
that a batch was looked at in vain; clients on the same ledger use a certificate as long as nothing that it names has
changed.
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
from cheapspec.cli.tune_logs import Past, Source, found
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
    logs: Source | None = None


def run(asked: Asked, *, as_json: bool) -> int:
    """Returns the exit status: 1 where no rule got a certificate.

    :raises SettingsError: misuse. :raises LedgerError: the ledger cannot be read, or keeps no findings.
    """
    try:
        promised(1, 0, asked.loss, asked.confidence)
    except ValueError as problem:
        raise SettingsError(f"tune: {problem}.") from None
    past = None if asked.logs is None else found(asked.logs)
    with opened_ledger(asked.ledger) as (ledger, missing):
        if not isinstance(ledger, ShadowReader) or not isinstance(ledger, ShadowBook):
            raise LedgerError(f"nothing to tune: a {type(ledger).__name__} keeps no findings.")
        rows = list(ledger.shadow_rows(workload=asked.workload)) if past is None else past.rows
        looks = ledger.certificate_rows()
        tuned = [
            tune(batch, asked.loss, asked.confidence)
            for batch in batches(rows, looks, needed(0, asked.loss, asked.confidence))
        ]
        told = [(one, _outlook(asked, ledger, one, past)) for one in tuned]
        if asked.store and (asked.logs is None or asked.logs.base_url):
            for one in tuned:
                kept = row_of(one, time.time(), asked.loss, asked.confidence)
                if kept is not None:
                    ledger.put_certificate(kept)
            flush = getattr(ledger, "flush", None)
            if flush is not None and not flush():
                raise LedgerError("the certificates could not be stored.")
    if as_json:
        print(json.dumps(_json(asked, told, past), indent=2, allow_nan=False))
    elif not told and past is None:
        where = "" if asked.workload is None else f" of workload {asked.workload!r}"
        print(missing or f"No request{where} was tried in shadow yet: set Speculation(accept=[…], shadow=300).")
    else:
        _show(Console(highlight=False), asked, told)
        if past is not None:
            _show_past(Console(highlight=False), asked, past)
    return 0 if any(one.certificate is not None for one in tuned) else 1


def _outlook(asked: Asked, ledger: object, tuned: Tuned, past: Past | None) -> Outlook | None:
    """With the lengths that the ledger has of the batch's requests."""
    model, _, base_url = tuned.batch.scope.target.rpartition("@")
    if asked.prices is not None and "," in asked.prices:
        prices: Prices | None = parse_list(asked.prices)
    else:
        prices = PriceBook(Speculation().prices).quote(asked.prices or model, base_url).prices
    if past is not None:
        known = [past.lengths[row.request_id] for row in tuned.batch.rows]
        prompt, reply = (fmean(side) for side in zip(*known, strict=True)) if known else (None, None)
    else:
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


def _json(asked: Asked, told: Iterable[tuple[Tuned, Outlook | None]], past: Past | None) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if past is not None:
        agreed = [{"rule": name, "compared": n, "equal": equal} for name, (n, equal) in past.agreed.items()]
        more = {"not_asked": agreed, "left_out": past.left_out, "spent_usd": format_usd(past.spent)}
    return {
        **more,
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
                "break_even": None if seen is None else seen.break_even,
                "expected_saving_share": None if seen is None else round(seen.saving, 4),
                "direct_usd": None if seen is None else format_usd(seen.direct_usd),
            }
            for one, seen in told
        ],
    }


def _show(console: Console, asked: Asked, told: Iterable[tuple[Tuned, Outlook | None]]) -> None:
    for one, seen in told:
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
        if seen is not None:
            even = "it never pays here" if seen.break_even is None else f"it pays from {seen.break_even:.0%} accepted"
            console.print(f"  {even}; {seen.accepted:.0%} were: expected saving {seen.saving:.0%} of the direct cost")
        for count, what in (
            (one.batch.uncompared, "compared with nothing"),
            (one.batch.others, "of another fingerprint or comparison"),
            (one.batch.used, "looked at before"),
        ):
            if count:
                console.print(f"  [dim]{count:,} more findings {'is' if count == 1 else 'are'} left out: {what}[/]")


def _show_past(console: Console, asked: Asked, past: Past) -> None:
    for name, (count, equal) in past.agreed.items():
        console.print(
            f"[bold]{_plain(name)}[/]  was not asked (--spend USD lets it be): draft and reply agree in {equal:,} of "
            f"{count:,} ({equal / count:.0%}), which is about what it could accept"
        )
    for reason, count in past.left_out.items():
        console.print(f"[dim]{count:,} {'request is' if count == 1 else 'requests are'} left out: {reason}[/]")
    if past.spent:
        console.print(f"spent ${format_usd(past.spent)} on verdicts")
    if asked.store and asked.logs is not None and not asked.logs.base_url:
        console.print("[dim]nothing is stored: a certificate needs --base-url, since it is bound to its target[/]")


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
