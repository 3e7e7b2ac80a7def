"""The example of sessions with budgets runs as it stands, and its report says where the money went."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cheapspec.embedded import DEMO, weights
from cheapspec.testing.target import FakeTarget

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "budget_session.py"


def run(*arguments: str, **environment: str) -> dict[str, Counter[str]]:
    """Decisions by session, and the sums of the sessions' reports under ``report``; a failure shows standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1"} | environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Counter[str]] = {}
    for line in done.stdout.splitlines():
        if told := re.match(r"session (\w+)", line):
            found[told[1]] = Counter()
        elif told := re.match(r"  \w+ +(speculate|direct|refused)", line):
            found[list(found)[-1]][told[1]] += 1
    sums = re.findall(r"(speculated|direct|refused) (\d+) \(", done.stdout)
    found["report"] = Counter()
    for name, number in sums:
        found["report"][name.removesuffix("d") if name == "speculated" else name] += int(number)
    return found


@pytest.mark.embedded
def test_a_roomy_budget_speculates_and_a_tight_one_degrades_then_refuses() -> None:
    """Inside the roomy session requests are speculated, inside the tight one they go direct until the cap is spent."""
    for name in DEMO:
        weights(name)  # an error says how to get them: the example would download them
    found = run("--max-tokens", "40")
    assert found["roomy"]["speculate"] >= 3
    assert found["tight"]["speculate"] == 0
    assert found["tight"]["direct"] >= 1
    assert found["tight"]["refused"] >= 1
    assert found["report"] == found["roomy"] + found["tight"]


def test_with_an_endpoint_of_ones_own_the_cap_holds(tmp_path: Path) -> None:
    """A target that cannot score answers directly; what the tight budget cannot pay for is never sent."""
    (tmp_path / "prices.json").write_text('{"toy": {"input": 0.4, "output": 1.2}}')
    with FakeTarget(capabilities="plain") as target:
        given = ["--base-url", target.base_url, "--model", "toy"]
        found = run(*given, OPENAI_API_KEY="none", CHEAPSPEC_PRICES=str(tmp_path / "prices.json"))
        sent = len([exchange for exchange in target.requests if exchange.purpose == "direct"])
    assert found["roomy"] == {"direct": 5}
    assert found["tight"]["refused"] >= 1
    assert sent == found["roomy"]["direct"] + found["tight"]["direct"] == found["report"]["direct"]
    assert found["report"]["refused"] == found["tight"]["refused"]


def test_b04_without_a_price_a_budget_refuses() -> None:
    """Nobody knows what the model costs, so nothing is sent."""
    with FakeTarget(capabilities="plain") as target:
        found = run("--base-url", target.base_url, "--model", "toy", OPENAI_API_KEY="none")
        assert not [exchange for exchange in target.requests if exchange.purpose == "direct"]
    assert found["report"] == {"refused": 10}
