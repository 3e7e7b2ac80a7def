"""Where the tokens of a server end in the text that they spell.

Rules
-----
* A token's surface is exact when it is bytes, or a string without U+FFFD. An exact surface must stand
  in the text where it is claimed to stand, byte for byte, or nothing after it is believed.
* U+FFFD in a surface stands for one to three bytes of a character that the token holds only a part
  of. Such bytes are never ASCII, so a run of such tokens reaches exactly to the next ASCII character
  that a later surface shows, or to the end. Only the end of the run is certain; ends within it are not.
* A token that ends inside a character has no end in characters. An empty string surface has none
  either: some servers show the parts of a character as ``""`` until its last token.
* Draft entries are aligned by text, never by index: Ollama up to 0.24 shows parts of characters as
  U+FFFD, Ollama from 0.30 shows several tokens as one entry with the last one's log-probability (both
  recorded from real servers). What may be such an entry gets no log-probability: unknown, not certain.

Each surface and each byte of the text is looked at a fixed number of times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from cheapspec.core.acceptance import DraftToken, usable

__all__ = ["align", "align_draft", "pieces"]

UNKNOWN = "\ufffd"
_PIECE = re.compile(r"\s+(?= \S)| ?\w+| ?[^\w\s]+|\s+")
_ONE_TOKEN = re.compile(r"[^\r\n\w]?[^\W\d_]+|[^\r\n\w]?[\d_]+| ?[^\s\w]+[\r\n]*|\s+|[^\r\n\w]?\w+")


def pieces(text: str) -> list[str]:
    """Word-like pieces that join to ``text``: whitespace, or a word or punctuation with at most one space before it."""
    return _PIECE.findall(text)


def align(surfaces: Sequence[bytes | str], text: str) -> tuple[int | None, ...] | None:
    """The offset in ``text``, in characters, after each token.

    ``None`` stands for a token that ends inside a character or whose end is not certain. The whole
    result is ``None`` when the surfaces do not join to the text.
    """
    ends, reached, total = _walk(surfaces, text)
    return tuple(ends) if len(ends) == len(surfaces) and reached == total else None


def align_draft(entries: Sequence[tuple[str, bytes | None, float | None]], text: str) -> tuple[DraftToken, ...]:
    """Draft tokens that join to ``text`` out of a server's entries (token text, its bytes, log-probability).

    Never raises. Where entries do not fit the text, or one may span several tokens, the text is kept
    and the log-probability is ``None``. Entries past the end are dropped, entries before the text
    (thoughts) are skipped. U+FFFD at the very end of ``text`` is half a character and left out.
    """
    text = text.rstrip(UNKNOWN)
    shown = [entry for entry in entries if entry[0] or entry[1]]
    surfaces = [_surface(token, raw) for token, raw, _ in shown]
    skipped = 0
    ends, reached, total = _walk(surfaces, text)
    if reached < total:
        skipped = _before(surfaces, text)
        ends, _, _ = _walk(surfaces[skipped:], text)
    tokens: list[DraftToken] = []
    at = members = 0
    for (_, _, logprob), end in zip(shown[skipped:], ends, strict=False):
        members += 1
        if end is None:
            continue
        token = text[at:end]
        sure = members == 1 and usable(logprob) and not _may_be_several(token)
        tokens.append(DraftToken(token, logprob if sure else None))
        at, members = end, 0
    return (*tokens, *(DraftToken(piece) for piece in pieces(text[at:])))


def _surface(token: str, raw: bytes | None) -> bytes | str:
    """The bytes where they say more than the token's text; bytes that spell U+FFFD do not."""
    return raw if raw and not (token and UNKNOWN in raw.decode("utf-8", "ignore")) else token


def _before(surfaces: Sequence[bytes | str], text: str) -> int:
    """How many entries come before the text: those of thoughts that the server left out of it."""
    lengths = [len(_exact(surface)) for surface in surfaces]
    at = b"".join(_exact(surface) for surface in surfaces).find(_data(text))
    starts = dict(zip(accumulate(lengths), range(1, len(lengths) + 1), strict=True))
    return starts.get(at, 0)


def _may_be_several(token: str) -> bool:
    """Whether an entry may stand for several tokens with the log-probability of the last one only.

    No common tokenizer joins, say, a comma and the next word. A lone character from U+0800 on takes
    three bytes or more and is often several tokens; beyond U+FFFF nearly always.
    """
    word = token.strip()
    return (
        not _ONE_TOKEN.fullmatch(token)
        or (len(word) == 1 and word >= "\u0800")
        or any(character > "\uffff" for character in word)
    )


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _exact(surface: bytes | str) -> bytes:
    return surface if isinstance(surface, bytes) else _data(surface)


def _walk(surfaces: Sequence[bytes | str], text: str) -> tuple[list[int | None], int, int]:
    """Ends of the leading surfaces that fit, the byte reached, and the text's length in bytes."""
    data = _data(text)
    offsets: list[int | None] = [None] * (len(data) + 1)
    byte = 0
    for index, character in enumerate(text):
        offsets[byte] = index
        byte += len(_data(character))
    offsets[byte] = len(text)
    ends: list[int | None] = []
    at = 0
    while len(ends) < len(surfaces):
        surface = surfaces[len(ends)]
        if isinstance(surface, str) and UNKNOWN in surface:
            run = _run(surfaces, len(ends), data, at)
            if run is None:
                break
            stops, at = run
            ends.extend(None if stop is None else offsets[stop] for stop in stops)
            continue
        exact = _exact(surface)
        if not data.startswith(exact, at):
            break
        at += len(exact)
        ends.append(None if surface == "" else offsets[at])
    return ends, at, len(data)


def _run(surfaces: Sequence[bytes | str], first: int, data: bytes, at: int) -> tuple[list[int | None], int] | None:
    """A stretch that begins with a surface of unknown bytes, up to the first surface whose end is certain again.

    Returns the byte offset after each of its surfaces, and the byte reached; ``None``: it does not fit.
    """
    known = unknown = 0  # bytes that are shown, and marks of bytes that are not, since the run began
    tail = 0  # shown bytes since the last mark
    last = first  # the surface that holds the last mark
    begun = anchored = False
    index = first
    while index < len(surfaces) and not anchored:
        surface = surfaces[index]
        parts = [surface] if isinstance(surface, bytes) else [_data(part) for part in surface.split(UNKNOWN)]
        for number, part in enumerate(parts):
            if number:
                begun, unknown, tail, last = True, unknown + 1, 0, index
            if not begun:  # shown bytes before the first mark are exact
                if not data.startswith(part, at):
                    return None
                at += len(part)
                continue
            shown = _leading_wide(part)
            known += shown
            tail += shown
            anchored = shown < len(part)
            if anchored and number < len(parts) - 1:
                return None  # ASCII between two parts of characters in one token: no tokenizer does that
        index += 1
    reach = at + _leading_wide(data[at : at + known + 3 * unknown + 1])
    if not known + unknown <= reach - at <= known + 3 * unknown:
        return None
    inside: list[int | None] = [None] * (last - first)
    surface = surfaces[last]
    assert isinstance(surface, str)
    rest = _data(surface.rpartition(UNKNOWN)[2])
    pinned = reach - tail
    if not data.startswith(rest, pinned):
        return None
    return [*inside, pinned + len(rest)], pinned + len(rest)


def _leading_wide(part: bytes) -> int:
    """How many leading bytes are not ASCII."""
    return len(part) - len(part.lstrip(_WIDE))


_WIDE = bytes(range(0x80, 0x100))
