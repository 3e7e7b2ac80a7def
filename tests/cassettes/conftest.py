"""Where cassettes come from: real engines with ``CHEAPSPEC_TEST_RECORD=1`` (``make record``), else a dead port."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from cassette_kit import RECORD, Engine

from cheapspec.drive.state import infos, targets
from cheapspec.testing.server import refusing_url


@pytest.fixture(autouse=True)
def forget() -> None:
    """Every cassette holds what a client asks of an endpoint that it does not know yet."""
    targets.clear()
    infos.clear()


@pytest.fixture(params=["llamacpp", "vllm"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The server that answers, or the dead one that a replay is pointed at."""
    name = str(request.param)
    model = {"llamacpp": "smollm2-135m-f16", "vllm": "smollm2-135m-f32"}[name]
    if not RECORD:
        with refusing_url() as url:
            yield Engine(name, url, model, {})
        return
    server = request.getfixturevalue("f16_server" if name == "llamacpp" else "gzipping_vllm")
    url = server if isinstance(server, str) else server.url
    version = _version(name, url)
    yield Engine(name, url, model, {"server": name, "version": version, "recorded": f"{datetime.now(UTC):%Y-%m-%d}"})


@pytest.fixture(scope="session")
def gzipping_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM whose replies are compressed, streams excepted, by a middleware that it is started with.

    ``CHEAPSPEC_TEST_VLLM_URL`` names a running one to use instead.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
    from vllm_process import running_vllm

    if running := os.environ.get("CHEAPSPEC_TEST_VLLM_URL"):
        yield running.rstrip("/")
        return
    log = tmp_path_factory.mktemp("vllm") / "log"
    with running_vllm(log, "--middleware", "starlette.middleware.gzip.GZipMiddleware") as url:
        yield url


def _version(name: str, url: str) -> str:
    if name == "vllm":
        return str(httpx2.get(f"{url}/version").json()["version"])
    return f"xllamacpp {importlib.metadata.version('xllamacpp')}"  # its last part is llama.cpp's build
