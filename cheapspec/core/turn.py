"""The reply under construction: what is verified, what the caller has been shown, how it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

from cheapspec.core.calls import CallerGone, Calls
from cheapspec.core.effects import Cancelled, Effect, Emit, Event, Finish, Source
from cheapspec.core.outlet import Outlet
from cheapspec.core.ports import Context
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.core.text import safe_cut

__all__ = ["Steps", "Turn"]

T = TypeVar("T")
Steps = Generator[Effect, Event | None, T]


class Turn:
    """State shared by rounds and hand-off. ``context`` is the verified truth; ``outlet`` what went out."""

    def __init__(self, request: Request, tally: Tally, at: float) -> None:
        self.request = request
        self.tally = tally
        self.started = at
        self.calls = Calls(at)
        self.context = Context()
        self.outlet = Outlet(request.stops)
        self._pending: deque[tuple[str, Source]] = deque()
        self._fed = 0

    def remaining(self) -> int | None:
        """Reply tokens that the caller's limit still allows; ``None``: no limit."""
        limit = self.request.max_tokens
        return None if limit is None else max(0, limit - self.context.tokens)

    def restartable(self) -> bool:
        """Nothing has reached the caller yet, so the whole request may still go direct."""
        return not self.request.stream or self.outlet.shown == 0

    def show(self, accepted: str, follow: str) -> Steps[None]:
        """Queue verified text and feed what may go out. A text route holds back what lies beyond the
        last edge from which the target could continue.
        """
        for text, source in ((accepted, Source.DRAFT), (follow, Source.TARGET)):
            if text:
                self._pending.append((text, source))
        whole = self.context.ids is not None
        limit = len(self.context.text) if whole else safe_cut(self.context.text)
        yield from self._feed(limit - self._fed)

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
        yield from self._emit(self.outlet.feed(text, source))

    def _emit(self, emissions: Sequence[Emit]) -> Steps[None]:
        for emission in emissions:
            answer = yield emission
            if isinstance(answer, Cancelled):
                raise CallerGone

    def forget_pending(self) -> None:
        """The hand-off will write this text again."""
        self._pending.clear()

    def finish(self, reason: str | None) -> Steps[None]:
        """The reply is whole."""
        yield from self._feed(len(self.context.text))
        yield from self._emit(self.outlet.flush())
        yield self._end("stop" if self.outlet.hit else reason, None)

    def fail(self, error: Mapping[str, Any]) -> Steps[None]:
        """The reply breaks off; what was shown stays."""
        yield self._end(None, error)

    def _end(self, reason: str | None, error: Mapping[str, Any] | None) -> Finish:
        prompt = self.context.prompt_tokens
        output = self.context.tokens + self.tally.end_token
        self.tally.finish(self.calls.now - self.started, prompt, output)
        return Finish(reason, self.tally.reply_usage(prompt, output), error)
