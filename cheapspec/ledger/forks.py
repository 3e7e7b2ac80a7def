"""What a snapshot of the store does after a fork, in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol, TypeVar

__all__ = ["Renewed", "renewed_after_fork"]


class Renewed(Protocol):
    """``renew`` is called in the child: a thread that held a lock, or was reading, is not there."""

    def renew(self) -> None: ...


R = TypeVar("R", bound=Renewed)


def renewed_after_fork(_: type[R]) -> weakref.WeakSet[R]:
    """A set; whatever is in it when this process forks is renewed in the child."""
    kept = weakref.WeakSet[R]()

    def renew() -> None:
        for one in list(kept):
            one.renew()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return kept
