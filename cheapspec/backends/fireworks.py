"""Fireworks AI (``https://api.fireworks.ai/inference/v1``) as target.

Facts, of the types and docstrings of its SDK, ``fireworks-ai`` 1.2.30 (PyPI, November 2026), unless marked:

* ``/completions`` and ``/chat/completions`` take ``echo`` and ``echo_last: N`` ("Echo back the last N tokens of the
  prompt … useful for obtaining logprobs of the prompt suffix"); an N beyond the prompt is the whole prompt.
* ``logprobs: true`` with ``top_logprobs`` 0 to 5 gives ``choices[].logprobs.content[]``: ``{token, token_id, logprob,
  sampling_logprob, bytes, text_offset, top_logprobs: [{token, token_id, logprob, bytes}]}``, the echoed tokens
  first, then the generated ones. ``logprob`` is the raw model's, ``sampling_logprob`` the sampler's.
* Of a whole prompt the first entry is unconditional and says nothing.
* ``context_length_exceeded_behavior`` is ``truncate`` by default; our calls say ``error``.
* ``usage.prompt_tokens_details.cached_tokens`` tells the prompt cache.
* Not known without a key: whether a last assistant message is gone on from, and whether echoing reads the cache. The
  probe finds both out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cheapspec.backends.openai_wire import NEUTRAL_SAMPLING, id_of, ids_of
from cheapspec.backends.text_route import Position, surfaces_of
from cheapspec.backends.text_target import LISTED, Scored, TextTarget, items, judged
from cheapspec.core.effects import Usage
from cheapspec.core.ports import Context, NextToken
from cheapspec.core.received import first_choice
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_mapping

__all__ = ["FireworksTarget", "chat_positions"]

_BEFORE = 16
"""Tokens before the reply that are shown too: the end of the template, where a block of thoughts may stand."""


class FireworksTarget(TextTarget):
    """Fireworks, by text on either route."""

    name = "fireworks"
    neutral: ClassVar[Mapping[str, Any]] = {**NEUTRAL_SAMPLING, "top_k": 0}
    always: ClassVar[Mapping[str, Any]] = {"context_length_exceeded_behavior": "error"}

    def question(self, request: Request, context: Context, sent: str) -> Mapping[str, Any]:
        """A token has a byte at least, so that many tokens of the end reach back to the reply's first."""
        return {"echo_last": len(sent.encode("utf-8", "replace")) + _BEFORE, "logprobs": True, "top_logprobs": LISTED}

    def scored(self, body: Mapping[str, Any], asked: Mapping[str, Any], sent: str, usage: Usage) -> Scored | str:
        choice = first_choice(body)
        entries = items(as_mapping(choice.get("logprobs")).get("content"))
        echoed = min(int(asked["echo_last"]), usage.input_tokens)
        if echoed < 2 or not echoed <= len(entries) <= echoed + 1:
            return "the reply has no log-probabilities of the prompt"
        positions = chat_positions(entries[:echoed], whole=echoed == usage.input_tokens)
        return Scored(positions, _following(choice, entries[echoed:]))


def _following(choice: Mapping[str, Any], generated: Sequence[Mapping[str, Any]]) -> NextToken | None:
    entry = as_mapping(generated[0] if generated else None)
    token_id = id_of(entry)
    if choice.get("finish_reason") == "stop":
        return NextToken(None, token_id, ends_turn=True)
    text = _text(entry)
    return NextToken(text, token_id) if text and choice.get("finish_reason") == "length" else None


def chat_positions(entries: Sequence[Mapping[str, Any]], *, whole: bool) -> list[Position]:
    """Positions out of entries in chat shape with ids and bytes. ``whole``: the first is the prompt's first."""
    parts = [_bytes(entry) for entry in entries]
    if any(part is None for part in parts):
        surfaces = [str(entry.get("token", "")) for entry in entries]
    else:
        surfaces = surfaces_of([part for part in parts if part is not None])
    found: list[Position] = []
    for index, (entry, surface) in enumerate(zip(entries, surfaces, strict=True)):
        token_id = id_of(entry)
        listed = [(_text(one) or "�", id_of(one), one.get("logprob")) for one in items(entry.get("top_logprobs"))]
        if whole and index == 0:
            found.append(Position(surface, None, token_id))
        else:
            found.append(Position(surface, judged(surface, token_id, entry.get("logprob"), listed), token_id))
    return found


def _bytes(entry: Mapping[str, Any]) -> bytes | None:
    told = ids_of(entry.get("bytes"))
    return bytes(told) if told is not None and all(0 <= one < 256 for one in told) else None


def _text(entry: Mapping[str, Any]) -> str | None:
    """A token's text; ``None`` for a part of a character."""
    data = _bytes(entry)
    if data is None:
        told: object = entry.get("token")
        return told if isinstance(told, str) and "�" not in told else None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
