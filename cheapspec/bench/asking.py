"""Asks a drafter directly, outside any request: the bench's look at what a draft model would have said.

A failure is no draft (nothing is agreed there), since a clairvoyant without drafts saves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from cheapspec.bench.spoken import Drafted
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Request
from cheapspec.drive.drafts import DraftHosts

__all__ = ["DraftAsker"]


class DraftAsker:
    """Callable with a prefix of the reply; returns what ``drafter`` would write next, at most ``window`` tokens.

    Close it with :meth:`close`.
    """

    def __init__(self, drafter: Drafter, request: Request, window: int = 8) -> None:
        self._drafter = drafter
        self._request = request
        self._window = window
        self._hosts = DraftHosts()

    def close(self) -> None:
        """Free what the HTTP client holds."""
        self._hosts.close()

    def __call__(self, prefix: str) -> Sequence[Drafted]:
        """The next tokens after ``prefix``; empty when there is no draft."""
        draft = self._hosts.draft(self._drafter, self._request, prefix, self._window)
        if isinstance(draft, NoDraft):
            return ()
        out = [Drafted(token.text.encode(), token.logprob) for token in draft.tokens]
        if draft.end == "stop":
            out.append(Drafted(b"", None, end=True))
        return out
