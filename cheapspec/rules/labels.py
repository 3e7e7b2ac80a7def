"""``Label``: an answer that is one of a few choices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cheapspec.rules.answers import DECORATION, is_names, marked, plain

__all__ = ["Label"]


@dataclass(frozen=True, slots=True)
class Label:
    """One of a few choices. In a draft: the last line, else the only one behind the last mark, else the only one that
    occurs. A choice of one character (``A``, ``B``) counts in running text only in its own case and set off by
    brackets, asterisks or punctuation; "not B" is never B. Choices that differ only in case need ``ignore_case=False``.

    Few labels agree by chance: see ``chance``.
    """

    choices: tuple[str, ...]
    ignore_case: bool = True

    def __post_init__(self) -> None:
        if not is_names(self.choices):
            raise ValueError("Label(choices=…): write two or more labels, such as ('yes', 'no')")
        object.__setattr__(self, "choices", tuple(self.choices))
        unlike = {plain(choice, self.ignore_case) for choice in self.choices}
        if len(self.choices) < 2 or len(unlike) != len(self.choices) or "" in unlike:
            raise ValueError(f"Label(choices={self.choices!r}): write two or more different labels, none of them empty")

    @property
    def name(self) -> str:
        return f"label({', '.join(map(repr, self.choices))}, ignore_case={self.ignore_case})"

    @property
    def form(self) -> str:
        return f"as exactly one of: {', '.join(self.choices)}"

    @property
    def tokens(self) -> int:
        return max(16, *(len(choice) for choice in self.choices))

    @property
    def chance(self) -> float | None:
        return 1 / len(self.choices)

    def draft(self, text: str) -> str | None:
        whole = self._whole(text.strip().rpartition("\n")[2])
        if whole is not None:
            return whole
        behind = marked(text)
        if behind is not None and (whole := self._whole(behind)) is not None:
            return whole
        found = set(self._found((behind or "").strip().partition("\n")[0], free=True))
        found = found or set(self._found(text, free=False))
        return found.pop() if len(found) == 1 else None

    def short(self, text: str) -> str | None:
        whole = self._whole(text)
        if whole is not None:
            return whole
        found = set(self._found(text, free=False)) | set(self._found(marked(text) or "", free=True))
        return found.pop() if len(found) == 1 else None

    def same(self, one: object, other: object) -> bool:
        return one in self.choices and one == other

    def _whole(self, text: str) -> str | None:
        wanted = plain(text.strip(DECORATION), self.ignore_case)
        return next((choice for choice in self.choices if plain(choice, self.ignore_case) == wanted), None)

    def _found(self, text: str, *, free: bool) -> list[str]:
        """The choices that occur, in order; a longer one hides those inside it. ``free``: letters need no frame."""
        by_length = sorted(self.choices, key=len, reverse=True)
        pattern = "|".join(f"(?P<c{self.choices.index(choice)}>{self._one(choice, free)})" for choice in by_length)
        found: list[str] = []
        for match in re.finditer(pattern, text):
            if not re.search(r"\b(?:not|n't|isn't)\s*[*(\"']*$", text[: match.start()], re.IGNORECASE):
                found.append(self.choices[int((match.lastgroup or "c0")[1:])])
        return found

    def _one(self, choice: str, free: bool) -> str:
        spelled = r"\s+".join(map(re.escape, choice.split()))
        if len(choice.strip()) == 1:
            return rf"(?<![^\W_]){spelled}(?![^\W_])" if free else rf"(?<=[(*\[]){spelled}(?=[)*\].:])"
        bounded = rf"(?<![^\W_]){spelled}(?![^\W_])"
        return f"(?i:{bounded})" if self.ignore_case else bounded
