"""Drafts without a draft model: the conversation's own text, and the caller's prediction.

Rules
-----
* Prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding): what the reply
  says next often stands in the conversation already, after the same words. The longest suffix of the
  reply that occurs there wins, of equally long ones the latest.
* A match must be worth a verification: it begins at a word, and is at least three words and twelve
  characters long.
* A prediction (OpenAI's predicted outputs) is followed as long as the reply follows it, and picked up again after
  a deviation: line by line (:mod:`cheapspec.core.pickup`), else by the reply's last words.
* These drafts have no log-probabilities; their tokens are word-like pieces.

Everything is linear in the conversation, but for a bounded number of candidate places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cheapspec.core.acceptance import DraftToken
from cheapspec.core.effects import Op
from cheapspec.core.pickup import rest_by_lines
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request
from cheapspec.core.text import pieces

__all__ = ["Prediction", "PromptLookup", "realign"]

_WORDS = 3
_CHARACTERS = 12
_REACH = 200  # how far back a match is looked at, in characters
_PLACES = 64  # how many candidate places are compared
_CHARACTERS_A_PIECE = 16  # bounds the text that is cut into pieces
_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n`]*\n(?:.*\n)*?\1[ \t]*$", re.MULTILINE)
_WORD_START = re.compile(r"(?<!\w)\w")


class _Local:
    """What both drafters share: no host, no calls."""

    base_url = ""

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        return _nothing_to_ask()


def _nothing_to_ask() -> Op[Streaming[DraftPiece] | NoDraft]:
    yield from ()
    return NoDraft("no_draft", "a local drafter proposes its text without a call")


class PromptLookup(_Local):
    """Proposes what followed the reply's last words where they occurred before (:class:`cheapspec.core.ports.Drafter`).

    At the beginning of a reply it proposes nothing, unless the last user message holds a fenced code
    block: then that block (the longest one), which a request to change some code usually begins with.
    """

    name = "lookup"

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
        """At most ``max_tokens`` word-like pieces; empty when nothing is found."""
        said = (request.prompt or "") + prefix
        if not said:
            return _tokens(_code_block(request), max_tokens)
        key = _key(said)
        if not key:
            return ()
        best, follows = 0, ""
        for source in (said, *(str(message["content"]) for message in reversed(request.messages))):
            for end in _places(source, key):
                length = _common_suffix(source[max(end - _REACH, 0) : end], said) if end < len(source) else 0
                if length > best:
                    best, follows = length, source[end : end + max_tokens * _CHARACTERS_A_PIECE]
        return _tokens(follows, max_tokens)


class Prediction(_Local):
    """Proposes the rest of the caller's ``prediction`` (:class:`cheapspec.core.ports.Drafter`)."""

    name = "prediction"

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
        """At most ``max_tokens`` word-like pieces; empty without a prediction or when the reply has left it."""
        text = request.prediction or ""
        if text.startswith(prefix):
            return _tokens(text[len(prefix) :], max_tokens)
        return _tokens(rest_by_lines(text, prefix, realign) or _pick_up(text, prefix), max_tokens)


def _tokens(text: str, max_tokens: int) -> tuple[DraftToken, ...]:
    bounded = text[: max(max_tokens, 0) * _CHARACTERS_A_PIECE]
    return tuple(DraftToken(piece) for piece in pieces(bounded)[: max(max_tokens, 0)])


def _code_block(request: Request) -> str:
    asked = [str(message["content"]) for message in request.messages if message["role"] == "user"]
    return max((found.group() for found in _FENCED.finditer(asked[-1] if asked else "")), key=len, default="")


def _key(said: str) -> str:
    """The shortest suffix that begins at a word and is long enough to be looked for; empty if there is none."""
    tail = said[-_REACH:]
    starts = [found.start() for found in _WORD_START.finditer(tail)]
    if len(starts) >= _WORDS:
        for start in reversed(starts[: 1 - _WORDS]):
            if len(tail) - start >= _CHARACTERS:
                return tail[start:]
    return ""


def _places(source: str, key: str) -> list[int]:
    """Ends of the last occurrences of ``key``, latest first."""
    ends: list[int] = []
    at = source.rfind(key)
    while at >= 0 and len(ends) < _PLACES:
        ends.append(at + len(key))
        at = source.rfind(key, 0, at + len(key) - 1)
    return ends


def _common_suffix(one: str, other: str) -> int:
    """How many trailing characters agree, at most the reach."""
    length = 0
    for left, right in zip(reversed(one[-_REACH:]), reversed(other[-_REACH:]), strict=False):
        if left != right:
            break
        length += 1
    return length


def _pick_up(text: str, prefix: str) -> str:
    """The rest of ``text`` after the place that the end of ``prefix`` belongs to; empty if there is none.

    The last 30 characters of the prefix are looked for, then those before its last one to eight words
    (which are then taken for the deviation), nearest to where the prefix would end in the text.
    """
    words = [found.start() for found in re.finditer(r"\s*\S+", prefix[-_REACH:])]
    offset = max(len(prefix) - _REACH, 0)
    for cut in (len(prefix), *(offset + start for start in reversed(words[-8:]))):
        key = prefix[max(cut - 30, 0) : cut]
        if len(key) < _CHARACTERS:
            continue
        ends = _places(text, key)
        if ends:
            rest = text[min(ends, key=lambda end: abs(end - cut)) :]
            return realign(prefix[cut:], rest) if cut < len(prefix) else rest
    return ""


def realign(correction: str, remaining: str) -> str:
    """What likely follows ``correction`` in a draft that the target corrected.

    ``correction``: the text that the target put there (one token or a few words); ``remaining``: the
    draft's text from the rejected token on. If the correction stands within the next twenty words, the
    draft goes on after it (the target left something out); else the rejected word was replaced, and the
    draft goes on after that. Empty when nothing sensible is left.
    """
    ahead = pieces(remaining[: 40 * _CHARACTERS_A_PIECE])[:40]
    said = [piece.strip() for piece in pieces(correction) if piece.strip()][-_WORDS:]
    if not said:
        found = remaining.find(correction, 0, 20 * _CHARACTERS_A_PIECE) if correction else -1
        return remaining[found + len(correction) :] if found >= 0 else ""
    stripped = [piece.strip() for piece in ahead]
    # A short word or mark by itself occurs everywhere: only a near one is meant.
    within = 4 if len(said) == 1 and len(said[0]) < 4 else len(ahead)
    for start in range(min(within, len(ahead) - len(said) + 1)):
        if stripped[start : start + len(said)] == said:
            return remaining[len("".join(ahead[: start + len(said)])) :]
    replaced = _count_visible(said, stripped)
    return remaining[len("".join(ahead[:replaced])) :]


def _count_visible(said: Sequence[str], stripped: Sequence[str]) -> int:
    """How many leading pieces of the draft hold as many visible ones as were said instead."""
    seen = 0
    for index, piece in enumerate(stripped):
        seen += bool(piece)
        if seen == len(said):
            return index + 1
    return len(stripped)
