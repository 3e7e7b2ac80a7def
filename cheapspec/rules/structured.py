"""Answers that a text holds in a form of its own: members of a JSON object, a captured group, a caller's function."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cheapspec.core.untyped import is_mapping
from cheapspec.rules.answers import DECORATION, is_names, same

__all__ = ["Custom", "Fields", "Group", "json_in"]

_FENCE: Final = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fields:
    """Named members of a JSON object: the whole text, a fenced block, or the last object in it. All must be there."""

    names: tuple[str, ...]
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if not is_names(self.names) or not self.names or not all(self.names):
            raise ValueError(f"Fields(names={self.names!r}): write the names of members, such as ('total', 'currency')")
        object.__setattr__(self, "names", tuple(self.names))

    @property
    def name(self) -> str:
        return f"fields({', '.join(map(repr, self.names))}, ignore_case={self.ignore_case})"

    @property
    def form(self) -> str:
        return f"as one JSON object with exactly these members: {', '.join(map(json.dumps, self.names))}"

    @property
    def tokens(self) -> int:
        return 16 + 24 * len(self.names)

    @property
    def chance(self) -> float | None:
        return None

    def draft(self, text: str) -> Mapping[str, Any] | None:
        found = json_in(text)
        if not is_mapping(found) or not all(name in found for name in self.names):
            return None
        return {name: found[name] for name in self.names}

    def short(self, text: str) -> Mapping[str, Any] | None:
        return self.draft(text)

    def same(self, one: object, other: object) -> bool:
        return same(one, other, ignore_case=self.ignore_case)


def json_in(text: str) -> object | None:
    """The JSON value that a text is, or that its last fenced block is, or the last object that it holds."""
    for candidate in (text, *reversed(_FENCE.findall(text))):
        try:
            return _loads(candidate)
        except (ValueError, RecursionError):
            continue
    found: object | None = None
    decoder, at = json.JSONDecoder(parse_constant=_refuse), text.find("{")
    for _ in range(1000):  # a text full of brackets is no JSON
        if at < 0:
            break
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found


def _loads(text: str) -> object:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True, slots=True)
class Group:
    """What a regular expression captures at its last match: the group ``answer``, else the first, else all of it.
    A short answer that the expression does not match is taken whole. ``form``: how to ask for it.
    """

    pattern: re.Pattern[str]
    form: str = "in the same form in which it stands in a full reply"
    ignore_case: bool = False
    tokens: int = 32

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "pattern", re.compile(self.pattern))
            self.pattern.search("")  # one of bytes cannot
        except (re.error, TypeError) as problem:
            raise ValueError(f"Group(pattern={self.pattern!r}): no regular expression: {problem}") from None
        if self.tokens < 1:
            raise ValueError(f"Group(tokens={self.tokens!r}): write 1 or more")

    @property
    def name(self) -> str:
        return f"group({self.pattern.pattern!r}, flags={int(self.pattern.flags)}, ignore_case={self.ignore_case})"

    @property
    def chance(self) -> float | None:
        return None

    def draft(self, text: str) -> str | None:
        found = list(self.pattern.finditer(text))
        if not found:
            return None
        last = found[-1]
        group: str | int = "answer" if "answer" in self.pattern.groupindex else min(self.pattern.groups, 1)
        return (last[group] or "").strip() or None

    def short(self, text: str) -> str | None:
        return self.draft(text) or text.strip(DECORATION) or None

    def same(self, one: object, other: object) -> bool:
        return same(one, other, ignore_case=self.ignore_case)


@dataclass(frozen=True, slots=True)
class Custom:
    """The caller's own function of a text; ``None``: no answer. It reads drafts and short answers alike.

    ``name`` is the function's, and is what a certificate is bound to: change it when the function changes.
    """

    function: Callable[[str], object | None]
    form: str = "and nothing else"
    tokens: int = 32
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError("Custom(function=…): write a function that takes a text and returns its answer, or None")
        if not self.name:
            module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "custom")
            object.__setattr__(self, "name", f"{module}.{name}")

    @property
    def chance(self) -> float | None:
        return None

    def draft(self, text: str) -> object | None:
        return self.function(text)

    def short(self, text: str) -> object | None:
        return self.function(text)

    def same(self, one: object, other: object) -> bool:
        return same(one, other)
