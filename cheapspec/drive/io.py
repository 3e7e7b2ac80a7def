"""What the conductor asks an executor to do: the only places where a driver waits.

The conductor (:mod:`cheapspec.drive.conductor`) is a generator of these; ``sync`` and ``aio`` carry them
out, each in a few lines. Failures come back as values (the exception), so that the conductor has one
way to look at an outcome. An executor lets ``KeyboardInterrupt`` and task cancellation through.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx2

from cheapspec.core.effects import Emit, Finish, GoDirect

__all__ = ["Channel", "Io", "Out", "Read", "ReadAll", "Send", "Shut", "Sleep", "Wait"]


@dataclass(slots=True)
class Channel:
    """An open streamed response and its place in it."""

    response: httpx2.Response
    chunks: Iterator[bytes] | None = None
    achunks: AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to the target. Answer: the response (read, unless ``stream``) or an exception."""

    request: httpx2.Request
    stream: bool


@dataclass(frozen=True, slots=True)
class Read:
    """The next bytes of a streamed body. Answer: bytes, ``None`` at its end, or an exception."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read a streamed body to its end. Answer: bytes or an exception."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Shut:
    """Close a streamed response, read or not."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event of a draft call. Answer: the event, or ``None`` when the seconds ran out."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before a repeat."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Out:
    """Something for the door. Answer: ``None``."""

    effect: Emit | Finish | GoDirect = field()


Io = Send | Read | ReadAll | Shut | Wait | Sleep | Out
