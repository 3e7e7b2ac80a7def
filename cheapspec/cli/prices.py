"""``cheapspec prices``: which prices apply to a model, and why these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cheapspec.core.money import Prices
from cheapspec.errors import SettingsError
from cheapspec.prices import PriceBook, Quote
from cheapspec.prices.data import Data, data, update
from cheapspec.settings import Speculation

__all__ = ["run"]

_COLUMNS = ("input", "cached_input", "cache_write", "output", "request")


def run(model: str | None, base_url: str, *, refresh: bool, as_json: bool) -> int:
    """Returns the exit status: 1 when nobody knows the price.

    :raises SettingsError: no model, and nothing to fetch.
    :raises CheapspecError: fresh prices could not be fetched.
    """
    if model is None and not refresh:
        raise SettingsError("name a model: cheapspec prices MODEL (or fetch fresh list prices with --update).")
    console = Console(highlight=False)
    if refresh:
        with Console(stderr=True).status("fetching list prices"):
            known = update()
    else:
        known = data()
    quote = None if model is None else PriceBook(Speculation().prices).quote(model, base_url)
    if as_json:
        told = {"data": _data_json(known)} if quote is None else _json(quote, known)
        print(json.dumps(told, indent=2, allow_nan=False))
    elif quote is None:
        console.print(f"{_origin(known)}.", soft_wrap=True)
    else:
        _show(console, quote, known)
    return 0 if quote is None or quote.prices is not None else 1


def _show(console: Console, quote: Quote, known: Data) -> None:
    where = f"  at {quote.base_url}" if quote.base_url else ""
    console.print(Text.assemble((quote.model, "bold"), (where, "dim")), soft_wrap=True)
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_row("Source", Text(quote.source, "bold red" if quote.prices is None else "bold"))
    grid.add_row("Why", Text(quote.why))
    if quote.source != "user":
        grid.add_row("List prices", Text(_origin(known)))
    if len(quote.names) > 1:
        grid.add_row("Looked for", Text(", ".join(quote.names)))
    console.print(grid)
    console.print()
    if quote.prices is None:
        console.print("The price is unknown: such requests are never speculated and never counted as free. Name it:")
        console.print()
        table = f'[prices."{quote.model}"]\ninput = …    # dollars per million tokens\noutput = …'
        console.print(Text("\n".join(f"    {line}" for line in table.splitlines())))
        return
    console.print(_table(quote.prices))
    fees = [(name, row.request) for name, row in _rows(quote.prices) if row.request]
    for name, fee in fees:
        console.print(f"and {_dollars(fee)} a call ({name})")


def _table(prices: Prices) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Dollars per million tokens", style="dim", header_style="bold")
    for name in ("input", "cached input", "cache write", "output"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in _rows(prices):
        table.add_row(
            name,
            _dollars(row.input),
            _dollars(row.cached_input, "as input"),
            _dollars(row.cache_write, "as input"),
            "none" if row.input_only else _dollars(row.output),
        )
    return table


def _rows(prices: Prices) -> Iterator[tuple[str, Prices]]:
    """The price list's rows: the base, the steps of long inputs, the service tiers with theirs."""
    yield "standard", prices
    for above, row in prices.steps:
        yield f"all tokens, above {above:,} input tokens", row
    for tier, row in prices.tiers:
        yield f"service tier {tier}", row
        for above, step in row.steps:
            yield f"service tier {tier}, above {above:,} input tokens", step


def _dollars(amount: Decimal | None, unknown: str = "") -> str:
    if amount is None:
        return unknown
    text = f"{amount.normalize():f}"
    whole, _, decimals = text.partition(".")
    return f"${whole}.{decimals.ljust(2, '0')}"


def _origin(known: Data) -> str:
    count = f"{known.models:,} models of {known.providers} providers"
    if known.fetched_at is None:
        return f"genai-prices {known.package}, {count}, offline"
    day = datetime.fromtimestamp(known.fetched_at, UTC).strftime("%Y-%m-%d")
    return f"genai-prices, fetched {day}, {count}"


def _json(quote: Quote, known: Data) -> dict[str, Any]:
    return {
        "model": quote.model,
        "base_url": quote.base_url or None,
        "source": quote.source,
        "row": quote.row,
        "provider": quote.provider,
        "why": quote.why,
        "names": list(quote.names),
        "prices": None if quote.prices is None else _prices_json(quote.prices),
        "data": _data_json(known),
    }


def _prices_json(prices: Prices) -> dict[str, Any]:
    """Dollars per million tokens (``request``: per call), as strings."""
    values = {name: getattr(prices, name) for name in _COLUMNS}
    out: dict[str, Any] = {name: None if value is None else f"{value:f}" for name, value in values.items()}
    if prices.input_only:
        out["output"] = None
    out["steps"] = [{"above_input_tokens": above, **_prices_json(row)} for above, row in prices.steps]
    out["tiers"] = {tier: _prices_json(row) for tier, row in prices.tiers}
    return out


def _data_json(known: Data) -> dict[str, Any]:
    return {
        "package": known.package,
        "providers": known.providers,
        "models": known.models,
        "fetched_at": known.fetched_at,
    }
