"""Final answers, compared by type: whether a draft says the same thing as the reply, in whatever words.

Rules
-----
* A comparison is made only where it means something: the reply *is* JSON (or one fenced block of it), or it ends with
  a number (and its unit), or marks one as its answer. Of any other text nothing is claimed.
* Equality is typed (:mod:`cheapspec.rules.extract`): 1 = 1.0, keys in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cheapspec.core.untyped import is_list, is_mapping
from cheapspec.rules.extract import LastNumber, json_in, same

__all__ = ["KINDS", "Compared", "answer_kind", "compare"]

KINDS = ("number", "json")

_FENCED = re.compile(r"\A\s*```\w*\n.*\n```\s*\Z", re.DOTALL)
_ENDS_WITH_NUMBER = re.compile(r"\d[\d.,]*\s*(?:[^\W\d_]+|[^\w\s]{1,2})?[\s*_`.)\]}$]*\Z")
_MARKED = re.compile(r"####|\\boxed\s*\{|\banswer\s*(?:is|:)", re.IGNORECASE)
_NUMBER = LastNumber()


@dataclass(frozen=True, slots=True)
class Compared:
    """``kind``: one of :data:`KINDS`. ``valid``: the draft has an answer of that kind; ``equal``: the reply's."""

    kind: str
    valid: bool
    equal: bool


def answer_kind(reply: str) -> str | None:
    """What the answer of a reply is; ``None`` where it has none that can be compared."""
    stripped = reply.strip()
    if stripped[:1] in ("{", "[") or _FENCED.match(stripped):
        found = json_in(stripped)
        return "json" if is_mapping(found) or is_list(found) else None
    if (_ENDS_WITH_NUMBER.search(stripped) or _MARKED.search(stripped)) and _NUMBER.draft(stripped) is not None:
        return "number"
    return None


def compare(kind: str, draft: str | None, reply: str) -> Compared:
    """``draft``: the draft model's own whole reply; ``None``: it never ended one, which is no answer."""
    if draft is None:
        return Compared(kind, valid=False, equal=False)
    if kind == "json":
        said, wanted = json_in(draft), json_in(reply)
        valid = is_mapping(said) or is_list(said)
        return Compared(kind, valid, valid and same(said, wanted))
    number, answer = _NUMBER.draft(draft), _NUMBER.draft(reply)
    return Compared(kind, number is not None, number is not None and _NUMBER.same(number, answer))
