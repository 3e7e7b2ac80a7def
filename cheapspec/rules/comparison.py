"""Comparisons: what tells whether a draft would have done in the place of the target's own reply.

Rules
-----
* Without one there is no certificate: nothing is claimed of replies that nothing compared.
* In this order: the one that the caller gave; the rule's own extractor; that of another rule of the ladder; JSON by
  type and value, where a schema checks it; the caller's check, by which a draft will do unless it fails and the reply
  passes. **A check compares no more than it checks.**
* What cannot be compared is not equal: a draft without an answer, or a reply without one, counts against the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cheapspec.core.request import Request
from cheapspec.core.untyped import is_mapping
from cheapspec.rules.answers import Extractor, plain, same
from cheapspec.rules.extract import extractor
from cheapspec.rules.structured import json_in
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft

__all__ = ["Comparison", "comparison", "comparison_for"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``name``: what a certificate is bound to; ``equal``: whether a draft (the first text) would have done in the
    place of the target's reply (the second). It may block where it calls a check of the caller's.
    """

    name: str
    equal: Callable[[str, str], bool]


def comparison(given: object) -> Comparison:
    """The comparison that a caller means: ``"text"`` (white space aside), ``"json"``, whatever
    :func:`~cheapspec.rules.extract.extractor` takes, or a :class:`Comparison`.

    :raises ValueError: it is none of these.
    """
    if isinstance(given, Comparison):
        return given
    if given == "text":
        return Comparison(
            "text", lambda draft, reply: plain(draft, ignore_case=False) == plain(reply, ignore_case=False)
        )
    if given == "json":
        return Comparison("json", _json)
    return _by_answers(extractor(given))


def comparison_for(
    rule: object, rules: Sequence[object] = (), given: object | None = None, request: Request | None = None
) -> Comparison | None:
    """How replies are compared for a rule of this ladder, ``None``: nothing compares them. ``given``: the caller's own.

    :raises ValueError: ``given`` is no comparison.
    """
    if given is not None:
        return comparison(given)
    for one in (rule, *rules):
        found = getattr(one, "extractor", None)
        if isinstance(found, Extractor):
            return _by_answers(found)
    checks = [one for one in (rule, *rules) if isinstance(one, Validator)]
    own = Validator.of(request) if request is not None else None
    for check in (*checks, *(() if own is None else (own,))):
        if is_mapping(check.check):
            return Comparison("json", _json)
    return _by_check(checks[0]) if checks else None


def _by_answers(found: Extractor) -> Comparison:
    def equal(draft: str, reply: str) -> bool:
        one, other = found.draft(draft), found.draft(reply)
        return one is not None and other is not None and found.same(one, other)

    return Comparison(found.name, equal)


def _json(draft: str, reply: str) -> bool:
    one, other = json_in(draft), json_in(reply)
    return one is not None and other is not None and same(one, other)


def _by_check(check: Validator) -> Comparison:
    def equal(draft: str, reply: str) -> bool:
        return check.verdict(Draft(draft)).accepted or not check.verdict(Draft(reply)).accepted

    return Comparison(check.name, equal)
