"""The user's own price list: dollars per million tokens, by model or for every model.

Two forms, told apart by their values: ``{"input": .4, "cached_input": .04, "output": 3}`` holds for
every model, ``{"model": {"input": …}, …}`` by model (``"*"``: every other model). A row has ``input``
and ``output``, and may have ``cached_input``, ``cache_write``, ``request`` (dollars per call) and ``tiers``
(a row for each service tier). The row of a named model may leave ``output`` out: it is then a model that writes
nothing (embeddings), and whatever it should write all the same has no known price. Numbers may be strings, ``Decimal``
or numbers; a float means what it prints (.1 is one tenth).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from cheapspec.core.money import LocalPrice, Prices

__all__ = ["ANY_MODEL", "merge_prices", "parse_local_price", "parse_prices", "read_prices"]

ANY_MODEL = "*"
_LOCAL = ("per_million_tokens", "per_hour")
_LOCAL_FORMS = "{'per_million_tokens': 0.02} or {'per_hour': 0.5}"
_NUMBERS = ("input", "output", "cached_input", "cache_write", "request")


def parse_prices(raw: object) -> dict[str, Prices]:
    """Read a price list in either form. Raises ``ValueError`` naming the model and the key."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"a price list is a table, not {raw!r}: write {{'input': 0.4, 'output': 3}}")
    table = cast(Mapping[object, object], raw)
    rows = [key for key, value in table.items() if isinstance(value, (Mapping, Prices))]
    if len(rows) == len(table) or any(key not in {*_NUMBERS, "tiers"} for key in rows):
        return {
            str(model): _row(row, f"model {model!r}", writes=str(model) == ANY_MODEL) for model, row in table.items()
        }
    return {ANY_MODEL: _row(table, "every model", writes=True)}


def parse_local_price(raw: object) -> LocalPrice:
    """Read the price of local drafting: one of ``per_million_tokens`` and ``per_hour``. Raises ``ValueError``."""
    if isinstance(raw, LocalPrice):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"{raw!r} is no price of local drafting: write {_LOCAL_FORMS}")
    told = cast(Mapping[object, object], raw)
    for key in told:
        if key not in _LOCAL:
            near = get_close_matches(str(key), _LOCAL, 1)
            raise ValueError(f"unknown key {key!r}; " + (f"did you mean {near[0]!r}?" if near else _LOCAL_FORMS))
    if len(told) != 1:
        raise ValueError(f"give one of {' and '.join(_LOCAL)}: {_LOCAL_FORMS}")
    return LocalPrice(**{str(key): _number(value, str(key)) for key, value in told.items()})


def merge_prices(*layers: Mapping[str, Prices]) -> dict[str, Prices]:
    """Combine price lists, the weakest first. One that prices every model hides those below it."""
    merged: dict[str, Prices] = {}
    for layer in layers:
        merged = dict(layer) if ANY_MODEL in layer else {**merged, **layer}
    return merged


def read_prices(path: Path) -> dict[str, Prices]:
    """Read a price list from a JSON (``.json``) or TOML file, bare or under ``prices``.

    Raises ``ValueError`` when the file cannot be read or says something unusable.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from None
    try:
        text = data.decode("utf-8-sig")
        raw: Any = json.loads(text, parse_float=Decimal) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ValueError(f"is not {kind} ({error})") from None
    table: object = raw
    if isinstance(raw, dict) and list(cast(dict[str, object], raw)) == ["prices"]:
        table = cast(dict[str, object], raw)["prices"]
    return parse_prices(table)


def _row(raw: object, where: str, *, writes: bool) -> Prices:
    """``writes``: the price of output must be there."""
    if isinstance(raw, Prices):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where}: {raw!r} is no row of prices: write {{'input': 0.4, 'output': 3}}")
    row = cast(Mapping[str, Any], raw)
    for key in row:
        if key not in {*_NUMBERS, "tiers"}:
            near = get_close_matches(str(key), _NUMBERS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(_NUMBERS)}, tiers"
            raise ValueError(f"{where}: unknown key {key!r}; {hint}")
    for key in ("input", "output") if writes else ("input",):
        if row.get(key) is None:
            raise ValueError(f"{where}: {key!r} is missing (dollars per million tokens)")
    numbers = {key: _number(row[key], f"{where}, {key!r}") for key in _NUMBERS if row.get(key) is not None}
    tiers: object = row.get("tiers") or {}
    if not isinstance(tiers, Mapping):
        raise ValueError(f"{where}, 'tiers': {tiers!r} is no table of service tiers")
    named = cast(Mapping[object, object], tiers).items()
    writes = "output" in numbers
    return Prices(
        input=numbers["input"],
        output=numbers.get("output", Decimal(0)),
        cached_input=numbers.get("cached_input"),
        cache_write=numbers.get("cache_write"),
        request=numbers.get("request", Decimal(0)),
        tiers=tuple((str(name).lower(), _row(tier, f"{where}, tier {name!r}", writes=writes)) for name, tier in named),
        input_only=not writes,
    )


def _number(value: object, where: str) -> Decimal:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
            raise InvalidOperation
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError(f"{where}: {value!r} is no number") from None
    if not number.is_finite() or number < 0:
        raise ValueError(f"{where}: {value!r} is no price; it must be 0 or more")
    return number
