"""What a round leaves behind for replay and calibration: numbers along the final reply, never text.

Rules
-----
* A trace says what was looked at: the scored tokens up to the first that did not hold, that one included. Tokens are
  the target's, and so is the position of the first of them in the reply.
* A draft token's log-probability goes to the target token that it begins in; where several begin they add up, where
  none begins the entry is 0.0: a draft token that spans several of the target's is one decision. One unknown makes its
  entry unknown. Given text has no log-probabilities.
* Agreement is with what the target itself says. A token that holds by lenience only did not agree, and a request's
  trace ends there: what is verified after it does not follow the target's own reply. Agreement with a draw is another
  thing than with the argmax, and rarer; its drafters have names of their own (``SAMPLED``, as the estimates have).
* Where a whole draft held and the draft model had ended its turn after it, that claim is one more entry, without a
  log-probability: it agreed if the target ended its turn there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from cheapspec.core.drafting import Draft
from cheapspec.core.effects import Note
from cheapspec.core.tally import Tally

__all__ = ["align", "trace_note"]


def trace_note(
    tally: Tally,
    position: int,
    scored: Draft,
    ends: Sequence[int | None],
    accepted: int,
    *,
    missed: bool,
    ended: bool,
    tag: str = "",
) -> Note:
    """The note ``trace`` of the round that ``tally`` counted last: the fields of :class:`cheapspec.core.books.Trace`
    without the request.

    ``ends``: offset in the draft's text after each scored token (:class:`cheapspec.core.ports.Score`). ``accepted``:
    how many of them hold; ``missed``: the next one was looked at and does not. ``ended``: the target ended its turn
    after this round. ``tag``: what sets these rates apart from others of the drafter's.
    """
    claimed = not missed and accepted == len(ends) and scored.end == "stop"
    looked_at = accepted + missed
    logprobs = (None,) * looked_at if scored.static else align(scored, ends[:looked_at])
    agreed = (True,) * accepted + (False,) * missed
    if claimed:
        logprobs, agreed = (*logprobs, None), (*agreed, ended)
    data = {
        "round": tally.rounds,
        "drafter": scored.drafter + tag,
        "position": position,
        "logprobs": logprobs,
        "agreed": agreed,
        "ended": ended,
        "model": tally.identity.model,
    }
    return Note("trace", data)


def align(draft: Draft, ends: Sequence[int | None]) -> tuple[float | None, ...]:
    """The draft's log-probabilities by the target's tokens, whose ends (characters) these are. A token that ends
    inside a character has no end: what begins in it counts for the one that completes the character.
    """
    entries: list[float | None] = []
    index, start = 0, 0
    for end in ends:
        entry: float | None = 0.0
        while end is not None and index < len(draft.tokens) and start < end:
            token = draft.tokens[index]
            entry = None if entry is None or token.logprob is None else entry + token.logprob
            start += len(token.text)
            index += 1
        entries.append(entry)
    return tuple(entries)
