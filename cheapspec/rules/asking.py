"""One verdict's call: its body, the most that it can cost, and what its reply means.

Rules
-----
* The target is asked as :mod:`cheapspec.rules.chat` lays it out; a judge elsewhere is sent nothing of what the caller
  sends to the target for its own host.
* A rule whose reply may be the caller's reply is limited as the caller limits that. Where there is no limit, by
  :data:`LONGER` times the draft: what it may cost must have a bound, and a reply that was cut is no verdict.
* What a rule reads may run the caller's functions. They may raise: then there is no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from cheapspec.core.counting import input_bound, input_estimate, written_size
from cheapspec.core.effects import HttpReply
from cheapspec.core.exposure import exposure
from cheapspec.core.money import Prices
from cheapspec.core.request import Request
from cheapspec.rules.agree import Agree
from cheapspec.rules.answer import Answer
from cheapspec.rules.judge import UNCALIBRATED, Judge
from cheapspec.rules.ok_or_answer import OkOrAnswer
from cheapspec.rules.patch import Patch
from cheapspec.rules.prospects import Bench, CallRule, VerdictRule
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Verdict

__all__ = ["LONGER", "body_of", "guarded", "own_share", "read_reply", "version_of", "worst_usd"]

LONGER: Final = 4
"""So many times the draft's tokens, and :data:`_LEAST`, may a reply have that comes instead of it."""
_LEAST: Final = 256


def version_of(rule: VerdictRule, bench: Bench) -> str:
    """Of the prompt that a rule asks with, ``""``: it asks nothing."""
    if isinstance(rule, Agree | Validator):
        return ""
    return rule.version(bench.endpoint) if isinstance(rule, Judge) else rule.version


def body_of(rule: CallRule, request: Request, draft: Draft, tokens: int, salt: str, bench: Bench) -> dict[str, Any]:
    """The body of the call. ``tokens``: of the draft.

    :raises ValueError: the request is no chat.
    """
    if isinstance(rule, Answer):
        return rule.body(request, bench.endpoint)
    if isinstance(rule, Judge):
        return rule.body(request, draft, salt, bench.endpoint)
    if request.max_tokens is None:
        request = replace(request, max_tokens=reply_limit(tokens, bench))
    return rule.body(request, draft, salt, bench.endpoint)


def reply_limit(tokens: int, bench: Bench) -> int:
    """Tokens of a reply whose caller sets no limit, beside a draft of so many."""
    return _LEAST + LONGER * tokens + bench.endpoint.thinking


def worst_usd(body: Mapping[str, Any], prices: Prices | None) -> Decimal | None:
    """Dollars that the call costs at most, ``None`` unknown."""
    return exposure(body, input_bound(body, written_size(body)), "chat", prices)


def own_share(body: Mapping[str, Any], request: Request) -> float:
    """Which part of the call's prompt (0 to 1) is the caller's own, as far as lengths tell."""
    return min(1.0, input_estimate(request.body) / max(1, input_estimate(body)))


def read_reply(
    rule: CallRule, reply: HttpReply, draft: Draft, request: Request, threshold: float | None, bench: Bench
) -> Verdict:
    """What a good reply says. ``threshold``: of a judge. May raise what a caller's function raises."""
    told: object = reply.json()
    if isinstance(rule, Judge):
        return rule.read(told, draft, UNCALIBRATED if threshold is None else threshold, bench.endpoint)
    if isinstance(rule, Patch):
        return rule.read(told, draft, request)
    found = rule.read(told, draft)
    if isinstance(rule, OkOrAnswer) and found.text is not None:
        check = Validator.of(request)
        passed = None if check is None else check.verdict(Draft(found.text))
        if passed is not None and not passed.accepted:
            return Verdict("none", f"the target's own reply: {passed.why}")
    return found


def guarded(work: Callable[[], Verdict | None]) -> Callable[[], Verdict | None]:
    """The same, for :class:`~cheapspec.core.effects.Check`: an exception is no verdict."""

    def run() -> Verdict | None:
        try:
            return work()
        except Exception as error:
            return Verdict("none", f"the caller's function raised {type(error).__name__}")

    return run
