"""``cheapspec doctor`` at an endpoint that only answers: which rules about whole drafts can serve there, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cheapspec.cli import app
from cheapspec.drive.state import targets
from cheapspec.testing.chat_host import FakeChatHost, Says
from cheapspec.testing.faults import Status
from cheapspec.testing.openai_hosts import FakeLiteLLM, FakeOpenAI

KEY = "sk-doctor-secret"


def knows(body: dict[str, Any]) -> Says | str:
    """It knows that 17 + 25 = 42."""
    asked = str(body["messages"][-1]["content"])
    right = "= 42." in asked
    if "Reply with one letter" in asked:
        return Says("Y", {"Y": 0.97, "N": 0.02}) if right else Says("N", {"N": 0.95, "Y": 0.04})
    return "9" if right else "0"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A price list, a ledger, a key; no draft host has to answer."""
    targets.clear()
    config = tmp_path / "cheapspec.toml"
    config.write_text(
        '[speculation]\naccept = ["answer"]\ntarget_backend = "generic"\n'
        '[prices."toy"]\ninput = 1\ncached_input = 0.1\noutput = 5\n'
    )
    monkeypatch.setenv("CHEAPSPEC_CONFIG", str(config))
    monkeypatch.setenv("CHEAPSPEC_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "lookup")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield
    targets.clear()


def doctor(target: FakeChatHost, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status and the JSON."""
    line = ["doctor", "--model", "toy", "--base-url", target.base_url, "--json", *more]
    result = CliRunner().invoke(app, line)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert KEY not in result.output
    told: dict[str, Any] = json.loads(result.output[result.output.index("{") :])
    return result.exit_code, told


def rules(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["rule"]: one for one in told["rules"]}


def test_a_right_and_a_wrong_draft_are_the_controls() -> None:
    """Both verdicts are in the evidence, the judge is possible, and nothing is wrong where such a rule is set."""
    with FakeChatHost(says=knows) as target:
        status, told = doctor(target, "--yes-spend")
        assert (status, told["problems"]) == (0, [])
        assert len(target.requests) == 2
    assert told["target"]["can_judge"] is True and told["target"]["can_score"] is False
    evidence = " / ".join(told["target"]["evidence"])
    assert "a right draft it said accept: the judge gives 0.98" in evidence
    assert "a wrong draft it said reject" in evidence and "log-probability of a letter" in evidence


def test_every_rule_says_why_and_what_it_is_expected_to_save() -> None:
    """Eight rules; those that serve have a share of the bill, those that do not have a fix."""
    with FakeChatHost(says=knows) as target:
        _, told = doctor(target, "--yes-spend")
    found = rules(told)
    assert list(found) == ["exact", "lenient", "text_match", "agree", "answer", "judge", "ok_or_answer", "patch"]
    assert all(one["why"] for one in told["rules"])
    assert not found["exact"]["possible"] and not found["agree"]["possible"] and found["agree"]["fix"]
    shares = {name: found[name]["expected_saving_share"] for name in ("answer", "judge", "ok_or_answer", "patch")}
    assert all(found[name]["possible"] and isinstance(share, float) for name, share in shares.items())
    assert shares["answer"] > shares["judge"], "the judge is shown the draft"


def test_refusals_are_learned_on_the_way_and_told() -> None:
    """An unknown model that thinks: each refused field is named, and the verdicts come all the same."""
    with FakeOpenAI(says=knows, thinks="always", thinking_tokens=20) as target:
        _, told = doctor(target, "--yes-spend")
        assert [one.status for one in target.requests if one.status != 200] != []
    evidence = " / ".join(told["target"]["evidence"])
    assert "limit_field max_completion_tokens" in evidence and "temperature False" in evidence
    assert told["target"]["can_judge"] is True and "by a digit" in evidence


def test_an_endpoint_that_drops_log_probabilities_judges_by_a_digit() -> None:
    """The silent drop shows in the first reply."""
    with FakeLiteLLM(says=knows) as target:
        _, told = doctor(target, "--yes-spend")
    assert told["target"]["can_judge"] is True
    assert "alternatives 0" in " ".join(told["target"]["evidence"])


def test_a_judge_that_passes_everything_cannot_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong draft is the control that finds it out, and it is a problem where judging is all that is set."""
    monkeypatch.setenv("CHEAPSPEC_ACCEPT", "judge")
    with FakeChatHost(says=lambda body: Says("Y", {"Y": 0.99, "N": 0.005})) as target:
        status, told = doctor(target, "--yes-spend")
    assert (status, told["target"]["can_judge"], rules(told)["judge"]["possible"]) == (1, False, False)
    [problem] = told["problems"]
    assert "right draft from a wrong one" in problem["what"] and "base_url" in problem["fix"]


def test_an_endpoint_that_does_not_answer_cannot_judge() -> None:
    """What it said stands in the evidence."""
    with FakeChatHost(says=knows) as target:
        target.plan("any", Status(402, message="Insufficient credits"))
        _, told = doctor(target, "--yes-spend")
        assert len(target.requests) == 2
    assert told["target"]["can_judge"] is False
    assert "status 402: insufficient credits" in " ".join(told["target"]["evidence"])


def test_without_a_yes_or_a_key_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that need no proof are told all the same."""
    with FakeChatHost(says=knows) as target:
        _, told = doctor(target)
        assert target.requests == [] and "was not asked" in told["target"]["evidence"][0]
        assert rules(told)["answer"]["possible"] and not rules(told)["judge"]["possible"]
        monkeypatch.delenv("OPENAI_API_KEY")
        _, told = doctor(target, "--yes-spend")
        assert target.requests == [] and "no OPENAI_API_KEY" in told["target"]["evidence"][0]


def test_two_unlike_draft_models_can_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes of one family count once."""
    with FakeChatHost(says=knows) as target:
        monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("CHEAPSPEC_DRAFT", "qwen2.5:3b, llama3.2:3b")
        _, told = doctor(target)
        assert rules(told)["agree"]["possible"]
        monkeypatch.setenv("CHEAPSPEC_DRAFT", "qwen2.5:3b, qwen2.5:0.5b")
        _, told = doctor(target)
        assert not rules(told)["agree"]["possible"]


def test_without_rules_for_whole_drafts_the_fix_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default rule has no evidence here: say what would."""
    monkeypatch.setenv("CHEAPSPEC_ACCEPT", "exact")
    with FakeChatHost(says=knows) as target:
        status, told = doctor(target, "--yes-spend")
    assert status == 1
    [problem] = told["problems"]
    assert "does not score" in problem["what"] and "Answer('last_number')" in problem["fix"]
