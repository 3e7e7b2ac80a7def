"""The examples run as they stand, and show what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from cheapspec.embedded import DEMO, weights
from cheapspec.testing.target import FakeTarget

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: str, **environment: str) -> str:
    """Standard output of an example; a failure shows its standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1"} | environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def fetched() -> None:
    """The models are in the cache (an error says how to get them): an example would download them."""
    for name in DEMO:
        weights(name)


def row(output: str, name: str) -> str:
    found = re.search(rf"^{name}  +(.+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


def dollars(text: str) -> Decimal:
    return Decimal(text.removesuffix(" (simulated)").removeprefix("$"))


@pytest.mark.embedded
@pytest.mark.usefixtures("fetched")
def test_swap_import_gives_the_same_text_for_less() -> None:
    """Before and after the swap the text is the same, and the draft was used."""
    output = run("swap_import", "--max-tokens", "60")
    assert row(output, "decision") == "speculate"
    assert row(output, "same text") == "yes"
    assert int(row(output, "draft tokens").split()[0]) > 0
    assert row(output, "paid").endswith("(simulated)")
    assert dollars(row(output, "paid")) < dollars(row(output, "target alone"))


@pytest.mark.embedded
@pytest.mark.usefixtures("fetched")
def test_async_stream_tells_who_wrote_what() -> None:
    """The stream is printed, and its characters are counted by their writer."""
    output = run("async_stream", "--max-tokens", "60")
    text, _, _ = output.partition("\n\ndecision ")
    assert row(output, "decision") == "speculate"
    drafted, written = map(int, re.findall(r"\d+", row(output, "characters")))
    assert drafted > 0
    assert drafted + written == len(text)


@pytest.mark.embedded
@pytest.mark.usefixtures("fetched")
def test_code_edit_keeps_most_of_the_predicted_file_at_input_price() -> None:
    """The caller's prediction is the draft, most of it is accepted, and the reply costs less than the target alone."""
    output = run("code_edit_prediction")
    assert row(output, "decision") == "speculate, draft: prediction"
    tokens, kept = map(int, re.findall(r"(\d+) (?:tokens|of them)", row(output, "reply")))
    assert kept > tokens * 0.9
    assert "LOG_LEVEL" not in output
    assert dollars(row(output, "paid")) < dollars(row(output, "target alone"))


@pytest.mark.parametrize("name", ["swap_import", "async_stream", "code_edit_prediction"])
def test_an_example_talks_to_the_endpoint_that_it_is_given(name: str) -> None:
    """With a base URL nothing is started here; a target that cannot score answers directly, and the example says so."""
    with FakeTarget(capabilities="plain") as target:
        told = ["--base-url", target.base_url, "--model", "toy", "--max-tokens", "20"]
        output = run(name, *told, OPENAI_API_KEY="none", CHEAPSPEC_DRAFT="lookup")
        assert row(output, "decision").startswith("direct (")
        assert any(exchange.purpose == "direct" for exchange in target.requests)


def test_openrouter_answer_shows_whose_word_a_reply_went_out_on() -> None:
    """One draft is accepted on the target's short answer, one fails the check, one the answer; each is priced."""
    output = run("openrouter_answer")
    assert output.count("on the word of `answer(last_number") == 1
    assert output.count("written by the target (rejected)") == 2
    assert "The answer is 27" not in output, "a wrong draft went out"
    assert "1 request accepted under rules that may differ from the target" in re.sub(r"\s+", " ", output)
    first, _, rejected = (re.findall(r"paid \$([\d.]+), the target alone \$([\d.]+)", output))[:3]
    assert Decimal(first[0]) < Decimal(first[1]) and Decimal(rejected[0]) > Decimal(rejected[1])


def test_json_validator_accepts_what_passes_and_nothing_else() -> None:
    """A value that is not in the text, or a missing field, sends the request to the target; what passes is free."""
    lines = run("json_validator").splitlines()
    assert [line.partition("  by ")[2].partition(";")[0] for line in lines] == [
        "the draft, no call",
        "the target (rejected)",
        "the target (rejected)",
    ]
    assert lines[0].endswith("paid $0.000000") and "Oslo" in lines[1] and "1975" in lines[2]
