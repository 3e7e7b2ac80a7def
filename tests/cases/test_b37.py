"""B37: retries do not multiply."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair

from cheapspec.testing.faults import Status

REPLY = "One, two, three in Paris."
AT_ONCE = {"retry-after": "0"}
ROUTES = {"speculated": 0, "direct": ...}


def plan_everywhere(pair: Pair, status: int) -> None:
    for purpose in ("score", "continue", "direct"):
        pair.target.plan(purpose, Status(status, headers=AT_ONCE))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("retries", [0, 1, 2])
def test_b37_always_503(retries: int, stream: bool, route: str, any_pair: Pair) -> None:
    """A target that is always down sees at most max_retries + 1 requests; the caller gets openai's own error."""
    any_pair.says(REPLY, "One, two")
    any_pair.options["max_retries"] = retries
    plan_everywhere(any_pair, 503)
    outcome = any_pair.ask(stream=stream, temperature=ROUTES[route])
    assert type(outcome.error) is openai.InternalServerError
    if route == "direct":
        assert len(any_pair.paid) == retries + 1, "the caller's own max_retries is honoured, not cut short"
    assert 1 <= len(any_pair.paid) <= retries + 1


@pytest.mark.parametrize("stream", [False, True])
def test_b37_scoring_and_hand_off_share_one_budget(stream: bool, any_pair: Pair) -> None:
    """A hand-off that always fails takes no more repeats than the whole request has; nothing is scored twice."""
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)
    for purpose in ("continue", "direct"):
        any_pair.target.plan(purpose, Status(503, headers=AT_ONCE))
    outcome = any_pair.ask(stream=stream)
    assert isinstance(outcome.error, openai.APIError)
    failed = [exchange for exchange in any_pair.paid if exchange.status == 503]
    assert len(failed) <= 3
    assert len(any_pair.target.of("score")) == 1


def test_b37_a_failure_that_passes_is_survived(any_pair: Pair) -> None:
    """One 503 to the hand-off is repeated and the reply is whole."""
    any_pair.says(REPLY, "One, two")
    any_pair.hand_off_after(1)
    any_pair.target.plan("continue", Status(503, headers=AT_ONCE), times=1)
    outcome = any_pair.ask(stream=True)
    assert outcome.error is None
    assert outcome.text == REPLY


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
    ],
)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_b37_what_will_not_change_is_asked_once(
    stream: bool, route: str, status: int, kind: type[openai.APIStatusError], pair: Pair
) -> None:
    """The caller's request is sent once, and a scoring call at most once before it."""
    pair.says(REPLY)
    plan_everywhere(pair, status)
    outcome = pair.ask(stream=stream, temperature=ROUTES[route])
    assert type(outcome.error) is kind
    assert len(pair.target.of("direct")) == 1
    assert len(pair.target.of("score")) <= 1


@pytest.mark.parametrize("route", ROUTES)
def test_b37_rate_limits(route: str, pair: Pair) -> None:
    """429 is repeated within the budget, raised as RateLimitError, and keeps the next request from scoring."""
    pair.says(REPLY)
    plan_everywhere(pair, 429)
    first, second = pair.ask_again(2, temperature=ROUTES[route])
    assert type(first.error) is type(second.error) is openai.RateLimitError
    assert len(pair.paid) <= 6
    assert len(pair.target.of("score")) <= 1
