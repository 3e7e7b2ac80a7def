"""When a failed call is repeated: tenacity's strategies, asked for decisions, with one budget a request.

Rules
-----
* The budget is the client's ``max_retries``, over everything one request sends to the target: scoring,
  hand-off and direct together. Each failed call takes one from it, so that a target that is always down
  sees ``max_retries + 1`` billed calls at most; but (:func:`takes_one`)
* what the target alone would not have met takes nothing, and never ends the request: a failure of a call
  that is not billed, and an answer that only scoring can have (400, or a 500 about numbers that JSON cannot
  carry or a prompt that is no text). The first direct call after it is always made.
* A refused connection is repeated if the call is billed (nothing was sent). A status that the openai client repeats
  (408, 409, 429, 5xx, or ``x-should-retry: true``) is repeated for the hand-off and the direct call; a
  scoring call is not: the request goes direct with what is left of the budget.
* A call that is not billed and was cut before its answer was there is repeated once, at once: a server may have
  dropped an idle connection just then, and nobody pays twice (:func:`is_stale`).
* A call that was sent and then timed out or was cut may have been billed. It is booked so, and repeated
  only within the budget.
* The wait is what the server asks for (``retry-after-ms``, ``retry-after`` in seconds or as a date, up to
  two minutes; longer means: do not repeat), else exponential from .5 s to 8 s with full jitter. A negative
  number or nonsense asks for nothing; a date that has passed means now.
"""

from __future__ import annotations

import email.utils
import math
import time
from typing import Any

import httpx2
from tenacity import RetryCallState, Retrying, wait_random_exponential
from tenacity.stop import stop_after_attempt
from tenacity.wait import wait_base

from cheapspec.backends.openai_wire import refusal
from cheapspec.core.effects import HttpReply, HttpRequest

__all__ = ["Attempts", "broke_kind", "is_stale", "retry_after", "should_retry", "takes_one"]

MAX_RETRY_AFTER = 120.0
_SCORING = frozenset({"score", "force"})
_EXPONENTIAL = wait_random_exponential(multiplier=0.5, max=8.0)


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that the server asks to wait: never negative, ``None`` when it says nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) * unit
        except ValueError:
            seconds = _until(value)
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def _until(date: str) -> float:
    """Seconds until an HTTP date, 0 when it has passed, NaN when it is none."""
    parsed = email.utils.parsedate_tz(date)
    try:
        return math.nan if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())
    except (ValueError, OverflowError):
        return math.nan


def should_retry(response: httpx2.Response) -> bool:
    """Whether the openai client would repeat a request that was answered so."""
    asked = retry_after(response.headers)
    if asked is not None and asked > MAX_RETRY_AFTER:
        return False
    told = response.headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return response.status_code in (408, 409, 429) or response.status_code >= 500


def broke_kind(error: Exception) -> str:
    """``connect``: nothing was sent (no connection, or the sender failed before it had one: no credentials,
    say); ``timeout`` or ``cut``: the server may have done the work.
    """
    if not isinstance(error, httpx2.HTTPError) or isinstance(
        error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
    ):
        return "connect"
    return "timeout" if isinstance(error, httpx2.TimeoutException) else "cut"


def is_stale(request: HttpRequest, outcome: httpx2.Response | Exception) -> bool:
    """Whether the connection broke under a call that nobody is charged for, as an idle one does that a server drops."""
    return not request.billed and isinstance(outcome, httpx2.HTTPError) and broke_kind(outcome) == "cut"


def takes_one(request: HttpRequest, outcome: httpx2.Response | Exception) -> bool:
    """Whether this failure of a call of ours counts against the budget. An error that is not HTTP's (no
    credentials, say) does in any case: the caller's own request would only meet it again.
    """
    if isinstance(outcome, Exception):
        return request.billed or not isinstance(outcome, httpx2.HTTPError)
    if not request.billed:
        return False
    if request.purpose not in _SCORING:
        return True
    if outcome.status_code < 500:
        return outcome.status_code != 400
    problem = refusal(HttpReply(outcome.status_code, outcome.content), request.purpose)
    return problem is None or problem.retryable


class _WaitAsTold(wait_base):
    """The server's wish, else jittered exponential."""

    def __call__(self, retry_state: RetryCallState) -> float:
        outcome = retry_state.outcome
        if outcome is not None and not outcome.failed:
            asked = retry_after(outcome.result().headers)
            if asked is not None:
                return asked
        return float(_EXPONENTIAL(retry_state))


class Attempts:
    """The budget of one request. ``failures``: failed target calls so far; ``last``: how the last of them was
    answered; ``pause``: seconds to wait before the next call, ``None`` when there is none.
    """

    def __init__(self, max_retries: int) -> None:
        self._stop = stop_after_attempt(max_retries + 1)
        self._wait = _WaitAsTold()
        self._retrying = Retrying()
        self.failures = 0
        self.last: httpx2.Response | Exception | None = None
        self.pause: float | None = 0.0

    def _state(self, outcome: httpx2.Response | Exception) -> RetryCallState:
        nothing: dict[str, Any] = {}
        state = RetryCallState(self._retrying, None, (), nothing)
        state.attempt_number = max(1, self.failures)
        if isinstance(outcome, Exception):
            state.set_exception((type(outcome), outcome, outcome.__traceback__))
        else:
            state.set_result(outcome)
        return state

    @property
    def exhausted(self) -> bool:
        """No further call may be sent."""
        return self.last is not None and bool(self._stop(self._state(self.last)))

    def failed(self, outcome: httpx2.Response | Exception) -> float | None:
        """Take one from the budget; the new ``pause``."""
        self.failures += 1
        self.last = outcome
        self.pause = None if self.exhausted else self._wait(self._state(outcome))
        return self.pause

    def worked(self) -> None:
        """A call was answered: the next need not wait."""
        if not self.exhausted:
            self.pause = 0.0
