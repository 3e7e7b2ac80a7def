"""Where settings come from, strongest first: keyword, environment, ``cheapspec.toml``, default.

* The environment variables are the few in :data:`VARIABLES` and ``CHEAPSPEC_PRICES``; an empty one
  counts as not set. ``OLLAMA_HOST`` is Ollama's own variable, not ours, so the file beats it,
  and it is read only when a draft uses Ollama.
* The file is the one that ``CHEAPSPEC_CONFIG`` names (it must exist), else ``./cheapspec.toml``, else
  ``~/.config/cheapspec/cheapspec.toml``. A name in it that nobody knows is an error, as is a table of a
  later version: a budget that is not kept must not look as if it were.
* Every value remembers where it came from, so that an error can say so.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from cheapspec.core.money import Prices
from cheapspec.errors import SettingsError
from cheapspec.settings.drafts import parse_drafts
from cheapspec.settings.pricelist import merge_prices, parse_prices, read_prices

__all__ = ["FALSE_WORDS", "NOT_YET", "VARIABLES", "Setting", "disabled", "gather", "unknown_key"]

VARIABLES = {
    "CHEAPSPEC_DRAFT": "draft",
    "CHEAPSPEC_DRAFT_URL": "draft_url",
    "CHEAPSPEC_ACCEPT": "accept",
    "CHEAPSPEC_ALLOWANCE": "allowance",
    "CHEAPSPEC_LEDGER": "ledger",
}
NOT_YET = "is not available yet in this version"
FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})

_KNOWN = frozenset({*VARIABLES, "CHEAPSPEC_CACHE", "CHEAPSPEC_CONFIG", "CHEAPSPEC_DISABLED", "CHEAPSPEC_PRICES"})
_said: set[str] = set()
log = logging.getLogger("cheapspec")

_TABLES = ("speculation", "ledger", "prices", "budgets")
_LATER_TABLES = ("proxy",)
_LEDGER_KEYS = ("url", "store_text")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and the place that it came from (``keyword``, ``environment variable …``, a file's path)."""

    value: Any
    origin: str


def disabled(env: Mapping[str, str] | None = None) -> bool:
    """Whether ``CHEAPSPEC_DISABLED`` turns everything off. Read on every request.

    Anything but ``0``, ``false``, ``no``, ``off`` or nothing turns off: a kill switch errs on the safe side.
    """
    value = (os.environ if env is None else env).get("CHEAPSPEC_DISABLED", "")
    return value.strip().lower() not in FALSE_WORDS


def unknown_key(key: str, known: Iterable[str], origin: str, what: str = "setting") -> SettingsError:
    """The error for a name that nobody knows, with the nearest known one."""
    names = sorted(known)
    near = get_close_matches(key, names, 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(names)}."
    return SettingsError(f"unknown {what} {key!r} ({origin}). {hint}")


def gather(
    keywords: Mapping[str, Any], known: Iterable[str], env: Mapping[str, str] | None = None
) -> dict[str, Setting]:
    """All settings that are given somewhere, the strongest source of each.

    :raises SettingsError: an unknown name, an unreadable file, a part of a later version.
    """
    names = frozenset(known)
    environment = os.environ if env is None else env
    found: dict[str, Setting] = {}
    price_layers: list[dict[str, Prices]] = []
    if (path := _config_path(environment)) is not None:
        found |= _file(path, names, price_layers)
    _warn_of_strangers(environment)
    for variable, name in VARIABLES.items():
        if value := _set(environment, variable):
            found[name] = Setting(value, f"environment variable {variable}")
    if listed := _set(environment, "CHEAPSPEC_PRICES"):
        price_layers.append(_prices(read_prices, Path(listed).expanduser(), f"CHEAPSPEC_PRICES, {listed}"))
    for key, value in keywords.items():
        if key not in names:
            raise unknown_key(key, names, "keyword")
        if key == "prices" and value is not None:
            price_layers.append(_prices(parse_prices, value, "keyword prices"))
        else:
            found[key] = Setting(value, "keyword")
    if (ollama := _set(environment, "OLLAMA_HOST")) and "draft_url" not in found and _drafts_with_ollama(found):
        found["draft_url"] = Setting(ollama, "environment variable OLLAMA_HOST")
    if price_layers:
        found["prices"] = Setting(merge_prices(*price_layers), "price lists")
    return found


def _warn_of_strangers(env: Mapping[str, str]) -> None:
    """A variable of ours that nobody reads is most likely a slip: said once a name, since it is not refused (a
    newer version on the same machine may know it).
    """
    for name in env:
        if not name.startswith("CHEAPSPEC_") or name in _KNOWN or name.startswith("CHEAPSPEC_TEST_") or name in _said:
            continue
        _said.add(name)
        near = get_close_matches(name, sorted(_KNOWN), 1, 0.6)
        log.warning("%s is not read%s", name, f"; did you mean {near[0]}?" if near else "")


def _set(env: Mapping[str, str], variable: str) -> str:
    return env.get(variable, "").strip()


def _drafts_with_ollama(found: Mapping[str, Setting]) -> bool:
    try:
        return any(spec.kind == "ollama" for spec in parse_drafts(found["draft"].value))
    except (KeyError, ValueError, AttributeError):
        return False  # no draft, or one that validation will refuse


def _config_path(env: Mapping[str, str]) -> Path | None:
    if named := _set(env, "CHEAPSPEC_CONFIG"):
        return Path(named).expanduser()
    candidates = [Path("cheapspec.toml")]
    if home := env.get("HOME") or env.get("USERPROFILE"):
        candidates.append(Path(home, ".config", "cheapspec", "cheapspec.toml"))
    return next((path for path in candidates if path.is_file()), None)


def _file(path: Path, names: frozenset[str], price_layers: list[dict[str, Prices]]) -> dict[str, Setting]:
    """The settings of a ``cheapspec.toml``."""
    origin = str(path)
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{origin} cannot be read ({error.strerror or error}).") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{origin} is not TOML ({error}).") from None
    found: dict[str, Setting] = {}
    for table, content in tables.items():
        if table in _LATER_TABLES:
            raise SettingsError(f"[{table}] ({origin}) {NOT_YET}; remove it, since it would have no effect.")
        if table not in _TABLES:
            if table in names:
                raise SettingsError(f"{table!r} ({origin}) stands outside a table: move it into [speculation].")
            raise unknown_key(table, (*_TABLES, *_LATER_TABLES), origin, "table")
        if table == "budgets":
            if not isinstance(content, list):
                raise SettingsError(f"'budgets' ({origin}) must be a list of tables: write [[budgets]].")
            found["budgets"] = Setting(content, f"[[budgets]], {origin}")
        elif not isinstance(content, dict):
            raise SettingsError(f"{table!r} ({origin}) must be a table: write [{table}].")
    found |= _ledger(cast(dict[str, Any], tables.get("ledger", {})), origin)
    if "prices" in tables:
        price_layers.append(_prices(parse_prices, tables["prices"], f"[prices], {origin}"))
    for key, value in cast(dict[str, Any], tables.get("speculation", {})).items():
        if key not in names:
            raise unknown_key(key, names, f"[speculation], {origin}")
        if key == "prices":
            price_layers.append(_prices(parse_prices, value, f"[speculation] prices, {origin}"))
        else:
            found[key] = Setting(value, f"[speculation], {origin}")
    return found


def _ledger(table: Mapping[str, Any], origin: str) -> dict[str, Setting]:
    for key in table:
        if key not in _LEDGER_KEYS:
            raise unknown_key(key, _LEDGER_KEYS, f"[ledger], {origin}")
    found = {"ledger": Setting(table["url"], f"[ledger] url, {origin}")} if "url" in table else {}
    if "store_text" in table:
        found["store_text"] = Setting(table["store_text"], f"[ledger] store_text, {origin}")
    return found


def _prices(read: Any, raw: Any, origin: str) -> dict[str, Prices]:
    try:
        return cast(dict[str, Prices], read(raw))
    except ValueError as error:
        raise SettingsError(f"prices ({origin}): {error}.") from None
