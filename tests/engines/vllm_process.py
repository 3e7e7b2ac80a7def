"""Runs the unmodified vLLM from the environment ``.venv-vllm``: SmolLM2-135M as float32, window 2048.

A process group of its own, on a free loopback port; warmed up, and ended with all its children.
``CHEAPSPEC_TEST_VLLM_PYTHON`` names another environment's interpreter.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from cheapspec.embedded import weights

__all__ = ["running_vllm", "warm_up"]

ROOT = Path(__file__).parents[2]
START_SECONDS = 600
FLAGS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "2048", "--enable-prompt-tokens-details"]
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


@contextmanager
def running_vllm(log: Path, *flags: str) -> Iterator[str]:
    """The root of a server that is warm. ``log``: a file that gets what it says; ``flags``: more of its own."""
    python = Path(os.environ.get("CHEAPSPEC_TEST_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    model = weights("smollm2-135m-q4_1").parent / "vllm" / "smollm2-135m-f32"
    for needed in (python, model):
        if not needed.exists():
            pytest.fail(f"{needed} is missing: `make engines` builds it", pytrace=False)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *FLAGS, *flags]
    command += ["--served-model-name", "smollm2-135m-f32", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,  # a group of its own: its workers end with it
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(url, process, log)
        warm_up(url)
        yield url
    finally:
        end_group(process)


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the server answers its health check; fails with the end of its log when it dies."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/health").status_code == 200:
                return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    said = "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])
    pytest.fail(f"vLLM did not start (exit status {process.poll()}):\n{said}", pytrace=False)


def warm_up(url: str) -> None:
    """The first call of each kind compiles kernels, for up to 15 s on two cores (vLLM 0.32)."""
    model = httpx2.get(f"{url}/v1/models").json()["data"][0]["id"]
    for extra in ({}, {"prompt_logprobs": 1}):
        body = {"model": model, "prompt": "Warm up, please.", "max_tokens": 4, "temperature": 0, **extra}
        httpx2.post(f"{url}/v1/completions", json=body, timeout=300).raise_for_status()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
