"""Where a reply that is an edited copy of a text stands in that text: line by line, so that insertions do no harm.

Rules
-----
* Whole lines of the reply are aligned with lines of the text (difflib's longest matching blocks, Ratcliff and
  Obershelp 1988). After the last aligned line both go on; what the reply says after it is its *deviation*.
* A deviation that ends with a line is an insertion, or it replaced as many lines: which of the two is told by
  whether its last line resembles the one that it would have replaced.
* A line that the reply has begun as one of the next lines of the text begins goes on as that one. A line that is
  changed inside is followed word by word behind the change.
* Inside an inserted line the text says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

__all__ = ["rest_by_lines"]

_AHEAD = 40  # lines of the text that a deviation may have left out
_ALIKE = 0.6  # ratio from which a line counts as a changed form of another
_LINES = 2000  # of text and reply that are aligned, from the end: bounds the time
_FEW = 3  # visible characters of a line's beginning that tell which line it is


def rest_by_lines(text: str, reply: str, within: Callable[[str, str], str]) -> str:
    """The rest of ``text`` behind the place where ``reply`` stands in it; empty if that is not known.

    ``within``: says what follows a deviation within a line (deviation, rest of the text).
    """
    lines = text.splitlines(keepends=True)
    said = reply.splitlines(keepends=True)
    begun = said.pop() if said and not said[-1].endswith("\n") else ""
    first = max(0, len(said) - _LINES)
    at, behind = _aligned(lines[first : first + 2 * _LINES], said[first:])
    at += first
    deviation, ahead = said[first + behind :], lines[at:]
    if len(lines) < 2 or (not at and not deviation):
        return ""
    if begun:
        return _inside(begun, ahead, len(deviation), within)
    if deviation and len(deviation) <= len(ahead) and _alike(deviation[-1], ahead[len(deviation) - 1]):
        return "".join(ahead[len(deviation) :])
    return "".join(ahead)


def _aligned(lines: Sequence[str], said: Sequence[str]) -> tuple[int, int]:
    """How many lines of text and reply lie before the end of the last alignment (0, 0: nothing is aligned)."""
    blocks = SequenceMatcher(None, lines, said, autojunk=False).get_matching_blocks()[:-1]
    told = [block for block in blocks if any(line.strip() for line in said[block.b : block.b + block.size])]
    return (told[-1].a + told[-1].size, told[-1].b + told[-1].size) if told else (0, 0)


def _inside(begun: str, ahead: Sequence[str], replaced: int, within: Callable[[str, str], str]) -> str:
    """``begun``: the beginning of a line; ``replaced``: whole lines of the deviation before it."""
    known = len(begun.strip()) >= _FEW
    nearest = sorted(range(min(len(ahead), _AHEAD)), key=lambda skip: (skip != replaced, skip))
    for skip in nearest[: None if known else 1]:
        if ahead[skip].startswith(begun):
            return ahead[skip][len(begun) :] + "".join(ahead[skip + 1 :])
    for skip in (replaced, 0):
        if skip < len(ahead):
            common = _common(begun, ahead[skip])
            if len(ahead[skip][:common].strip()) >= _FEW and begun[common:].strip():
                return within(begun[common:], ahead[skip][common:] + "".join(ahead[skip + 1 :]))
    return ""


def _common(one: str, other: str) -> int:
    """How many leading characters agree, cut back to whole words."""
    count = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
    count = min(count, len(one), len(other))
    while 0 < count < len(one) and (one[count - 1].isalnum() or one[count - 1] == "_"):
        count -= 1
    return count


def _alike(one: str, other: str) -> bool:
    return SequenceMatcher(None, one.strip(), other.strip(), autojunk=False).ratio() >= _ALIKE
