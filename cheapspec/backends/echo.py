"""Reads the classic scoring question (``echo`` with ``logprobs`` on ``/v1/completions``) and says in a
sentence what the answer shows.

Servers differ here more than anywhere: llama.cpp ignores ``echo`` silently and reports the generated token
in chat shape; llama-cpp-python 0.3.36 echoes, but scores each token by the distribution *after* it; some
routers turn the call into a chat. An answer proves scoring only if its tokens join to the text that was
sent and carry real numbers at their own positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cheapspec.backends.openai_wire import error_message
from cheapspec.core.acceptance import shows_distribution
from cheapspec.core.effects import HttpReply
from cheapspec.core.received import first_choice
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["is_echoed", "read_echo", "shifted"]


def read_echo(reply: HttpReply | None, text: str) -> str:
    """One sentence about the reply to ``{"prompt": text, "echo": true, "logprobs": 1}``."""
    if reply is None:
        return "echo: no reply"
    if reply.status >= 300:
        return f"echo is refused: HTTP {reply.status} {error_message(reply.json())[:120]}".rstrip()
    told = as_mapping(first_choice(as_mapping(reply.json())).get("logprobs"))
    tokens = [str(token) for token in as_list(told.get("tokens"))]
    numbers = as_list(told.get("token_logprobs"))
    if not tokens or len(tokens) != len(numbers) or not "".join(tokens).startswith(text):
        return "echo is ignored: the reply has no log-probabilities of the text that was sent"
    if not shows_distribution(float(number) if is_number(number) else None for number in numbers):
        return "echo gives placeholders instead of log-probabilities"
    if shifted(_hits(tokens, as_list(told.get("top_logprobs")))):
        return "echo gives log-probabilities that are shifted by one position"
    return "echo gives log-probabilities of the text"


def is_echoed(reply: HttpReply | None, text: str) -> bool:
    """Whether that reply has real numbers beside the tokens of ``text``, in place or shifted."""
    return "gives log-probabilities" in read_echo(reply, text)


def shifted(hits: Iterable[tuple[bool, bool]]) -> bool:
    """Whether log-probabilities stand one position late: more positions have the *next* token as best alternative than
    their own. ``hits``: of each position, whether its best is its own token, and whether it is the next one.

    A text that the model finds likely is needed: then the two cases are far apart.
    """
    told = list(hits)
    return sum(after for _, after in told) > sum(own for own, _ in told)


def _hits(tokens: Sequence[str], listed: Sequence[Any]) -> Iterator[tuple[bool, bool]]:
    for index, entry in enumerate(listed[: len(tokens)]):
        numbers = {text: float(number) for text, number in as_mapping(entry).items() if is_number(number)}
        if numbers:
            best = max(numbers, key=numbers.__getitem__)
            yield best == tokens[index], index + 1 < len(tokens) and best == tokens[index + 1]
