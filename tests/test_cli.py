"""The command line, run as a user runs it: a process of its own, real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, stdin: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment |= {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    command = [sys.executable, "-c", "from cheapspec.cli import main; main()", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, cwd=folder, timeout=300
    )


@pytest.mark.embedded
def test_the_demo_says_what_was_drafted_paid_and_whether_the_text_is_the_targets(tmp_path: Path) -> None:
    """``demo --json`` runs both ways on real engines and its figures are consistent with one another."""
    done = run("demo", "--json", "--draft-tokens", "16", "--max-tokens", "60", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    info = result["info"]
    assert result["equal"] is True
    assert info["decision"] == "speculate"
    assert info["simulated"] is True
    assert info["accepted_tokens"] > 0
    assert info["rounds"] >= 1
    assert info["accepted_tokens"] + info["corrected_tokens"] + info["handoff_tokens"] <= 61
    assert float(info["saved_usd"]) == pytest.approx(float(info["baseline_usd"]) - float(info["paid_usd"]), abs=1e-9)


@pytest.mark.embedded
def test_the_demo_card_says_that_the_bill_is_simulated_and_the_draft_a_twin(tmp_path: Path) -> None:
    """The card names the price list, the simulation and the kinship of the two models, and tells the words apart."""
    done = run("demo", "--max-tokens", "60", "--draft-tokens", "8", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for said in (
        "simulated bill",
        "quantised twin",
        "Fireworks",
        "equals the target alone",
        "⟦",
        "hand-off",
        "seconds",
    ):
        assert said in done.stdout


@pytest.mark.embedded
def test_the_chat_remembers_the_conversation_and_ends_with_an_empty_line(tmp_path: Path) -> None:
    """Two turns are answered, each with its line of facts; the end of input ends the session."""
    done = run("chat", "--max-tokens", "12", stdin="Say hello.\nSay it again.\n\n", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "direct" in line or "rounds" in line]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("demo", "--draft", "mlp"), "choose one of twin, drop1, drop3"),
        (("chat", "--base-url", "http://127.0.0.1:1/v1"), "--base-url needs --model"),
        (("demo", "--max-tokens", "0"), "--max-tokens"),
        (("nonsense",), "No such command"),
    ],
)
def test_misuse_is_a_sentence_and_status_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """A wrong option ends with status 2 and one sentence on standard error, no traceback."""
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unusable_setting_is_named(tmp_path: Path) -> None:
    """A typo in cheapspec.toml stops the command and names the nearest known key."""
    (tmp_path / "cheapspec.toml").write_text('[speculation]\ndarft = "m"\n')
    done = run("chat", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", folder=tmp_path)
    assert done.returncode == 2
    assert "darft" in done.stderr
    assert "'draft'" in done.stderr


def test_an_unreachable_target_is_reported_and_the_session_goes_on(tmp_path: Path) -> None:
    """A target that refuses the connection is one line; the next question is asked again."""
    environment = {"OPENAI_API_KEY": "k"}
    os.environ.update(environment)
    try:
        done = run("chat", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", stdin="a\nb\n\n", folder=tmp_path)
    finally:
        del os.environ["OPENAI_API_KEY"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("APIConnectionError") == 2
