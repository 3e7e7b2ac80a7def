"""The comparison of openai's own test-suite with both clients names every real difference (``make compat``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from compat_openai import Seen

sys.path.pop(0)


def test_a_test_that_one_client_fails_is_a_difference() -> None:
    """So is one that only one run knows; equal outcomes, failures too, are none."""
    theirs = {"a": "passed", "b": "failed", "c": "skipped", "d": "passed"}
    ours = {"a": "passed", "b": "failed", "c": "passed"}
    assert Seen(theirs, ours).different() == {"c": ({"skipped"}, {"passed"}), "d": ({"passed"}, {"missing"})}


def test_only_an_outcome_in_common_makes_it_unsteady() -> None:
    """Asked again, a test stays a difference until both clients have had the same outcome."""
    seen = Seen({"a": "passed", "b": "passed"}, {"a": "failed", "b": "failed"})
    seen.add(["a", "b"], {"a": "passed", "b": "failed"}, {"a": "failed", "b": "failed"})
    assert seen.different() == {"a": ({"passed"}, {"failed"})}
    assert set(seen.first) == {"a", "b"}
