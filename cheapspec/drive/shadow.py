"""Rules tried in shadow: a request goes direct, and beside it a draft is written and each rule is asked about it.

Rules
-----
* The caller's request goes out as if there were no rules, and its reply passes untouched and undelayed: of a stream
  the text is read as it passes. Nobody waits for anybody: whoever is last, the reply or the verdicts, has them
  compared, on a thread of its own.
* Verdicts are paid and booked on the request. They earn nothing, so the allowance must bear them, and a budget room for
  them besides; without that, rules that cost nothing are tried alone.
* A rule's finding is what it would have done in the caller's ladder: where a check stood before it that the draft did
  not pass, it would have accepted nothing. Its score is the one from which it accepts, if it accepts by score.
* A request leaves findings only if all of it was seen: the draft, the rules, and the target's own reply. A reply that
  failed, broke off or was left by the caller shows nothing; neither does a draft host that was down.
* A forked child, a loop or a client that ends, leave it where it is: calls that are out are booked as such, and nothing
  is found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from cheapspec.core.effects import Emit, Event, Finish, GoDirect, Note
from cheapspec.core.shadows import ShadowRow
from cheapspec.core.tally import Tally
from cheapspec.drive.admission import Admitted, Refused
from cheapspec.drive.beside import BesideBooks, reserved
from cheapspec.drive.books import Books, Read
from cheapspec.drive.certified import compared, draft_name
from cheapspec.drive.conductor import Conductor
from cheapspec.drive.io import Background, Steps
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.permits import account_keys
from cheapspec.drive.policy import Attempts
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.rules.agree import Agree
from cheapspec.rules.judge import Judge
from cheapspec.rules.ladder import Ladder
from cheapspec.rules.prospects import VerdictRule
from cheapspec.rules.standing import worst_calls
from cheapspec.rules.validator import Validator

__all__ = ["Shadow", "score_of", "shadowed"]

log = logging.getLogger("cheapspec")


def shadowed(
    runtime: Runtime, decided: Passed | Admitted | Refused
) -> tuple[Passed | Admitted | Refused, Shadow | None]:
    """The decision; of one of the first requests of a workload, to go direct, and the rules to try beside it."""
    if not isinstance(decided, Admitted) or not isinstance(decided.job, Ladder) or not decided.passed.settings.shadow:
        return decided, None
    passed, ladder = decided.passed, decided.job
    workload = workload_of(passed.settings, passed.parsed)
    scope = (workload, target_of(passed), draft_name(ladder.drafters))
    if not runtime.certificates.begin_shadow(scope, passed.settings.shadow):
        return decided, None
    told = passed.because("shadow", f"one of the first {passed.settings.shadow} of its workload")
    return told, Shadow(runtime, replace(decided, passed=told), ladder, scope)


def score_of(rule: VerdictRule, verdict: Mapping[str, Any]) -> float | None:
    """From which threshold down a rule accepts; ``None``: from none. A judge's score is its probability whatever its
    threshold was; of other rules a verdict that does not accept has none.
    """
    accepted = verdict["outcome"] == "accept" or verdict.get("text") is not None
    score: float | None = verdict.get("score")
    if isinstance(rule, Judge):
        return None if verdict["outcome"] == "none" else score
    if not accepted:
        return None
    return score if isinstance(rule, Agree) and score is not None else 1.0


class Shadow:
    """Of one request. ``scope``: workload, target and draft."""

    def __init__(self, runtime: Runtime, admitted: Admitted, ladder: Ladder, scope: tuple[str, str, str]) -> None:
        self._runtime = runtime
        self._admitted = admitted
        self._ladder = ladder
        self._scope = scope
        self._lock = threading.RLock()
        self._reply: Read | None = None
        self._draft: str | None = None
        self._verdicts: list[Mapping[str, Any]] = []
        self._tried = self._over = False
        self._inbox: Callable[[Event], None] | None = None

    # --- the caller's side -----------------------------------------------------------------------

    def beside(self, books: Books) -> Background:
        """What is carried out beside the request of these books, whose reply is listened to."""
        books.heard = self._heard
        return Background(self._steps(books), "cheapspec-shadow", self._listen)

    def abandon(self) -> None:
        """Nothing more will come of it."""
        with self._lock:
            over, self._over = self._over, True
        if not over:
            self._runtime.certificates.end_shadow(self._scope)

    def _heard(self, read: Read) -> None:
        """The target's own reply is over. In the caller's thread, or on its loop: nothing here waits."""
        good = read.whole and read.problem is None and bool(read.said)
        if not good:
            self.abandon()
            return
        with self._lock:
            self._reply = read
            both = self._tried
        if both:
            threading.Thread(target=self._compare, name="cheapspec-shadow", daemon=True).start()

    # --- beside it -------------------------------------------------------------------------------

    def _listen(self, inbox: Callable[[Event], None]) -> None:
        self._inbox = inbox

    def _deliver(self, event: Event) -> None:
        if self._inbox is not None:
            self._inbox(event)

    def _steps(self, books: Books) -> Steps[None]:
        hold, passed = f"{self._admitted.passed.request_id}.shadow", self._admitted.passed
        permit = self._runtime.permits.of(account_keys(passed.settings, passed.parsed), hold)
        tally, conductor = Tally(tier=self._ladder.tally.tier, local_price=self._ladder.tally.local_price), None
        ladder = replace(self._ladder, shadow=True, permit=permit, tally=tally)
        try:
            amounts = worst_calls(ladder)
            if passed.settings.caps and amounts:
                worst = sum(amounts, Decimal(0))
                if (yield from reserved(self._runtime, passed, hold, [worst])) is None:
                    ladder = replace(ladder, rules=_free(ladder))
                permit.limit(worst)
            beside = BesideBooks(self._runtime, passed, "shadow")
            admitted = replace(self._admitted, job=ladder)
            conductor = _Listening(self._note, self._runtime, admitted, beside, Attempts(0), self._deliver)
            yield from _played(conductor)
            yield from conductor.settle()
            self._all_tried()
        except Exception:
            log.exception("rules could not be tried in shadow")
        finally:
            if conductor is not None:
                for _ in conductor.settle():  # nothing of it is open any more, but books
                    pass
            permit.settle(tally.spent(ladder.prices), Decimal(0))
            books.release(hold)
            if not self._tried:
                self.abandon()

    def _note(self, note: Note) -> None:
        if note.kind == "whole_draft":
            self._draft = str(note.data["text"])
        elif note.kind == "verdict":
            self._verdicts.append(note.data)

    def _all_tried(self) -> None:
        if self._draft is None:
            return
        with self._lock:
            self._tried = True
            both = self._reply is not None
        if both:
            threading.Thread(target=self._compare, name="cheapspec-shadow", daemon=True).start()

    # --- both are there --------------------------------------------------------------------------

    def _compare(self) -> None:
        with self._lock:
            over, self._over = self._over, True
        if over:
            return
        try:
            book = self._runtime.certificates.book
            for row in self._rows() if book is not None else ():
                book.add_shadow(row)  # type: ignore[union-attr]
        except Exception:
            log.exception("what rules said in shadow could not be compared")
        finally:
            self._runtime.certificates.end_shadow(self._scope)

    def _rows(self) -> list[ShadowRow]:
        reply, draft, passed = self._reply, self._draft, self._admitted.passed
        assert reply is not None and draft is not None
        rules = {rule.name: rule for rule in self._ladder.rules}
        workload, target, drafts = self._scope
        rows: list[ShadowRow] = []
        passes = True
        for verdict in self._verdicts:
            rule = rules[verdict["rule"]]
            score = score_of(rule, verdict) if passes else None
            if isinstance(rule, Validator):
                passes = passes and verdict["outcome"] == "accept"
                if not rule.sufficient:
                    continue
            found = compared(rule, self._ladder.rules, passed.settings.comparison, passed.parsed)
            shown = verdict.get("text") or draft
            equal = None if found is None else _equal(found.equal, shown, reply.said)
            rows.append(
                ShadowRow(
                    passed.request_id,
                    rule.name,
                    time.time(),
                    workload,
                    str(verdict["version"]),
                    drafts,
                    target,
                    str(verdict["outcome"]),
                    fingerprint=reply.fingerprint,
                    score=score,
                    comparison="" if found is None else found.name,
                    equal=equal,
                    bad=None if equal is None else score is not None and not equal,
                    chance=verdict["chance"],
                    why=str(verdict["why"]),
                    draft_text=shown,
                )
            )
        return rows


def _equal(equal: Callable[[str, str], bool], draft: str, reply: str) -> bool:
    """A comparison of the caller's that raises has found nothing equal."""
    try:
        return equal(draft, reply)
    except Exception as error:
        log.debug("a comparison raised %s", type(error).__name__)
        return False


def _free(ladder: Ladder) -> tuple[VerdictRule, ...]:
    return tuple(rule for rule in ladder.rules if isinstance(rule, Validator | Agree))


class _Listening(Conductor):
    """Tells its notes."""

    def __init__(self, tell: Callable[[Note], None], *given: Any) -> None:
        self._tell = tell
        super().__init__(*given)

    def _note(self, note: Note) -> None:
        self._tell(note)
        super()._note(note)


def _played(conductor: Conductor) -> Steps[None]:
    """Its steps; what it says to a caller is for nobody."""
    play, answer = conductor.play(), None
    try:
        while True:
            try:
                step = play.send(answer)
            except StopIteration:
                return
            answer = None
            if not isinstance(step, Emit | Finish | GoDirect):
                answer = yield step
    finally:
        play.close()
