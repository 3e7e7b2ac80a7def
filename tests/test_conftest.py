"""The guards of the suite themselves guard."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest


def test_a_connection_that_leaves_the_machine_is_refused_and_noted(no_network: list[str]) -> None:
    """Code under test cannot reach another machine, and swallowing the error does not hide the attempt."""
    with socket.socket() as sock, pytest.raises(RuntimeError, match="leave this machine"):
        sock.connect(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match="leave this machine"):
        socket.getaddrinfo("example.org", 443)
    assert no_network == ["socket.connect 192.0.2.1", "socket.getaddrinfo example.org"]
    no_network.clear()


async def test_the_async_way_out_is_guarded_too(no_network: list[str]) -> None:
    """asyncio's connections go through the same guard."""
    with pytest.raises(RuntimeError, match="leave this machine"):
        await asyncio.open_connection("192.0.2.1", 80)
    assert no_network
    no_network.clear()


def test_loopback_stays_open() -> None:
    """Servers on this machine can be reached by number and by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            socket.create_connection((host, port)).close()


def test_the_developers_environment_is_hidden() -> None:
    """No proxy, key or cheapspec setting of the machine reaches a test; the weights' cache does."""
    assert not [name for name in os.environ if name.upper().endswith("_PROXY")]
    assert not [name for name in os.environ if name.startswith(("OPENAI_", "OLLAMA_"))]
    ours = [name for name in os.environ if name.startswith("CHEAPSPEC_") and "_TEST_" not in name]
    assert sorted(ours) == ["CHEAPSPEC_CACHE", "CHEAPSPEC_LEDGER"]
    assert os.environ["CHEAPSPEC_LEDGER"] == "memory"
