"""One request, from the first draft to the last token. The only place where these rules live.

Rules
-----
1. The target's tokenizing and the first draft run side by side. Without a draft, or without a context,
   the caller's own request goes to the target untouched (``GoDirect``), as soon as either is certain.
2. A round (:mod:`cheapspec.core.rounds`) is one draft and one scoring call. Drafts are cut before
   anything that cannot be sent as plain text and at the caller's token limit; the planner says which one is
   scored, and how much of it (:mod:`cheapspec.core.choosing`).
3. Only what the target's numbers prove is accepted, and one token of its own after that. A token that
   ends the turn ends the reply.
4. The end of a draft is a claim like any other: it holds only if the target ends its turn there.
5. The hand-off (:mod:`cheapspec.core.handoff`): the target goes on from the verified prefix. Every
   round verifies at least one token or is the last, so there are never more rounds than reply tokens.
6. Text reaches the caller once it is verified and cannot be part of a stop string, never before, and
   is never taken back. While nothing has reached the caller, any trouble means: go direct. After
   that, an unusable score means: hand off.
7. At ``Policy.latest`` speculating ends: no score is begun after it, and one under way is given up. Before
   anything was verified the request goes direct, after that the target goes on.
8. Whatever was paid is in the tally, whatever became of it: by the server's report, else estimated.
9. When the caller is gone (``Cancelled``, in answer to whatever was yielded), only notes follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from cheapspec.core.calls import OpTask, Run, Steps, until_left
from cheapspec.core.choosing import Chooser
from cheapspec.core.drafting import Draft, Drafting, given_draft
from cheapspec.core.effects import GoDirect, Note, Side
from cheapspec.core.handoff import hand_off
from cheapspec.core.job import Job, Policy
from cheapspec.core.judging import Rule
from cheapspec.core.ports import Context, Drafter, NoDraft, SamplingTarget, Unusable
from cheapspec.core.rounds import note_unusable, verify_round
from cheapspec.core.turn import Turn

__all__ = ["Job", "Policy", "Run", "run"]


def run(job: Job) -> Run:
    """The engine. Yields effects, is sent events (:mod:`cheapspec.core.effects`)."""
    engine = _Engine(job)
    return until_left(engine.main(), engine.left)


class _Engine:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.request = job.request
        self.target = job.target
        self.policy = job.policy
        self.tally = job.tally
        self.turn = Turn(job.request, job.tally, job.at, job.estimates, job.policy.lenient_nats)
        self.calls = self.turn.calls
        self.drafters = list(job.drafters)
        self.rule = Rule(job.policy.tie_nats, job.policy.lenient_nats)
        self.chooser = Chooser(job, self.turn)

    def left(self) -> Steps[None]:
        """The caller is gone: what was paid, and what the last round verified, which the direct call would have cost
        too.
        """
        yield from self.turn.book()
        self.turn.tell()

    def main(self) -> Steps[None]:
        opening = yield from self.calls.op(self.target.open(self.request), Side.TARGET)
        drafts = yield from self._drafts(opening=opening)
        if isinstance(drafts, NoDraft) and not _failed(opening):
            yield from self.calls.cancel(opening)
            yield GoDirect(drafts.reason, drafts.detail)
            return
        latest = self.policy.latest
        while not opening.done:
            if not (yield from self.calls.step(None if latest is None else latest - self.calls.now)):
                yield from self.calls.cancel(opening)
                yield GoDirect("latency", "the time that speculating may add is over")
                return
        context = opening.value
        if isinstance(context, Unusable):
            yield note_unusable(context)
            yield GoDirect(context.reason, context.detail)
            return
        refused = self._sample(context)
        if refused is not None:
            yield refused
            return
        assert not isinstance(drafts, NoDraft)
        self.turn.context = context
        yield from self._rounds(drafts)

    def _rounds(self, drafts: Sequence[Draft]) -> Steps[None]:
        while True:
            draft, decision = self.chooser.best(drafts)
            if decision.action == "direct":
                yield GoDirect(decision.reason or "not_worth_it", decision.why)
                return
            if decision.action != "score":
                break
            admitted = yield from self.chooser.admitted(draft, decision)
            if isinstance(admitted, GoDirect):
                if self.tally.rounds == 0:
                    yield admitted
                    return
                break
            decision = admitted
            if self.tally.rounds == 0 and decision.expected_gain is not None and self.job.speed is None:
                self.tally.forecast_usd = Decimal(decision.expected_gain)
            before = len(self.turn.context.text)
            rest = yield from verify_round(
                self.turn, self.target, draft, decision.draft_tokens, self.rule, self.policy.latest
            )
            if rest is None:
                return
            if isinstance(rest, Unusable) or self.chooser.late():
                break
            others = [
                other.after(self.turn.context.text[before:]) for other in drafts if other.drafter != draft.drafter
            ]
            following = yield from self._drafts([one for one in (rest, *others) if one.tokens])
            if isinstance(following, NoDraft):
                break
            drafts = following
        yield from hand_off(self.turn, self.target)

    def _sample(self, context: Context) -> GoDirect | None:
        """At temperature above 0: how this target samples, or why that cannot be followed."""
        sampling = self.request.sampling
        if sampling is None or sampling.greedy:
            return None
        law = self.target.law(sampling) if isinstance(self.target, SamplingTarget) else None
        if law is None:
            return GoDirect("sampling", f"temperature {sampling.temperature:g} cannot be followed at this target")
        if context.ids is None:
            return GoDirect("sampling", "a target that is sent text, not token ids, cannot be followed")
        self.rule = replace(self.rule, law=law, draws=self.job.draws)
        return None

    # --- drafting --------------------------------------------------------------------------

    def _drafts(
        self, left: Sequence[Draft] = (), opening: OpTask[Context | Unusable] | None = None
    ) -> Steps[list[Draft] | NoDraft]:
        """What may be scored next. ``left``: what is left of earlier drafts, which need not be drafted again, though
        given text is looked at anew. With a fixed length the first drafter that has anything is enough.
        """
        planned, limit = self.policy.draft_tokens is None, self.chooser.limit()
        if not planned and left:
            return [left[0]]
        drafts, models = list[Draft](), list[Drafter]()
        for drafter in self.drafters if limit > 0 else ():  # some servers read 0 as "no limit"
            there = given_draft(drafter, self.request, self.turn.context.text, limit)
            if there is None:
                models.append(drafter)
            elif there.tokens:
                drafts.append(there)
                if not planned and not models:
                    return drafts
        anew = {draft.drafter for draft in drafts}
        drafts += [draft for draft in left if draft.drafter not in anew]
        failure = NoDraft("no_draft", "no drafter had anything to propose")
        if models and all(draft.static for draft in drafts):
            doubt = self.chooser.why_not([drafter.name for drafter in models], drafts)
            asked = (yield from self._ask(models, opening)) if doubt is None else NoDraft(doubt.reason, doubt.why)
            if isinstance(asked, Draft):
                return [asked, *drafts]
            failure = asked
        return drafts or failure

    def _ask(
        self, models: Sequence[Drafter], opening: OpTask[Context | Unusable] | None = None
    ) -> Steps[Draft | NoDraft]:
        """Ask the models in order. One whose host fails is not asked again in this request; the ones after
        it get their chance, unless the time is up or ``opening`` has failed.
        """
        failure = NoDraft("no_draft", "no drafter had anything to propose")
        for drafter in models:
            started, drafting = self.calls.now, Drafting(self.calls, drafter)
            try:
                yield from drafting.begin(self.request, self.turn.context.text, self.chooser.limit())
                yield from self._await(drafting, opening)
            finally:  # also when the caller leaves meanwhile
                seconds = self.calls.now - started
                self.tally.seconds_draft += seconds
                self.tally.local_tokens += drafting.written
            if isinstance(drafting.result, Draft):
                yield Note("drafted", {"drafter": drafter.name, "tokens": drafting.written, "seconds": seconds})
                return drafting.result
            assert drafting.result is not None
            failure = drafting.result
            facts = {"reason": failure.reason, "detail": failure.detail, "broken": failure.broken}
            yield Note("no_draft", {"drafter": drafter.name, **facts})
            self.drafters = [other for other in self.drafters if other is not drafter]
            if failure.reason == "draft_deadline" or _failed(opening):
                break
        return failure

    def _await(self, drafting: Drafting, opening: OpTask[Context | Unusable] | None) -> Steps[None]:
        """Let all open calls move on until the draft is there, its time is up, or ``opening`` has failed."""
        deadline = self.calls.now + self.policy.draft_seconds
        if self.policy.latest is not None:
            deadline = min(deadline, self.policy.latest)
        while drafting.result is None:
            in_time = not _failed(opening) and (yield from self.calls.step(deadline - self.calls.now))
            yield from drafting.pump()
            if not in_time or self.calls.now >= deadline:
                yield from drafting.stop()


def _failed(opening: OpTask[Context | Unusable] | None) -> bool:
    return opening is not None and opening.done and isinstance(opening.value, Unusable)
