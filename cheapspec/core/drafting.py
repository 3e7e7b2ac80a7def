"""Getting one draft: from given text at once (:func:`given_draft`), or from a model through its stream.

Rules
-----
* A draft is used as far as it came: a deadline or a cut stream leaves the text so far, with nothing
  claimed about its end. A draft whose drafter reports a problem is not used at all.
* What cannot be sent as plain text is never sent: a draft is cut before anything that a raw endpoint
  would read as a control token, alone or together with the text before it, and before half of a
  surrogate pair, which no UTF-8 body can carry.
* A host that is merely busy has not failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.calls import Calls, OpTask, Steps, StreamTask
from cheapspec.core.effects import Side
from cheapspec.core.lookup import Prediction
from cheapspec.core.ports import Drafter, DraftPiece, NoDraft, Streaming, Unusable
from cheapspec.core.request import Request
from cheapspec.core.text import special_cut

__all__ = ["Draft", "Drafting", "given_draft", "slice_tokens"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_SPECIAL = 32  # characters of the verified text that a control token may begin in


@dataclass(frozen=True, slots=True)
class Draft:
    """Text proposed after the verified prefix. ``end`` as in :class:`DraftPiece`; ``static`` drafts come
    from given text (prompt lookup, the caller's prediction), not from a model.
    """

    tokens: tuple[DraftToken, ...]
    drafter: str
    end: str | None = None
    static: bool = False

    @property
    def text(self) -> str:
        """The tokens, joined."""
        return "".join(token.text for token in self.tokens)

    def head(self, count: int) -> Draft:
        """The first ``count`` tokens; a shortened draft claims nothing about its end."""
        return self if count >= len(self.tokens) else replace(self, tokens=self.tokens[:count], end=None)

    def after(self, text: str) -> Draft:
        """What is left once ``text`` was verified: nothing where the draft said something else."""
        goes_on = self.text.startswith(text)
        rest = slice_tokens(self.tokens, len(text), len(self.text)) if goes_on else ()
        return replace(self, tokens=rest)

    def sendable(self, before: str) -> Draft:
        """Cut before the first text that must not be sent after ``before``, the verified reply so far."""
        text = self.text
        tail = before[-_LONGEST_SPECIAL:].rpartition(" ")[2]
        if special_cut(tail) < len(tail):  # the target itself wrote it, and went on
            tail = ""
        cut = max(0, special_cut(tail + text) - len(tail))
        half = _SURROGATE.search(text, 0, cut)
        cut = half.start() if half else cut
        return self if cut >= len(text) else self.until(cut)

    def until(self, offset: int) -> Draft:
        """The draft up to a character offset of its text."""
        return replace(self, tokens=slice_tokens(self.tokens, 0, offset), end=None)


def slice_tokens(tokens: Sequence[DraftToken], start: int, stop: int) -> tuple[DraftToken, ...]:
    """The tokens between two character offsets; one that is cut loses its log-probability."""
    out: list[DraftToken] = []
    position = 0
    for token in tokens:
        low, high = max(start, position), min(stop, position + len(token.text))
        if low < high:
            whole = high - low == len(token.text)
            out.append(token if whole else DraftToken(token.text[low - position : high - position]))
        position += len(token.text)
    return tuple(out)


def given_draft(drafter: Drafter, request: Request, prefix: str, max_tokens: int) -> Draft | None:
    """The draft of given text, without tokens where there is none; ``None``: ``drafter`` is a model and must be asked.
    The caller's prediction, if there is room for all of it, ends with the reply.
    """
    proposal = drafter.propose(request, prefix, max_tokens)
    if proposal is None:
        return None
    whole = drafter.name == Prediction.name and len(proposal) < max_tokens
    return Draft(tuple(token for token in proposal if token.text), drafter.name, "stop" if whole else None, static=True)


class Drafting:
    """One attempt to get a draft from a model. ``result`` is ``None`` while it is under way."""

    def __init__(self, calls: Calls, drafter: Drafter) -> None:
        self._calls = calls
        self.drafter = drafter
        self._op: OpTask[Streaming[DraftPiece] | NoDraft] | None = None
        self._stream: StreamTask[DraftPiece] | None = None
        self._tokens: list[DraftToken] = []
        self.result: Draft | NoDraft | None = None

    @property
    def written(self) -> int:
        """Tokens that the model has written, as far as they came."""
        return len(self._tokens)

    def begin(self, request: Request, prefix: str, max_tokens: int) -> Steps[None]:
        """Ask. A limit of 0 asks nobody (some servers read 0 as "no limit")."""
        if max_tokens < 1:
            self.result = NoDraft("no_draft", "no room for a draft")
            return
        op = self.drafter.draft(request, prefix, max_tokens)
        self._op = yield from self._calls.op(op, Side.DRAFT, self.drafter.base_url)
        yield from self.pump()

    def _settle(self, tokens: Sequence[DraftToken], end: str | None) -> None:
        told = tuple(token for token in tokens if token.text)
        if told:
            self.result = Draft(told, self.drafter.name, end)
        else:
            self.result = NoDraft("no_draft", f"{self.drafter.name} drafted nothing")

    def pump(self) -> Steps[None]:
        """Take what has arrived. Call it after every step."""
        if self.result is not None:
            return
        if self._stream is None:
            if self._op is None or not self._op.done:
                return
            answer = self._op.value
            if isinstance(answer, NoDraft):
                self.result = self._broken(answer)
                return
            self._stream = yield from self._calls.stream(answer, Side.DRAFT, self.drafter.base_url)
        yield from self._drain(self._stream)

    def _broken(self, answer: NoDraft) -> NoDraft:
        broke = self._op.broke if self._op is not None else None
        if broke is None:
            return answer
        if broke.kind == "busy":
            return NoDraft("draft_busy", broke.message)
        return NoDraft(answer.reason, f"{answer.detail}: {broke.message}" if broke.message else answer.detail, True)

    def _drain(self, stream: StreamTask[DraftPiece]) -> Steps[None]:
        while stream.pieces:
            piece = stream.pieces.popleft()
            if piece.problem is not None:
                self.result = piece.problem
                yield from self._calls.cancel(stream)
                return
            self._tokens.extend(piece.tokens)
            if piece.end is not None:
                self._settle(self._tokens, piece.end)
                return
        if not stream.ended:
            return
        if stream.refused is not None:
            refused = stream.refused
            assert not isinstance(refused, Unusable)
            self.result = refused
        elif stream.broke is not None and stream.broke.kind == "busy":
            self.result = NoDraft("draft_busy", stream.broke.message)
        elif stream.broke is not None and not self._tokens:
            self.result = NoDraft("no_draft", f"{self.drafter.name}: {stream.broke.message}", True)
        else:
            self._settle(self._tokens, "cut")

    def stop(self) -> Steps[None]:
        """The deadline has come: use what there is. A host that has not answered at all is left to
        finish in the background, so that a model being loaded is not made to start again.
        """
        if self.result is not None:
            return
        task = self._stream or self._op
        assert task is not None
        opened = self._stream is not None and self._stream.opened
        yield from self._calls.cancel(task, linger=not opened)
        if self._tokens:
            self._settle(self._tokens, None)
        else:
            self.result = NoDraft("draft_deadline", f"{self.drafter.name} gave no text in time")
