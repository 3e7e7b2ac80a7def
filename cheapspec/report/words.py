"""Figures as words, the same in the terminal and on the page. Unknown is said, never shown as 0."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from cheapspec.report.figures import Report, Sums

__all__ = [
    "account_name",
    "count",
    "forecast",
    "how_known",
    "model_name",
    "money",
    "notes",
    "passed_by",
    "percent",
    "period",
    "seconds",
    "session_name",
    "signed",
    "verdict",
]

MINUS = "−"


def count(number: int) -> str:
    """With thousands separated."""
    return f"{number:,}".replace("-", MINUS)


def signed(number: int) -> str:
    """With its sign, ``0`` without."""
    return count(number) if number <= 0 else f"+{number:,}"


def money(amount: Decimal | None, beside: Decimal | None = None) -> str:
    """Dollars; so many decimals that the larger of this and the amount ``beside`` has some digits that count."""
    if amount is None:
        return "unknown"
    largest = max(abs(amount), abs(beside or Decimal(0)))
    decimals = 2 if largest >= 100 else 4 if largest >= 1 else 6
    text = f"${abs(amount):,.{decimals}f}"
    return f"{MINUS}{text}" if amount < 0 and text.strip("$0.,") else text


def percent(share: float | None) -> str:
    """A share as per cent; small ones keep a decimal, and what is not nothing is not 0."""
    if share is None:
        return "–"
    value = share * 100
    if 0 < value < 0.05:
        return "< 0.1 %"
    text = f"{value:,.1f}" if 0.05 <= abs(value) < 9.95 else f"{round(value):,}"
    return f"{text} %".replace("-", MINUS)


def seconds(value: float) -> str:
    """A time that a person waited."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def period(report: Report) -> str:
    """From when to when, UTC."""
    if report.start is None or report.end is None:
        return "no requests" if report.start is None else f"since {_moment(report.start)} UTC"
    return f"{_moment(report.start)} to {_moment(report.end)} UTC"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def session_name(name: str | None) -> str:
    """A session's name, or the words for none."""
    return "(no session)" if name is None else name


def model_name(name: str | None) -> str:
    """A model's name; requests of other routes may have none."""
    return name or "(not named)"


def account_name(account: str) -> str:
    """An account of the allowance: of all requests, a session, a workload, or those with one system prompt."""
    kind, _, name = account.partition(":")
    return {"all": "all requests", "session": f"session {name}", "workload": f"workload {name}"}.get(
        kind, f"system prompt {name}"
    )


def passed_by(report: Report) -> str:
    """The first thing to know: how much traffic cheapspec never saw as its own."""
    sums = report.sums
    if not sums.bypassed:
        return "none: every request was cheapspec's to handle" if sums.requests else "nothing was asked"
    share = percent(sums.bypassed / sums.requests)
    reasons = [f"{one.reason} {count(one.requests)}" for one in report.reasons if one.decision == "bypass"]
    why = f": {', '.join(reasons)}" if reasons else ""
    return f"{count(sums.bypassed)} of {_requests(sums.requests)} ({share}) passed through untouched{why}"


def how_known(sums: Sums) -> str:
    """Which part of the baseline was really billed, and which is estimated."""
    share = sums.estimated_share
    if share is None:
        return ""
    if not 0 < share < 1:
        return f"all of it {'estimated' if share else 'billed, so exact'}"
    return f"{percent(share)} of it estimated, the rest billed"


def forecast(report: Report) -> str:
    """What came of the requests of which the planner had said what to expect."""
    told = report.forecast
    return f"expected of {_requests(told.requests)}; saved {money(told.saved_usd, report.sums.baseline_usd)}"


def verdict(sums: Sums) -> str:
    """What the saving means, in words: needed where there is no colour."""
    saved = sums.saved_usd
    if saved is None:
        return "no request here has a known price"
    if saved < 0:
        return "more was paid than the target alone would have cost"
    return "" if saved else "neither saved nor lost"


def notes(report: Report) -> list[str]:
    """What a reader must know to read the sums right."""
    sums, said = report.sums, list[str]()
    if sums.unpriced:
        known = f"; at least {money(sums.unpriced_known)} was paid for them" if sums.unpriced_known else ""
        said.append(
            f"{_requests(sums.unpriced)} could not be priced and {_are(sums.unpriced)} in none of these sums{known}"
        )
    if report.simulated:
        said.append(f"the bill of {_requests(report.simulated)} is simulated (demo or bench): nobody was charged")
    if sums.probes:
        asked = "1 probe" if sums.probes == 1 else f"{count(sums.probes)} probes"
        said.append(f"{asked} (cheapspec doctor) {_are(sums.probes)} in what was paid, and not among the requests")
    if report.tier_differs:
        said.append(
            f"{_requests(report.tier_differs)} {_were(report.tier_differs)} served by another service tier than was "
            "asked for: priced by the one that served, counted in budgets by the dearer"
        )
    if report.tier_unpriced:
        said.append(f"no price is known for the service tier of {_requests(report.tier_unpriced)}")
    if sums.unsettled:
        said.append(
            f"{_requests(sums.unsettled)} {_are(sums.unsettled)} not settled: running, or left by a process that died"
        )
    if report.tokens.unverified and report.tokens.drafted:
        share = percent(report.tokens.unverified / report.tokens.drafted)
        said.append(f"{count(report.tokens.unverified)} draft tokens ({share}) could not be verified")
    if report.fixed:
        said.append(
            f"{_requests(report.fixed)} ran with a fixed number of draft tokens (draft_tokens=…): planner and "
            "allowance were off"
        )
    if report.lossy.accepted:
        number = report.lossy.audited
        audited = (
            f"{count(number)} {'was' if number == 1 else 'were'} compared with it" if number else "none was audited"
        )
        agreement, between = report.lossy.agreement, report.lossy.interval
        if agreement is not None and between is not None:
            low, high = map(percent, between)
            audited += f": it agrees in {percent(agreement)} (95 % interval {low} to {high})"
        said.append(
            f"{_requests(report.lossy.accepted)} accepted under rules that may differ from the target; {audited}"
        )
    if report.tokens.lenient:
        share = percent(report.tokens.lenient / report.tokens.accepted) if report.tokens.accepted else "–"
        said.append(
            f"{count(report.tokens.lenient)} of the accepted draft tokens ({share}) the target would not have written"
        )
    if report.forgotten:
        said.append(f"{_requests(report.forgotten)} {_are(report.forgotten)} no longer kept whole, and so in no figure")
    return said


def _requests(number: int) -> str:
    return f"{count(number)} request{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
