"""``cheapspec plan`` as a user runs it: from a file, standard input or an option, with and without ``--json``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from cheapspec.cli import main

Run = Callable[..., tuple[int, str, str]]

SETTINGS = """
[speculation]
draft = "lookup,ollama:small"
target_backend = "vllm"
[prices.big]
input = 0.4
cached_input = 0.04
output = 3
"""
CODE = "Rename the function in this file:\n```python\n" + "def one(value):\n    return value + 1\n\n" * 12 + "```\n"
TARGET = ("--model", "big", "--base-url", "http://127.0.0.1:1/v1")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in a folder with settings; returns status, output and errors."""
    (tmp_path / "cheapspec.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cheapspec", "plan", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


def test_a_message_is_planned_without_a_server_or_a_key(run: Run) -> None:
    """Nothing listens at the target's address, and nothing needs to: all ways are told."""
    status, out, err = run("-m", CODE, *TARGET, "--max-tokens", "300", "--json")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert [one["drafter"] for one in plan["alternatives"]] == [None, "lookup", "ollama:small"]
    for one in plan["alternatives"]:
        keys = "action rule drafter draft_tokens expected_usd worst_usd expected_seconds allowed why"
        assert set(one) == set(keys.split())
        assert Decimal(one["worst_usd"]) >= Decimal(one["expected_usd"]) > 0
    assert plan["chosen"] in {"direct", "score lookup", "score ollama:small"}
    assert plan["prices"]["cached_input"] == "0.04"
    assert plan["context_prices"]["q0"] == 1.0


def test_all_ways_to_ask_are_one(run: Run, tmp_path: Path) -> None:
    """A text, its file, standard input, a list of messages and a request's body give the same plan."""
    messages = [{"role": "user", "content": CODE.strip()}]
    (tmp_path / "text.md").write_text(CODE)
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    body = {"model": "big", "messages": messages, "temperature": 0}
    plans = [
        run("-m", CODE, *TARGET, "--json"),
        run("text.md", *TARGET, "--json"),
        run(*TARGET, "--json", typed=CODE),
        run("-", *TARGET, "--json", typed=json.dumps(messages)),
        run("messages.json", *TARGET, "--json"),
        run("--base-url", TARGET[-1], "--json", typed=json.dumps(body)),
    ]
    assert plans == [plans[0]] * len(plans)
    assert plans[0][0] == 0


def test_people_see_every_way_and_why(run: Run) -> None:
    """The decision first, a row a way, and a sentence with the numbers for each."""
    status, out, _ = run("-m", CODE, *TARGET, "--max-tokens", "300", "--reply-tokens", "250")
    assert status == 0
    assert "would " in out and "→" in out
    assert "lookup, exact" in out and "ollama:small, exact" in out
    assert "a draft that is assumed" in out
    assert "Nothing was sent to the target." in out
    rows = [line for line in out.splitlines() if "$0.00" in line]
    assert max(len(line.rstrip()) for line in rows if "yes" in line or " no" in line) <= 100


def test_what_goes_direct_says_why(run: Run) -> None:
    """The named reason and its detail; the ways that are closed are listed as such."""
    body = {"model": "big", "messages": [{"role": "user", "content": "Hi"}], "n": 3, "temperature": 0}
    status, out, _ = run("--base-url", TARGET[-1], typed=json.dumps(body))
    assert status == 0 and "would go direct: n (n)" in out
    body = {"model": "big", "messages": body["messages"], "cheapspec": {"max_added_latency": 0}, "temperature": 0}
    status, out, _ = run("--base-url", TARGET[-1], "--json", typed=json.dumps(body))
    assert json.loads(out)["reason"] == "latency"
    status, out, _ = run("--base-url", TARGET[-1], "--temperature", "3", "--json", typed=json.dumps(body))
    assert json.loads(out)["reason"] == "sampling"


@pytest.mark.parametrize(
    ("arguments", "typed", "said"),
    [
        (["-m", "Hi"], "", "--model is missing"),
        (["-m", "Hi", "file.txt", "--model", "m"], "", "choose one"),
        (["nowhere.txt", "--model", "m"], "", "cannot be read"),
        (["--model", "m"], "", "neither a request"),
        (["--model", "m"], '{"foo": 1}', "neither a request"),
        (["--model", "m"], "[]", "neither a request"),
        (["--model", "m"], '{"messages": [], "no_such_field": 1}', "no_such_field"),
    ],
)
def test_misuse_is_explained(run: Run, arguments: list[str], typed: str, said: str) -> None:
    """Status 2 and a sentence."""
    status, _, err = run(*arguments, typed=typed)
    assert status == 2 and said in err


def test_text_that_looks_like_json_is_text(run: Run) -> None:
    """A brace at the beginning does not make a request."""
    status, out, _ = run(*TARGET, "--json", typed="{braces} are not JSON")
    assert status == 0 and json.loads(out)["alternatives"]
