"""``cheapspec estimate`` as a user runs it, on stand-in draft hosts and, once, on a real pair."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from logkit import answered, asked, body, completion, write

from cheapspec.cli import main
from cheapspec.embedded import EmbeddedServer
from cheapspec.estimating.cases import Cases
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Status
from cheapspec.testing.toy import ToyModel

Run = Callable[..., tuple[int, str, str]]

REPLIES = {
    "Where?": "In the old house behind the mill, where the road ends at last, near the river and the bridge.",
    "How many?": "There are 12 and 30 of them, so the answer is 42.",
    "Which?": '{"name": "barn", "age": 80}',
}
LIST = ("--prices", "1,0.05,5")


@pytest.fixture
def draft() -> Iterator[FakeDraft]:
    model = ToyModel(3)
    model.replies.update(REPLIES)
    with FakeDraft(model=model) as server:
        yield server


@pytest.fixture
def run(draft: FakeDraft, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command; returns status, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHEAPSPEC_DRAFT", f"ollama:{draft.name}")
    monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", draft.url)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cheapspec", "estimate", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


@pytest.fixture
def batch(tmp_path: Path, draft: FakeDraft) -> tuple[str, str]:
    """A batch of five: three that the draft model knows, one with tools, one that failed."""
    requests = [asked(f"r{n}", body(question)) for n, question in enumerate(REPLIES)]
    replies = [
        answered(f"r{n}", completion(text, tokens=(60, len(draft.model.encode(text)) + 1)))
        for n, text in enumerate(REPLIES.values())
    ]
    requests.append(asked("tools", body(tools=[{"type": "function", "function": {"name": "f"}}])))
    replies.append(answered("tools", completion("", tokens=(100, 20))))
    requests.append(asked("failed", body()))
    replies.append(answered("failed", {"error": {"message": "no"}}, 500))
    first = write(tmp_path / "requests.jsonl", *requests, "junk")
    return str(first), str(write(tmp_path / "replies.jsonl", *replies))


def test_a_batch_is_drafted_along_and_priced_by_rule(run: Run, batch: tuple[str, str], draft: FakeDraft) -> None:
    """Both prices of scoring, both lossy rules, what went direct and what was odd; no text in the output."""
    status, out, err = run(*batch, *LIST, "--json", "--oracle")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert told["requests"] == {
        "found": 4, "looked_at": 4, "drafted": 3, "direct": 1, "by_reason": {"tools": 1}, "left_out": {}
    }  # fmt: skip
    assert told["odd_lines"] == {"not JSON": 1, "failed with status 500": 1}
    assert [rule["rule"] for rule in told["rules"]] == ["exact", "exact", "answer", "validator"]
    cheap, dear, answer, validator = (rule["all"] for rule in told["rules"])
    assert cheap["requests"] == 4 and cheap["paid_over_baseline"] < 1 and dear["paid_over_baseline"] <= 1.02
    assert Decimal(cheap["baseline_usd"]) == Decimal(answer["baseline_usd"]) == Decimal(validator["baseline_usd"])
    assert Decimal(cheap["saved_usd"]) == Decimal(cheap["baseline_usd"]) - Decimal(cheap["paid_usd"]) > 0
    assert Decimal(cheap["clairvoyant_usd"]) <= Decimal(cheap["paid_usd"])
    assert (answer["served"], answer["accepted"]) == (1, 1) and (validator["served"], validator["differing"]) == (1, 0)
    assert told["agreement"]["all"] == {f"ollama:{draft.name}": 1.0}
    assert told["rebuilt_share"] == 1.0 and told["estimated_share"] == 0.0
    assert told["prices"] == {"big": {"input": "1", "cached_input": "0.05", "output": "5"}}
    assert not any(word in out for word in ("mill", "barn", "Where"))


def test_people_see_tables_and_what_they_assume(run: Run, batch: tuple[str, str]) -> None:
    """One table a rule, on 80 columns, with the assumptions under them."""
    status, out, _ = run(*batch, *LIST, "--base-url", "https://api.openai.com/v1")
    assert status == 0
    assert "exact: scoring reads the prompt at the cached price" in out
    assert "exact: scoring reads the prompt at 1 of the input price" in out
    assert "answer, lossy" in out and "validator, lossy" in out
    assert "api.openai.com does not score given text" in out
    assert "Odd lines: 1 failed with status 500, 1 not JSON" in out or "Odd lines: 1 not JSON" in out
    assert "reconstructed in 100%" in out and "1 tools" in out
    rows = [line.rstrip() for line in out.splitlines() if "no system prompt" in line]
    assert len(rows) == 4 and max(map(len, rows)) <= 80


def test_only_some_requests_are_looked_at(run: Run, batch: tuple[str, str]) -> None:
    """The first so many, or a sample that is the same every time; one price of scoring; no answers."""
    first = json.loads(run(*batch, *LIST, "--limit", "1", "--qs", "c", "--json")[1])
    assert first["requests"]["looked_at"] == 1 and len(first["rules"]) == 1
    samples = [json.loads(run(*batch, *LIST, "--sample", "2", "--no-answers", "--json")[1]) for _ in range(2)]
    assert samples[0] == samples[1] and samples[0]["requests"]["looked_at"] == 2
    assert [rule["rule"] for rule in samples[0]["rules"]] == ["exact", "exact"]


def test_workloads_stand_apart(run: Run, tmp_path: Path) -> None:
    """By a key of the metadata, and all together below."""
    lines = [
        {"request": body(question, metadata={"job": job}), "response": completion(text, tokens=None)}
        for job, (question, text) in zip(("a", "b", "a"), REPLIES.items(), strict=True)
    ]
    path = write(tmp_path / "pairs.jsonl", *lines)
    status, out, _ = run(str(path), *LIST, "--workload", "job", "--no-answers")
    assert status == 0
    names = [line.split()[0] for line in out.splitlines() if "$" in line]
    assert names == ["a", "b", "all"] * 2
    assert "Token counts were estimated in 100% of the requests" in out


def test_an_omitted_temperature_is_said(run: Run, tmp_path: Path) -> None:
    """Such requests go direct, and the user is told how to count them in."""
    request = {name: value for name, value in body().items() if name != "temperature"}
    path = write(tmp_path / "pairs.jsonl", {"request": request, "response": completion(REPLIES["Where?"])})
    _, out, _ = run(str(path), *LIST)
    assert "1 temperature_unset" in out and "--assume-temperature" in out
    told = json.loads(run(str(path), *LIST, "--assume-temperature", "0", "--json")[1])
    assert told["requests"]["drafted"] == 1


def test_an_interrupt_keeps_what_was_measured(
    run: Run, batch: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: the estimate of what is done, and status 130."""
    case = Cases.case

    def interrupted(self: Cases, logged: Any) -> Any:
        if logged.id == "r2":
            raise KeyboardInterrupt
        return case(self, logged)

    monkeypatch.setattr(Cases, "case", interrupted)
    status, out, _ = run(*batch, *LIST, "--json")
    assert status == 130
    told = json.loads(out)
    assert told["interrupted"] is True and told["requests"]["looked_at"] == 2
    status, out, _ = run(*batch, *LIST)
    assert status == 130 and "Interrupted: 2 requests were measured." in out


def test_a_draft_that_fails_once_is_counted(run: Run, batch: tuple[str, str], draft: FakeDraft) -> None:
    """The others are estimated; a host that never drafts is an error that says so."""
    draft.plan("draft", Status(500, body={"error": "broken"}), times=1)
    told = json.loads(run(*batch, *LIST, "--json")[1])
    assert told["requests"]["left_out"] == {"whose draft failed": 1} and told["requests"]["looked_at"] == 3
    draft.plan("draft", Status(500, body={"error": "broken"}), times=50)
    status, _, err = run(*batch, *LIST)
    assert status == 1 and "does not draft" in err and "broken" in err


def test_models_without_a_price_are_left_out(run: Run, tmp_path: Path) -> None:
    """Named and counted; with none priced at all, an error says how to give one."""
    (tmp_path / "cheapspec.toml").write_text("[prices.big]\ninput = 1\noutput = 5\n")
    lines = [
        {"request": {**body("Where?"), "model": model}, "response": completion(REPLIES["Where?"])}
        for model in ("big", "strange-model")
    ]
    told = json.loads(run(str(write(tmp_path / "pairs.jsonl", *lines)), "--json")[1])
    assert told["requests"]["left_out"] == {"of unknown price (strange-model)": 1}
    status, _, err = run(str(write(tmp_path / "one.jsonl", lines[1])))
    assert status == 1 and "--prices" in err and "strange-model" in err


@pytest.mark.parametrize(
    ("lines", "arguments", "status", "said"),
    [
        (["junk"], (), 1, "1 not JSON"),
        ([], (), 1, "no lines"),
        ([{"request": body(), "response": completion()}], ("--prices", "1,2"), 2, "INPUT,CACHED,OUTPUT"),
        ([{"request": body(), "response": completion()}], ("--qs", "dear"), 2, "--qs"),
        ([{"request": body(), "response": completion()}], ("--draft", "openai:x"), 2, "draft"),
    ],
)
def test_misuse_is_explained(
    run: Run, tmp_path: Path, lines: list[Any], arguments: tuple[str, ...], status: int, said: str
) -> None:
    """A sentence, and the status of misuse or of something found wrong."""
    path = write(tmp_path / "log.jsonl", *lines)
    left, _, err = run(str(path), *([] if "--prices" in arguments else LIST), *arguments)
    assert left == status and said in err


def test_without_a_draft_nothing_is_read(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says how to set one."""
    monkeypatch.delenv("CHEAPSPEC_DRAFT")
    status, _, err = run(str(tmp_path / "nowhere.jsonl"))
    assert status == 2 and "needs a draft" in err


def test_a_real_draft_model_runs_along_a_real_reply(
    run: Run, tmp_path: Path, f16_server: EmbeddedServer, q4_1_server: EmbeddedServer
) -> None:
    """The target's recorded greedy reply, drafted along by its own quantisation: most tokens agree, and money is
    saved where scoring reads the cache."""
    request = body("Write a Python function that adds two numbers.", max_tokens=24)
    url = f"{f16_server.url}/v1/chat/completions"
    reply = httpx2.post(url, json={**request, "logprobs": True, "top_logprobs": 1}, timeout=600).json()
    path = write(tmp_path / "pairs.jsonl", {"request": request, "response": reply})
    status, out, err = run(str(path), *LIST, "--draft", f"llamacpp:{q4_1_server.url}", "--json", "--qs", "c")
    assert status == 0, err
    told = json.loads(out)
    (agreement,) = told["agreement"]["all"].values()
    assert agreement > 0.7
    assert told["rebuilt_share"] == 0.0, "the reply names its own tokens"
    assert told["rules"][0]["all"]["paid_over_baseline"] < 1
