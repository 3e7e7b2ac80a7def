"""One request whose draft is accepted, or not, as a whole: the caller's rules in order, cheapest first.

Rules
-----
1. A whole draft first (:mod:`cheapspec.rules.drafting`); without one the caller's own request goes to the target
   untouched. Where no rule could accept anything, or none that could is worth its call, nobody waits for a draft.
2. The rules in the caller's order. A validator that does not pass sends the request direct at once; one that passes
   lets the next rule decide, or accepts if it is sufficient. Any other rule that accepts ends the ladder; one that
   rejects or has no verdict lets the next try. A reply that came instead of a verdict goes out itself.
3. A call is made only if it is expected to pay with this draft (:mod:`cheapspec.rules.prospects`), and if the
   allowance bears its worst case. A judge without a certificate is passed over, unless the caller waived that.
4. A failed, odd or lost call is no verdict, and paid all the same (:mod:`cheapspec.rules.calling`).
5. Nothing reaches the caller before the verdict. Then the whole text goes out, with the usage that the target alone
   would have reported, as far as that can be told: it is an estimate.
6. Every verdict is noted, and what it says about how often a rule accepts is learned.
7. In *shadow* each rule is tried on the draft, whatever the others said; nothing is emitted and nothing goes direct.
8. When the caller is gone (``Cancelled``, in answer to whatever was yielded), only notes follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cheapspec.core.calls import Calls, Run, Steps, until_left
from cheapspec.core.counting import estimate, input_estimate, size_of
from cheapspec.core.effects import Emit, Finish, GoDirect, Note, Source
from cheapspec.core.ports import NoDraft
from cheapspec.rules.agree import Agree
from cheapspec.rules.asking import version_of
from cheapspec.rules.calling import Asking
from cheapspec.rules.drafting import Written, until_stop, whole_drafts
from cheapspec.rules.ok_or_answer import OkOrAnswer
from cheapspec.rules.prospects import VerdictRule, acceptance, learned
from cheapspec.rules.standing import Ladder, Skipped, barred, prospects, weighed
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Verdict

__all__ = ["Ladder", "Skipped", "barred", "prospects", "run"]

_WORDS: Final = re.compile(r"\s*\S+|\s+")
_SAID: Final = ("rejected", "no_verdict")
"""What a rule said comes before why another one was not asked."""
_BARS: Final = ("cooldown", "price_unknown", "not_worth_it", "uncalibrated", "no_verdict")
"""Why no rule is tried: the first of these that bars one."""


def run(ladder: Ladder) -> Run:
    """Climb. Yields effects, is sent events (:mod:`cheapspec.core.effects`)."""
    climb = _Climb(ladder)
    return until_left(climb.main(), lambda: climb.asking.book(None))


class _Climb:
    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.tally = ladder.tally
        self.calls = Calls(ladder.at)
        self.asking = Asking(ladder, self.calls)
        self.reason = ""
        self.said: list[str] = []

    def main(self) -> Steps[None]:
        ladder = self.ladder
        hopeless = self._hopeless()
        if hopeless is not None:
            yield from self._direct(hopeless)
            return
        every = any(isinstance(rule, Agree) for rule in ladder.rules)
        drafts = yield from whole_drafts(
            self.calls, ladder.request, ladder.drafters, ladder.policy, self.tally, every=every
        )
        if isinstance(drafts, NoDraft):
            yield from self._direct(GoDirect(drafts.reason, drafts.detail))
            return
        best, others = drafts[0], [one.draft for one in drafts[1:]]
        self.tally.drafter, self.tally.drafted_tokens = best.draft.drafter, best.tokens
        if ladder.shadow:
            told = {"drafter": best.draft.drafter, "form": best.draft.form, "tokens": best.tokens}
            yield Note("whole_draft", {**told, "text": best.draft.text})
        yield from self._climb(best, others)

    def _direct(self, direct: GoDirect) -> Steps[None]:
        if not self.ladder.shadow:
            yield direct

    def _hopeless(self) -> GoDirect | None:
        """Why no draft is written at all."""
        ladder, bars = self.ladder, list[str]()
        name = next((one.name for one in ladder.drafters), "")
        why: list[str] = []
        for rule in ladder.rules:
            bar = barred(ladder, rule)
            if bar is None and ladder.weighs and not ladder.shadow:
                told = weighed(ladder, rule, name, None)
                bar = None if told.pays else Skipped("not_worth_it", told.why)
            if bar is None:
                return None
            bars.append(bar.reason)
            why.append(bar.why if rule.name in bar.why else f"{rule.name}: {bar.why}")
        return GoDirect(next((one for one in _BARS if one in bars), "no_verdict"), "; ".join(why))

    # --- the rules -------------------------------------------------------------------------

    def _climb(self, best: Written, others: Sequence[Draft]) -> Steps[None]:
        shadow = self.ladder.shadow
        for rule in self.ladder.rules:
            found = yield from self._tried(rule, best, others)
            if isinstance(found, Skipped):
                if found.reason == "latency":
                    yield from self._direct(GoDirect("latency", found.why))
                    return
                self._say(rule, found.reason, found.why)
                continue
            yield from self._note(rule, best, found)
            if shadow:
                continue
            if found.text is not None:
                yield from self._reply(rule, found.text)
                return
            if found.accepted and (not isinstance(rule, Validator) or rule.sufficient):
                yield from self._end(rule, best.tokens, best.pieces, Source.DRAFT)
                return
            if not found.accepted:
                self._say(rule, "rejected" if found.outcome == "reject" else "no_verdict", found.why)
                if isinstance(rule, Validator):
                    break
        yield from self._direct(GoDirect(self.reason or "no_verdict", "; ".join(self.said)))

    def _say(self, rule: VerdictRule, reason: str, why: str) -> None:
        if reason in _SAID or self.reason not in _SAID:
            self.reason = reason
        self.said.append(why if rule.name in why else f"{rule.name}: {why}")

    def _tried(self, rule: VerdictRule, best: Written, others: Sequence[Draft]) -> Steps[Verdict | Skipped]:
        draft, asking = best.draft, self.asking
        if isinstance(rule, Validator):
            passed = yield from asking.check(lambda: rule.verdict(draft))
            return passed or Verdict("none", "nothing was said")
        bar = barred(self.ladder, rule)
        if bar is not None:
            return bar
        made = asking.made
        if isinstance(rule, Agree):
            told = yield from asking.check(lambda: rule.verdict(draft, others))
            found: Verdict | Skipped = self._certified(rule, told or Verdict("none", "nothing was said"))
        else:
            found = yield from asking.ask(rule, best)
        counts = isinstance(rule, Agree) or asking.made > made
        if isinstance(found, Verdict) and counts and not self.ladder.shadow:
            rate = acceptance(self.ladder.estimates, rule.name, draft.drafter)
            delta = learned(rule.name, draft.drafter, rate, accepted=found.accepted)
            yield Note("estimates", {"delta": delta})
        return found

    def _certified(self, rule: Agree, found: Verdict) -> Verdict:
        """A certificate may ask for more agreement than the rule does."""
        cutoff = self.ladder.cutoffs.get(rule.name)
        if not found.accepted or cutoff is None or (found.score or 0.0) >= cutoff:
            return found
        return replace(found, outcome="reject", why=f"{found.why}; its certificate is for a share of {cutoff:g}")

    def _note(self, rule: VerdictRule, best: Written, found: Verdict) -> Steps[None]:
        told: dict[str, Any] = {
            "rule": rule.name,
            "version": version_of(rule, self.asking.bench(rule)),
            "outcome": found.outcome,
            "score": found.score,
            "why": found.why,
            "chance": found.chance,
            "drafter": best.draft.drafter,
        }
        self.tally.verdicts.append(told)
        yield Note("verdict", {**told, "text": found.text} if self.ladder.shadow else told)

    # --- the end ---------------------------------------------------------------------------

    def _reply(self, rule: VerdictRule, text: str) -> Steps[None]:
        """The target's own text goes out, whatever it made of the draft."""
        shown = until_stop(text, self.ladder.request.stops)
        tokens, told = estimate(size_of(shown)), self.asking.reply_tokens
        if isinstance(rule, OkOrAnswer) and shown == text and told is not None:  # the call's output is the reply
            tokens = told
        yield from self._end(rule, tokens, tuple(_WORDS.findall(shown)), Source.TARGET)

    def _end(self, rule: VerdictRule, tokens: int, pieces: Sequence[str], source: Source) -> Steps[None]:
        request, tally, prompt = self.ladder.request, self.tally, self.asking.prompt_tokens
        tally.rule, tally.lossy, tally.unverified_tokens = rule.name, True, tokens
        prompt = input_estimate(request.body) if prompt is None else prompt
        tally.finish(self.calls.now - self.ladder.at, prompt, tokens)
        for piece in pieces if request.stream else ["".join(pieces)]:
            yield Emit(piece, source)
        yield Finish("stop", replace(tally.reply_usage(prompt, tokens), estimated=True))
