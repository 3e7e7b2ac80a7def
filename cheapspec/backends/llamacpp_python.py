"""llama-cpp-python's server as target, for text completions.

Facts: 0.3.36, seen in its replies, and 0.3.35, read in its source (both November 2026).

Rules
-----
1. ``/v1/completions`` with ``echo`` and ``logprobs: k`` gives the old completion shape. The numbers beside a token are
   those of the *next* position wherever the prompt does not begin with a BOS token (Qwen, SmolLM2), and its own
   where it does. Which of the two, a probe must have seen on the server's own reply (``shift``); before that, nothing
   here is evidence.
2. Shifted, the numbers of a position are those that stand beside the token before it, and the generated token is the
   best of the last ones. A listing holds the k best and one number that belongs elsewhere (the token that
   stands there): it is left out unless it is among the k best anyway.
3. A token that is not among the k best of its position has no number. That it is not the best is certain all the
   same: it gets the least number there is, which no rule accepts, and the best of the listing is the correction.
4. ``max_tokens: 0`` means no limit: one token is asked for. There is no route that renders a chat template, and a last
   assistant message is not gone on from, so a chat goes direct.
5. Tokens have no ids, and cached tokens are not told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cheapspec.backends.text_route import Position
from cheapspec.backends.text_target import Scored, TextTarget
from cheapspec.core.acceptance import Alternative, TargetLogprob, usable
from cheapspec.core.effects import Op, Usage
from cheapspec.core.ports import Context, NextToken, Unusable
from cheapspec.core.received import first_choice
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["LlamaCppPythonTarget"]

_LISTED = 5
_ABSENT = -8999.0
"""A token that is not listed: less likely than all that are. The least usable number; a margin of the lenient rule is
smaller (:data:`cheapspec.core.rules.MOST_NATS`)."""


class LlamaCppPythonTarget(TextTarget):
    """``shift``: how many positions before a token its numbers stand, 0 or 1; ``None``: not known."""

    name = "llamacpp-python"
    neutral: ClassVar[Mapping[str, Any]] = {
        "temperature": 0,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repeat_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
    }
    kinds = frozenset({"completion"})

    def __init__(self, *, shift: int | None = None) -> None:
        super().__init__()
        self.shift = shift

    def open(self, request: Request) -> Op[Context | Unusable]:
        if self.shift is None:
            return Unusable("not_probed", "which position its log-probabilities belong to has not been seen")
        return (yield from super().open(request))

    def question(self, request: Request, context: Context, sent: str) -> Mapping[str, Any]:
        return {"echo": True, "logprobs": _LISTED}

    def scored(self, body: Mapping[str, Any], asked: Mapping[str, Any], sent: str, usage: Usage) -> Scored | str:
        choice = first_choice(body)
        told = as_mapping(choice.get("logprobs"))
        tokens, listings = as_list(told.get("tokens")), as_list(told.get("top_logprobs"))
        numbers = as_list(told.get("token_logprobs"))
        count = _covering(tokens, sent)
        if count is None or len(listings) != len(tokens) or len(numbers) != len(tokens):
            return "the reply has no log-probabilities of the prompt"
        if self.shift:
            judged = [_from_before(tokens, listings, index) for index in range(count)]
        else:
            judged = [_in_place(tokens[index], numbers[index], listings[index]) for index in range(count)]
        positions = [Position(token, one) for token, one in zip(tokens, judged, strict=False)]
        return Scored(positions, _following(choice, sent))


def _covering(tokens: Sequence[object], text: str) -> int | None:
    """How many tokens join to exactly this text."""
    at = 0
    for index, token in enumerate(tokens):
        if not isinstance(token, str) or not text.startswith(token, at):
            return None
        at += len(token)
        if at == len(text):
            return index + 1
    return None


def _in_place(token: str, number: object, listing: object) -> TargetLogprob | None:
    if not is_number(number) or not usable(number):
        return None
    return TargetLogprob(token, float(number), top=_alternatives(as_mapping(listing)))


def _from_before(tokens: Sequence[str], listings: Sequence[object], index: int) -> TargetLogprob | None:
    """The judgement of a token by the numbers beside the token before it."""
    listing = as_mapping(listings[index - 1] if index else None)
    if len(listing) > _LISTED:  # the one too many is the token that stands there
        listing = {name: value for name, value in listing.items() if name != tokens[index - 1]}
    top = _alternatives(listing)
    if not top:
        return None
    number = next((one.logprob for one in top if one.text == tokens[index]), _ABSENT)
    return TargetLogprob(tokens[index], number, top=top)


def _alternatives(listing: Mapping[str, Any]) -> tuple[Alternative, ...]:
    return tuple(
        Alternative(text, float(value)) for text, value in listing.items() if is_number(value) and usable(value)
    )


def _following(choice: Mapping[str, Any], sent: str) -> NextToken | None:
    """The generated token: what the reply's text has after the echo."""
    if choice.get("finish_reason") == "stop":
        return NextToken(None, ends_turn=True)
    told: object = choice.get("text")
    text = told.removeprefix(sent) if isinstance(told, str) and told.startswith(sent) else ""
    return NextToken(text) if text and "�" not in text and choice.get("finish_reason") == "length" else None
