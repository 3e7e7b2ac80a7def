"""openai-python's own test-suite with our classes in place of openai's: the same outcome, test by test.

    python scripts/compat_openai.py FOLDER [--least 9000]

runs in an environment that has one release of openai, cheapspec, and what the suite needs. The sdist of that release
(it carries the tests) is fetched into FOLDER once. The suite runs twice, with openai's classes and with ours
(``tests/compat/openai_plugin.py``), without ``tests/api_resources``: those need a mock server that is made from a
file which is not in the sdist. Some other tests fail for such reasons, too: they must fail with both.

A test whose outcomes differ is asked again, one test at a time, up to three times with each client: some wait two
seconds for another process, which a busy machine does not always grant. It is unsteady, and named so, once both
clients have had an outcome in common, else it is a difference.

Exit status 0: the same result set, and at least ``--least`` passes; 1: not; each difference is named.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

PLUGINS = Path(__file__).parents[1] / "tests" / "compat"
CLIENTS = ("openai", "cheapspec")
AGAIN = 3
SECONDS = 3000

Outcomes = dict[str, str]


def fetch_suite(folder: Path, version: str) -> Path:
    """The unpacked sdist of this release of openai."""
    tree = folder / f"openai-{version}"
    if not (tree / "tests").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "openai"]
        subprocess.run([*pip, "--dest", str(folder), f"openai=={version}"], check=True, stdin=subprocess.DEVNULL)
        with tarfile.open(folder / f"openai-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return tree


def run(tree: Path, client: str, tests: Iterable[str] = ()) -> Outcomes:
    """Outcomes by test id. ``tests``: only these, one after another, else the whole suite on two workers."""
    out = tree.parent / f"outcomes-{client}.json"
    out.unlink(missing_ok=True)
    chosen = list(tests)
    command = [sys.executable, "-m", "pytest", "-p", "openai_plugin", "--client", client, "--outcomes", str(out)]
    command += ["--ignore", "tests/api_resources", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    command += ["-n", "0", *chosen] if chosen else ["-n", "2", "-r", "N"]
    (tree.parent / "home").mkdir(exist_ok=True)  # gets the ledger
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "CHEAPSPEC_"))}
    done = subprocess.run(
        command,
        cwd=tree,
        env={  # a home of its own: the clients keep their books there
            **environment,
            "PYTHONPATH": str(PLUGINS),
            "HOME": str(tree.parent / "home"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )
    if not out.exists():
        raise SystemExit(f"the suite did not run with the classes of {client}:\n{done.stdout[-3000:]}")
    found: Outcomes = json.loads(out.read_text("utf-8"))
    return found


class Seen:
    """Outcomes seen so far with openai's classes and with ours, by test id."""

    def __init__(self, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
        self._sets: dict[str, tuple[set[str], set[str]]] = {}
        self.add({*theirs, *ours}, theirs, ours)
        self.first = self.different()

    def add(self, names: Iterable[str], theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
        """One more run of these tests; one that a run does not know is ``missing`` there."""
        for name in names:
            pair = self._sets.setdefault(name, (set(), set()))
            for outcomes, found in zip(pair, (theirs, ours), strict=True):
                outcomes.add(found.get(name, "missing"))

    def different(self) -> dict[str, tuple[set[str], set[str]]]:
        """Tests that have had no outcome in common."""
        return {name: pair for name, pair in sorted(self._sets.items()) if not pair[0] & pair[1]}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="openai-python's own tests with cheapspec's classes")
    parser.add_argument("folder", type=Path, help="where the sdist is unpacked and outcomes are written")
    parser.add_argument("--least", type=int, default=1, help="passes below which the run is worth nothing")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    version = importlib.metadata.version("openai")
    tree = fetch_suite(folder, version)
    whole = {client: run(tree, client) for client in CLIENTS}
    for client in CLIENTS:
        counted = Counter(whole[client].values())
        print(
            f"openai {version}, classes of {client}: " + ", ".join(f"{n} {name}" for name, n in counted.most_common())
        )
    seen = Seen(whole["openai"], whole["cheapspec"])
    for _ in range(AGAIN):
        if not (names := list(seen.different())):
            break
        print(f"asked again: {', '.join(names)}", flush=True)
        seen.add(names, run(tree, "openai", names), run(tree, "cheapspec", names))
    found = seen.different()
    for name in sorted(seen.first.keys() - found.keys()):
        print(f"unsteady with both: {name}")
    for name, (theirs, ours) in found.items():
        print(f"DIFFERENT {name}: {', '.join(theirs)} with openai's classes, {', '.join(ours)} with ours")
    passed = sum(outcome == "passed" for outcome in whole["cheapspec"].values())
    if passed < arguments.least:
        print(f"only {passed} passes, at least {arguments.least} are needed: the suite was not run")
        return 1
    print(f"{passed} tests passed with ours; {len(found)} differ from openai's")
    shutil.rmtree(folder / "home", ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
