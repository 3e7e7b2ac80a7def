"""Findings about lossy rules from past requests and replies: drafts are written on this machine, rules tried on them.

Rules
-----
* What stands in a file is the target's own reply, as in shadow; what a rule would have done is found out as there: one
  whole draft (of every model, where drafts are compared), each rule tried, a check standing before the later ones.
* With a label a draft is bad if it was accepted and wrong where the target was right: loss is one-sided. Without one,
  if it was accepted and unequal to the reply.
* A rule that asks the target is tried only through ``ask``; without it there is no finding of it, only whether draft
  and reply agree (:attr:`Findings.agreed`), which bounds what it could accept.
* Requests that production would bypass, replies that thinking or a limit cut, and drafts that did not end are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cheapspec.backends.chat_hosts import endpoint_for
from cheapspec.core.effects import HttpReply
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Bypass, Request, admit
from cheapspec.core.shadows import ShadowRow
from cheapspec.drive.certified import LABELLED, compared, draft_name
from cheapspec.drive.drafts import DraftHosts
from cheapspec.drive.learning import workload_of
from cheapspec.drive.settings import Settings
from cheapspec.drive.shadow import score_of
from cheapspec.estimating.logs import Logged
from cheapspec.rules.agree import Agree
from cheapspec.rules.asking import body_of, read_reply, version_of
from cheapspec.rules.comparison import Comparison
from cheapspec.rules.forms import form_of
from cheapspec.rules.prospects import Bench, CallRule, VerdictRule, purpose_of
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Verdict

__all__ = ["Ask", "Findings"]

Ask = Callable[[Mapping[str, Any], str], object | None]
"""Sends a body to the target for a purpose, and gives its reply's JSON; ``None``: it was not asked."""


class Findings:
    """Makes them, request by request. ``agreed``: by rule that nobody was asked about, how many drafts were compared
    with the reply, and how many of them would do; ``left_out``: requests without a finding, by reason.
    """

    def __init__(
        self,
        rules: Sequence[VerdictRule],
        drafters: Sequence[Drafter],
        hosts: DraftHosts,
        *,
        base_url: str = "",
        workload: str | None = None,
        given: object | None = None,
        longest: int = 512,
        ask: Ask | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._drafters = tuple(drafters)
        self._hosts = hosts
        self._base_url = base_url.rstrip("/")
        self._settings = Settings(workload=workload)
        self._given = given
        self._longest = longest
        self._ask = ask
        self.agreed: dict[str, tuple[int, int]] = {}
        self.left_out: Counter[str] = Counter()

    def of(self, logged: Logged, at: float) -> list[ShadowRow]:
        """What each rule would have done. ``at``: its place in time."""
        route = "/v1/chat/completions" if logged.kind == "chat" else "/v1/completions"
        request = admit("POST", route, {}, json.dumps(dict(logged.body)).encode(), whole=True)
        if isinstance(request, Bypass):
            return self._none(f"production bypasses ({request.reason})")
        if not logged.text or logged.finish != "stop":
            return self._none("with a reply that has no end")
        drafts = self._drafts(request)
        if not drafts:
            return self._none("without a whole draft")
        rows: list[ShadowRow] = []
        passes = True
        for rule in self._rules:
            found = compared(rule, self._rules, self._given, request)
            verdict = self._verdict(rule, request, drafts)
            if verdict is None:
                self._agree(rule, found, drafts[0].text, logged.text)
                continue
            score = score_of(rule, {"outcome": verdict.outcome, "score": verdict.score, "text": verdict.text})
            score = score if passes else None
            if isinstance(rule, Validator):
                passes = passes and verdict.accepted
                if not rule.sufficient:
                    continue
            shown = verdict.text or drafts[0].text
            name, equal, bad = _judged(found, shown, logged)
            row = ShadowRow(
                f"log-{logged.id}",
                rule.name,
                at,
                workload_of(self._settings, request),
                version_of(rule, self._bench(logged.model, request)),
                draft_name(self._drafters),
                f"{logged.model}@{self._base_url}",
                verdict.outcome,
                fingerprint=logged.fingerprint,
                score=score,
                comparison=name,
                equal=equal,
                bad=None if bad is None else score is not None and bad,
                chance=verdict.chance,
                why=verdict.why,
            )
            rows.append(row)
        return rows

    def _none(self, why: str) -> list[ShadowRow]:
        self.left_out[why] += 1
        return []

    def _drafts(self, request: Request) -> list[Draft]:
        """Whole drafts, the one that would go out first."""
        made: list[Draft] = []
        limit = min(self._longest, request.max_tokens or self._longest)
        every = any(isinstance(rule, Agree) for rule in self._rules)
        for drafter in self._drafters:
            found = self._hosts.draft(drafter, request, "", limit)
            if not isinstance(found, NoDraft) and found.end == "stop" and found.text.strip():
                made.append(Draft(found.text, True, drafter.name, form_of(drafter.name)))
            if made and not every:
                break
        return made

    def _verdict(self, rule: VerdictRule, request: Request, drafts: Sequence[Draft]) -> Verdict | None:
        if isinstance(rule, Validator):
            return rule.verdict(drafts[0])
        if isinstance(rule, Agree):
            return rule.verdict(drafts[0], drafts[1:])
        return self._asked(rule, request, drafts[0])

    def _asked(self, rule: CallRule, request: Request, draft: Draft) -> Verdict | None:
        if self._ask is None:
            return None
        said = rule.before(draft)
        if said is not None:
            return said
        bench = self._bench(request.model, request)
        try:
            body = body_of(rule, request, draft, self._longest, "tune", bench)
        except ValueError as problem:
            return Verdict("none", str(problem))
        reply = self._ask(body, purpose_of(rule))
        return None if reply is None else read_reply(rule, _reply(reply), draft, request, None, bench)

    def _bench(self, model: str, request: Request) -> Bench:
        return Bench(endpoint_for(self._base_url, model, request.body))

    def _agree(self, rule: VerdictRule, found: Comparison | None, draft: str, reply: str) -> None:
        if found is not None:
            count, equal = self.agreed.get(rule.name, (0, 0))
            self.agreed[rule.name] = count + 1, equal + found.equal(draft, reply)


def _judged(found: Comparison | None, shown: str, logged: Logged) -> tuple[str, bool | None, bool | None]:
    """Name of the comparison, whether the draft would do, and whether accepting it loses something."""
    if found is None:
        return "", None, None
    if logged.label is None:
        equal = found.equal(shown, logged.text)
        return found.name, equal, not equal
    right = found.equal(shown, logged.label)
    return f"{LABELLED}{found.name}", right, not right and found.equal(logged.text, logged.label)


def _reply(told: object) -> HttpReply:
    return HttpReply(200, json.dumps(told).encode())
