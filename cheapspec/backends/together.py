"""Together AI (``https://api.together.ai/v1``) as target.

Facts, of the types and docstrings of its SDK, ``together`` 3.1.1 (PyPI, November 2026), unless marked:

* ``/completions`` and ``/chat/completions`` take ``echo: true`` ("If true, the response contains the prompt. Can be
  used with ``logprobs`` to return prompt logprobs") and ``logprobs`` 0 to 20.
* The prompt's numbers stand in the *top-level* ``prompt[0].logprobs``: ``{token_ids, tokens, token_logprobs,
  top_logprobs}``; those of what was generated in ``choices[0].logprobs``, of the same shape.
* The schema types ``top_logprobs`` as one object; a list of objects, one a token, is read. One object for all of them
  says nothing about positions and is no evidence.
* ``finish_reason`` is ``eos`` or ``stop`` at the end of a turn. ``context_length_exceeded_behavior`` may be
  ``truncate``; our calls say ``error``. The schema has no count of cached tokens.
* Not known without a key: what models return, and whether a last assistant message is gone on from. The probe finds
  both out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cheapspec.backends.text_route import Position
from cheapspec.backends.text_target import LISTED, Scored, TextTarget, items, judged
from cheapspec.core.effects import Usage
from cheapspec.core.ports import Context, NextToken
from cheapspec.core.received import first_choice
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["TogetherTarget", "legacy_positions"]


class TogetherTarget(TextTarget):
    """Together, by text on either route."""

    name = "together"
    neutral: ClassVar[Mapping[str, Any]] = {
        "temperature": 0,
        "top_p": 1,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "n": 1,
    }
    always: ClassVar[Mapping[str, Any]] = {"context_length_exceeded_behavior": "error"}

    def question(self, request: Request, context: Context, sent: str) -> Mapping[str, Any]:
        return {"echo": True, "logprobs": LISTED}

    def scored(self, body: Mapping[str, Any], asked: Mapping[str, Any], sent: str, usage: Usage) -> Scored | str:
        prompts = items(body.get("prompt"))
        positions = legacy_positions(as_mapping(prompts[0].get("logprobs"))) if prompts else []
        if len(positions) < 2:
            return "the reply has no log-probabilities of the prompt"
        return Scored(positions, _following(first_choice(body)))


def _following(choice: Mapping[str, Any]) -> NextToken | None:
    told = as_mapping(choice.get("logprobs"))
    ids, tokens = as_list(told.get("token_ids")), as_list(told.get("tokens"))
    token_id = _id(ids[0]) if ids else None
    if choice.get("finish_reason") in ("eos", "stop"):
        return NextToken(None, token_id, ends_turn=True)
    text = tokens[0] if tokens and isinstance(tokens[0], str) and "�" not in tokens[0] else None
    return NextToken(text, token_id) if text and choice.get("finish_reason") == "length" else None


def _id(told: object) -> int | None:
    """A token id, which the schema types as a float."""
    if isinstance(told, float) and told.is_integer():
        return int(told)
    return told if type(told) is int else None


def legacy_positions(told: Mapping[str, Any]) -> list[Position]:
    """Positions out of the old completion shape, one list a property; empty when the lists do not fit together."""
    tokens, numbers = as_list(told.get("tokens")), as_list(told.get("token_logprobs"))
    ids, listings = as_list(told.get("token_ids")), as_list(told.get("top_logprobs"))
    if not all(isinstance(token, str) for token in tokens) or len(numbers) != len(tokens):
        return []
    if (ids and len(ids) != len(tokens)) or (listings and len(listings) != len(tokens)):
        return []
    return [_position(index, tokens[index], numbers[index], ids, listings) for index in range(len(tokens))]


def _position(index: int, text: str, number: object, ids: Sequence[Any], listings: Sequence[Any]) -> Position:
    token_id = _id(ids[index]) if ids else None
    listed = as_mapping(listings[index] if listings else None)
    if not is_number(number):
        return Position(text, None, token_id)
    if listed.get(text, number) != number:
        return Position(text, None, token_id)  # two ids read the same, and the listing speaks of the other
    top = [(name, token_id if name == text else None, value) for name, value in listed.items()]
    return Position(text, judged(text, token_id, number, top), token_id)
