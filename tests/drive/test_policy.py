"""When a failed call is repeated, and how long is waited before."""

from __future__ import annotations

import email.utils
import time

import httpx2
import pytest

from cheapspec.core.effects import HttpRequest
from cheapspec.drive.policy import MAX_RETRY_AFTER, Attempts, broke_kind, retry_after, should_retry, takes_one

NO_JSON = "Out of range float values are not JSON compliant: nan"


def reply(status: int = 503, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after": "3"}, 3.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after_ms": "x", "retry_after": "2"}, 2.0),
        ({"retry_after_ms": "100", "retry_after": "9"}, 0.1),
        ({"retry_after": "-4"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after": "Wed, 99 Foo 2026 99:99:99 GMT"}, None),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_retry_after_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, seconds, floats and dates are honoured; what makes no sense asks for nothing."""
    assert retry_after(reply(503, **headers).headers) == seconds


def test_retry_after_as_a_date() -> None:
    """An HTTP date is that far away."""
    asked = retry_after(reply(retry_after=email.utils.formatdate(time.time() + 30, usegmt=True)).headers)
    assert asked is not None
    assert 28 < asked <= 30


@pytest.mark.parametrize(
    ("status", "headers", "again"),
    [
        (200, {}, False),
        (400, {}, False),
        (404, {}, False),
        (408, {}, True),
        (409, {}, True),
        (429, {}, True),
        (500, {}, True),
        (503, {"x_should_retry": "false"}, False),
        (400, {"x_should_retry": "true"}, True),
        (429, {"retry_after": "121"}, False),
        (503, {"x_should_retry": "true", "retry_after": "100000"}, False),
        (429, {"retry_after": "120"}, True),
    ],
)
def test_what_is_repeated(status: int, headers: dict[str, str], again: bool) -> None:
    """The statuses that openai repeats, the server's own word, and never a wait of more than two minutes."""
    assert should_retry(reply(status, **headers)) is again


def test_the_budget_is_counted_over_everything() -> None:
    """``max_retries + 1`` failures exhaust it; before that there is a pause, after that none."""
    attempts = Attempts(2)
    assert not attempts.exhausted
    assert attempts.failed(reply(retry_after="0.5")) == 0.5
    pause = attempts.failed(httpx2.ConnectError("refused"))
    assert pause is not None
    assert 0 <= pause <= 1.0
    assert attempts.failed(reply()) is None
    assert attempts.exhausted
    assert Attempts(0).failed(reply()) is None


@pytest.mark.parametrize(
    ("purpose", "billed", "outcome", "counts"),
    [
        ("tokenize", False, reply(503), False),
        ("tokenize", False, httpx2.ReadTimeout("x"), False),
        ("tokenize", False, RuntimeError("no credentials"), True),
        ("score", True, reply(503), True),
        ("score", True, reply(429), True),
        ("score", True, reply(500), True),
        ("score", True, reply(400, x_should_retry="true"), False),
        ("score", True, reply(408), True),
        ("score", True, httpx2.Response(500, json={"error": {"message": NO_JSON}}), False),
        ("force", True, httpx2.Response(500, json={"error": {"message": NO_JSON}}), False),
        ("continue", True, httpx2.Response(500, json={"error": {"message": NO_JSON}}), True),
        ("score", True, httpx2.ReadTimeout("x"), True),
        ("score", True, httpx2.ConnectError("x"), True),
    ],
)
def test_what_takes_an_attempt(purpose: str, billed: bool, outcome: httpx2.Response | Exception, counts: bool) -> None:
    """What the target alone would not have met takes nothing from the caller's repeats."""
    assert takes_one(HttpRequest(purpose, "completions", {}, billed=billed), outcome) is counts


def test_the_pause_is_exponential_with_full_jitter() -> None:
    """Without a word of the server's, the pause is random below a bound that doubles up to 8 s."""
    for failures, bound in ((1, 0.5), (2, 1.0), (5, 8.0), (9, 8.0)):
        pauses: list[float] = []
        for _ in range(50):
            attempts = Attempts(100)
            for _ in range(failures - 1):
                attempts.failed(reply())
            pause = attempts.failed(reply())
            assert pause is not None
            pauses.append(pause)
        assert all(0 <= pause <= bound for pause in pauses)
        assert len(set(pauses)) > 25


def test_an_answer_ends_the_waiting() -> None:
    """After a failure that was survived, the next call need not wait; an exhausted budget stays exhausted."""
    attempts = Attempts(1)
    attempts.failed(reply(retry_after="60"))
    attempts.worked()
    assert attempts.pause == 0.0
    attempts.failed(reply())
    attempts.worked()
    assert attempts.pause is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("x"), "connect"),
        (httpx2.ConnectTimeout("x"), "connect"),
        (httpx2.PoolTimeout("x"), "connect"),
        (httpx2.ReadTimeout("x"), "timeout"),
        (httpx2.WriteTimeout("x"), "timeout"),
        (httpx2.ReadError("x"), "cut"),
        (httpx2.RemoteProtocolError("x"), "cut"),
        (RuntimeError("no credentials"), "connect"),
    ],
)
def test_how_a_call_broke(error: Exception, kind: str) -> None:
    """Whether the server may have done the work decides what is booked."""
    assert MAX_RETRY_AFTER == 120
    assert broke_kind(error) == kind
