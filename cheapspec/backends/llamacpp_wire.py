"""llama.cpp's replies and requests, for both its roles. Rules in :mod:`cheapspec.backends.llamacpp`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cheapspec.backends.openai_wire import carry, error_message, ids_of
from cheapspec.core.acceptance import Alternative, usable
from cheapspec.core.effects import HttpRequest, Usage
from cheapspec.core.request import Request
from cheapspec.core.sse import SSEDecoder
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = [
    "Entry",
    "Events",
    "exact_grammar",
    "greedy",
    "read_entries",
    "read_entry",
    "render",
    "spread",
    "usage_of",
]


def greedy() -> dict[str, Any]:
    """Neutral, greedy sampling. llama.cpp's own defaults (top_k 40, min_p 0.05) would not change an
    argmax; they are neutral here so that nothing depends on that.
    """
    return {
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "typical_p": 1,
        "repeat_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "dry_multiplier": 0,
        "xtc_probability": 0,
        "mirostat": 0,
        "cache_prompt": True,
        "return_tokens": True,
    }


def render(request: Request) -> HttpRequest:
    """The call that renders a chat as the chat route would."""
    names = ("chat_template_kwargs", "reasoning_effort", "add_generation_prompt")
    body = {"messages": request.body.get("messages", []), **carry(request, names)}
    return HttpRequest("tokenize", "/apply-template", body)


def exact_grammar(text: str) -> str:
    r"""A GBNF grammar that allows exactly ``text``. Everything but ASCII letters, digits and spaces is
    written as a code point (``\xHH``, ``\uHHHH``, ``\UHHHHHHHH``), so nothing needs quoting rules.

    :raises ValueError: a lone surrogate, which no server can write.
    """
    text.encode()
    parts: list[str] = []
    for character in text:
        code = ord(character)
        if character == " " or (character.isascii() and character.isalnum()):
            parts.append(character)
        elif code < 0x100:
            parts.append(f"\\x{code:02X}")
        elif code < 0x10000:
            parts.append(f"\\u{code:04X}")
        else:
            parts.append(f"\\U{code:08X}")
    return 'root ::= "' + "".join(parts) + '"'


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of ``completion_probabilities``: usually one token, or all tokens of a character."""

    token_id: int | None
    token: str
    data: bytes
    logprob: float | None
    top: tuple[Alternative, ...] = ()


def _bytes(value: object) -> bytes:
    items = ids_of(value) or ()
    return bytes(item for item in items if 0 <= item < 256)


def read_entry(value: object) -> Entry:
    """An entry with its alternatives; what is not a number becomes ``None``."""
    told = as_mapping(value)
    number: object = told.get("logprob")
    token_id: object = told.get("id")
    token: object = told.get("token")
    found: list[Alternative] = []
    for one in as_list(told.get("top_logprobs")):
        other = read_entry(one)
        if other.logprob is not None:
            found.append(Alternative(other.data.decode("utf-8", "replace"), other.logprob, other.token_id))
    return Entry(
        token_id if isinstance(token_id, int) else None,
        token if isinstance(token, str) else "",
        _bytes(told.get("bytes")),
        float(number) if is_number(number) and usable(number) else None,
        tuple(found),
    )


def read_entries(told: Mapping[str, Any]) -> list[Entry]:
    """``completion_probabilities``, or nothing."""
    return [read_entry(one) for one in as_list(told.get("completion_probabilities"))]


def spread(entries: Sequence[Entry], ids: Sequence[int]) -> list[tuple[int, Entry, bool]] | None:
    """Each generated id with its entry, and whether the entry's number is *its* number.

    An entry of several tokens has the id and the number of the last. ``None``: they do not fit.
    """
    out: list[tuple[int, Entry, bool]] = []
    position = 0
    for entry in entries:
        start = position
        while position < len(ids) and ids[position] != entry.token_id:
            position += 1
        several = position > start
        if position == len(ids) or (several and entry.data.isascii()):
            return None
        out.extend((token_id, entry, False) for token_id in ids[start:position])
        out.append((ids[position], entry, True))
        position += 1
    return out if position == len(ids) else None


def usage_of(told: Mapping[str, Any]) -> Usage:
    """``tokens_evaluated`` (the whole prompt, cached or not) and ``tokens_predicted``."""

    def count(value: object) -> int | None:
        return value if isinstance(value, int) and value >= 0 else None

    given, written = count(told.get("tokens_evaluated")), count(told.get("tokens_predicted"))
    cached = count(as_mapping(told.get("timings")).get("cache_n"))
    if cached is not None and given is not None:
        cached = min(cached, given)
    return Usage(given or 0, written or 0, cached, estimated=given is None or written is None)


class Events:
    """The JSON objects of a streamed ``/completion``. An error becomes ``{"error": …}``."""

    def __init__(self) -> None:
        self._decoder = SSEDecoder()

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """Objects that are complete."""
        return [self._object(event.data) for event in self._decoder.feed(data) if event.data != "[DONE]"]

    def close(self) -> list[Mapping[str, Any]]:
        """What is left at the end of the body."""
        return [self._object(event.data) for event in self._decoder.close() if event.data != "[DONE]"]

    @staticmethod
    def _object(data: str) -> Mapping[str, Any]:
        try:
            told: object = json.loads(data)
        except ValueError:
            return {"error": {"message": f"not JSON: {data[:80]}"}}
        found = as_mapping(told)
        if "error" in found and not isinstance(found["error"], dict):
            return {"error": {"message": error_message(found) or str(found["error"])}}
        return found
