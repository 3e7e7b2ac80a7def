"""Where ``cheapspec tune --logs`` gets its findings from: past requests, drafted along on this machine.

Nothing is sent to a target unless ``--spend`` says how many dollars rules may cost: each call is made only if the most
that it can cost still fits, and what it cost is counted as the provider says, or as the price list has it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from cheapspec.cli.replay import parse_list
from cheapspec.client import OpenAI, OpenAIError
from cheapspec.core.money import Prices, charge
from cheapspec.core.received import read_usage
from cheapspec.core.shadows import ShadowRow
from cheapspec.core.untyped import as_mapping
from cheapspec.doors import DEFAULT_MAX_DRAFT_TOKENS, Shared
from cheapspec.drive.drafts import DraftHosts
from cheapspec.errors import CheapspecError, SettingsError
from cheapspec.estimating.findings import Ask, Findings
from cheapspec.estimating.logs import Logged, read_logs
from cheapspec.prices import PriceBook
from cheapspec.rules.asking import worst_usd
from cheapspec.settings import Speculation
from cheapspec.settings.accepts import verdict_rules

__all__ = ["Past", "Source", "found"]


@dataclass(frozen=True, slots=True)
class Source:
    """The command's options; see its help."""

    files: tuple[Path, ...]
    draft: str | None = None
    accept: str | None = None
    base_url: str = ""
    workload: str | None = None
    prices: str | None = None
    spend: float | None = None


@dataclass(slots=True)
class Past:
    """What was found. ``agreed``: by rule that was not asked, drafts compared and those that would do; ``left_out``: by
    reason; ``lengths``: prompt and reply tokens by request; ``spent``: dollars.
    """

    rows: list[ShadowRow] = field(default_factory=list[ShadowRow])
    agreed: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    lengths: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    spent: Decimal = Decimal(0)


def found(source: Source) -> Past:
    """Draft along, and try the rules.

    :raises SettingsError: misuse. :raises CheapspecError: there is nothing to tune, or the target refuses to be asked.
    """
    options = {"draft": source.draft, "accept": source.accept, "ledger": "off"}
    speculation = Speculation().override({name: value for name, value in options.items() if value is not None}, "tune")
    rules, drafters = verdict_rules(speculation.accept), Shared(speculation).runtime.drafters
    if not rules:
        raise SettingsError(
            "tune --logs needs rules about whole drafts: give --accept answer, or set CHEAPSPEC_ACCEPT."
        )
    if not drafters:
        raise SettingsError("tune --logs needs a draft: give --draft, or set CHEAPSPEC_DRAFT.")
    logs = read_logs(source.files)
    if not logs.requests:
        raise CheapspecError(f"{', '.join(map(str, source.files))}: no request with its reply is in there.")
    past = Past()
    with ExitStack() as stack:
        ask = None if source.spend is None else stack.enter_context(_asking(source, speculation, past))
        findings = Findings(
            rules,
            drafters,
            stack.enter_context(DraftHosts()),
            base_url=source.base_url,
            workload=source.workload or speculation.workload,
            given=speculation.comparison,
            longest=speculation.max_draft_tokens or DEFAULT_MAX_DRAFT_TOKENS,
            ask=ask,
        )
        _all(findings, logs.requests, past)
    past.agreed, past.left_out = findings.agreed, dict(findings.left_out)
    return past


def _all(findings: Findings, requests: Sequence[Logged], past: Past) -> None:
    for number, logged in enumerate(requests):
        for row in findings.of(logged, float(number)):
            past.rows.append(row)
            past.lengths[row.request_id] = logged.usage.input_tokens, logged.usage.output_tokens


@contextmanager
def _asking(source: Source, speculation: Speculation, past: Past) -> Generator[Ask]:
    """Asks the target within what may be spent."""
    if not source.base_url:
        raise SettingsError("--spend needs --base-url: whose API is to be asked?")
    assert source.spend is not None
    most, book = Decimal(str(source.spend)), PriceBook(speculation.prices)
    off = Speculation(enabled=False, ledger="off")
    try:
        client = OpenAI(base_url=source.base_url, speculation=off)
    except OpenAIError as error:
        raise CheapspecError(f"{error} (a server without keys takes any: OPENAI_API_KEY=none)") from None

    def ask(body: Mapping[str, Any], purpose: str) -> object | None:
        prices = _prices(source, book, str(body.get("model")))
        worst = worst_usd(body, prices)
        if worst is None or past.spent + worst > most:
            return None
        try:
            told = client.post("/chat/completions", cast_to=object, body=dict(body))
        except OpenAIError as error:
            past.spent += worst
            raise CheapspecError(f"the target cannot be asked for a verdict ({purpose}): {error}") from None
        usage = read_usage(as_mapping(told).get("usage"), as_mapping(told).get("service_tier"))
        usd = None if usage is None else charge(usage, prices).usd
        past.spent += worst if usd is None else usd
        return told

    with client:
        yield ask


def _prices(source: Source, book: PriceBook, model: str) -> Prices | None:
    if source.prices is not None and "," in source.prices:
        return parse_list(source.prices)
    return book.quote(source.prices or model, source.base_url).prices
