"""The ``llm`` command, unmodified, in a process of its own.

``llm`` makes its own ``openai`` clients and takes none, but it loads plugins: five lines in one put our clients in the
place of openai's. Settings come from ``cheapspec.toml``, the books from the ledger's file. (Without a plugin it takes
nothing but a base URL: that needs a proxy.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compat_pair import CITY, CITY_SCHEMA, LIMIT, PRICES, QUESTION, Pair

from cheapspec.ledger.opening import open_ledger

PLUGIN = """\
import openai

import cheapspec

openai.OpenAI, openai.AsyncOpenAI = cheapspec.OpenAI, cheapspec.AsyncOpenAI
"""
SETTINGS = """\
[speculation]
draft = "ollama:smollm2:135m"
draft_url = "{draft_url}"
target_backend = "llamacpp"
simulate_scoring = true
draft_tokens = 8
draft_timeout = 120

[ledger]
url = "{ledger}"

[prices."{model}"]
"""
TOOL = 'def weather(city: str) -> str:\n    "The weather in a city."\n    return "sunny"\n'


class Command:
    """``llm`` with a home folder, a plugin and settings of its own."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair = pair
        self.ledger = f"sqlite:///{folder / 'ledger.db'}"
        plugin = folder / "plugins"
        (plugin / "llm_cheapspec-1.0.dist-info").mkdir(parents=True)
        (plugin / "llm_cheapspec.py").write_text(PLUGIN)
        (plugin / "llm_cheapspec-1.0.dist-info" / "METADATA").write_text("Name: llm-cheapspec\nVersion: 1.0\n")
        (plugin / "llm_cheapspec-1.0.dist-info" / "entry_points.txt").write_text("[llm]\ncheapspec = llm_cheapspec\n")
        models = [
            {"model_id": "smol", "model_name": pair.model, "api_base": pair.base_url, "supports_schema": True},
            {"model_id": "caller", "model_name": pair.model, "api_base": pair.relay.base_url, "supports_tools": True},
        ]
        (folder / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
        config = folder / "cheapspec.toml"
        table = SETTINGS.format(draft_url=pair.draft_url, ledger=self.ledger, model=pair.model)
        config.write_text(table + "".join(f"{name} = {price}\n" for name, price in PRICES.items()))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "CHEAPSPEC_LEDGER"},  # it beats the file
            "PYTHONPATH": str(plugin),
            "LLM_USER_PATH": str(folder),
            "CHEAPSPEC_CONFIG": str(config),
        }
        self.seen = 0

    def __call__(self, question: str, *arguments: str, limit: int = LIMIT) -> str:
        """What it prints."""
        options = ["-o", "temperature", "0", "-o", "max_tokens", str(limit)]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("llm")), "prompt", question, *options, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self) -> list[Mapping[str, Any]]:
        """The facts of the requests since the last call, read back from the ledger's file."""
        with closing(open_ledger(self.ledger)) as ledger:
            records = list(ledger.requests())[self.seen :]
        self.seen += len(records)
        return [record.info or {} for record in records]


@pytest.fixture
def llm(pair: Pair, tmp_path: Path) -> Iterator[Command]:
    yield Command(pair, tmp_path)


@pytest.mark.parametrize("arguments", [["--no-stream"], [], ["--async"]], ids=["plain", "streamed", "async"])
def test_plain_streamed_async(arguments: list[str], llm: Command) -> None:
    """The command prints the target's own text, drafted locally, and the ledger's file says what it cost."""
    printed = llm(QUESTION, "-m", "smol", *arguments)
    assert printed.strip() == llm.pair.alone().strip()
    [told] = llm.asked()
    assert (told["decision"], told["drafter"]) == ("speculate", "ollama:smollm2:135m")
    assert told["accepted_tokens"] > 0
    assert told["paid_usd"] is not None


def test_structured_output(llm: Command) -> None:
    """``--schema`` is the target's own to obey."""
    printed = json.loads(llm(CITY, "-m", "smol", "--schema", json.dumps(CITY_SCHEMA), limit=60))
    assert printed["name"]
    assert [(told["decision"], told["reason"]) for told in llm.asked()] == [("bypass", "response_format")]


def test_tools_are_bypassed(llm: Command) -> None:
    """``--functions`` offers a tool; it is called, and its result comes back into the text."""
    assert llm("What is the weather in Paris?", "-m", "caller", "--functions", TOOL).strip()
    assert "sunny" in str(llm.pair.relay.bodies[1]["messages"][-1])
    assert [(told["decision"], told["reason"]) for told in llm.asked()] == [("bypass", "tools")] * 2
