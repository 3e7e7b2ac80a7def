"""A verdict's call in a run: asked if it pays and the allowance bears it, booked, read.

Rules
-----
* What was paid is in the tally, whatever became of it: by the reply's report, else by an estimate.
* What a reply shows of the fields that the endpoint takes is taken in at once. A call that was refused for such a
  field, which costs nothing, is made once more without it.
* The caller's functions run as :class:`~cheapspec.core.effects.Check`, never here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cheapspec.core.calls import Calls, Steps
from cheapspec.core.counting import input_estimate
from cheapspec.core.effects import Check, Checked, HttpReply, HttpRequest, Note, Op, Risk, Risked, Usage
from cheapspec.core.money import Prices
from cheapspec.core.received import read_identity, read_usage
from cheapspec.core.untyped import as_mapping
from cheapspec.rules.asking import body_of, guarded, own_share, read_reply, worst_usd
from cheapspec.rules.drafting import Written
from cheapspec.rules.judge import Judge
from cheapspec.rules.prospects import Bench, CallRule, VerdictRule, purpose_of
from cheapspec.rules.standing import Ladder, Skipped, weighed
from cheapspec.rules.verdict import Endpoint, Verdict

__all__ = ["Asking"]

_REFUSED = (400, 403, 404, 422)


class Asking:
    """The calls of one run. ``prompt_tokens``: of the caller's own prompt, as a call told; ``reply_tokens``: output of
    the last call; ``None``: not known. ``made``: calls that were begun.
    """

    def __init__(self, ladder: Ladder, calls: Calls) -> None:
        self.ladder = ladder
        self.tally = ladder.tally
        self.calls = calls
        self.prompt_tokens: int | None = None
        self.reply_tokens: int | None = None
        self.made = 0
        self._asked = False  # the target itself, for a verdict
        self._owed = Usage(estimated=True)
        self._owing = ladder.bench
        self._endpoints: dict[str, Endpoint] = {}

    def check(self, work: Callable[[], Verdict | None]) -> Steps[Verdict | None]:
        """Run what may block or raise."""
        answer = yield Check(guarded(work))
        assert isinstance(answer, Checked)
        self.calls.now = max(self.calls.now, answer.at)
        found = answer.value
        return found if found is None or isinstance(found, Verdict) else Verdict("none", "the check was given up")

    def bench(self, rule: VerdictRule) -> Bench:
        """Who is asked, with what was learned in this run."""
        bench = self.ladder.bench_of(rule) or self.ladder.bench
        key = rule.name if rule.name in self.ladder.judges else ""
        return replace(bench, endpoint=self._endpoints.get(key, bench.endpoint))

    def _late(self) -> bool:
        latest = self.ladder.policy.latest
        return latest is not None and self.calls.now >= latest

    def ask(self, rule: CallRule, best: Written) -> Steps[Verdict | Skipped]:
        """What a rule says of the draft."""
        ladder = self.ladder
        if self._late():
            return Skipped("latency", "the time that speculating may add is over")
        if ladder.weighs and not ladder.shadow:
            told = weighed(ladder, rule, best.draft.drafter, best.tokens, asked_before=self._asked)
            if not told.pays:
                return Skipped("not_worth_it", told.why)
        said = yield from self.check(lambda: rule.before(best.draft))
        if said is not None:
            return said
        return (yield from self._call(rule, best))

    def _call(self, rule: CallRule, best: Written, *, again: bool = False) -> Steps[Verdict | Skipped]:
        ladder, bench = self.ladder, self.bench(rule)
        body = body_of(rule, ladder.request, best.draft, best.tokens, ladder.salt, bench)
        prices = ladder.prices if bench.own else bench.prices
        refused = yield from self._risky(body, prices)
        if refused is not None:
            return refused
        share = own_share(body, ladder.request)
        self._owed, self._owing = Usage(input_estimate(body), 1, estimated=True), bench
        started, latest = self.calls.now, ladder.policy.latest
        if bench.seconds is not None:
            latest = started + bench.seconds if latest is None else min(latest, started + bench.seconds)
        request = HttpRequest(purpose_of(rule), "chat/completions", body, billed=True)
        self._asked = self._asked or bench.own
        self.made += 1
        try:
            task = yield from self.calls.run_op(_once(request), bench.side, bench.host, latest=latest)
        finally:  # also when the caller leaves meanwhile
            self.tally.seconds_verify += self.calls.now - started
        reply = task.value if task.done else None
        usage = None if reply is None or reply.status >= 300 else self._usage(reply, bench, share)
        yield from self.book(usage)
        if reply is None:
            if self._late() and not ladder.shadow:
                return Skipped("latency", "the time that speculating may add is over")
            return Verdict("none", f"the call broke: {task.broke.message}" if task.broke else "the call took too long")
        corrected = yield from self._corrected(rule, bench, reply, body)
        if reply.status >= 300:
            if corrected and reply.status in _REFUSED and not again:
                return (yield from self._call(rule, best, again=True))
            return Verdict("none", f"the call was answered with status {reply.status}")
        threshold = ladder.threshold(rule) if isinstance(rule, Judge) else None
        answered = reply
        found = yield from self.check(lambda: read_reply(rule, answered, best.draft, ladder.request, threshold, bench))
        return found or Verdict("none", "nothing was said")

    def _risky(self, body: Mapping[str, Any], prices: Prices | None) -> Steps[Skipped | None]:
        """Why not, where the allowance does not bear what may be lost after this call: all that was spent, and it."""
        ladder = self.ladder
        if ladder.permit is None or ladder.policy.draft_tokens is not None or ladder.prices is None:
            return None
        spent, worst = self.tally.spent(ladder.prices), worst_usd(body, prices)
        if spent is None or worst is None:
            return Skipped("allowance", "what this call may cost has no bound")
        answer = yield Risk(spent + worst)
        if isinstance(answer, Risked) and answer.granted:
            return None
        return Skipped("allowance", "speculation has used up what it may lose")

    def _usage(self, reply: HttpReply, bench: Bench, share: float) -> Usage | None:
        told = as_mapping(reply.json())
        usage = read_usage(told.get("usage"), told.get("service_tier"))
        if bench.own:
            self.tally.identify(read_identity(told))
            if usage is not None and self.prompt_tokens is None:
                self.prompt_tokens = max(1, round(usage.input_tokens * share))
                self.tally.known_prompt_tokens = self.prompt_tokens
        self.reply_tokens = None if usage is None else usage.output_tokens
        return usage

    def _corrected(self, rule: CallRule, bench: Bench, reply: HttpReply, sent: Mapping[str, Any]) -> Steps[bool]:
        """Take in what a reply shows of what the endpoint takes."""
        if self.ladder.learn is None:
            return False
        better = self.ladder.learn(bench.endpoint, reply, sent)
        if better == bench.endpoint:
            return False
        self._endpoints[rule.name if rule.name in self.ladder.judges else ""] = better
        yield Note("endpoint", {"endpoint": better, "rule": rule.name, "own": bench.own})
        return True

    def book(self, usage: Usage | None) -> Steps[None]:
        """Put the cost of the last billed call into the tally, unless it was free or is booked already."""
        call_id, self.calls.unbooked = self.calls.unbooked, None
        if call_id is None:
            return
        usage = usage or self._owed
        if self._owing.own:
            self.tally.spend(usage)
        else:
            self.tally.elsewhere.append((usage, self._owing.prices))
        yield Note("usage", {"call_id": call_id, "usage": usage})


def _once(request: HttpRequest) -> Op[HttpReply | None]:
    reply = yield request
    return reply
