"""The reply under construction: what is verified, what the caller has been shown, what it cost, how it ends.

Rules
-----
* On a route by token ids verified text is shown at once. On a text route what lies beyond the last safe
  edge waits: a hand-off would write it again.
* Text beyond a stop string is not part of the reply, and neither are its tokens: the count ends with the
  token that completes the stop string, as the target's own would.
* A billed call is booked once: by its report, or by what is ``owed`` for it as far as it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cheapspec.core.calls import Calls, Steps
from cheapspec.core.drafting import Draft
from cheapspec.core.effects import Finish, Note, Source, Usage
from cheapspec.core.estimate import Estimates
from cheapspec.core.outlet import Outlet
from cheapspec.core.ports import Context
from cheapspec.core.priors import RequestRates
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.core.text import safe_cut

__all__ = ["Turn"]


class Turn:
    """State shared by rounds and hand-off.

    ``context`` is the verified truth, ``outlet`` what went out. ``owed``: what the billed call under way is thought to
    cost so far, for the case that nobody will say. ``rates``: what is believed of drafts. ``committed``: the allowance
    was asked to bear going on from what is verified, not beginning anew.
    """

    def __init__(
        self,
        request: Request,
        tally: Tally,
        at: float,
        estimates: Estimates | None = None,
        lenient: float | None = None,
    ) -> None:
        self.request = request
        self.tally = tally
        self.started = at
        self.calls = Calls(at)
        self.rates = RequestRates(estimates or Estimates(), request.samples, lenient)
        self.context = Context()
        self.outlet = Outlet(request.stops)
        self.owed = Usage(estimated=True)
        self.committed = False
        self._pending: deque[tuple[str, Source]] = deque()
        self._fed = 0
        self._ends: list[int | None] = []  # where each verified token ends in the reply, as far as known

    # --- the caller's limits -----------------------------------------------------------------

    def remaining(self) -> int | None:
        """Reply tokens that the caller's limit still allows; ``None``: no limit."""
        limit = self.request.max_tokens
        return None if limit is None else max(0, limit - self.context.tokens)

    def stopped(self) -> bool:
        """The verified text holds a stop string, shown up to it or not."""
        return any(stop in self.context.text for stop in self.request.stops)

    def restartable(self) -> bool:
        """Nothing has reached the caller yet, so the whole request may still go direct."""
        return not self.request.stream or self.outlet.shown == 0

    # --- verified text -----------------------------------------------------------------------

    def verify(self, context: Context, drafted: int, ends: Sequence[int | None]) -> Steps[None]:
        """Take a longer context and show what may be shown.

        ``drafted``: how many of the new characters the draft wrote (the target wrote the rest). ``ends``:
        offsets in the new text after its tokens (characters, ``None``: not known).
        """
        before, new = self.context, context.text[len(self.context.text) :]
        base, gained = len(before.text), context.tokens - before.tokens
        known = [None if end is None else base + end for end in ends[:gained]]
        self._ends += [*known, *[len(context.text)] * (gained - len(known))]
        self.context = context
        self._pending += [(new[:drafted], Source.DRAFT), (new[drafted:], Source.TARGET)]
        limit = len(context.text) if context.ids is not None else safe_cut(context.text)
        yield from self._feed(limit - self._fed)

    def learn(self, scored: Draft, offset: int, *, missed: bool, ended: bool | None = None) -> Steps[None]:
        """A round accepted ``scored`` up to a character offset; ``missed``: the target said something else there;
        ``ended``: whether it ended its turn where all of the draft was accepted and claimed so.
        """
        held, end = 0, 0
        for token in scored.tokens:
            end += len(token.text)
            held += end <= offset
        logprobs = [token.logprob for token in scored.tokens]
        delta = self.rates.learn(scored.drafter, logprobs, held, missed=missed, static=scored.static, ended=ended)
        if delta:
            yield Note("estimates", {"delta": delta})

    def retreat(self) -> str:
        """Before a hand-off by text: forget what was verified beyond the last safe edge, and return it."""
        text = self.context.text
        cut = safe_cut(text)
        self.context = replace(self.context, text=text[:cut], tokens=self._tokens_to(cut))
        del self._ends[self.context.tokens :]
        self._pending.clear()
        return text[cut:]

    def _tokens_to(self, cut: int) -> int:
        """Verified tokens up to an offset of the text."""
        kept = [number for number, end in enumerate(self._ends, 1) if end is not None and end <= cut]
        proportional = round(self.context.tokens * cut / max(len(self.context.text), 1))  # nobody said where they end
        return max(kept, default=proportional)

    def _feed(self, length: int) -> Steps[None]:
        while self._pending and length > 0:
            text, source = self._pending.popleft()
            part = text[:length]
            if len(part) < len(text):
                self._pending.appendleft((text[length:], source))
            length -= len(part)
            self._fed += len(part)
            yield from self.say(part, source)

    def say(self, text: str, source: Source) -> Steps[None]:
        """Through the stop strings to the caller."""
        yield from self.outlet.feed(text, source)

    # --- money -------------------------------------------------------------------------------

    def tell(self) -> None:
        """Into the tally: what of the direct call's bill is certain."""
        context = self.context
        self.tally.known_prompt_tokens = context.prompt_tokens
        self.tally.known_reply_tokens = (
            context.tokens if context.ids is not None else self._tokens_to(safe_cut(context.text))
        )

    def owe(self, more_input: int, output: int) -> None:
        """A billed call shows the context and ``more_input`` tokens, and has given ``output`` so far."""
        seen = (self.context.prompt_tokens or 0) + self.context.tokens
        self.owed = Usage(seen + more_input, output, estimated=True)

    def book(self, usage: Usage | None = None) -> Steps[None]:
        """Put the cost of the last billed call into the tally, unless it was free or is booked already.

        ``usage``: what was reported; without it the estimate counts.
        """
        call_id, self.calls.unbooked = self.calls.unbooked, None
        if call_id is not None:
            usage = usage or self.owed
            self.tally.spend(usage)
            yield Note("usage", {"call_id": call_id, "usage": usage})

    # --- the end -----------------------------------------------------------------------------

    def finish(self, reason: str | None, end_token: int = 0) -> Steps[None]:
        """The reply is whole. ``end_token``: 1 when an end-of-turn token was verified."""
        yield from self._feed(len(self.context.text))
        yield from self.outlet.flush()
        if not self.outlet.hit:
            yield self._end(reason, self.context.tokens + end_token, None)
            return
        begins, text = self.outlet.shown, self.context.text
        end = begins + min(len(stop) for stop in self.request.stops if text.startswith(stop, begins))
        counts = (number for number, known in enumerate(self._ends, 1) if known is not None and known >= end)
        yield self._end("stop", next(counts, self.context.tokens), None)

    def fail(self, error: Mapping[str, Any]) -> Steps[None]:
        """The reply breaks off; what was shown stays."""
        yield self._end(None, self.context.tokens, error)

    def _end(self, reason: str | None, output: int, error: Mapping[str, Any] | None) -> Finish:
        prompt = self.context.prompt_tokens
        self.tally.finish(self.calls.now - self.started, prompt, output)
        return Finish(reason, self.tally.reply_usage(prompt, output), error)
