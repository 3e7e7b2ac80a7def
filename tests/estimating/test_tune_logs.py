"""``cheapspec tune --logs``: past requests become findings, the target is asked only for what may be spent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cheapspec.cli import app
from cheapspec.core.request import Request
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.rules import Answer
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

QUESTIONS = [f"What is {number} and {number}?" for number in range(6)]


def messages(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


@dataclass
class Place:
    """A target, a draft host that is wrong about the last question, a file of past requests."""

    target: FakeTarget
    draft: FakeDraft
    logs: Path
    ledger: str

    def run(self, *more: str) -> Any:
        given = ["--logs", str(self.logs), "--draft", "ollama:toy:latest", "--ledger", self.ledger]
        return CliRunner().invoke(app, ["tune", *given, *more])

    def json(self, *more: str) -> Any:
        made = self.run("--json", *more)
        assert made.exception is None or isinstance(made.exception, SystemExit), made.exception
        return json.loads(made.output)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with FakeTarget(model=ToyModel(3), capabilities="plain") as target, FakeDraft(model=ToyModel(3)) as draft:
        monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", draft.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        lines: list[dict[str, Any]] = []
        for number, question in enumerate(QUESTIONS):
            told = messages(question)
            wrong = number == len(QUESTIONS) - 1
            draft.model.replies[question] = f"So it is {2 * number + wrong}."
            request = Request("chat", {"model": "toy", "messages": told}, "toy", False, tuple(told))
            target.model.replies[Answer().messages(request)[-1]["content"]] = str(2 * number)
            choice = {"index": 0, "message": {"content": f"It is {2 * number}"}, "finish_reason": "stop"}
            reply = {"model": "toy", "system_fingerprint": "fp_1", "choices": [choice]}
            reply["usage"] = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
            lines.append({"request": {"model": "toy", "messages": told, "temperature": 0}, "response": reply})
        path = tmp_path / "logs.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        DatabaseLedger(url := f"sqlite:///{tmp_path}/ledger.db").close()
        kept = DatabaseLedger(url)
        assert kept.flush()
        kept.close()
        yield Place(target, draft, path, url)


def test_without_spending_drafts_and_replies_are_compared_alone(place: Place) -> None:
    """No target is called; what a rule that asks could accept is bounded, and no certificate is made."""
    told = place.json("--accept", "answer")
    assert told["rules"] == []
    (agreed,) = told["not_asked"]
    assert (agreed["compared"], agreed["equal"]) == (6, 5)
    assert float(told["spent_usd"]) == 0
    assert place.target.requests == []
    shown = place.run("--accept", "answer").output
    assert "agree in 5 of 6" in " ".join(shown.split())


def test_what_may_be_spent_bounds_the_verdicts(place: Place) -> None:
    """Each is asked if the most that it can cost still fits; findings are of those that were."""
    more = ("--accept", "answer", "--base-url", place.target.base_url, "--prices", "1,0.5,10")
    told = place.json(*more, "--spend", "1")
    (rule,) = told["rules"]
    assert (rule["n"], rule["accepted"], rule["failures"]) == (6, 5, 0)
    assert rule["target"] == f"toy@{place.target.base_url}"
    assert rule["fingerprint"] == "toy/fp_1"
    assert "299 audited requests with 0 bad are needed; you have 6" in rule["missing"]
    assert float(told["spent_usd"]) > 0
    asked = len(place.target.requests)
    assert asked == 6
    most = 0.8 * float(told["spent_usd"])
    fewer = place.json(*more, "--spend", str(most))
    assert 0 < fewer["rules"][0]["n"] < 6
    assert float(fewer["spent_usd"]) <= most
    assert place.json(*more, "--spend", "0")["rules"] == []


def test_a_certificate_of_logs_is_stored_for_its_target(place: Place) -> None:
    """With a base URL; at a loss that so few can bear."""
    more = ("--accept", "answer", "--prices", "1,0.5,10", "--loss", "0.5")
    told = place.json(*more, "--base-url", place.target.base_url, "--spend", "1")
    assert told["rules"][0]["certified"]
    ledger = DatabaseLedger(place.ledger)
    (made,) = ledger.certificate_rows()
    assert (made.n, made.target, made.workload) == (6, f"toy@{place.target.base_url}", "")
    assert made.draft == f"ollama:toy:latest@{place.draft.url}"
    ledger.close()


def test_with_labels_loss_is_one_sided(place: Place) -> None:
    """Bad is accepted, wrong, and the target right: not a draft that is wrong where the target is, too."""
    lines = [json.loads(line) for line in place.logs.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["label"] = str(2 * number) if number < 5 else "99"
        place.draft.model.replies[QUESTIONS[number]] = f"So it is {2 * number + (number == 4)}."
    told = messages(QUESTIONS[4])
    request = Request("chat", {"model": "toy", "messages": told}, "toy", False, tuple(told))
    place.target.model.replies[Answer().messages(request)[-1]["content"]] = "9"
    place.logs.write_text("\n".join(map(json.dumps, lines)))
    more = ("--accept", "answer", "--base-url", place.target.base_url, "--prices", "1,0.5,10", "--spend", "1")
    (rule,) = place.json(*more)["rules"]
    assert (rule["n"], rule["accepted"], rule["failures"]) == (6, 6, 1)
    assert rule["comparison"].startswith("label by last_number(")


def test_what_cannot_be_is_said(place: Place) -> None:
    """No rules, options without logs, money without an address, a file of nothing."""
    said = [
        (place.run("--accept", "exact"), "needs rules about whole drafts"),
        (place.run("--accept", "answer", "--spend", "1"), "--spend needs --base-url"),
        (CliRunner().invoke(app, ["tune", "--accept", "answer"]), "are for --logs"),
    ]
    for made, words in said:
        assert words in str(made.exception), made.output
    place.logs.write_text("{}")
    assert "no request with its reply" in str(place.run("--accept", "answer").exception)


def test_requests_without_a_draft_or_an_end_are_left_out_and_counted(place: Place) -> None:
    """They are in no count."""
    lines = [json.loads(line) for line in place.logs.read_text().splitlines()]
    lines[0]["response"]["choices"][0]["finish_reason"] = "length"
    lines[1]["request"]["n"] = 2
    place.logs.write_text("\n".join(map(json.dumps, lines)))
    told = place.json("--accept", "answer")
    assert told["left_out"] == {"with a reply that has no end": 1, "production bypasses (n)": 1}
    assert told["not_asked"][0]["compared"] == 4
