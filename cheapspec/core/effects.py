"""What the engine asks for (effects) and what it is told (events): plain, frozen data.

The engine (:mod:`cheapspec.core.engine`) is a generator. It yields effects, a driver carries them
out and sends the answer back. Nothing here does anything.

Rules
-----
* ``Start`` begins a backend call and is answered at once with ``None``. Several calls may be open.
* ``WaitAny`` is answered with the next event of any of the calls it names, or ``TimedOut`` when its
  seconds run out first. Every event carries ``at``, the driver's monotonic clock in seconds; the
  engine has no clock of its own.
* An unstreamed call gives exactly one ``Answered`` or one ``Broke``.
* A streamed call that is answered with a status below 300 gives ``Opened``, any number of
  ``Received``, then ``Closed`` or ``Broke``. One that is answered with another status gives
  ``Answered`` with the whole body, as an unstreamed call does.
* ``Cancel`` gives up a call; no event of it follows. Cancelling an ended call does nothing.
* ``Emit`` hands text to the caller, ``Finish`` ends the reply, ``GoDirect`` hands the caller's own
  request to the target untouched and ends the run.
* ``Risk`` asks whether the request may go on to hold so many dollars of the allowance; answered with ``Risked``.
* ``Check`` has something of the caller's run, which may block; answered with ``Checked``.
* ``Note`` tells the driver a fact for the ledger or the log; answered with ``None``.
* ``Cancelled`` is *sent* by the driver instead of an event when the caller is gone. After it only
  ``Note`` may be yielded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

__all__ = [
    "Answered",
    "Broke",
    "Cancel",
    "Cancelled",
    "Check",
    "Checked",
    "Closed",
    "Effect",
    "Emit",
    "Event",
    "Finish",
    "GoDirect",
    "HttpReply",
    "HttpRequest",
    "Note",
    "Op",
    "Opened",
    "Received",
    "Risk",
    "Risked",
    "Side",
    "Source",
    "Start",
    "TimedOut",
    "Usage",
    "WaitAny",
]

T = TypeVar("T")


class Side(StrEnum):
    """Whose server a call goes to. Keys and headers of one side never travel to the other."""

    DRAFT = "draft"
    TARGET = "target"
    JUDGE = "judge"
    """A model that judges drafts and is reached at a URL of its own, with a key of its own."""


class Source(StrEnum):
    """Who wrote a piece of the reply: accepted draft tokens, or tokens that the target wrote."""

    DRAFT = "draft"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one target call as the provider bills them.

    ``input_tokens`` includes ``cached_tokens`` and ``cache_write_tokens``; ``output_tokens``
    includes ``reasoning_tokens``. ``cached_tokens`` is ``None`` when the server did not say.
    ``estimated`` marks counts that the server did not report. ``media_tokens``: those that are sound or pictures,
    which have prices of their own.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: str | None = None
    service_tier: str | None = None
    estimated: bool = False
    media_tokens: int = 0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP call as data.

    ``path`` without a leading slash hangs on the API base that the caller's client uses (the
    folder in which ``chat/completions`` lives: ``completions`` → ``…/v1/completions``); with a
    leading slash it hangs on the server's root (``/tokenize``, ``/api/generate``).
    ``billed`` says whether a provider charges for it: a billed call is booked before it goes out.
    """

    purpose: str
    path: str
    body: Mapping[str, Any] | None = None
    method: str = "POST"
    stream: bool = False
    billed: bool = False


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole HTTP reply. Header names are lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def json(self) -> Any:
        """The body as JSON, or ``None`` when it is not JSON (an HTML page, an empty body).

        ``NaN`` and ``Infinity`` literals, which some servers send, become floats.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


Op = Generator[HttpRequest, HttpReply | None, T]
"""A few *unstreamed* calls in a row, as data: yields requests, is sent their replies, returns T.

A reply of ``None`` means that the call broke (no connection, time-out): the operation must then
return its own "unusable" value; it never raises.
"""


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a call. ``call_id`` is chosen by the engine, unique within the run; ``host`` is the draft
    host's root (``Drafter.base_url``) or the judge's API base, empty for the target.
    """

    call_id: int
    side: Side
    request: HttpRequest
    host: str = ""


@dataclass(frozen=True, slots=True)
class WaitAny:
    """Wait for the next event of any of these calls, at most ``seconds`` (``None``: no limit)."""

    call_ids: tuple[int, ...]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give up a call. ``linger``: let it run to its end in the background and throw the answer away
    (a draft host that is still loading its model would start from zero if we hung up).
    """

    call_id: int
    linger: bool = False


@dataclass(frozen=True, slots=True)
class Emit:
    """Text for the caller, verified or written by the target. Never taken back."""

    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the reply.

    ``error`` set: the reply failed after text went out (the partial text stays the caller's);
    else ``finish_reason`` is ``"stop"`` or ``"length"`` (or whatever the target said) and ``usage``
    is what the target alone would have reported.
    """

    finish_reason: str | None
    usage: Usage
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GoDirect:
    """The caller's own request goes to the target as it is. ``reason`` is one of INTERFACE's list."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Risk:
    """Before a paid step: may the request hold ``worst`` dollars, in the place of what it holds
    (:mod:`cheapspec.core.allowance`)?
    """

    worst: Decimal


@dataclass(frozen=True, slots=True)
class Check:
    """Run ``work``, which may block and must not raise: on a thread of its own where an event loop waits."""

    work: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Note:
    """A fact for ledger, log or facts table. ``kind`` says which; ``data`` is plain JSON."""

    kind: str
    data: Mapping[str, Any]


Effect = Start | WaitAny | Cancel | Emit | Finish | GoDirect | Risk | Check | Note


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole reply of an unstreamed call, or the error reply of a streamed one."""

    call_id: int
    reply: HttpReply
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A streamed call was answered with a good status; its body follows."""

    call_id: int
    status: int
    headers: Mapping[str, str]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes of a streamed body, content decoding (gzip) already undone. Any split is possible."""

    call_id: int
    data: bytes
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Closed:
    """The orderly end of a streamed body."""

    call_id: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Broke:
    """A call failed below HTTP.

    ``kind``: ``"connect"`` (nothing was sent), ``"timeout"`` or ``"cut"`` (the server may have done
    the work and may charge for it), ``"busy"`` (our own limit on a draft host).
    """

    call_id: int
    kind: str
    message: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TimedOut:
    """``WaitAny``'s seconds ran out."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Risked:
    """The answer to :class:`Risk`. Not granted: what was held is held on."""

    granted: bool
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer to :class:`Check`: what its work returned."""

    value: object
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller is gone."""

    at: float = 0.0


Event = Answered | Opened | Received | Closed | Broke | TimedOut | Risked | Checked | Cancelled
