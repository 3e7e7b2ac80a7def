"""Seams: where text may be cut, joined, stopped and shown.

Rules
-----
* A local and a paid model's tokenizer are never assumed to agree. A target that goes on from *text*
  tokenizes it anew, so it goes on only from a place where every common pre-tokenizer (GPT-2's and
  cl100k's expressions, SentencePiece's word marks) begins a new piece: before a single space that
  separates two visible runs, or before a full-width mark that follows a letter.
* Text that went out is never taken back, and the joined text never says a thing twice. What looks
  like a repetition is removed only when it is too long to be chance.
* Nothing of a stop string, and nothing after it, is shown; nothing harmless is held for good.
* Text that a raw endpoint would read as a control token is never sent as a draft.

Token alignment (:func:`align`, :func:`align_draft`, :func:`pieces`) lives in
:mod:`cheapspec.core.alignment` and is offered here too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from cheapspec.core.alignment import align, align_draft, pieces

__all__ = [
    "StopScanner",
    "align",
    "align_draft",
    "closes_thoughts",
    "join_continuation",
    "looks_special",
    "may_repeat",
    "opens_thoughts",
    "pieces",
    "safe_cut",
    "special_cut",
]

_FULL_WIDTH = frozenset("。，、！？；：…）》」』】")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*(?=\S)|\n+(?=\S)")

# Names as the vocabularies of Llama, Qwen, Gemma, Mistral, DeepSeek, SmolLM2, StarCoder, T5 and BERT spell them.
# An opening ``<|`` is enough: the rest of such a token may follow in the next piece of text.
_SPECIAL = re.compile(
    r"<\|(?=[\w.\-])|<｜"
    r"|</?(?:s|unk|pad|bos|eos|mask|cls|sep|think|thinking|thought|tool_call|tool_response|tools"
    r"|start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|turn|fim_\w+|repo_?name|file_?name"
    r"|file_sep|gh_stars|issue_\w+|jupyter_\w+|empty_output|commit_\w+|extra_id_\d+|unused\d+|reserved_\w+)>"
    r"|<<?/?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG|THINK|PREFIX|MIDDLE"
    r"|SUFFIX|CLS|SEP|PAD|UNK|MASK|BOS|EOS)\]"
)
# The marks of Qwen, DeepSeek and others; Seed-OSS; Magistral; Kimi; Cohere; gpt-oss and Gemma (whose thoughts are a
# channel of the message).
_OPENED_THOUGHT = re.compile(
    r"(?:<(?:seed:)?(?:think|thinking|thought)>|\[THINK\]|◁think▷|<\|(?:START_THINKING\||channel\|?)>)\Z"
)
_CLOSED_THOUGHT = re.compile(r"(?:</(?:seed:)?(?:think|thinking|thought)>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>)\Z")
_LONGEST_MARK = 64  # with the white space after it


def safe_cut(text: str) -> int:
    """The last offset of ``text`` from which a target may go on by text; 0 if there is none.

    ``text[:offset]`` ends in something visible, and what follows it in ``text`` shows that a new piece
    begins there. The end of the text is never safe: what follows it is unknown.
    """
    for offset in range(len(text) - 1, 0, -1):
        before, here = text[offset - 1], text[offset]
        if here == " ":
            if offset + 1 < len(text) and not _binds(before) and not before.isspace() and _begins(text[offset + 1]):
                return offset
        elif here in _FULL_WIDTH and before.isalpha():
            return offset
    return 0


def _binds(character: str) -> bool:
    """Joiners, tags and controls bind to what follows; characters that Unicode's tables do not know may, too."""
    return unicodedata.category(character).startswith("C")


def _begins(character: str) -> bool:
    """Whether a visible run can begin with it: no space, no mark or skin tone of the character before."""
    mark = unicodedata.category(character).startswith("M") or "\U0001f3fb" <= character <= "\U0001f3ff"
    return not character.isspace() and not mark and not _binds(character)


def join_continuation(prefix: str, continuation: str, *, echoed: bool | None = None) -> str:
    """The reply so far and what the target wrote after it, as one text that begins with ``prefix``.

    The target was shown ``prefix`` without its trailing whitespace; that separator stands exactly once
    in the result. ``echoed`` says whether this server is known to say the prefix again (``True``) or
    not to (``False``); ``None``: unknown, then repeated text is removed only when it is certain: the
    whole prefix from two words and 12 characters on, or its last sentence from three words and 16 on,
    unless the prefix is itself a repetition that could simply go on.
    """
    shown = prefix.rstrip()
    separator = prefix[len(shown) :]
    rest = continuation
    stem = shown.lstrip()
    said = continuation.lstrip()
    if stem and echoed is not False:
        if said.startswith(stem) and (echoed or _certain(stem, 2, 12)):
            rest = said[len(stem) :]
        elif echoed is None:
            sentence = _SENTENCE_END.split(stem)[-1]
            if said.startswith(sentence) and _certain(sentence, 3, 16):
                rest = said[len(sentence) :]
    if separator:
        led = rest[: len(rest) - len(rest.lstrip())]
        rest = rest[len(separator) if led.startswith(separator) else len(led) :]
    return prefix + rest


def may_repeat(prefix: str, begun: str) -> bool:
    """Whether a continuation that so far reads ``begun`` may turn out to say ``prefix`` or its last sentence
    again. While it may, :func:`join_continuation` should not be asked yet.
    """
    stem, said = prefix.strip(), begun.lstrip()
    return any(whole.startswith(said) for whole in (stem, _SENTENCE_END.split(stem)[-1]))


def _certain(repeated: str, words: int, characters: int) -> bool:
    """Too long to be said twice by chance, and not a pattern such as ``ha ha ha`` that goes on by itself."""
    unit = repeated + " "
    return len(repeated) >= characters and len(repeated.split()) >= words and (unit + unit).find(unit, 1) == len(unit)


class StopScanner:
    """Finds stop strings in text that comes in pieces.

    Of two stop strings that end at the same character the longer one counts; otherwise the one that is
    complete first, as a server that stops while it writes would see it. What may be the start of one is
    followed by a Knuth-Morris-Pratt automaton each, over no more than the end of a piece.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._failures = [_failure(stop) for stop in self._stops]
        self._longest = max(map(len, self._stops), default=0)
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._hit = False

    def feed(self, text: str) -> tuple[str, bool]:
        """Take text; return what may be shown now, and whether a stop string was reached (then or earlier)."""
        if self._hit or not self._stops:
            return ("", True) if self._hit else (text, False)
        pending = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            self._hit, self._held = True, ""
            return pending[: min(found)[1]], True
        free = len(pending) - self._follow(text)
        self._held = pending[free:]
        return pending[:free], False

    def _follow(self, text: str) -> int:
        """How many characters at the end may be the start of a stop string, none of which is complete."""
        if len(text) >= self._longest:  # what came before cannot reach to the end any more
            text = text[len(text) - self._longest + 1 :]
            self._matched = [0] * len(self._stops)
        for number, stop in enumerate(self._stops):
            matched, failure = self._matched[number], self._failures[number]
            for character in text:
                while matched and stop[matched] != character:
                    matched = failure[matched]
                matched += stop[matched] == character
            self._matched[number] = matched
        return max(self._matched)

    def flush(self) -> str:
        """The text is over: what was held back turned out harmless. Empty after a hit."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held


def _failure(stop: str) -> list[int]:
    """``failure[i]``: length of the longest proper prefix of ``stop`` that ends ``stop[:i]``."""
    failure = [0] * len(stop)
    length = 0
    for index in range(1, len(stop) - 1):
        while length and stop[length] != stop[index]:
            length = failure[length]
        length += stop[length] == stop[index]
        failure[index + 1] = length
    return failure


def special_cut(text: str) -> int:
    """Offset of the first thing that looks like a special token (or the beginning of one), else ``len(text)``.

    Raw endpoints parse such text as control tokens (llama.cpp, Ollama and vLLM all do), so a draft is
    cut there.
    """
    found = _SPECIAL.search(text)
    return found.start() if found else len(text)


def looks_special(text: str) -> bool:
    """Whether a single token's text is no text: a special token, or empty (how servers that hide them show them)."""
    return special_cut(text) < len(text) or not text


def opens_thoughts(text: str) -> bool:
    """Whether a text (a rendered prompt, a token) ends by opening a block of thoughts."""
    return bool(_OPENED_THOUGHT.search(text[-_LONGEST_MARK:].rstrip()))


def closes_thoughts(text: str) -> bool:
    """Whether a text ends by closing a block of thoughts."""
    return bool(_CLOSED_THOUGHT.search(text[-_LONGEST_MARK:].rstrip()))
