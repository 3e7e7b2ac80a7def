"""Vocabulary pieces → bytes: what a token of a Hugging Face tokenizer stands for, exactly.

A server that decodes tokens one by one shows replacement characters inside a character, and drops or
merges spaces ("clean-up"). The raw pieces of ``/tokenize`` with ``return_token_strs`` do not: they are
written either in the byte alphabet of GPT-2 (Radford et al. 2019, ``bytes_to_unicode``; "Ġ" is a space,
"Ċ" a line feed) or in SentencePiece's (Kudo & Richardson 2018: "▁" is a space, "<0x0A>" a byte).
Which of the two is not guessed from a table of models: the right one gives back the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["pieces_to_bytes"]

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def _byte_alphabet() -> dict[str, int]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(value): value for value in printable}
    others = (value for value in range(256) if value not in printable)
    alphabet.update({chr(256 + index): value for index, value in enumerate(others)})
    return alphabet


_ALPHABET = _byte_alphabet()


def _byte_level(piece: str) -> bytes:
    """A piece of the byte alphabet. Added tokens hold plain text: characters outside it are kept."""
    return b"".join(bytes([_ALPHABET[char]]) if char in _ALPHABET else char.encode() for char in piece)


def _sentencepiece(piece: str) -> bytes:
    found = _BYTE_PIECE.match(piece)
    return bytes([int(found[1], 16)]) if found else piece.replace("▁", " ").encode()


def pieces_to_bytes(pieces: Sequence[str], text: str) -> tuple[bytes, ...] | None:
    """The bytes of each piece, or ``None`` when no reading of them joins to ``text`` (a tokenizer that
    normalises, or that puts a space before the text: then its ids do not stand for this text).
    """
    wanted = text.encode("utf-8", "surrogatepass")
    for read in (_byte_level, _sentencepiece):
        found = tuple(read(piece) for piece in pieces)
        if b"".join(found) == wanted:
            return found
    return None
