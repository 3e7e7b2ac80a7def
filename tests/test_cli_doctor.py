"""``cheapspec doctor``: what is wrong is named with its fix, nothing is spent unasked, no key is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cheapspec.cli import app
from cheapspec.drive.state import targets
from cheapspec.errors import SettingsError
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

KEY = "sk-doctor-secret"
QUESTION = "Write the numbers from one to six as words, separated by commas."
CONFIG = '[prices."toy"]\ninput = 0.4\ncached_input = 0.04\noutput = 3\n'


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeTarget, FakeDraft]]:
    """A target and a draft host, and settings that lead to them."""
    targets.clear()
    with FakeTarget(model=ToyModel(3)) as target, FakeDraft(model=ToyModel(3)) as draft:
        target.model.replies[QUESTION] = "One, two, three, four, five, 6 small"
        config = tmp_path / "cheapspec.toml"
        config.write_text(CONFIG)
        monkeypatch.setenv("CHEAPSPEC_CONFIG", str(config))
        monkeypatch.setenv("CHEAPSPEC_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")
        monkeypatch.setenv("CHEAPSPEC_DRAFT", "ollama:toy:latest")
        monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", draft.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield target, draft


def doctor(*arguments: str, said: str | None = None) -> tuple[int, str]:
    """Exit status and everything that was printed."""
    result = CliRunner().invoke(app, ["doctor", *arguments], input=said)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert KEY not in result.output
    return result.exit_code, result.output


def asked(target: FakeTarget, *more: str) -> tuple[int, dict[str, Any]]:
    status, text = doctor("--model", "toy", "--base-url", target.base_url, "--json", *more)
    return status, json.loads(text[text.index("{") :])


def test_all_is_well(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """Everything that INTERFACE names is there, the probe is booked, and status is 0."""
    target, draft = pair
    status, told = asked(target, "--yes-spend")
    assert (status, told["ok"], told["problems"]) == (0, True, [])
    [drafter] = told["draft"]["drafters"]
    assert (drafter["drafter"], drafter["host"]) == ("ollama:toy:latest", draft.url)
    assert (drafter["reachable"], drafter["has_model"], drafter["models"]) == (True, True, ["toy:latest"])
    found = told["target"]
    assert (found["backend"], found["can_score"], found["can_continue"], found["can_judge"]) == (
        "vllm",
        True,
        True,
        True,
    )
    assert (found["can_force"], found["reports_cached_tokens"], found["qs"]) == (False, True, None)
    assert 0 < found["qh"] < 1 and len(found["evidence"]) >= 5
    assert (told["prices"]["source"], told["prices"]["output"]) == ("user", "3.000000")
    rules = {rule["rule"]: rule for rule in told["rules"]}
    assert rules["exact"]["possible"] and 0 < rules["exact"]["expected_saving_share"] < 1
    assert rules["judge"]["possible"] and "tune" in rules["judge"]["fix"]
    assert not rules["agree"]["possible"] and "two unlike" in rules["agree"]["why"]
    assert told["settings"]["draft"] == ["ollama:toy:latest"] and told["settings"]["enabled"]
    assert {exchange.headers.get("authorization") for exchange in target.of("score", "direct")} == {f"Bearer {KEY}"}
    assert all("authorization" not in exchange.headers for exchange in draft.requests)


def test_its_probe_is_booked_as_a_probe(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """It costs what it costs, and is no request that passed cheapspec by: no report counts it as one."""
    target, _ = pair
    asked(target, "--yes-spend")
    result = CliRunner().invoke(app, ["report", "--json"])
    told = json.loads(result.output)
    assert told["probes"] == 1
    assert (told["requests"]["total"], told["requests"]["bypassed"], told["requests"]["by_reason"]) == (0, 0, {})
    assert Decimal(told["paid_usd"]) > 0 == Decimal(told["baseline_usd"])
    shown = CliRunner().invoke(app, ["report"]).output
    assert "1 probe (cheapspec doctor) is in what was paid" in " ".join(shown.split())
    table = CliRunner().invoke(app, ["report", "--csv"]).output.splitlines()
    assert [line.split(",")[6] for line in table[1:]] == ["probes"]


def test_what_was_found_is_kept_and_costs_nothing_the_next_time(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """A second look reads the ledger; only --yes-spend probes again."""
    target, _ = pair
    asked(target, "--yes-spend")
    target.clear()
    status, told = asked(target)
    assert (status, told["target"]["can_score"]) == (0, True)
    assert told["target"]["probed_at"] is not None
    assert target.requests == []


def test_nothing_is_spent_unasked(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """Without a yes the target is not called; what a probe would cost and how to have it stand in the problem."""
    target, _ = pair
    status, told = asked(target)
    assert (status, told["ok"], target.requests) == (1, False, [])
    [problem] = told["problems"]
    assert "at most $0.000" in problem["what"] and problem["fix"].endswith("--yes-spend")
    assert told["target"]["can_score"] is None
    assert [rule["possible"] for rule in told["rules"]] == [False] * 8


def test_a_missing_model_and_a_silent_host_are_named_with_their_fix(
    pair: tuple[FakeTarget, FakeDraft], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that the host has, the command that fetches one, the settings that lead elsewhere."""
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "ollama:other:3b, llamacpp:http://127.0.0.1:9")
    status, text = doctor()
    flat = " ".join(text.split())
    assert status == 1
    assert "the draft host has no model 'other:3b'; it has toy:latest → ollama pull other:3b" in flat
    assert "the draft host http://127.0.0.1:9 does not answer (ConnectError) → start llama-server" in flat
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "")
    status, text = doctor()
    assert status == 1 and "no draft model is set" in text


def test_an_endpoint_that_cannot_score_is_explained(pair: tuple[FakeTarget, FakeDraft]) -> None:
    """The last finding says why, the fix names who can."""
    target, _ = pair
    target.capabilities = "plain"
    status, told = asked(target, "--yes-spend")
    assert (status, told["target"]["can_score"], told["target"]["reason"]) == (1, False, "cannot_score")
    [problem] = told["problems"]
    assert "does not score" in problem["what"] and "vLLM" in problem["fix"]


def test_a_known_host_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's API is known not to score; there is nothing to spend, even with a yes."""
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "lookup")
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "off")
    status, text = doctor("--model", "gpt-4.1-mini", "--yes-spend", "--json")
    told = json.loads(text[text.index("{") :])
    assert (status, told["target"]["base_url"]) == (1, "https://api.openai.com/v1")
    assert "was not asked" in told["target"]["evidence"][0]
    assert told["prices"]["source"] == "genai-prices"


def test_an_unknown_price_is_a_problem(pair: tuple[FakeTarget, FakeDraft], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of that model would go direct, so it says which table to write."""
    monkeypatch.delenv("CHEAPSPEC_CONFIG")
    target, _ = pair
    _, told = asked(target, "--yes-spend")
    assert any("nobody knows the price" in problem["what"] for problem in told["problems"])
    assert any('[prices."toy"]' in problem["fix"] for problem in told["problems"])
    assert told["prices"]["input"] is None


def test_passwords_of_urls_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft host with a user and a password in its URL is shown without them."""
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "llamacpp:http://me:hunter2@127.0.0.1:9")
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "off")
    for more in ((), ("--json",)):
        _, text = doctor(*more)
        assert "hunter2" not in text and "127.0.0.1:9" in text


def test_broken_settings_are_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end with one sentence (status 2 at the command line)."""
    monkeypatch.setenv("CHEAPSPEC_ALLOWANCE", "lots")
    with pytest.raises(SettingsError, match="CHEAPSPEC_ALLOWANCE"):
        doctor()
