"""The hand-off: the target writes the rest, from the verified prefix.

Rules
-----
* On a route by token ids the target continues after any token. On a text route it continues only from
  a safe edge: verified text beyond the edge is forgotten and written again.
* Some servers say the prefix again, or swallow the space at the seam. The first words of a text route
  are held until that is decided (:func:`~cheapspec.core.text.join_continuation`).
* A server looks for stop strings in its own words only. Where the verified text may end in the start of
  one, the server is not told any (it would hide the text that completes it): they are found here, and
  the call is given up there.
* A stream is whole when it showed an end sign. One that breaks off is continued from what was received,
  where text and token ids of that are known to agree, as long as the driver allows another call and the
  calls get on. With stop strings they never agree: servers hold text back that may be the start of one.
  A stream that lacks only its end sign is whole.
* Where nothing at all was verified there is nothing to hand off: the request goes direct (it costs the same,
  and a first token that is no text, such as the opening of thoughts, is the chat route's to read).
* Trouble before anything reached the caller means: go direct. After that the reply breaks off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cheapspec.core.calls import Steps, StreamTask
from cheapspec.core.effects import GoDirect, Note, Side, Source, Usage
from cheapspec.core.ports import Context, NoDraft, Target, TargetPiece
from cheapspec.core.sampling import SeededDraws
from cheapspec.core.text import join_continuation, may_repeat
from cheapspec.core.turn import Turn

__all__ = ["hand_off"]

_FRUITLESS = 2  # continuing calls in a row that brought nothing


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a hand-off did not come to its end. ``resumable``: continuing may help. ``short``: the stream ended
    in order, but without an end sign, which only we can tell. ``exhausted``: the driver allows no further call,
    which says nothing of what was wrong with the ones before.
    """

    message: str
    code: object = None
    kind: str = "upstream_error"
    resumable: bool = False
    short: bool = False
    exhausted: bool = False


class _Seam:
    """Holds the first words of a text route until it is clear how they join the prefix.

    ``lost``: verified text after the edge, which the target is about to write again.
    """

    def __init__(self, prefix: str, lost: str) -> None:
        self._prefix = prefix
        self._space = lost[: len(lost) - len(lost.lstrip())]
        self._held = ""
        self._open = bool(prefix)

    def feed(self, text: str, *, last: bool = False) -> str:
        if not self._open:
            return text
        self._held += text
        if not last and may_repeat(self._prefix, self._held):
            return ""
        self._open = False
        joined = join_continuation(self._prefix, self._held)[len(self._prefix) :]
        return self._space + joined if joined and not joined[0].isspace() else joined


def hand_off(turn: Turn, target: Target) -> Steps[None]:
    """Ends the reply, or goes direct where nothing was shown and the target does not continue."""
    if turn.context.tokens == 0 and turn.restartable():
        yield GoDirect("rejected", "the target would have begun with another token, which cannot be shown by itself")
        return
    lost = turn.retreat() if turn.context.ids is None else ""
    fruitless = 0
    earlier: _Trouble | None = None
    while True:
        before = turn.context.tokens
        trouble = yield from _Relay(turn, target, lost, again=earlier is not None).run()
        if trouble is None:
            return
        if trouble.exhausted:
            trouble = earlier or trouble
            break
        earlier = trouble
        if trouble.short:
            yield Note("cut_short", {"message": trouble.message})
        fruitless = 0 if turn.context.tokens > before else fruitless + 1
        if not trouble.resumable or fruitless == _FRUITLESS:
            break
        if turn.remaining() == 0:  # only the end sign was missing
            yield from turn.finish("length")
            return
    yield Note("handoff_failed", {"message": trouble.message, "code": trouble.code})
    if turn.restartable():
        yield GoDirect("cannot_score", f"the target did not continue: {trouble.message}")
        return
    yield from turn.fail({"message": trouble.message, "type": trouble.kind, "param": None, "code": trouble.code})


class _Relay:
    """One continuing call, piece by piece to the caller."""

    def __init__(self, turn: Turn, target: Target, lost: str, *, again: bool = False) -> None:
        self.turn = turn
        self.target = target
        self.base = turn.context
        self.request = turn.request
        if turn.outlet.holding:
            body = {name: value for name, value in turn.request.body.items() if name != "stop"}
            self.request = replace(turn.request, stops=(), body=body)
        seed = turn.request.seed
        if again and turn.request.samples and seed is not None:
            # The server would draw the noise of the first call's beginning once more.
            fresh = SeededDraws(seed, given=True).seed(self.base.tokens, 0)
            name = "random_seed" if self.request.body.get("seed") is None else "seed"
            self.request = replace(self.request, body={**self.request.body, name: fresh})
        self.seam = _Seam(turn.context.text if turn.context.ids is None else "", lost)
        self.text = ""
        self.received = 0  # tokens that have arrived
        self.tokens = 0  # tokens of ``text``
        self.ids: list[int] = []  # grows with the stream: a tuple would be copied at every piece
        self.known = True  # every piece with text has told its ids
        self.agreed = 0  # how many of them are the ids of ``text``; the rest has shown no text yet
        self.usage: Usage | None = None
        self.reason: str | None = None
        self.complete = False
        self.trouble: _Trouble | None = None

    def run(self) -> Steps[_Trouble | None]:
        turn, started = self.turn, self.turn.calls.now
        turn.owe(0, 0)
        streaming = self.target.continue_(self.request, self.base, turn.remaining())
        task = yield from turn.calls.stream(streaming, Side.TARGET)
        while not self._over():
            if task.pieces:
                yield from self._piece(task.pieces.popleft())
            elif task.ended:
                break
            else:
                yield from turn.calls.step()
                self._count(task)
        yield from turn.calls.cancel(task)
        turn.tally.seconds_handoff += turn.calls.now - started
        if not self._over():
            yield from self._say("", last=True)
        yield from turn.book(self.usage)
        whole = self.complete and self.trouble is None
        if whole and self.usage is not None and not turn.outlet.hit:
            self.tokens = self.usage.output_tokens
        trouble = None if whole or turn.outlet.hit else self.trouble or self._why(task)
        self._add(trouble)
        if trouble is None:
            yield from turn.finish(self.reason or "stop")
        return trouble

    def _count(self, task: StreamTask[TargetPiece]) -> None:
        """What has arrived is owed, shown or not."""
        for piece in task.pieces:
            self.received += _tokens(piece)
            self.usage = piece.usage or self.usage
        self.turn.owe(0, self.received)
        self.turn.tally.known_reply_tokens = self.base.tokens + self.received
        self.turn.owed = self.usage or self.turn.owed

    def _over(self) -> bool:
        return self.trouble is not None or self.turn.outlet.hit

    def _piece(self, piece: TargetPiece) -> Steps[None]:
        if piece.identity is not None:
            self.turn.tally.identify(piece.identity)
        if piece.error is not None:
            message = str(piece.error.get("message") or "the target reported an error in its stream")
            self.trouble = _Trouble(message, piece.error.get("code"), str(piece.error.get("type") or "upstream_error"))
            return
        self.complete = self.complete or piece.complete
        self.reason = piece.finish_reason or self.reason
        self.ids.extend(piece.ids or ())
        if piece.text:
            self.known = self.known and piece.ids is not None
            self.agreed = len(self.ids) if self.known else 0
        self.tokens += _tokens(piece)
        yield from self._say(piece.text)

    def _say(self, text: str, *, last: bool = False) -> Steps[None]:
        joined = self.seam.feed(text, last=last)
        self.text += joined
        yield from self.turn.say(joined, Source.TARGET)

    def _add(self, trouble: _Trouble | None) -> None:
        """Add what was written to the verified text; what will be continued ends where text and ids agree."""
        base, resumed = self.base, trouble is not None and trouble.resumable
        tokens = self.agreed if resumed else self.tokens
        self.turn.tally.handoff_tokens += tokens
        self.turn.context = Context(
            prompt_tokens=base.prompt_tokens,
            text=base.text + self.text,
            tokens=base.tokens + tokens,
            ids=(*base.ids, *self.ids[: self.agreed]) if resumed and base.ids is not None else base.ids,
            extra=base.extra,
        )

    def _why(self, task: StreamTask[TargetPiece]) -> _Trouble:
        refused = task.refused
        if refused is not None:
            status = task.error_reply.status if task.error_reply is not None else None
            assert not isinstance(refused, NoDraft)
            return _Trouble(refused.detail or refused.reason, status)
        exhausted = task.broke is not None and task.broke.kind == "exhausted"
        agree = self.base.ids is not None and self.known and not (self.ids and self.request.stops)
        message = task.broke.message if task.broke is not None else "the target's stream ended without an end sign"
        short = task.broke is None
        return _Trouble(message, None, "connection_error", agree, short=short, exhausted=exhausted)


def _tokens(piece: TargetPiece) -> int:
    return piece.tokens if piece.tokens is not None else int(bool(piece.text))
