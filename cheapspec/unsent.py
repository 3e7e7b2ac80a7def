"""Requests that are built and not sent: what ``client.explain`` sees of what ``create`` would send.

The SDK's own methods build the request (defaults, headers, ``extra_body``, Azure's routes). It is caught on its way
out, by an exception that the SDK lets through because it is one of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx2
import openai

__all__ = ["Unsent", "hold", "unsent"]

_holding: ContextVar[bool] = ContextVar("cheapspec_holding", default=False)


class Unsent(openai.OpenAIError):
    """The request that would have been sent."""

    def __init__(self, request: httpx2.Request) -> None:
        super().__init__("built, and not sent")
        self.request = request


@contextmanager
def unsent() -> Generator[None]:
    """In this block, in this thread or task, whatever one of our clients would send raises :class:`Unsent`."""
    token = _holding.set(True)
    try:
        yield
    finally:
        _holding.reset(token)


def hold(request: httpx2.Request) -> None:
    """A request is about to go out. :raises Unsent: it shall not."""
    if _holding.get():
        raise Unsent(request)
