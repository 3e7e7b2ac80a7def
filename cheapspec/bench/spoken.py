"""A reply known token by token, and what a drafter would have proposed at every position of it.

That is what the clairvoyant needs (:mod:`cheapspec.core.oracle`): the bench asks the drafters again, along the final
reply, after both arms are done. It costs local computation only. The meaning of each number is said in
:mod:`cheapspec.core.traces`; rows are aligned by bytes, so any tokenizer will do. A character of several target
tokens is dealt with at the first of them; where it is contradicted, nothing is known of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cheapspec.core.drafting import given_draft
from cheapspec.core.effects import Usage
from cheapspec.core.ports import Drafter
from cheapspec.core.request import Request
from cheapspec.core.traces import DraftRow, StaticRow
from cheapspec.core.untyped import as_list, as_mapping

__all__ = ["Drafted", "Spoken", "draft_row", "spoken", "static_row"]

PIECES = 512
"""Word-like pieces that a drafter of given text is asked for at a position: as many as the engine asks for at most."""


@dataclass(frozen=True)
class Spoken:
    """One reply. ``sizes``: bytes of each token, the end of the turn (if ``finish`` is ``"stop"``) included with 0.
    ``prompt_tokens``, ``cached_tokens``: of the direct call.
    """

    text: str
    sizes: tuple[int, ...]
    finish: str
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @cached_property
    def data(self) -> bytes:
        """The text, encoded."""
        return self.text.encode()

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each token begins in the bytes, and, last, where the reply ends."""
        out = [0]
        for size in self.sizes:
            out.append(out[-1] + size)
        return tuple(out)

    @property
    def texts(self) -> int:
        """How many of the tokens are text: all but the end of the turn."""
        return len(self.sizes) - (self.finish == "stop")

    def inside(self, at: int) -> bool:
        """Whether position ``at`` begins inside a character."""
        return 0 < at < self.texts and not self.sizes[at - 1]

    def before(self, at: int) -> str:
        """The reply's text before position ``at``, which must not be inside a character."""
        return self.data[: self.offsets[at]].decode()

    def covered(self, first: int, place: int) -> int:
        """The first position from ``first`` on whose text is not wholly before byte ``place``."""
        at = first
        while at < self.texts and self.offsets[at + 1] <= place:
            at += 1
        while at > first and not self.sizes[at - 1]:  # these begin a character that is not covered
            at -= 1
        return at

    def owner(self, place: int) -> int:
        """The token that holds byte ``place`` (of a character of several tokens, the first); behind the text, the last
        position.
        """
        at = self.covered(0, place)
        return min(at, len(self.sizes) - 1)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A token that a draft model wrote. ``end``: it ended its turn here (then ``data`` is empty)."""

    data: bytes
    logprob: float | None
    end: bool = False


Ask = Callable[[str], Sequence[Drafted]]
"""The next tokens of a draft model after this text of the reply; at least one, unless it cannot draft there."""


def spoken(reply: Any, usage: Usage | None) -> Spoken | None:
    """A chat completion's first choice, if it came with log-probabilities and they join to its text."""
    choice = reply.choices[0]
    text = str(choice.message.content or "")
    told = as_mapping(reply.model_dump()["choices"][0].get("logprobs"))
    sizes = [len(as_list(as_mapping(entry).get("bytes"))) for entry in as_list(told.get("content"))]
    finish = "length" if choice.finish_reason == "length" else "stop"
    # Some servers list the end of the turn: as nothing, or by its name (vLLM), which is no part of the text.
    if finish == "stop" and sizes and sum(sizes[:-1]) == len(text.encode()):
        sizes.pop()
    if not text or sum(sizes) != len(text.encode()):
        return None
    sizes += [0] if finish == "stop" else []
    if usage is None:
        return Spoken(text, tuple(sizes), finish)
    return Spoken(text, tuple(sizes), finish, usage.input_tokens, usage.cached_tokens or 0)


def draft_row(ask: Ask, said: Spoken, name: str) -> DraftRow:
    """A draft model along the reply: it drafts freely from a position until it contradicts the reply, then again
    from behind the target token that corrected it, as in use.
    """
    length = len(said.sizes)
    logprobs: list[float | None] = [None] * length
    agreed: list[bool | None] = [None] * length
    ends: set[int] = set()
    at = 0
    while at < length:
        if said.inside(at):
            logprobs[at] = None
            at += 1
            continue
        tokens, first, place, wrong = ask(said.before(at)), at, said.offsets[at], False
        logprobs[at:] = [0.0 if tokens else None] * (length - at)
        for token in tokens:
            if place == len(said.data) and said.finish != "stop":
                break
            owner = said.owner(place)
            if token.end:
                ends.add(owner)
                logprobs[owner], wrong = None, owner < said.texts
                agreed[owner] = not wrong
                break
            before = logprobs[owner]
            logprobs[owner] = None if before is None or token.logprob is None else before + token.logprob
            same = common(said.data[place:], token.data)
            place, wrong = place + same, same < len(token.data)
            if wrong:
                break
        at = said.covered(first, place)
        agreed[first:at] = [True] * (at - first)
        if at < length and (wrong or at == first):  # contradicted, ended, or without room for the first token
            agreed[at] = bool(agreed[at])
            at += 1
    return DraftRow(name, tuple(logprobs), tuple(agreed), frozenset(ends))


def static_row(drafter: Drafter, request: Request, said: Spoken, count: Callable[[str], int]) -> StaticRow:
    """A drafter of given text along the reply. ``count``: how many target tokens a text has. The row is ``whole`` if
    each proposal claims the reply's end, as the engine takes it (:func:`cheapspec.core.drafting.given_draft`).
    """
    proposed: list[int | None] = []
    right: list[int | None] = []
    claims: list[bool] = []
    for at in range(len(said.sizes)):
        if said.inside(at):
            proposed.append(None)
            right.append(None)
            continue
        draft = given_draft(drafter, request, said.before(at), PIECES)
        text = "" if draft is None else draft.text
        claims += [draft.end == "stop"] if draft is not None and text else []
        data = text.encode("utf-8", "replace")
        good = said.covered(at, said.offsets[at] + common(said.data[said.offsets[at] :], data)) - at
        rest = data[said.offsets[at + good] - said.offsets[at] :].decode("utf-8", "replace")
        proposed.append(good + (count(rest) if rest else 0))
        right.append(good)
    return StaticRow(drafter.name, tuple(proposed), tuple(right), bool(claims) and all(claims))


def common(one: bytes, other: bytes) -> int:
    """How many leading bytes agree."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
