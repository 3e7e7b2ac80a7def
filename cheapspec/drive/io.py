"""What a driver's generators ask an executor to do: the only places where a driver waits.

The life of a request (:mod:`cheapspec.drive.exchange`) is a generator of these; ``sync`` and ``aio`` carry
them out, each in a few lines. Failures come back as values (the exception), so that there is one way to
look at an outcome. An executor lets ``KeyboardInterrupt`` and task cancellation through; the generator is
then closed, and whoever opened something settles it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import httpx2

from cheapspec.core.books import Ticket
from cheapspec.core.effects import Event

__all__ = [
    "WRITE_SECONDS",
    "Background",
    "Channel",
    "Io",
    "Overdue",
    "Read",
    "ReadAll",
    "Run",
    "Send",
    "Shut",
    "Sleep",
    "Steps",
    "Wait",
    "Written",
]

T = TypeVar("T")
WRITE_SECONDS = 5.0
"""The longest that a request waits for the ledger."""


@dataclass(slots=True)
class Channel:
    """An open streamed response and its place in it."""

    response: httpx2.Response
    chunks: Iterator[bytes] | None = None
    achunks: AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to the target. Answer: the response (read, unless ``stream``) or an exception.

    ``seconds``: give it up after so long, and answer :class:`Overdue`. A blocking executor cannot, and does not.
    """

    request: httpx2.Request
    stream: bool
    seconds: float | None = None


class Overdue(Exception):
    """A call was given up because its time was over."""


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
class Written:
    """Wait until the ledger has done something, :data:`WRITE_SECONDS` at most."""

    ticket: Ticket[object]


@dataclass(frozen=True, slots=True)
class Run:
    """Run something of the caller's that may block: in this thread, or in one of its own where a loop waits. Answer:
    what it returned, or an exception.
    """

    work: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Background:
    """Carry these steps out beside the caller (a thread, a task), which does not wait for them. ``listen``: is told
    where events of draft calls are to go that these steps wait for.
    """

    steps: Generator[Any, Any, None]
    name: str
    listen: Callable[[Callable[[Event], None]], None] | None = None


Io: TypeAlias = Send | Read | ReadAll | Shut | Wait | Sleep | Written | Run | Background
Steps: TypeAlias = Generator[Io, Any, T]
