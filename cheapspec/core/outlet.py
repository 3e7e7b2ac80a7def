"""The last stretch before the caller: stop strings, and who wrote which character.

Text is fed in order with its source; what comes back is safe to show and is never taken back. Text
that may be the start of a stop string waits, across every seam: draft/correction/hand-off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cheapspec.core.effects import Emit, Source
from cheapspec.core.text import StopScanner

__all__ = ["Outlet"]


class Outlet:
    """``shown``: characters released so far. ``hit``: a stop string was met; nothing follows it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._scanner = StopScanner(stops)
        self._waiting: deque[tuple[Source, int]] = deque()
        self.shown = 0
        self.hit = False

    @property
    def holding(self) -> bool:
        """Text waits that may be the start of a stop string."""
        return bool(self._waiting)

    def feed(self, text: str, source: Source) -> list[Emit]:
        """Take text, return what may be shown."""
        if self.hit or not text:
            return []
        self._waiting.append((source, len(text)))
        released, self.hit = self._scanner.feed(text)
        return self._label(released)

    def flush(self) -> list[Emit]:
        """The reply is over: what was held back is harmless."""
        return [] if self.hit else self._label(self._scanner.flush())

    def _label(self, text: str) -> list[Emit]:
        out: list[Emit] = []
        self.shown += len(text)
        while text:
            source, length = self._waiting.popleft()
            part, text = text[:length], text[length:]
            if length > len(part):
                self._waiting.appendleft((source, length - len(part)))
            out.append(Emit(part, source))
        return out
