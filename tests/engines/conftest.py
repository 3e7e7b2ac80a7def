"""Real engines for `make engines`: one vLLM, and llama.cpp targets and drafts of three strengths.

vLLM runs from the environment ``.venv-vllm`` in a process group of its own, on a free loopback port,
with SmolLM2 as float32 (converted once, kept in the weights' cache). It is started once a session,
warmed up, and ended with all its children. ``CHEAPSPEC_TEST_VLLM_URL`` names a running one to use instead,
``CHEAPSPEC_TEST_VLLM_PYTHON`` another environment's interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from vllm_process import running_vllm, warm_up

from cheapspec.embedded import EmbeddedServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is run by `make engines` alone."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("engines")


@pytest.fixture(scope="session")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Root of a warm vLLM that serves SmolLM2-135M as float32, window 2048."""
    if running := os.environ.get("CHEAPSPEC_TEST_VLLM_URL"):
        warm_up(running.rstrip("/"))
        yield running.rstrip("/")
        return
    with running_vllm(tmp_path_factory.mktemp("vllm") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def vllm_model(vllm_url: str) -> str:
    """The model's name on that server."""
    return str(httpx2.get(f"{vllm_url}/v1/models").json()["data"][0]["id"])


@pytest.fixture(scope="session")
def drafts(
    q4_1_server: EmbeddedServer, drop1_server: EmbeddedServer, drop3_server: EmbeddedServer
) -> dict[str, EmbeddedServer]:
    """Draft models from strong to weak: nearly always right, middling, poor."""
    return {"q4_1": q4_1_server, "drop1": drop1_server, "drop3": drop3_server}


@pytest.fixture(scope="session")
def llamacpp_targets(f16_server: EmbeddedServer, q4_1_server: EmbeddedServer) -> dict[str, EmbeddedServer]:
    """llama.cpp as a target: F16, whose scoring and decoding agree, and Q4_1, where they may not."""
    return {"f16": f16_server, "q4_1": q4_1_server}
