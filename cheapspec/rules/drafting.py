"""Whole drafts for the rules: from given text, from the first model that writes one, or from all models at once.

Rules
-----
* Rules are about whole replies: a draft that was cut (by its length, a deadline, a lost connection) is none, and so is
  one that is longer than the caller allows the reply to be. A stop string of the caller's ends it, as it ends a reply.
* Draft models write at temperature 0 whatever the caller asked for: one draft is judged, and it is to be their best.
* Where rules compare drafts, every model is asked at once; a host that is busy with the others' drafts is asked again
  when one of them ends. Otherwise one model after the other, until one has written a whole draft.
* A draft with text that some endpoints read as a control token is none: it would be sent to the target as a message.
* Where the reply must be JSON, a draft that is nothing but one fenced block is what stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cheapspec.core.calls import Calls, Steps
from cheapspec.core.counting import estimate, size_of
from cheapspec.core.drafting import Draft as Drafted
from cheapspec.core.drafting import Drafting, given_draft
from cheapspec.core.effects import Note
from cheapspec.core.job import Policy
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.rules.forms import form_of
from cheapspec.rules.verdict import Draft

__all__ = ["Written", "draft_limit", "until_stop", "whole_drafts"]

_FENCED: Final = re.compile(r"\s*```[\w-]*\n(?P<inside>.*)\n```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Written:
    """A whole draft. ``tokens``: how many it has, as its model counts (of given text: estimated); ``pieces``: its text,
    token by token, for a stream.
    """

    draft: Draft
    tokens: int
    pieces: tuple[str, ...]


def until_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to the first stop string."""
    found = [place for place in (text.find(stop) for stop in stops if stop) if place >= 0]
    return text[: min(found)] if found else text


def draft_limit(request: Request, policy: Policy) -> int:
    """Tokens that a draft may have."""
    limits = (policy.max_draft_tokens, request.max_tokens)
    return min(limit for limit in limits if limit is not None)


def whole_drafts(
    calls: Calls, request: Request, drafters: Sequence[Drafter], policy: Policy, tally: Tally, *, every: bool
) -> Steps[list[Written] | NoDraft]:
    """Whole drafts, the one that would go out first; or why there is none. ``every``: one of each drafter."""
    limit, failure = draft_limit(request, policy), NoDraft("no_draft", "no drafter had anything to propose")
    made: list[Written] = []
    models: list[Drafter] = []
    for drafter in drafters:
        there = given_draft(drafter, request, "", limit)
        if there is None:
            models.append(drafter)
        elif there.tokens:
            found = _whole(there, request)
            if isinstance(found, Written):
                made.append(found)
    if made and not every:
        return made[:1]
    deadline = calls.now + policy.draft_seconds
    deadline = deadline if policy.latest is None else min(deadline, policy.latest)
    started, pool = calls.now, _Pool(calls, request, limit, deadline)
    try:
        if every:
            yield from pool.run(models)
        else:
            for drafter in models:
                yield from pool.run([drafter])
                if isinstance(_whole_of(pool, drafter, request), Written) or calls.now >= deadline:
                    break
    finally:  # also when the caller leaves meanwhile
        tally.seconds_draft += calls.now - started
        tally.local_tokens += sum(one.written for one in pool.asked.values())
    for drafter in models:
        if drafter.name not in pool.asked:
            continue
        result = pool.asked[drafter.name].result
        if isinstance(result, Drafted):
            facts = {"drafter": drafter.name, "tokens": pool.asked[drafter.name].written}
            yield Note("drafted", {**facts, "seconds": pool.seconds[drafter.name]})
        elif isinstance(result, NoDraft):
            told = {"reason": result.reason, "detail": result.detail, "broken": result.broken}
            yield Note("no_draft", {"drafter": drafter.name, **told})
        found = _whole_of(pool, drafter, request)
        if isinstance(found, Written):
            made.append(found)
        else:
            failure = found
    return made or failure


class _Pool:
    """Models that are asked at once. ``asked``: the last attempt of each; ``seconds``: how long it took."""

    def __init__(self, calls: Calls, request: Request, limit: int, deadline: float) -> None:
        self._calls = calls
        self._request = request
        self._limit = limit
        self._deadline = deadline
        self.asked: dict[str, Drafting] = {}
        self.seconds: dict[str, float] = {}

    def run(self, models: Sequence[Drafter]) -> Steps[None]:
        """Until each has a result. One whose host was busy waits for another's end."""
        waiting, open_ = list(models), dict[str, Drafting]()
        begun: dict[str, float] = {}
        while waiting or open_:
            for drafter in waiting:
                drafting = self.asked[drafter.name] = open_[drafter.name] = Drafting(self._calls, drafter)
                begun[drafter.name] = self._calls.now
                yield from drafting.begin(self._request, "", self._limit)
            waiting = list[Drafter]()
            in_time = True
            if all(one.result is None for one in open_.values()):
                in_time = yield from self._calls.step(self._deadline - self._calls.now)
            for one in open_.values():
                yield from one.pump()
                if not in_time or self._calls.now >= self._deadline:
                    yield from one.stop()
            for name in [name for name, one in open_.items() if one.result is not None]:
                ended = open_.pop(name)
                self.seconds[name] = self._calls.now - begun[name]
                busy = isinstance(ended.result, NoDraft) and ended.result.reason == "draft_busy"
                if busy and open_ and self._calls.now < self._deadline:
                    waiting.append(ended.drafter)


def _whole_of(pool: _Pool, drafter: Drafter, request: Request) -> Written | NoDraft:
    result = pool.asked[drafter.name].result
    assert result is not None
    return result if isinstance(result, NoDraft) else _whole(result, request)


def _whole(drafted: Drafted, request: Request) -> Written | NoDraft:
    text = until_stop(drafted.text, request.stops)
    name = drafted.drafter
    if drafted.end != "stop" and len(text) == len(drafted.text):
        if drafted.end is None and not drafted.static:
            return NoDraft("draft_deadline", f"{name} had not ended its draft in time")
        return NoDraft("no_draft", f"{name} drafted no whole reply (cut by its length or its host)")
    kept = drafted if len(text) == len(drafted.text) else drafted.until(len(text))
    if kept.sendable("").text != kept.text:
        return NoDraft("no_draft", f"the draft of {name} holds text that reads as a control token")
    if not text.strip():
        return NoDraft("no_draft", f"{name} drafted an empty reply")
    tokens = estimate(size_of(text)) if drafted.static else len(kept.tokens)
    pieces = tuple(token.text for token in kept.tokens)
    fenced = _FENCED.fullmatch(text) if request.formatted else None
    if fenced is not None:
        text = fenced["inside"]
        tokens, pieces = min(tokens, estimate(size_of(text))), (text,)
    return Written(Draft(text, True, name, form_of(name)), tokens, pieces)
