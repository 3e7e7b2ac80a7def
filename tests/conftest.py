"""What every test gets: a clean environment, no network but loopback, and real small engines on demand.

* Environment: no proxy variables, no keys, no ``CHEAPSPEC_*`` settings of the developer's own; data
  folders point into a temporary one. The weights' cache alone is shared with the world. Where a test says nothing
  about the ledger, each client's is in memory: the file in the user's home has tests of its own.
* Network: a connection or a name look-up that leaves this machine fails the test, even if the code
  under test swallows the error.
* Engines: ``q4_1_server``, ``f16_server``, ``drop1_server``, ``drop3_server`` are llama.cpp servers in
  this process (SmolLM2-135M, one slot, window 2048). One thread each: on a machine that is busy, several
  would wait for each other, ten times as long. A test that asks for one is marked ``embedded``; missing
  weights are an error that says how to get them, not a skip.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cheapspec.embedded import EmbeddedServer, cache_folder, weights

ENGINE_FIXTURES = {"q4_1_server", "f16_server", "drop1_server", "drop3_server"}
KEPT = ("CHEAPSPEC_CACHE", "CHEAPSPEC_TEST_")
CLEARED = ("CHEAPSPEC_", "OPENAI_", "AZURE_OPENAI_", "OLLAMA_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "", None}

_left_the_machine: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Pins the weights' cache before tests move the data folders; guards the network."""
    os.environ["CHEAPSPEC_CACHE"] = str(cache_folder())
    sys.addaudithook(_guard)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that need the embedded engine."""
    for item in items:
        if ENGINE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("embedded")


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host: Any = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        _, address = arguments
        host = cast("tuple[Any, ...]", address)[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name not in LOOPBACK and not str(name).startswith("127."):
        _left_the_machine.append(f"{event} {name}")
        raise RuntimeError(f"A test tried to leave this machine: {event} {name}")


@pytest.fixture(autouse=True)
def no_network() -> Iterator[list[str]]:
    """Fails the test whose code tried to reach another machine (yields the attempts so far)."""
    _left_the_machine.clear()
    yield _left_the_machine
    assert not _left_the_machine, f"tried to leave this machine: {_left_the_machine}"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hides the developer's own settings, keys and proxies; returns the folder that stands for home's."""
    for name in list(os.environ):
        if name.upper().startswith(CLEARED) and not name.startswith(KEPT):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "memory")
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    return home


@pytest.fixture(scope="session")
def q4_1_server() -> Iterator[EmbeddedServer]:
    """SmolLM2 Q4_1: as a draft for the F16 target it agrees almost always."""
    with EmbeddedServer(weights("smollm2-135m-q4_1"), threads=1) as server:
        yield server


@pytest.fixture(scope="session")
def f16_server() -> Iterator[EmbeddedServer]:
    """SmolLM2 F16: the target; its scoring and its decoding agree to the bit of an argmax."""
    with EmbeddedServer(weights("smollm2-135m-f16"), threads=1) as server:
        yield server


@pytest.fixture(scope="session")
def drop1_server() -> Iterator[EmbeddedServer]:
    """SmolLM2 F16 without one layer: a middling draft."""
    with EmbeddedServer(weights("smollm2-135m-f16-drop1"), threads=1) as server:
        yield server


@pytest.fixture(scope="session")
def drop3_server() -> Iterator[EmbeddedServer]:
    """SmolLM2 F16 without three layers: a poor draft."""
    with EmbeddedServer(weights("smollm2-135m-f16-drop3"), threads=1) as server:
        yield server
