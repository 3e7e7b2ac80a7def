"""What the setting ``accept`` may say: a rule's name, a rule object, or several of them in order.

Rules
-----
* A scoring rule (``"exact"``, ``"lenient"``, :class:`~cheapspec.core.rules.Lenient`) may only come first: where the
  target can score, it serves; where it cannot, or not this request, the verdict rules behind it are tried.
* ``"text_match"`` (:class:`~cheapspec.core.rules.TextMatch`) stands alone.
* Names may be separated by commas, which is how the environment, a header or a file says a list.
* A list that cannot accept anything (validators alone, none of them sufficient) is refused, and so is a rule twice.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final, TypeGuard, cast

from cheapspec.core.rules import Lenient, TextMatch
from cheapspec.rules import Agree, Answer, Judge, OkOrAnswer, Patch, Validator
from cheapspec.rules.prospects import VerdictRule

__all__ = ["RULES", "Accept", "Named", "parse_accept", "scoring_rule", "verdict_rules"]

_SCORING: Final = ("exact", "lenient", "text_match")
_VERDICTS: Final[dict[str, Callable[[], VerdictRule]]] = {
    "agree": Agree,
    "answer": Answer,
    "judge": Judge,
    "ok_or_answer": OkOrAnswer,
    "patch": Patch,
}
RULES: Final = (*_SCORING[:2], *_VERDICTS, "text_match")
"""The names of rules."""

Named = str | Lenient | TextMatch | VerdictRule
"""One rule, as a caller writes it."""
Accept = str | Lenient | TextMatch | tuple[Named, ...]
"""What is kept: a scoring rule alone as itself, anything else as a tuple."""


def parse_accept(value: object) -> Accept:
    """Read the setting.

    :raises ValueError: an unknown name or object, a scoring rule that is not the first, a list that accepts nothing.
    """
    given = list(cast("list[object] | tuple[object, ...]", value)) if isinstance(value, list | tuple) else [value]
    rules = [rule for one in given for rule in _read(one)]
    if not rules:
        raise ValueError("an empty list of rules accepts nothing; use accept='exact'")
    for rule in rules[1:]:
        if not _is_verdict(rule):
            name = rule if isinstance(rule, str) else "lenient" if isinstance(rule, Lenient) else "text_match"
            raise ValueError(f"{name!r} scores tokens: write it first, before the rules for where that cannot be done")
    verdicts = [rule for rule in rules if _is_verdict(rule)]
    if not verdicts:
        return cast("str | Lenient | TextMatch", rules[0])
    if isinstance(rules[0], TextMatch):
        raise ValueError("'text_match' stands alone: the target writes the whole reply, so nothing is left to judge")
    names = [rule.name for rule in verdicts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the rule {name} stands twice in the list")
    if all(isinstance(rule, Validator) and not rule.sufficient for rule in verdicts):
        raise ValueError(
            "a Validator only lets the next rule decide, and there is none: "
            "add one such as Answer('last_number'), or write Validator(…, sufficient=True)"
        )
    return tuple(rules)


def scoring_rule(accept: Accept) -> str | Lenient | TextMatch | None:
    """The rule for targets that score, ``None``: verdict rules alone."""
    first = accept[0] if isinstance(accept, tuple) else accept
    return None if _is_verdict(first) else cast("str | Lenient | TextMatch", first)


def verdict_rules(accept: Accept) -> tuple[VerdictRule, ...]:
    """The rules about whole drafts, in order."""
    return tuple(rule for rule in accept if _is_verdict(rule)) if isinstance(accept, tuple) else ()


def _read(one: object) -> list[Named]:
    if isinstance(one, Lenient | TextMatch) or _is_verdict(one):
        return [one]
    if isinstance(one, str):
        return [_named(name.strip()) for name in one.split(",")] if one.strip() else []
    known = "'exact', 'answer', … or an object such as Answer('last_number')"
    if isinstance(one, type):
        raise ValueError(f"{one.__name__} is a class: write {one.__name__}(…)")
    raise ValueError(f"{type(one).__name__} is no rule: write {known}")


def _named(name: str) -> Named:
    if name in _VERDICTS:
        return _VERDICTS[name]()
    if name == "lenient":
        return Lenient()
    if name == "text_match":
        return TextMatch()
    if name in _SCORING:
        return name
    if name == "validator":
        raise ValueError("a validator needs its check: write Validator(fn), a JSON schema or a pattern, in Python")
    near = get_close_matches(name, RULES, 1)
    raise ValueError(f"did you mean {near[0]!r}?" if near else f"known are {', '.join(RULES)}")


def _is_verdict(rule: Any) -> TypeGuard[VerdictRule]:
    return isinstance(rule, Agree | Answer | Judge | OkOrAnswer | Patch | Validator)
