"""B35: a cold draft host."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from casepair import Pair

from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

REPLY = "One, two, three in Paris."


@pytest.fixture
def cold(door: str) -> Iterator[Pair]:
    """A draft host that needs 3 s to load and starts from zero when its client leaves; a deadline of 0.3 s."""
    with FakeTarget(model=ToyModel(3)) as target, FakeDraft(model=ToyModel(3), cold=3.0) as draft:
        pair = Pair(target, draft, door)
        pair.settings["draft_timeout"] = 0.3
        pair.says(REPLY)
        yield pair


def test_b35_the_target_answers_meanwhile_and_the_load_goes_on(cold: Pair) -> None:
    """Requests during the load go direct at their deadline; the load is begun once and ends; then drafts come."""

    def wait() -> None:
        time.sleep(0.2)

    began = time.monotonic()
    outcomes = cold.ask_again(2, between=wait)
    assert time.monotonic() - began < 3.0
    assert [outcome.text for outcome in outcomes] == [REPLY] * 2
    assert {outcome.told.decision for outcome in outcomes} == {"direct"}
    assert outcomes[0].told.reason == "draft_deadline"
    assert cold.draft.wait_for(lambda: any(request.ended_at for request in cold.draft.of("draft", "load")), 6.0)
    cold.settings["draft_timeout"] = 5.0  # what is asked now is whether drafts come, not how fast this machine is
    assert cold.draft.wait_for(lambda: cold.ask().told.decision == "speculate", 5.0)
    assert cold.draft.load_starts == 1


def test_b35_keep_alive_is_settable(pair: Pair) -> None:
    """What the user says about keeping the model loaded is said to the host."""
    pair.says(REPLY)
    pair.settings["keep_alive"] = "30m"
    assert pair.ask().told.decision == "speculate"
    assert {draft.body.get("keep_alive") for draft in pair.draft.of("draft")} == {"30m"}


def test_b35_a_host_that_is_down_costs_no_deadline(pair: Pair) -> None:
    """A refused connection is known at once: direct, without waiting for the draft's deadline."""
    pair.says(REPLY)
    pair.settings["draft_timeout"] = 60.0
    pair.settings["draft_url"] = "http://127.0.0.1:9"
    outcome = pair.ask()
    assert outcome.text == REPLY
    assert (outcome.told.decision, outcome.told.reason) == ("direct", "no_draft")
