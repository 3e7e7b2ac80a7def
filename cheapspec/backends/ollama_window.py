"""The context window of a drafting model on Ollama: which ``num_ctx`` to send, and when a prompt was cut.

Rules
-----
* Any ``num_ctx`` but the loaded one, and leaving it out too, makes Ollama load the model again (0.24.0
  and 0.33.0-rc2). So where the loaded window is enough, exactly that value is sent.
* Where it is not, the window goes up by doubling, never down, and what was reached is remembered for
  the time after the model was unloaded.
* A model that is not loaded gets its host's default by leaving ``num_ctx`` out, as other programs do,
  so that they and we agree; only a prompt that might not fit the smallest usual default names a window.
* Token counts before a call are estimates. The estimate for choosing a window is high; the one for
  noticing a silent cut is low. With ``truncate: false`` an overflow is an error, so a wrong estimate
  costs one more call, never a draft on a cut prompt.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

__all__ = [
    "HOST_DEFAULT",
    "Estimate",
    "Overflow",
    "Window",
    "choose_window",
    "estimate_tokens",
    "grow",
    "read_overflow",
]

HOST_DEFAULT = 4096
"""Ollama's smallest default window, in tokens (flat before 0.15.5, since then with less than 24 GiB of VRAM)."""

_REPLY_ROOM = 512
_LEAST_ROOM = 16
_SMALLEST = 2048  # what a host that does not say its window has at least
_WIDE = 0x2E80  # from here on (CJK and later blocks) a character is about a token


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of a prompt, not counted but estimated: hardly more than ``high``, hardly fewer than ``low``."""

    high: int
    low: int


def estimate_tokens(text: str, messages: int = 0) -> Estimate:
    """A third of the characters (most tokenizers: a quarter), wide characters in full, plus what a
    template adds to each of ``messages`` turns. The low bound takes seven characters a token and does
    not count runs of white space, which good tokenizers merge.
    """
    wide = sum(1 for char in text if ord(char) >= _WIDE)
    high = (len(text) - wide) / 3 + wide * 1.5
    low = (len(" ".join(text.split())) - wide) / 7 + wide / 3
    return Estimate(int(high) + 8 * messages + 32, int(low))


@dataclass(frozen=True, slots=True)
class Window:
    """What to send. ``num_ctx``: tokens, ``None`` to leave it out; ``size``: the window that the call
    will run in, as far as known; ``num_predict``: reply tokens that fit with the prompt.
    """

    num_ctx: int | None
    size: int | None
    num_predict: int


def choose_window(
    prompt: Estimate, max_tokens: int, loaded: int | None, reached: int | None, limit: int | None
) -> Window | None:
    """The window for a prompt, or ``None`` when the model's ``limit`` (its train context; ``None``:
    unknown) cannot hold it.

    ``loaded``: the loaded window, ``None`` when not loaded or not known; ``reached``: the largest that
    we asked for before. A long reply is shortened rather than the window raised for its sake.
    """
    if limit is not None and prompt.low + 2 > limit:
        return None
    needed = prompt.high + min(max_tokens, _REPLY_ROOM) + 1
    if loaded is not None and needed <= loaded:
        return Window(loaded, loaded, _fit(loaded, prompt, max_tokens))
    if loaded is None and reached is None and needed <= HOST_DEFAULT:
        return Window(None, None, _fit(HOST_DEFAULT, prompt, max_tokens))
    size = max(loaded or 0, reached or 0) or HOST_DEFAULT
    while size < needed:
        size *= 2
    if limit is not None:
        size = max(min(size, limit), loaded or 0)  # Ollama caps it itself; a loaded window is a fact
    return Window(size, size, _fit(size, prompt, max_tokens))


def _fit(size: int, prompt: Estimate, max_tokens: int) -> int:
    """The estimate is high: a few tokens are tried even where it leaves no room."""
    return min(max_tokens, max(_LEAST_ROOM, size - prompt.high - 1))


@dataclass(frozen=True, slots=True)
class Overflow:
    """A refusal because the prompt does not fit. Both counts as far as the server says them."""

    prompt_tokens: int | None
    window: int | None


_COUNTS = re.compile(r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")
_WINDOW = re.compile(r"context (?:size|length|window)\D{0,20}(\d{3,7})")


def read_overflow(message: str) -> Overflow | None:
    """Read an error message, or ``None`` when it is about something else.

    0.24: a plain sentence without numbers. 0.33: the JSON text of llama.cpp's own error.
    """
    lower = message.lower()
    if "exceed_context_size" not in lower and not ("context" in lower and "exceed" in lower):
        return None
    try:
        inner: Any = json.loads(message)
        error: Any = inner.get("error", inner)
        counts = [error.get(key) for key in ("n_prompt_tokens", "n_ctx")]
        return Overflow(*(value if isinstance(value, int) else None for value in counts))
    except (ValueError, AttributeError):
        pass  # not JSON, or JSON of another shape: a plain sentence
    found = _COUNTS.search(lower)
    if found:
        return Overflow(int(found[1]), int(found[2]))
    window = _WINDOW.search(lower)
    return Overflow(None, int(window[1]) if window else None)


def grow(window: Window, overflow: Overflow, limit: int | None) -> Window | None:
    """The window for another try after an overflow, or ``None`` when none is large enough."""
    size = max(window.size or 0, overflow.window or 0) or _SMALLEST
    prompt = overflow.prompt_tokens or size
    grown = size * 2
    while grown < prompt + window.num_predict + 1:
        grown *= 2
    grown = grown if limit is None else min(grown, limit)
    room = grown - prompt - 1
    return Window(grown, grown, min(window.num_predict, room)) if grown > size and room > 0 else None
