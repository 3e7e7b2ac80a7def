"""A drafter along a recorded reply: where it would have agreed, and how sure it was of it.

Rules
-----
* The drafter writes freely after a part of the reply until it contradicts it, and again from behind the target's token
  that corrected it, as in production (:func:`cheapspec.bench.spoken.draft_row`). It is asked for more where it was
  right, and for less where it was wrong. Its first draft is its own whole reply, where somebody wants to compare that.
* The target's tokens are those that its log-probabilities name. Without them they are reconstructed
  (:func:`token_sizes`): word-like pieces of the text, as many as were billed. Money counts tokens, so it is right all
  the same; where exactly a draft is corrected is right to about a token.
* A drafter that has no draft there (its window is full, it does not take up the white space) agrees with nothing
  there. One whose host fails ends the estimate of this reply: :class:`DraftFailed`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cheapspec.bench.spoken import Drafted, Spoken, draft_row, static_row
from cheapspec.core.drafting import Draft
from cheapspec.core.lookup import Prediction
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Request
from cheapspec.core.traces import DraftRow, StaticRow
from cheapspec.drive.drafts import DraftHosts
from cheapspec.estimating.logs import Logged

__all__ = ["Along", "DraftFailed", "Rows", "spoken_of", "token_sizes"]

_PIECE = re.compile(r"\s?[^\W\d_]+|\s?\d{1,3}|\s?[^\w\s]+|\s+|_+")
_FIRST, _MOST = 16, 256  # tokens that are asked for at a time


class DraftFailed(Exception):
    """The draft host does not answer, or not with a draft."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What all drafters would have proposed. ``written``: the first model's own whole reply, if that was wanted."""

    drafts: tuple[DraftRow, ...]
    statics: tuple[StaticRow, ...]
    written: str | None = None


def token_sizes(text: str, count: int) -> tuple[int, ...]:
    """Bytes of ``count`` pieces of ``text`` (fewer, where it has fewer characters): words with the blank before them,
    numbers of three digits, marks; the longest halved, or the shortest joined, until their number is right.
    """
    pieces = [found.group() for found in _PIECE.finditer(text)]
    if not pieces or count < 1:
        return (len(text.encode()),) if text else ()
    while len(pieces) < count:
        longest = max(range(len(pieces)), key=lambda at: len(pieces[at]))
        whole = pieces[longest]
        if len(whole) < 2:
            break
        pieces[longest : longest + 1] = [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
    while len(pieces) > count:
        at = min(range(len(pieces) - 1), key=lambda at: len(pieces[at]) + len(pieces[at + 1]))
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return tuple(len(piece.encode()) for piece in pieces)


def spoken_of(logged: Logged) -> Spoken:
    """The reply token by token."""
    ending = logged.finish == "stop"
    sizes = logged.sizes
    if sizes is None:
        sizes = token_sizes(logged.text, logged.usage.output_tokens - ending)
    usage = logged.usage
    told = (*sizes, 0) if ending else sizes
    return Spoken(logged.text, told, logged.finish, usage.input_tokens, usage.cached_tokens or 0)


class Along:
    """Runs all drafters along replies. ``longest``: the longest draft that is asked for at once."""

    def __init__(self, drafters: Sequence[Drafter], hosts: DraftHosts, longest: int) -> None:
        self._drafters = tuple(drafters)
        self._hosts = hosts
        self._longest = longest

    def rows(self, request: Request, said: Spoken, *, whole: bool = False) -> Rows:
        """``whole``: have the first model's own whole reply written too.

        :raises DraftFailed: a draft host fails.
        """
        mean = max(len(said.data) / max(said.texts, 1), 1.0)
        drafts: list[DraftRow] = []
        statics: list[StaticRow] = []
        written: str | None = None
        given = (Prediction(),) if request.prediction is not None else ()
        for drafter in (*given, *self._drafters):
            if drafter.propose(request, "", 1) is not None:
                statics.append(
                    static_row(drafter, request, said, lambda text: max(1, round(len(text.encode()) / mean)))
                )
                continue
            ask = _Ask(drafter, request, self._hosts, self._longest)
            if whole and written is None:
                written = ask.whole(_room(request, said, self._longest))
            drafts.append(draft_row(ask, said, drafter.name))
        return Rows(tuple(drafts), tuple(statics), written)

    def reply(self, request: Request, said: Spoken) -> str | None:
        """The first model's own whole reply alone, ``None`` without one. :raises DraftFailed: its host fails."""
        for drafter in self._drafters:
            if drafter.propose(request, "", 1) is None:
                return _Ask(drafter, request, self._hosts, self._longest).whole(_room(request, said, self._longest))
        return None


def _room(request: Request, said: Spoken, longest: int) -> int:
    """How long the draft model's own reply may be: as long as the caller allows, and twice the recorded one."""
    return min(longest, request.max_tokens or longest, 2 * len(said.sizes) + _FIRST)


class _Ask:
    """What :func:`draft_row` asks. ``_next``: the text after which the last answer ended, if all of it was taken."""

    def __init__(self, drafter: Drafter, request: Request, hosts: DraftHosts, longest: int) -> None:
        self._drafter = drafter
        self._request = request
        self._hosts = hosts
        self._longest = longest
        self._window = _FIRST
        self._next: str | None = None
        self._kept: Draft | None = None

    def whole(self, max_tokens: int) -> str | None:
        """The drafter's own reply, if it ended it; kept for the row that begins with it."""
        found = self._draft("", max_tokens)
        self._kept = found
        return found.text if found is not None and found.end == "stop" else None

    def __call__(self, prefix: str) -> Sequence[Drafted]:
        if not prefix and self._kept is not None:
            found: Draft | None = self._kept
        else:
            right = self._next == prefix
            self._window = min(_MOST, self._longest, self._window * 2 if right else _FIRST)
            found = self._draft(prefix, self._window)
        if found is None:
            return ()
        self._next = prefix + found.text
        told = [Drafted(token.text.encode("utf-8", "replace"), token.logprob) for token in found.tokens]
        return [*told, Drafted(b"", None, end=True)] if found.end == "stop" else told

    def _draft(self, prefix: str, max_tokens: int) -> Draft | None:
        found = self._hosts.draft(self._drafter, self._request, prefix, max_tokens)
        if not isinstance(found, NoDraft):
            return found
        if found.broken or found.reason in ("draft_busy", "draft_deadline"):
            raise DraftFailed(found.detail or found.reason)
        return None
