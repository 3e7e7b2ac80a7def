"""A lock between processes: held on an open file, dropped by the system when its holder dies."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exclusive"]


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock at ``path`` (the file is made if need be, and left there); waits for its holder.

    Between threads of one process it excludes as well: each call opens the file anew, and locks
    belong to the open file.
    """
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it gives up after ten seconds; a download takes longer
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
