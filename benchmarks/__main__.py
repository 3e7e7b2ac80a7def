"""``python -m benchmarks``: measure everything, write ``docs/benchmarks.md``.

Exit status: 0 when all promises were met, 1 when one was not (the page is written in both cases).
``--quick`` measures a tenth, for a look; ``--out -`` prints the page.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import engine_round, ledger, memory, overhead
from benchmarks.page import Results, machine, promises, render

__all__ = ["main"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it; takes some minutes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and write docs/benchmarks.md.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the measurements")
    parser.add_argument("--out", default=str(PAGE), help="where to write the page; - prints it")
    asked = parser.parse_args(arguments)
    part = 10 if asked.quick else 1
    for name in [name for name in os.environ if name.startswith("CHEAPSPEC_")]:
        del os.environ[name]  # the developer's own settings
    logging.getLogger("cheapspec").addHandler(logging.NullHandler())
    where = machine()
    _say("overhead of pass-through …")
    added = overhead.measure(2000 // part, 200 // part)
    _say("the same, streamed …")
    streamed = overhead.measure_streamed(100 // part)
    _say("memory …")
    growth = memory.measure(1000 // part, 100_000 // part)
    _say("engine …")
    engine = engine_round.measure()
    rounds = {name: times["median"] for name, times in engine["milliseconds_a_round"].items()}
    _say("ledger …")
    kept = ledger.measure_all(1000 // part, 300 // part, 100 // part)
    results = Results(added, streamed, growth, rounds, engine["draft_tokens"], kept)
    page = render(results, where)
    if asked.out == "-":
        print(page)
    else:
        Path(asked.out).write_text(page, "utf-8")
    found = promises(results)
    for promise in found:
        _say(f"{promise.what}: {promise.found:.3f} {promise.unit}, {'met' if promise.met else 'NOT MET'}")
    return 0 if all(promise.met for promise in found) else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
