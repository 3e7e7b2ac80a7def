"""A report as one HTML file: charts and tables, light and dark, no script, nothing to fetch.

Every text that came from outside (names of models and sessions, reasons) is escaped, and the page's own policy
forbids whatever it does not contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from cheapspec.report.charts import decision_bar, latency_chart, money_over_time, saved_by_name
from cheapspec.report.entries import DECISIONS
from cheapspec.report.figures import Group, Report, Sums
from cheapspec.report.style import STYLE
from cheapspec.report.words import (
    account_name,
    count,
    forecast,
    how_known,
    model_name,
    money,
    notes,
    passed_by,
    percent,
    period,
    seconds,
    session_name,
    signed,
    verdict,
)

__all__ = ["page"]


def page(report: Report) -> str:
    """The whole document."""
    session = "" if report.session is None else f" · session {escape(report.session)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>cheapspec report</title><style>{STYLE}</style></head><body>\n"
        f"<header><h1>cheapspec report</h1><p>{escape(period(report))}{session}</p></header>\n<main>\n"
        + "\n".join(_sections(report))
        + "\n</main>\n</body></html>\n"
    )


def _sections(report: Report) -> Iterator[str]:
    yield _section("Requests", _requests(report))
    yield _section("Money", _money(report))
    if report.allowance:
        yield _section("Allowance", _allowance(report))
    if report.tokens.drafted or report.sums.speculated:
        yield _section("Drafts and calls", _drafts(report))
    if report.latency:
        yield _section("Time", _time(report))
    if len(report.sessions) > 1 or any(group.name is not None for group in report.sessions):
        yield _section("Sessions", _groups("sessions", "Session", report.sessions, session_name))
    if report.models:
        yield _section("Models", _groups("models", "Model", report.models, model_name))
    if report.calibration:
        yield _section("Acceptance predicted", _calibration(report))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _requests(report: Report) -> str:
    sums = report.sums
    share = "0 %" if not sums.requests else percent(sums.bypassed / sums.requests)
    lead = f'<p class="lead"><strong id="bypassed">{share}</strong> bypassed: {escape(passed_by(report))}.</p>'
    rows = [
        [f'<span class="key kind-{name}"></span>{name}', count(number), percent(number / sums.requests)]
        for name in DECISIONS.values()
        if (number := getattr(sums, name))
    ]
    kinds = _table(["", "requests", "share"], rows)
    why = [
        [escape(one.reason), DECISIONS[one.decision], count(one.requests), percent(one.requests / sums.requests)]
        for one in report.reasons
    ]
    reasons = _table(["Why not speculated", "", "requests", "share"], why, words=2) if why else ""
    return lead + (decision_bar(sums) if sums.requests else "") + f'<div class="pair">{kinds}{reasons}</div>'


def _money(report: Report) -> str:
    sums = report.sums
    paid, baseline = sums.paid_usd, sums.baseline_usd
    local = "" if report.local_usd is None else f"{money(report.local_usd, baseline)} of it for drafting here"
    saved_share = "" if sums.saved_share is None else percent(sums.saved_share)
    said = " · ".join(filter(None, (saved_share, verdict(sums))))
    style = "" if sums.saved_usd is None or not sums.saved_usd else "bad" if sums.saved_usd < 0 else "good"
    tiles = (
        _tile("Target alone", money(baseline, paid), how_known(sums))
        + _tile("Paid", money(paid, baseline), local)
        + _tile("Saved", money(sums.saved_usd, baseline), said, style)
    )
    expected = money(report.forecast.expected_usd, baseline)
    said_by_planner = [f"Planner's forecast: {expected} {forecast(report)}"] if report.forecast.requests else []
    told = "".join(f"<li>{escape(note)}</li>" for note in [*notes(report), *said_by_planner])
    chart = legend = table = ""
    if any(group.sums.priced_baseline or group.sums.priced_paid for group in report.days):
        chart = money_over_time(report.days)
        legend = '<p class="legend"><span class="key alone"></span>target alone <span class="key paid"></span>paid'
        if any(group.sums.priced_paid > group.sums.priced_baseline for group in report.days):
            legend += ' <span class="key loss"></span>paid, and more than the target alone'
        legend += "</p>"
        table = _details("By day", _sums_table("Day (UTC)", report.days, model_name))
    return f'<div class="tiles">{tiles}</div>{f"<ul class=notes>{told}</ul>" if told else ""}{chart}{legend}{table}'


def _allowance(report: Report) -> str:
    lead = (
        '<p class="legend">What speculation may still lose, now: what it has saved so far (a loss is negative), less '
        "the worst cases of requests under way, and the seed.</p>"
    )
    rows = [
        [
            escape(account_name(one.account)),
            *(money(usd, one.seed_usd) for usd in (one.balance_usd, one.open_usd, one.seed_usd)),
            f'<span class="{"good" if one.usd > 0 else "bad"}">{money(one.usd, one.seed_usd)}</span>',
        ]
        for one in report.allowance
    ]
    return lead + _table(["Account", "saved so far", "at risk now", "seed", "left"], rows)


def _tile(name: str, value: str, said: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<div class="tile"><span>{name}</span><strong{kind}>{value}</strong><small>{escape(said)}</small></div>'


def _drafts(report: Report) -> str:
    tokens, rate, gained = report.tokens, report.acceptance_rate, report.tokens_per_round
    rows = [
        ["Drafted tokens", count(tokens.drafted), ""],
        ["Accepted tokens", count(tokens.accepted), "" if rate is None else f"{percent(rate)} of the drafted"],
        ["Corrections and bonus tokens", count(tokens.corrected), "written by the target in a round"],
        ["Hand-off tokens", count(tokens.handoff), "written by the target alone"],
        ["Rounds", count(report.rounds), "" if gained is None else f"{gained:.1f} tokens gained a round"],
        ["Input tokens billed", count(tokens.input), f"{count(tokens.cached_input)} of them cached"],
        ["Output tokens billed", count(tokens.output), ""],
        ["Target calls", count(report.target_calls), ""],
        [
            "Calls saved",
            signed(report.calls_saved_per_request_client),
            "against a client that makes one call a request",
        ],
        ["Calls saved", signed(report.calls_saved_per_token_client), "against a client that makes one call a token"],
    ]
    return _table(["", "", ""], rows, words=1, last_words=True)


def _time(report: Report) -> str:
    rows = [
        [name, count(one.requests), seconds(one.p50), seconds(one.p95)]
        for name, one in report.latency.items()
        if name != "all"
    ]
    spent = report.seconds
    parts = [f"{name} {seconds(spent[name])}" for name in ("draft", "verify", "handoff") if spent.get(name)]
    where = f'<p class="legend">Time of speculated requests: {", ".join(parts)}.</p>' if parts else ""
    table = _table(["Whole reply after", "requests", "median", "95th percentile"], rows)
    return latency_chart(report.latency) + table + where


def _calibration(report: Report) -> str:
    lead = '<p class="legend">How far predicted and observed acceptance were apart (expected calibration error).</p>'
    rows = [
        [escape(one.drafter), escape(one.target), escape(one.workload), count(round(one.trials)), percent(one.error)]
        for one in report.calibration
    ]
    return lead + _table(["Drafter", "target", "workload", "draft tokens", "error"], rows, words=3)


def _groups(key: str, title: str, groups: Sequence[Group], name: Callable[[str | None], str]) -> str:
    chart = ""
    if any(group.sums.saved_usd for group in groups):
        chart = saved_by_name(key, f"Dollars saved, by {title.lower()}", [(name(one.name), one.sums) for one in groups])
    return chart + _sums_table(title, groups, name)


def _sums_table(title: str, groups: Sequence[Group], name: Callable[[str | None], str]) -> str:
    largest = max((abs(group.sums.priced_baseline) for group in groups), default=None)

    def row(group: Group) -> list[str]:
        sums: Sums = group.sums
        saved = sums.saved_usd
        style = "bad" if saved is not None and saved < 0 else "good" if saved else ""
        amount = f'<span class="{style}">{money(saved, largest)}</span>'
        counts = [count(number) for number in (sums.requests, sums.bypassed, sums.unpriced)]
        dollars = [money(sums.baseline_usd, largest), money(sums.paid_usd, largest), amount, percent(sums.saved_share)]
        return [escape(name(group.name)), *counts, *dollars]

    heads = [title, "requests", "bypassed", "unpriced", "target alone", "paid", "saved", ""]
    return _table(heads, [row(group) for group in groups])


def _details(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, last_words: bool = False) -> str:
    """Cells are HTML. The first ``words`` columns (and the last, if ``last_words``) are words, the others numbers."""

    def kind(column: int) -> str:
        if last_words and column == len(heads) - 1:
            return ' class="words"'
        return "" if column < words else ' class="number"'

    head = "".join(f'<th scope="col"{kind(column)}>{escape(text)}</th>' for column, text in enumerate(heads))
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{cell}</th>' if not column else f"<td{kind(column)}>{cell}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>'
