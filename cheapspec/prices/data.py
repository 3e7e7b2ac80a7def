"""The list prices: those inside the installed genai-prices, or newer ones that were fetched on request.

Rules
-----
* Nothing is fetched but by :func:`update` (``cheapspec prices --update``); a request never waits for prices.
* What was fetched lies in ``~/.cheapspec/prices.json`` and counts only for the version of genai-prices that
  fetched it: a newer package brings newer prices, and may read them otherwise.
* A file that cannot be read is passed over with a warning. A running process keeps the prices it began with.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cheapspec.errors import CheapspecError

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

__all__ = ["Data", "current_snapshot", "data", "data_file", "update"]

log = logging.getLogger("cheapspec")

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Data:
    """Which list prices are in use. ``fetched_at``: seconds since the epoch, ``None`` for those of the package."""

    package: str
    providers: int
    models: int
    fetched_at: float | None = None


def data_file() -> Path:
    """Where fetched prices lie; it need not exist."""
    return Path("~/.cheapspec/prices.json").expanduser()


def current_snapshot() -> DataSnapshot:
    """The list prices in use."""
    return _current(_place())[0]


def data() -> Data:
    """What they are."""
    return _current(_place())[1]


def update(url: str | None = None) -> Data:
    """Fetch the newest list prices and keep them. ``url``: genai-prices' own by default.

    :raises CheapspecError: they could not be fetched, were not prices, or could not be written; what was there stays.
    """
    import httpx2
    from genai_prices.update_prices import DEFAULT_UPDATE_URL

    source = url or DEFAULT_UPDATE_URL
    kept = "the prices that you have stay in use"
    try:
        reply = httpx2.get(source, timeout=_SECONDS, follow_redirects=True)
        reply.raise_for_status()
        providers: Any = reply.json()
        snapshot = _read(providers)
    except httpx2.HTTPError as error:
        raise CheapspecError(f"no prices from {source} ({str(error) or type(error).__name__}); {kept}.") from None
    except ValueError as error:
        raise CheapspecError(f"{source} did not answer with prices ({_brief(error)}); {kept}.") from None
    path, now = data_file(), time.time()
    kept_file = {"genai_prices": version("genai-prices"), "source": source, "fetched_at": now, "providers": providers}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(kept_file), "utf-8")
        fresh.replace(path)
    except OSError as error:
        raise CheapspecError(f"{path} cannot be written ({error.strerror or error}); {kept}.") from None
    _current.cache_clear()
    return _about(snapshot, now)


def _place() -> Path | None:
    try:
        return data_file()
    except RuntimeError:  # nobody's home
        return None


@cache
def _current(path: Path | None) -> tuple[DataSnapshot, Data]:
    from genai_prices.data_snapshot import get_snapshot

    try:
        kept: Any = json.loads(path.read_bytes()) if path is not None and path.exists() else {}
        if kept and kept["genai_prices"] == version("genai-prices"):
            snapshot = _read(kept["providers"])
            return snapshot, _about(snapshot, float(kept["fetched_at"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s is passed over (%s); `cheapspec prices --update` makes it anew", path, _brief(error))
    snapshot = get_snapshot()
    return snapshot, _about(snapshot, None)


def _read(providers: object) -> DataSnapshot:
    """What genai-prices' own updater makes of the fetched JSON. Raises ``ValueError``."""
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import _providers_from_raw  # pyright: ignore[reportPrivateUsage] # no public way from JSON

    if not isinstance(providers, list) or not providers:
        raise ValueError("not a list of providers")
    return DataSnapshot(_providers_from_raw(providers), from_auto_update=True)


def _about(snapshot: DataSnapshot, fetched_at: float | None) -> Data:
    models = sum(len(provider.models) for provider in snapshot.providers)
    return Data(version("genai-prices"), len(snapshot.providers), models, fetched_at)


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
