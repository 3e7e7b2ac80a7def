"""Whether rules about whole drafts can serve at an endpoint: asked with a right and a wrong draft, and reckoned.

Rules
-----
* The target is asked for its verdict on two short drafts to one sum, laid out as a request's verdict is. It can judge
  if it accepts the right one and rejects the wrong one; both are controls, neither says how well it judges *your*
  drafts: that is what a certificate is for (``cheapspec tune``).
* Fields that it refuses are learned on the way; refusals cost nothing and are tried again, some at most.
* What a rule is expected to save is a formula (:mod:`cheapspec.rules.breakeven`) at the stated prior share of accepted
  drafts; it may be less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cheapspec.backends.chat_hosts import endpoint_for
from cheapspec.backends.chat_learning import REFUSALS, learn, refusal
from cheapspec.backends.facts import Facts
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.endpoint import Endpoint
from cheapspec.core.money import Prices
from cheapspec.core.request import Request
from cheapspec.rules import Answer, Draft, Judge, OkOrAnswer, Patch, Verdict
from cheapspec.rules.forms import form_of
from cheapspec.rules.judge import UNCALIBRATED
from cheapspec.rules.prospects import PRIOR, Bench, CallRule, Lengths, prospect
from cheapspec.settings import DraftSpec

__all__ = ["Rule", "judge_probe", "verdict_rules"]

_SUM: Final = "What is 17 + 25?"
_RIGHT, _WRONG = Draft("17 + 25 = 42."), Draft("17 + 25 = 43.")
_TRIES: Final = 8
_EXAMPLE: Final = (500, 150)
"""Prompt and reply tokens of which the expected saving is told; a fourth as many words as letters."""
_JUDGE: Final = Judge(uncalibrated=True)
_PAGE: Final = "docs/chat-only-apis.md"


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether an acceptance rule can serve here. ``expected_saving_share``: of the bill, for the stated example."""

    rule: str
    possible: bool
    why: str
    expected_saving_share: float | None = None
    fix: str | None = None


def judge_probe(base_url: str, model: str, found: Facts, keep: Callable[[Endpoint], None]) -> Op[Facts]:
    """Two verdicts on drafts that are known to be right and wrong, added to what was ``found`` before. ``keep``: takes
    what the endpoint turned out to take.
    """
    body = {"model": model, "messages": [{"role": "user", "content": _SUM}]}
    request = Request("chat", body, model, False, messages=({"role": "user", "content": _SUM},))
    endpoint = endpoint_for(base_url, model, body)
    evidence = list(found.evidence)
    outcomes: list[str] = []
    for name, draft in (("right", _RIGHT), ("wrong", _WRONG)):
        endpoint, verdict = yield from _judged(request, draft, endpoint, evidence)
        evidence.append(f"asked about a {name} draft it said {verdict.outcome}: {verdict.why}")
        outcomes.append(verdict.outcome)
    keep(endpoint)
    able = outcomes == ["accept", "reject"]
    how = "by the log-probability of a letter" if endpoint.alternatives else "by a digit, without log-probabilities"
    if able:
        evidence.append(f"it tells a right draft from a wrong one, {how}")
    return replace(found, can_judge=able, evidence=tuple(evidence))


def _judged(request: Request, draft: Draft, endpoint: Endpoint, evidence: list[str]) -> Op[tuple[Endpoint, Verdict]]:
    """One verdict, with what was learned."""
    verdict = Verdict("none", "")
    for _ in range(_TRIES):
        body = _JUDGE.body(request, draft, "doctor", endpoint)
        reply = yield HttpRequest("probe", "chat/completions", body, billed=True)
        if reply is None:
            return endpoint, Verdict("none", "the call was not made, or has no answer")
        better = learn(endpoint, reply, body)
        learned, refused = better != endpoint, reply.status >= 300
        if learned:
            evidence.append(_changed(endpoint, better, reply))
        verdict = Verdict("none", f"it was answered with status {reply.status}: {refusal(reply)[:200]}")
        if not refused:
            verdict = _JUDGE.read(reply.json(), draft, UNCALIBRATED, endpoint)
        endpoint = better
        if not learned or (refused and reply.status not in REFUSALS) or verdict.outcome != "none":
            return endpoint, verdict
    return endpoint, verdict


def _changed(before: Endpoint, after: Endpoint, reply: HttpReply) -> str:
    names = ("alternatives", "least_output", "limit_field", "temperature", "effort", "thinking", "require_parameters")
    told = [f"{name} {getattr(after, name)}" for name in names if getattr(after, name) != getattr(before, name)]
    how = "refused a field" if reply.status >= 300 else "answered otherwise than was asked"
    return f"it {how}, so from now on: {', '.join(told)}"


def verdict_rules(
    facts: Facts | None, model: str | None, base_url: str, prices: Prices | None, drafts: Sequence[DraftSpec]
) -> list[Rule]:
    """One row a rule. ``facts``: ``None``, the target was not asked."""
    if facts is None or model is None:
        names = ("agree", "answer", "judge", "ok_or_answer", "patch")
        fix = "name it with --model and --base-url"
        return [Rule(name, False, "the target was not asked", fix=fix) for name in names]
    endpoint = endpoint_for(base_url, model, {})
    shares = {rule: _share(rule, endpoint, prices) for rule in (Answer(), _JUDGE, OkOrAnswer(), Patch("json"))}
    answer, judge, ok, patch = shares.values()
    sees = "experimental; the target sees the draft, and one call both judges and replies"
    off = f"off until it is measured on your traffic; {_PAGE}"
    return [
        _agree(drafts),
        Rule("answer", True, "the target gives the final answer alone, without seeing the draft", answer),
        _judges(facts, judge, off),
        Rule("ok_or_answer", True, sees, ok),
        Rule("patch", True, f"{sees} (JSON and code)", patch),
    ]


def _judges(facts: Facts, share: float | None, off: str) -> Rule:
    if facts.can_judge:
        fix = "cheapspec tune, for a certificate; or Judge(uncalibrated=True), at your own risk"
        return Rule("judge", True, f"it tells how sure it is; {off}", share, fix)
    if any("draft it said" in one for one in facts.evidence):
        return Rule(
            "judge", False, "it did not tell a right draft from a wrong one", None, "Judge(model=…, base_url=…)"
        )
    return Rule("judge", False, "whether it can judge was not asked", None, "cheapspec doctor … --yes-spend")


def _agree(drafts: Sequence[DraftSpec]) -> Rule:
    forms = {form_of(str(one)) for one in drafts if one.kind in ("ollama", "openai", "llamacpp", "embedded")}
    if len(forms) > 1:
        return Rule("agree", True, f"{len(forms)} unlike draft models; no call at all", round(PRIOR, 4))
    fix = 'a second draft model of another family: draft="qwen2.5:3b, llama3.2:3b"'
    return Rule("agree", False, "it needs two unlike draft models", None, fix)


def _share(rule: CallRule, endpoint: Endpoint, prices: Prices | None) -> float | None:
    """Of a request of the example's size, of which :data:`PRIOR` of the drafts are accepted."""
    if prices is None or prices.input <= 0:
        return None
    prompt, reply = _EXAMPLE
    messages = [{"role": "user", "content": "some words here " * (prompt // 4)}]
    request = Request("chat", {"model": "m", "messages": messages}, "m", False)
    found = prospect(rule, Bench(endpoint, prices), request, prices, PRIOR, lengths=Lengths(float(reply)))
    return None if found.costs is None else round(1 - found.costs.expected(PRIOR), 4)
