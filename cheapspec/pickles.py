"""openai's errors through ``pickle``: a worker pool re-raises them whole.

Their constructors take keywords that :mod:`pickle` does not know of, so a worker's ``RateLimitError`` arrives as
a ``TypeError``, or the pool hangs. :mod:`copyreg` is the standard way to say how a foreign class is pickled; a
class for which openai says so itself is left alone. Requests and responses pickle themselves (httpx2).
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

import openai

__all__ = ["install"]


def _revive(kind: type[Exception], arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


def _reduce(error: Exception) -> tuple[Any, ...]:
    return _revive, (type(error), error.args, dict(error.__dict__))


def _family(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def install() -> None:
    """Teach pickle every error class that openai has now."""
    for kind in _family(openai.OpenAIError):
        if kind.__reduce__ is Exception.__reduce__ and kind.__reduce_ex__ is Exception.__reduce_ex__:
            copyreg.pickle(kind, _reduce)
