"""What a process remembers between requests."""

from __future__ import annotations

from cheapspec.drive.state import Breaker, Targets


def test_the_breaker_opens_and_tries_again() -> None:
    """Three failures in a row leave a drafter alone for 30 s; then one more failure is enough."""
    breaker = Breaker(threshold=3, seconds=30.0)
    for at in (0.0, 1.0):
        breaker.failed("d", at)
    assert not breaker.open("d", 1.0)
    breaker.failed("d", 2.0)
    assert breaker.open("d", 2.0)
    assert breaker.open("d", 31.9)
    assert not breaker.open("d", 32.0)
    assert not breaker.open("other", 2.0)
    breaker.failed("d", 33.0)
    assert breaker.open("d", 33.0)


def test_a_draft_closes_the_breaker() -> None:
    """Success forgets the failures before it; so does time."""
    breaker = Breaker(threshold=2, seconds=30.0)
    breaker.failed("d", 0.0)
    breaker.worked("d")
    breaker.failed("d", 1.0)
    assert not breaker.open("d", 1.0)
    breaker.failed("d", 100.0)
    assert not breaker.open("d", 100.0), "a failure long ago is not one in a row"
    breaker.failed("d", 101.0)
    assert breaker.open("d", 101.0)


def test_facts_are_bounded_and_kept_by_use() -> None:
    """An endpoint that is asked for stays; the one that is not goes."""
    targets = Targets(limit=2)
    first = targets.get(("a", "m", "auto", False))
    targets.get(("b", "m", "auto", False))
    assert targets.get(("a", "m", "auto", False)) is first
    targets.get(("c", "m", "auto", False))
    assert targets.get(("a", "m", "auto", False)) is first
    assert targets.get(("b", "m", "auto", False)).reason == "not_probed"
    first.probing = True
    targets.get(("a", "m", "auto", False))
    targets.renew_locks()
    assert not first.probing, "a probe that the parent makes will not tell the child"
