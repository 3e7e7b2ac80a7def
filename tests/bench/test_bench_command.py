"""``cheapspec bench`` on stand-in servers, as a user runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cheapspec.bench import measure
from cheapspec.bench.figures import Total
from cheapspec.bench.measure import Measured
from cheapspec.bench.pairs import PriceList
from cheapspec.cli import main
from cheapspec.errors import SettingsError
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Refuse, Say, Status
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

SET = """
[[prompts]]
id = "first"
kind = "one"
instruction = "Where?"
[[prompts]]
id = "second"
kind = "two"
instruction = "When?"
[[chats]]
id = "talk"
turns = ["Who?", "Why?"]
"""
SETTINGS = """
[speculation]
target_backend = "vllm"
draft_timeout = 20
[prices.toy]
input = 1
cached_input = 0.05
output = 5
"""
REPLIES = {
    "Where?": "In the old house behind the mill, where the road ends.",
    "When?": "On Monday at nine, when the market opens.",
    "Who?": "My sister and her two friends from school.",
    "Why?": "Because nobody else had a key to the door.",
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    model = ToyModel(3)
    model.replies.update(REPLIES)
    with FakeTarget(model=model) as server:
        yield server


@pytest.fixture
def draft() -> Iterator[FakeDraft]:
    model = ToyModel(3)
    model.replies.update(REPLIES)
    with FakeDraft(model=model) as server:
        yield server


@pytest.fixture
def run(
    target: FakeTarget,
    draft: FakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """Runs the command in a folder with settings and a prompt set; returns status, output and errors."""
    (tmp_path / "set.toml").write_text(SET)
    (tmp_path / "cheapspec.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", draft.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str, remote: bool = True) -> tuple[int, str, str]:
        place = ["--target", "toy", "--base-url", target.base_url, "--draft", f"ollama:{draft.name}"] if remote else []
        monkeypatch.setattr(sys, "argv", ["cheapspec", "bench", *place, *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


def test_both_arms_are_measured_and_compared(run: Run) -> None:
    """Each turn has its text compared and both bills; a good draft is cheaper, and the clairvoyant cheaper still."""
    status, out, err = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 0, err
    result = json.loads(out)
    assert [one["id"] for one in result["prompts"]] == ["first", "second", "talk.1", "talk.2"]
    assert [one["kind"] for one in result["prompts"]] == ["one", "two", "chat", "chat"]
    assert all(one["equal"] and one["decision"] == "speculate" for one in result["prompts"])
    for one in result["prompts"]:
        assert Decimal(one["clairvoyant"]) <= Decimal(one["baseline"])
        assert one["rounds"] >= 1
        assert one["target_calls"] >= 1
    total = result["totals"]["all"]
    assert list(result["totals"]) == ["one", "two", "chat", "all"]
    assert Decimal(total["paid"]) == sum(Decimal(one["paid"]) for one in result["prompts"])
    assert total["paid_over_baseline"] < 1
    assert 0 < total["capture"] <= 1
    assert result["engine"]["target"] == "toy"
    assert result["engine"]["simulated"] is False
    assert result["price_list"] is None
    assert result["versions"]["openai"]


def test_the_table_shows_each_kind_and_all(run: Run) -> None:
    """What a person reads: one line a kind, a sum, and how the two arms were kept fair."""
    status, out, _ = run("--prompts", "set.toml", "--kinds", "one,chat", "--draft-tokens", "32")
    assert status == 0
    assert "toy alone, and with drafts of" in out
    assert "2 of 2" in out
    assert "all" in out
    assert "share the endpoint's prompt cache" in out


def test_direct_calls_alternate_with_the_others(run: Run, target: FakeTarget) -> None:
    """Every second prompt asks the target alone first; what both arms send is the same question."""
    run("--prompts", "set.toml", "--kinds", "one,two", "--no-capture", "--draft-tokens", "32")
    purposes = [exchange.purpose for exchange in target.of("score", "continue", "direct")]
    assert purposes[0] == "direct"
    assert purposes[-1] == "direct"
    assert purposes.count("direct") == 2


def test_a_different_text_is_found_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that is not the target's own makes status 1 and is shown with the place of the difference."""
    speculated = measure.Bench._speculated

    def other(self: Any, fields: dict[str, Any], measured: Measured) -> str:
        text = speculated(self, fields, measured)
        return text.replace("house", "horse")

    monkeypatch.setattr(measure.Bench, "_speculated", other)
    status, out, _ = run("--prompts", "set.toml", "--draft-tokens", "32")
    assert status == 1
    assert "first: the texts differ from byte 13 on" in out
    assert "3 of 4" in out


def test_an_interrupt_keeps_what_was_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle prints the table of what is done and exits with 130."""
    speculated = measure.Bench._speculated

    def interrupted(self: Any, fields: dict[str, Any], measured: Measured) -> str:
        if measured.id == "second":
            raise KeyboardInterrupt
        return speculated(self, fields, measured)

    monkeypatch.setattr(measure.Bench, "_speculated", interrupted)
    status, out, _ = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 130
    result = json.loads(out)
    assert [one["id"] for one in result["prompts"]] == ["first"]
    assert result["interrupted"] is True


def test_a_failing_request_ends_its_prompt_only(run: Run, target: FakeTarget) -> None:
    """An error of the server is in the result, and the other prompts are measured."""
    target.plan("direct", Status(400, body={"error": {"message": "no such thing"}}), times=1)
    status, out, _ = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 1
    first, *others = json.loads(out)["prompts"]
    assert "no such thing" in first["failed"]
    assert first["equal"] is None
    assert all(one["failed"] is None for one in others)


def test_a_host_that_refuses_log_probabilities_is_asked_without(run: Run, target: FakeTarget) -> None:
    """Then there is no clairvoyant, and everything else is measured all the same."""
    target.plan("direct", Refuse("logprobs are not supported", lambda body: bool(body.get("logprobs")), "logprobs"))
    status, out, _ = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 0
    result = json.loads(out)
    assert all(one["clairvoyant"] is None and one["paid"] is not None for one in result["prompts"])
    assert result["totals"]["all"]["capture"] is None
    asked = [exchange.body for exchange in target.of("direct") if exchange.body.get("logprobs")]
    assert len(asked) == 1


def test_looking_back_begins_when_everything_is_measured(run: Run, target: FakeTarget, draft: FakeDraft) -> None:
    """Measured calls carry the same fields in both arms; log-probabilities, and more drafts, come at the end."""
    run("--prompts", "set.toml", "--draft-tokens", "32")
    marked = ["logprobs" in exchange.body for exchange in target.of("direct")]
    assert marked == [False] * 4 + [True] * 4
    scored, told = target.of("score"), target.of("direct")
    assert max(one.at for one in scored) < min(one.at for one in told if "logprobs" in one.body)


def test_a_reply_that_reads_otherwise_later_has_no_clairvoyant(run: Run, target: FakeTarget) -> None:
    """Its tokens would be those of another text."""
    target.plan(lambda exchange: bool(exchange.body.get("logprobs")) and exchange.purpose == "direct", Say("Else."))
    status, out, _ = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 0
    assert all(one["clairvoyant"] is None for one in json.loads(out)["prompts"])


def test_the_bench_keeps_its_own_books(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it learns is neither taken from nor written to the caller's ledger."""
    monkeypatch.setenv("CHEAPSPEC_LEDGER", f"sqlite:///{tmp_path / 'mine.db'}")
    status, _, err = run("--prompts", "set.toml", "--draft-tokens", "32")
    assert status == 0, err
    assert not (tmp_path / "mine.db").exists()


def test_an_unknown_price_is_said_and_never_zero(run: Run, tmp_path: Path) -> None:
    """Without prices the texts are still compared; money is null."""
    (tmp_path / "cheapspec.toml").write_text(SETTINGS.partition("[prices")[0])
    status, out, _ = run("--prompts", "set.toml", "--json", "--draft-tokens", "32")
    assert status == 0
    result = json.loads(out)
    assert all(one["paid"] is None and one["baseline"] is None for one in result["prompts"])
    assert result["totals"]["all"]["paid_over_baseline"] is None
    assert result["totals"]["all"]["unpriced"] == 4
    _, out, _ = run("--prompts", "set.toml", "--draft-tokens", "32")
    assert "price is unknown" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--embedded", "gpt"], "choose smollm2 or qwen"),
        (["--draft", "lookup"], "need --target"),
        (["--target", "m", "--embedded", "qwen"], "exclude each other"),
        (["--target", "m", "--price-list", "5,.05"], "has its own"),
        (["--price-list", "cheap"], "write two numbers"),
        (["--kinds", "poem"], "no prompt is of the kind"),
        (["--target", "m"], "needs a draft"),
    ],
)
def test_misuse_is_explained(run: Run, arguments: list[str], said: str) -> None:
    """Options that contradict each other or name nothing: status 2 and a sentence."""
    status, _, err = run(*arguments, remote=False)
    assert status == 2
    assert said.lower() in err.lower()


def test_a_price_list_is_two_ratios() -> None:
    """``R,C`` become prices with input at a dollar a million."""
    assert PriceList.read("7.5, 0.1").table() == {"input": "1", "cached_input": "0.1", "output": "7.5"}
    for text in ("0,0.1", "5,1.5", "nan,0", "5", "1,2,3"):
        with pytest.raises(SettingsError):
            PriceList.read(text)


def test_a_loss_is_shown_as_a_loss() -> None:
    """Sums keep their sign: above 1 when more was paid, a negative capture."""
    total = Total.of([Measured("a", "k", paid=Decimal(3), baseline=Decimal(2), clairvoyant=Decimal(1))])
    assert total.paid_over_baseline == 1.5
    assert total.capture == -1
    assert Total.of([]).to_dict()["paid_over_baseline"] is None


@pytest.mark.embedded
def test_the_embedded_pair_needs_no_key_and_says_that_its_bill_is_simulated(run: Run) -> None:
    """Real engines: the text is the target's own, each arm has a cache of its own, prices are those asked for."""
    status, out, err = run(
        "--kinds", "translation", "--first", "1", "--max-tokens", "16", "--price-list", "5,0.05", "--json", remote=False
    )
    assert status == 0, err
    result = json.loads(out)
    assert result["engine"]["simulated"] is True
    assert result["engine"]["shared_cache"] is False
    assert result["price_list"] == {"r": 5.0, "c": 0.05, "qs": 0.05}
    [one] = result["prompts"]
    assert one["equal"] is True
    assert Decimal(one["baseline"]) > 0
    assert one["clairvoyant"] is not None
    assert Decimal(one["clairvoyant"]) <= Decimal(one["baseline"])
