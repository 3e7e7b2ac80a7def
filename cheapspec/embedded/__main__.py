"""``python -m cheapspec.embedded fetch|path [NAME …]``: get weights into the cache, or say where they lie.

Without names: the demo's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cheapspec.embedded.weights import DEMO, cache_folder, fetch, names, weights
from cheapspec.errors import CheapspecError, SettingsError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 good, 1 failed, 2 misuse."""
    parser = argparse.ArgumentParser(prog="python -m cheapspec.embedded", description=f"Cache: {cache_folder()}")
    parser.add_argument("command", choices=["fetch", "path"], help="get weights into the cache; say where they lie")
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(names())}; the demo's if none is given")
    asked = parser.parse_args(arguments)
    try:
        for name in asked.name or DEMO:
            print(fetch(name, _show) if asked.command == "fetch" else weights(name))
    except CheapspecError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def _show(what: str, share: float) -> None:
    end = "\n" if share >= 1 else ""
    if sys.stderr.isatty():
        print(f"\r{what} {share:4.0%}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
