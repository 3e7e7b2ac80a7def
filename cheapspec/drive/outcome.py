"""What a driver tells a door when no response can be returned."""

from __future__ import annotations

__all__ = ["TargetFailed"]


class TargetFailed(Exception):
    """The target could not be reached or did not answer, and the request's attempts are used up, or a paid
    call had already been sent. The door raises it as its own kind of error; the sender must not repeat.

    ``kind``: ``timeout`` or ``connection``. ``__cause__`` is the HTTP library's error.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
