"""Scoring by text: what was sent as text is found again among the tokens that a reply tells of.

Rules
-----
1. Where the draft begins among the scored tokens is found from the end: the decoded tokens must give draft and
   reply back character by character. A token that straddles the seam proves nothing about either side, a
   tail that does not match (a closed turn, a trimming template, thoughts put in between) proves nothing at all.
2. The tokens before the reply must stay the same from round to round, and so must those of the reply: text is
   tokenized anew each time, and a target that wrote two line ends as one token goes on otherwise when it is
   shown two (vLLM 0.32 with SmolLM2, November 2026). Where they change, the target goes on by itself. Of a
   reply that shows only the end of the prompt, that end is compared.
3. Whitespace at the end is never sent on a chat route: templates and providers trim or refuse it.
4. Thoughts are no part of a reply: where a template opens a block of them before it, or closes one although
   nobody switched thinking off, the scored text is not what the target would write.
5. Tokens are told apart by id, by text where a server tells no ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cheapspec.core.acceptance import TargetLogprob, shows_distribution
from cheapspec.core.alignment import align
from cheapspec.core.effects import Op, Usage
from cheapspec.core.fields import thinking_switched_off
from cheapspec.core.ports import Context, Identity, NextToken, Score, Unusable
from cheapspec.core.request import Request
from cheapspec.core.text import closes_thoughts, opens_thoughts, special_cut

__all__ = ["Position", "advance", "left_of", "part_to_score", "read_score", "seam", "surfaces_of", "with_reply"]

_Key = int | str | None


@dataclass(frozen=True, slots=True)
class Position:
    """One token of a scored prompt. ``text``: as decoded; a part of a character reads ``""`` and the token that
    completes it the whole character, U+FFFD where that is not known. ``judged``: ``None`` where the reply has no
    number (the first token of a prompt).
    """

    text: str
    judged: TargetLogprob | None = None
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What earlier replies showed: the tokens before the reply's first token (``hidden``: how many before those),
    the offsets in the reply at which its tokens end (those that end inside a character with the end of that
    character), and which they are (``None``: not known).
    """

    prompt: tuple[_Key, ...]
    hidden: int = 0
    ends: tuple[int, ...] = ()
    reply: tuple[_Key, ...] = ()

    def begins(self, prompt: Sequence[_Key], hidden: int) -> bool:
        """Whether the prompt is as long as the earlier one, and the same as far as both are shown."""
        both = min(len(prompt), len(self.prompt))
        same = both == 0 or tuple(prompt[-both:]) == self.prompt[-both:]
        return same and hidden + len(prompt) == self.hidden + len(self.prompt)

    def stands(self, found: Sequence[Position]) -> bool:
        """Whether the reply's tokens, as they stand in a scored prompt, are the verified ones."""
        if not self.reply:
            return True
        pairs = zip(self.reply, found, strict=False)
        return len(found) == len(self.reply) and all(
            known is None or known == (one.text if isinstance(known, str) else one.token_id) for known, one in pairs
        )

    def tokens_until(self, offset: int) -> int | None:
        """How many reply tokens lie before an offset; ``None`` where that is not known."""
        return None if not self.ends or offset > self.ends[-1] else sum(end <= offset for end in self.ends)


def surfaces_of(parts: Iterable[bytes]) -> list[str]:
    """The texts of tokens given as bytes: what completes a character shows it whole, the tokens before it read
    ``""``; bytes that begin no character are U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(part) for part in parts]


def with_reply(
    request: Request, text: str, flags: Mapping[str, Any], message: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The caller's body with the reply so far in place. ``flags`` and ``message``: what the server needs to be
    told, in the body and in the last message, so that it goes on.
    """
    body = dict(request.body)
    if request.kind != "chat":
        return body | {"prompt": (request.prompt or "") + text}
    if not text.strip():
        return body
    last = {"role": "assistant", "content": text, **(message or {})}
    return body | {"messages": [*request.body.get("messages", []), last], **flags}


def part_to_score(request: Request, context: Context, draft: str) -> str:
    """As much of the draft as is sent (rule 3); only white space of it is nothing to score."""
    sent = context.text + draft
    return sent.rstrip()[len(context.text) :] if request.kind == "chat" else draft


def read_score(
    request: Request,
    context: Context,
    draft: str,
    positions: Sequence[Position],
    usage: Usage,
    identity: Identity,
    following: NextToken | None,
    before: int = 0,
) -> Score | Unusable:
    """The evidence about ``draft`` (what was sent of it). ``before``: tokens of the prompt that the reply does
    not show.
    """
    surfaces = [one.text for one in positions]
    shown = "".join(surfaces)
    found = seam(surfaces, context.text, draft)
    if found is None:
        closed = _closed(shown, context.text + draft, request)
        detail = "the server closed the turn" if closed else "the scored tokens do not end in the reply and the draft"
        return Unusable("cannot_score", detail, lasting=closed, continues=not closed)
    reply_at, draft_at = found
    if request.kind == "chat" and _thinks("".join(surfaces[:reply_at]), request):
        return Unusable("reasoning", "the chat template makes the target think first", lasting=True)
    prompt = tuple(_key(one) for one in positions[:reply_at])
    earlier = context.extra if isinstance(context.extra, _Shown) else None
    if earlier is not None and not earlier.begins(prompt, before):
        return Unusable("cannot_score", "the prompt's tokens changed between two rounds")
    if earlier is not None and not earlier.stands(positions[reply_at:draft_at]):
        return Unusable("cannot_score", "the reply's text tokenizes otherwise than it was written", continues=True)
    ends = align(surfaces[draft_at:], draft)
    if ends is None:
        return Unusable("cannot_score", "the scored tokens do not join to the draft")
    return Score(
        tuple(one.judged or TargetLogprob(one.text, None, one.token_id) for one in positions[draft_at:]),
        ends,
        following,
        usage,
        identity,
        trusted=shows_distribution(one.judged.logprob for one in positions if one.judged is not None),
        prompt_tokens=before + reply_at,
        extra=_Shown(prompt, before),
    )


def _key(position: Position) -> _Key:
    return position.text if position.token_id is None else position.token_id


def _closed(shown: str, sent: str, request: Request) -> bool:
    """The text stands in the prompt, a control token after it: the turn was closed. Text that the
    caller's own messages contain as well proves nothing.
    """
    at = shown.rfind(sent)
    mine = any(sent in str(message.get("content")) for message in request.messages)
    return at >= 0 and not mine and special_cut(shown[at + len(sent) :]) < len(shown) - at - len(sent)


def _thinks(prompt: str, request: Request) -> bool:
    """Whether the target, asked by itself, would write thoughts first, to judge by what a template put before the
    reply. A closed block may stand there because thinking is off (then the target is shown one as well), or
    because it belongs to every turn that is over (then the target writes its own): only the caller's word tells.
    """
    return opens_thoughts(prompt) or (closes_thoughts(prompt) and not thinking_switched_off(request.body))


def seam(surfaces: Sequence[str], reply: str, draft: str) -> tuple[int, int] | None:
    """Indexes of the first token of ``reply`` and of the first token of ``draft``, when the last tokens
    read ``reply + draft`` and one of them begins exactly where the draft begins; else ``None``.

    Tokens inside a character read "": vLLM gives the whole character to the token that completes it,
    so an empty token belongs to the one after it. Where an older server shows U+FFFD instead, nothing
    is certain and the answer is ``None``.
    """
    text = reply + draft
    position, begins = len(text), dict[int, int]()
    for index in range(len(surfaces) - 1, -1, -1):
        surface = surfaces[index]
        if not text.endswith(surface, 0, position) or len(surface) > position:
            break
        position -= len(surface)
        if position < len(text):
            begins[position] = index
    if 0 not in begins or len(reply) not in begins:
        return None
    return begins[0], begins[len(reply)]


def advance(
    context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
) -> Op[Context | Unusable]:
    """Text and token count after the accepted tokens; whole characters only. Makes no call."""
    yield from ()
    whole = next((n for n in range(accepted, 0, -1) if score.ends[n - 1] is not None), 0)
    offset = (score.ends[whole - 1] or 0) if whole else 0
    text, tokens = context.text + draft[:offset], context.tokens + whole
    if follow is not None and follow.text and not follow.ends_turn:
        text, tokens = text + follow.text, context.tokens + accepted + 1
    known = context.prompt_tokens if context.prompt_tokens is not None else score.prompt_tokens
    shown = score.extra if isinstance(score.extra, _Shown) else _Shown(())
    earlier = context.extra if isinstance(context.extra, _Shown) else _Shown((), reply=(None,) * context.tokens)
    written: list[_Key] = [one.text if one.token_id is None else one.token_id for one in score.tokens[:accepted]]
    written.append(None if follow is None else follow.token_id)
    reply = (*earlier.reply, *written[: tokens - context.tokens])
    base, last, ends = len(context.text), len(text), list(earlier.ends)
    for index in range(tokens - context.tokens):
        end = score.ends[index] if index < accepted else None
        ends.append(last if end is None else base + end)
    for index in range(len(ends) - 2, -1, -1):
        ends[index] = min(ends[index], ends[index + 1])
    return Context(known, text, tokens, None, replace(shown, ends=tuple(ends), reply=reply))


def left_of(request: Request, context: Context, max_tokens: int | None) -> int | None:
    """What is left of the caller's limit for a hand-off from ``context.text``, whose tokens are counted where
    replies have shown them.
    """
    if max_tokens is None or request.max_tokens is None or not isinstance(context.extra, _Shown):
        return max_tokens
    done = context.extra.tokens_until(len(context.text))
    return max_tokens if done is None else max(1, request.max_tokens - done)
