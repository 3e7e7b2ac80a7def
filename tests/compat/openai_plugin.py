"""A pytest plugin for openai-python's own test-suite: our classes in place of openai's, outcomes by test id.

``-p openai_plugin --outcomes FILE`` writes one JSON object, test id → outcome; with ``--client cheapspec``
every name under which the suite imports a client class is ours before any test module is imported. Nothing
else differs: no speculation is configured, the ledger is in memory.

Of a test its worst phase counts (an error in the tear-down of a passed test is ``error``). A test that is
reported more than once in a run (under xdist it is, if a worker died) keeps the worst, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CLASSES = ("OpenAI", "AsyncOpenAI", "Client", "AsyncClient", "AzureOpenAI", "AsyncAzureOpenAI")
HOLDERS = ("openai", "openai._client", "openai.lib.azure")
WORSE = ("skipped", "xfailed", "passed", "xpassed", "failed", "error")

outcomes: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--client", choices=("openai", "cheapspec"), default="openai")
    parser.addoption("--outcomes", type=Path, help="file that gets the outcomes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--client") == "cheapspec":
        replace_classes()


def replace_classes() -> list[str]:
    """Puts our classes where openai's are found; returns the names that were replaced."""
    import importlib

    import cheapspec

    replaced: list[str] = []
    for holder in map(importlib.import_module, HOLDERS):
        for name in CLASSES:
            if hasattr(holder, name):
                setattr(holder, name, getattr(cheapspec, name))
                replaced.append(f"{holder.__name__}.{name}")
    openai = importlib.import_module("openai")
    for name, ours in (("_ModuleClient", cheapspec.OpenAI), ("_AzureModuleClient", cheapspec.AzureOpenAI)):
        setattr(openai, name, type(name, (ours, getattr(openai, name)), {}))  # openai.chat and the like: ours, too
        replaced.append(f"openai.{name}")
    return replaced


def outcome_of(report: pytest.TestReport) -> str:
    """What this phase says of the test."""
    if report.failed:
        return "failed" if report.when == "call" else "error"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return "skipped" if report.skipped else "passed"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.passed:
        return
    known = outcomes.get(report.nodeid, WORSE[0])
    outcomes[report.nodeid] = max(known, outcome_of(report), key=WORSE.index)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:  # a module that cannot be imported has no tests that could fail
        outcomes[report.nodeid] = "error"


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--outcomes")
    if path is not None and not hasattr(session.config, "workerinput"):
        path.write_text(json.dumps(dict(sorted(outcomes.items())), indent=0), "utf-8")
