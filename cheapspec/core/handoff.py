"""The hand-off: the target writes the rest, from the verified prefix.

Rules
-----
* On a route by token ids the target continues after any token. On a text route it continues only from
  a safe edge: verified text beyond the edge is forgotten and written again.
* Some servers say the prefix again, or swallow the space at the seam. The first words of a text route
  are held until that is decided (:func:`~cheapspec.core.text.join_continuation`).
* A stream is whole when it showed an end sign. One that breaks off is continued from what was
  received, where the token ids of that are known, as long as the driver allows another call.
* What the call cost is booked from its usage report, or estimated from what arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cheapspec.core.calls import StreamTask
from cheapspec.core.effects import GoDirect, Note, Side, Source, Usage
from cheapspec.core.ports import Context, NoDraft, Target, TargetPiece
from cheapspec.core.text import join_continuation, safe_cut
from cheapspec.core.turn import Steps, Turn

__all__ = ["hand_off"]


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a hand-off did not come to its end. ``resumable``: continuing may help."""

    message: str
    code: object = None
    kind: str = "upstream_error"
    resumable: bool = False


class _Seam:
    """Holds the first words of a text route until it is clear how they join the prefix.

    ``lost``: white space that the verified text has after the edge.
    """

    def __init__(self, prefix: str, lost: str) -> None:
        self._prefix = prefix
        self._lost = lost[: len(lost) - len(lost.lstrip())]
        self._held = ""
        self._open = bool(prefix)

    def feed(self, text: str, *, last: bool = False) -> str:
        if not self._open:
            return text
        self._held += text
        if not last and len(self._held) <= len(self._prefix):
            sentence = self._prefix[-len(self._held) :] if self._held else ""
            if not self._held or self._held.strip() in self._prefix or sentence == self._held:
                return ""
        self._open = False
        joined = join_continuation(self._prefix, self._held)
        if joined and self._lost and not joined[0].isspace():
            joined = self._lost + joined
        return joined


def hand_off(turn: Turn, target: Target) -> Steps[None]:
    """Ends the reply, or goes direct where nothing was shown and the target does not continue."""
    started = turn.calls.now
    lost = ""
    if turn.context.ids is None:
        text = turn.context.text
        cut = safe_cut(text)
        lost = text[cut:]
        share = cut / len(text) if text else 1.0
        turn.context = replace(turn.context, text=text[:cut], tokens=round(turn.context.tokens * share))
        turn.forget_pending()
    while True:
        trouble = yield from _Relay(turn, target, lost).run()
        turn.tally.seconds_handoff = turn.calls.now - started
        if trouble is None:
            return
        if not trouble.resumable:
            break
    yield Note("handoff_failed", {"message": trouble.message, "code": trouble.code})
    if turn.restartable():
        yield GoDirect("cannot_score", f"the target did not continue: {trouble.message}")
        return
    yield from turn.fail({"message": trouble.message, "type": trouble.kind, "param": None, "code": trouble.code})


class _Relay:
    """One continuing call, piece by piece to the caller."""

    def __init__(self, turn: Turn, target: Target, lost: str) -> None:
        self.turn = turn
        self.target = target
        self.base = turn.context
        self.seam = _Seam(turn.context.text if turn.context.ids is None else "", lost)
        self.text = ""
        self.tokens = 0
        self.ids: tuple[int, ...] | None = ()
        self.usage: Usage | None = None
        self.reason: str | None = None
        self.complete = False
        self.trouble: _Trouble | None = None

    def run(self) -> Steps[_Trouble | None]:
        turn = self.turn
        streaming = self.target.continue_(turn.request, self.base, turn.remaining())
        task = yield from turn.calls.stream(streaming, Side.TARGET)
        while self.trouble is None and not turn.outlet.hit:
            while task.pieces and self.trouble is None and not turn.outlet.hit:
                yield from self._piece(task.pieces.popleft())
            if task.ended and not task.pieces:
                break
            if self.trouble is None and not turn.outlet.hit:
                yield from turn.calls.step()
        yield from turn.calls.cancel(task)
        if self.trouble is None and not turn.outlet.hit:
            yield from self._say("", last=True)
        yield from self._book(task)
        if turn.outlet.hit or (self.complete and self.trouble is None):
            yield from turn.finish(self.reason or "stop")
            return None
        return self.trouble or self._why(task)

    def _piece(self, piece: TargetPiece) -> Steps[None]:
        if piece.identity is not None:
            self.turn.tally.identify(piece.identity)
        if piece.usage is not None:
            self.usage = piece.usage
        if piece.error is not None:
            message = str(piece.error.get("message") or "the target reported an error in its stream")
            self.trouble = _Trouble(message, piece.error.get("code"), str(piece.error.get("type") or "upstream_error"))
            return
        self.complete = self.complete or piece.complete
        self.reason = piece.finish_reason or self.reason
        if piece.ids is not None:
            self.ids = None if self.ids is None else self.ids + piece.ids
        elif piece.text:
            self.ids = None
        self.tokens += piece.tokens if piece.tokens is not None else bool(piece.text)
        yield from self._say(piece.text)

    def _say(self, text: str, *, last: bool = False) -> Steps[None]:
        joined = self.seam.feed(text, last=last)
        self.text += joined
        yield from self.turn.say(joined, Source.TARGET)

    def _book(self, task: StreamTask[TargetPiece]) -> Steps[None]:
        """Count what the call cost and add what it wrote to the verified text."""
        turn, base = self.turn, self.base
        refused = task.refused is not None or (task.broke is not None and not task.opened)
        if not refused or self.usage is not None:
            context_tokens = (base.prompt_tokens or 0) + base.tokens
            usage = self.usage or Usage(context_tokens, self.tokens, estimated=True)
            self.tokens = self.tokens if turn.outlet.hit else usage.output_tokens
            turn.tally.spend(usage)
            turn.tally.handoff_tokens += self.tokens
            yield Note("usage", {"call_id": task.call_id, "usage": usage})
        ids = None if base.ids is None or self.ids is None else base.ids + self.ids
        known = base.ids is None or ids is not None
        tokens = len(self.ids) if self.ids and not self.complete else self.tokens
        turn.context = Context(
            prompt_tokens=base.prompt_tokens,
            text=base.text + self.text,
            tokens=base.tokens + tokens,
            ids=ids if known else base.ids,
            extra=base.extra,
        )

    def _why(self, task: StreamTask[TargetPiece]) -> _Trouble:
        refused = task.refused
        if refused is not None:
            status = task.error_reply.status if task.error_reply is not None else None
            assert not isinstance(refused, NoDraft)
            return _Trouble(refused.detail or refused.reason, status)
        exhausted = task.broke is not None and task.broke.kind == "exhausted"
        resumable = not exhausted and self.base.ids is not None and self.ids is not None
        message = task.broke.message if task.broke is not None else "the target's stream ended without an end sign"
        return _Trouble(message, None, "connection_error", resumable)
