"""The life of one request of the caller's, from the decision to the last row: written once.

``answer`` gives either the target's own response, or what a synthetic one starts with (:class:`Spoken`);
``body`` then gives its bytes; ``close`` settles whatever is open, whenever it is called. All three are
generators that an executor (:mod:`cheapspec.drive.sync`, :mod:`cheapspec.drive.aio`) obeys.

A reply has no status before the engine's first emission: until then everything may still go direct. An
unstreamed reply is the join of the emissions that a streamed one would have had.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx2

from cheapspec.core.effects import Emit, Finish, GoDirect
from cheapspec.core.info import Info
from cheapspec.drive.admission import Admitted, Refused, decide
from cheapspec.drive.audit import audit
from cheapspec.drive.books import Books, Read
from cheapspec.drive.conductor import Conductor, Said
from cheapspec.drive.direct import go_direct, pass_through
from cheapspec.drive.io import Background, Io, Steps
from cheapspec.drive.local import Inbox
from cheapspec.drive.policy import Attempts
from cheapspec.drive.probing import probing
from cheapspec.drive.replies import Writer, refusal, response_headers
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.shadow import shadowed
from cheapspec.drive.spending import OverBudget, over_budget, reserve
from cheapspec.drive.urls import streams
from cheapspec.rules.ladder import Ladder

__all__ = ["Exchange", "Spoken"]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply that the engine gives: its headers and the beginning of its body."""

    headers: httpx2.Headers
    first: bytes


class Exchange:
    """``request``: the caller's; ``stream``: whether the caller reads the response itself (``None``: as the
    request says); ``inbox``: where events
    of draft calls go (from another thread). ``streaming``: the reply is a stream of events that may begin early;
    ``closed``: nothing is open.
    """

    def __init__(
        self, runtime: Runtime, request: httpx2.Request, inbox: Inbox, *, stream: bool | None, max_retries: int
    ) -> None:
        self._runtime = runtime
        self._request = request
        self._stream = stream is not False
        self._decided, self._shadow = shadowed(runtime, decide(runtime, request))
        self.streaming = isinstance(self._decided, Admitted) and self._decided.job.request.stream
        self.closed = not isinstance(self._decided, Admitted)
        if isinstance(self._decided, Refused):
            return
        passed = self._decided.passed if isinstance(self._decided, Admitted) else self._decided
        self.request_id = passed.request_id
        if stream is None:
            self._stream = passed.parsed.stream if passed.parsed is not None else not passed.kind or streams(request)
        self._books = Books(runtime, passed, stream=self._stream)
        if isinstance(self._decided, Admitted):
            self._attempts = Attempts(max_retries)
            self._conductor = Conductor(runtime, self._decided, self._books, self._attempts, inbox)
            self._play = self._conductor.play()
            self._answer: Any = None
            self._audited = False
            keeps_text = self._books.keeps_text or passed.settings.audit > 0
            self._writer = Writer(self._decided, self._finished, keeps_text=keeps_text)

    def answer(self) -> Steps[httpx2.Response | Spoken]:
        """Run to the first emission (to the end for an unstreamed reply)."""
        decided = self._decided
        if isinstance(decided, Refused):
            return refusal(decided, self._request)
        if (decided.passed if isinstance(decided, Admitted) else decided).settings.caps:
            allowed = yield from self._reserve(decided)
            if isinstance(allowed, OverBudget):
                return over_budget(allowed)
            decided = allowed
        passed = decided.passed if isinstance(decided, Admitted) else decided
        judged = isinstance(decided, Admitted) and isinstance(decided.job, Ladder)  # which needs no probe
        probe = None if judged else self._runtime.due_probe(passed)
        if probe is not None:
            yield Background(probing(self._runtime, passed, probe, self._books), "cheapspec-probe")
        if isinstance(decided, Admitted):
            return (yield from self._run(decided))
        if self._shadow is not None:
            yield self._shadow.beside(self._books)
        return (yield from pass_through(self._books, decided, stream=self._stream))

    def _reserve(self, decided: Passed | Admitted) -> Steps[Passed | Admitted | OverBudget]:
        """Under budgets; a run that is not affordable is closed before it began."""
        passed = decided.passed if isinstance(decided, Admitted) else decided
        self._books.reserved = True
        try:
            allowed = yield from reserve(self._runtime, decided)
        except GeneratorExit:  # the caller is gone
            self.closed = True
            if self._shadow is not None:
                self._shadow.abandon()
            self._books.went_direct(passed, Read())
            raise
        if not isinstance(allowed, Admitted):
            self.closed = True
        if isinstance(allowed, OverBudget):
            if self._shadow is not None:
                self._shadow.abandon()
            self._books.went_direct(allowed.passed, Read())
        return allowed

    def _run(self, admitted: Admitted) -> Steps[httpx2.Response | Spoken]:
        said = yield from self._next()
        while isinstance(said, Emit) and not self.streaming:
            self._writer.collect(said)
            said = yield from self._next()
        if not isinstance(said, GoDirect):
            return self._spoken(said)
        return (
            yield from go_direct(
                self._runtime,
                self._books,
                admitted.passed.because(said.reason, said.detail),
                admitted.facts,
                admitted.job,
                self._attempts,
                paid=self._conductor.paid > 0,
                stream=self._stream,
            )
        )

    def _spoken(self, said: Emit | Finish) -> Spoken:
        if isinstance(said, Finish) and not self.streaming:
            return Spoken(self._headers(), self._writer.whole(said))
        return Spoken(self._headers(), self._writer.stream(said))

    def _headers(self) -> httpx2.Headers:
        assert isinstance(self._decided, Admitted)
        rule = self._decided.job.tally.rule
        return response_headers(self._conductor.headers, self.request_id, stream=self.streaming, rule=rule)

    def _next(self) -> Steps[Said]:
        """The next thing that the engine says; rows are settled before the last one is passed on."""
        while True:
            step = self._play.send(self._answer)
            self._answer = None
            if isinstance(step, Emit | Finish | GoDirect):
                break
            self._answer = yield step
        if not isinstance(step, Emit):
            self._play.close()
            yield from self._conductor.settle()
        return step

    def _finished(self, reply_id: str, whole: bool) -> Info:
        assert isinstance(self._decided, Admitted)
        job, priced_by = self._decided.job, self._decided.priced_by
        return self._books.speculated(job, priced_by, reply_id, self._writer.text, whole=whole)

    def body(self, first: bytes) -> Generator[Io | bytes, Any, None]:
        """The bytes of the reply."""
        yield from self._last(first)
        while not self._writer.done:
            said = yield from self._next()
            assert not isinstance(said, GoDirect), "the engine went direct after it had emitted"
            yield from self._last(self._writer.stream(said))

    def _last(self, told: bytes) -> Generator[Io | bytes, Any, None]:
        """These bytes; before the last ones an audit begins, since nobody may come back after them."""
        if self._writer.done and not self._audited and isinstance(self._decided, Admitted):
            self._audited = True  # a body that is drained by others may begin anew
            beside = audit(self._runtime, self._decided, self._books, self._writer.text)
            if beside is not None:
                yield beside
        yield told

    def close(self) -> Steps[None]:
        """Give up what is open, settle the books."""
        if self.closed or not isinstance(self._decided, Admitted):
            return
        self.closed = True
        self._play.close()
        yield from self._conductor.settle()
        if not self._books.closed:
            self._finished(self._writer.reply_id, False)
