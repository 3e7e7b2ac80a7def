"""A real PostgreSQL server for the tests marked ``services``: started in a folder of its own, stopped at the end.

``initdb`` refuses root, so that root's tests run it as the user ``postgres`` (Debian's package makes one).
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; on Debian: apt-get install postgresql")
    return path


def _run(*command: str) -> None:
    """As an unprivileged user. Its output goes to a file: a server started by a piped program keeps the pipe."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run([*prefix, *command], stdout=output, stderr=output, cwd="/", check=False)
        output.seek(0)
        assert done.returncode == 0, output.read()


@contextmanager
def postgresql() -> Iterator[str]:
    """Yields the URL of a server without databases of the tests' own (``…/postgres`` is its maintenance one)."""
    folder = tempfile.mkdtemp(prefix="cheapspec-pg-", dir="/tmp")  # a socket's path must be short
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, log = f"{folder}/data", f"{folder}/log"
    try:
        _run(_program("initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        options = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c max_connections=200"
        _run(_program("pg_ctl"), "start", "-w", "-D", data, "-l", log, "-o", options)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}"
        finally:
            _run(_program("pg_ctl"), "stop", "-w", "-D", data, "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
