"""A draft that is only assumed is like what was measured, or learned."""

from __future__ import annotations

from collections import Counter

import pytest

from cheapspec.core.assumed import MIX, assumed_draft, assumed_prompt
from cheapspec.core.estimate import END, Count, Estimates, bucket_of
from cheapspec.core.request import Request


def test_without_experience_it_is_like_the_measured_table() -> None:
    """Classes occur in the measured shares, in the first hundred tokens as in the whole."""
    draft = assumed_draft("small", Estimates(), 1000, finished=True)
    assert (len(draft.tokens), draft.drafter, draft.end, draft.static) == (1000, "small", "stop", False)
    for part in (draft.tokens, draft.tokens[:100]):
        seen = Counter(bucket_of(token.logprob) for token in part)
        assert seen["0.99"] / len(part) == pytest.approx(MIX[-1] / sum(MIX), abs=0.02)
        assert seen["0.9"] / len(part) == pytest.approx(MIX[-2] / sum(MIX), abs=0.02)


def test_what_the_workload_has_shown_counts_more() -> None:
    """Half of this drafter's tokens were unsure and half of unknown probability; ends and other drafters do not
    matter."""
    seen = {
        ("small", "0.5"): Count(30, 20),
        ("small", "unknown"): Count(30, 20),
        ("small", END): Count(50, 50),
        ("small", "static"): Count(9, 9),
        ("other", "0.99"): Count(500, 500),
    }
    for estimates in (Estimates(seen), Estimates({}, seen)):
        draft = assumed_draft("small", estimates, 40)
        assert Counter(bucket_of(token.logprob) for token in draft.tokens) == {"0.5": 20, "unknown": 20}
        assert draft.end is None
    assert len(assumed_draft("small", Estimates(seen), 0).tokens) == 0


def test_a_prompt_is_counted_on_the_long_side() -> None:
    """Three bytes a token, and eight tokens for what a template puts around a message."""
    messages = ({"role": "system", "content": "x" * 30}, {"role": "user", "content": "y" * 60})
    assert assumed_prompt(Request("chat", {}, "m", False, messages)) == 8 + 10 + 8 + 20 + 8
    assert assumed_prompt(Request("completion", {}, "m", False, prompt="z" * 300)) == 108
