"""A tiny explicit language model: any token sequence has a full, repeatable next-token distribution.

Rules
-----
* A token is a byte string. Ids 0–255 are the single bytes, so every text can be encoded; then come the
  two ChatML specials; then words. Encoding is greedy longest match.
* The distribution after a context is a softmax of hashed logits of the last few tokens and a seed:
  nothing is stored, everything is repeatable on every machine. Raw bytes are as good as impossible,
  except where they begin or go on with a character the model knows (``é``, ``界``, ``🙂``): those are
  written byte by byte, so a token may be half a character, as with real tokenizers.
* ``replies`` pins answers: after the prompt (the last user message, or the text of a completion) the
  pinned text gets nearly all the probability, token by token, and then the end of the turn. It is
  followed by *text*: a context that was cut inside a token is continued with the rest of the text. Off
  the pinned text the hash decides again.
* ``twin(alpha)`` is a draft model for this one: at each context the two likeliest tokens change places
  with probability 1 − alpha, so greedy agreement per token is alpha by construction.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

__all__ = ["END", "START", "WORDS", "ToyModel"]

START = "<|im_start|>"
"""Opens a turn (ChatML)."""
END = "<|im_end|>"
"""Ends a turn; generating it ends the reply."""

WORDS: tuple[str, ...] = (
    *" \n\t.,:;!?()[]{}<>=+-*/'\"_#%&|$@^~`\\",
    *"0123456789",
    *("\n\n", "    ", "        ", "://", "...", " =", " ==", " +", "()", "):", ' "', '",', "**", "- ", "```"),
    *("The", " the", " a", " an", " of", " to", " and", " in", " is", " are", " it", " for", " with", " that"),
    *("Paris", " Paris", " France", " Spain", " Madrid", " capital", " answer", "Answer", " Hello", "Hello"),
    *(" world", " one", " two", " three", " four", " five", "One", "Two", "Steps", " number", " city", "Yes", "No"),
    *("https", "http", " example", "example", "com", "org", "def", " return", "return", " if", "for", " self"),
    *("import", " x", " y", "x", "y", "print", " None", " True", "name", "value", "User", "user", "assistant"),
    *("system", "ing", "ed", "er", "est", "ly", "un", "re", "s", "t", "n", "o", "k", "Us", " small", " big", " large"),
)
"""The default vocabulary beyond the bytes: words with and without a leading space, digits, code, punctuation."""

_CHARACTERS = ("é", "ü", "界", "🙂")
_PINNED = -0.02  # log-probability of the next token of a pinned reply
_CONTEXT = 3  # tokens of context that the hash sees


class ToyModel:
    """The model. Everything is a pure function of the constructor's arguments.

    ``words``: the vocabulary beyond bytes and specials (another list is another tokenizer).
    ``replies``: pinned answers by prompt; a value may be a function from the text written so far to the
    whole text. ``ends``: how much likelier than another word the end of the turn is.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        words: Iterable[str] = WORDS,
        replies: Mapping[str, str | Callable[[str], str]] | None = None,
        ends: float = 3.0,
    ) -> None:
        self.seed = seed
        self.replies: dict[str, str | Callable[[str], str]] = dict(replies or {})
        surfaces = [bytes([value]) for value in range(256)] + [START.encode(), END.encode()]
        surfaces += [word.encode() for word in dict.fromkeys(words) if len(word.encode()) > 1]
        self.vocabulary: tuple[bytes, ...] = tuple(surfaces)
        self.start_id, self.end_id = 256, 257
        self._ids = {surface: index for index, surface in enumerate(surfaces)}
        self._longest = max(map(len, surfaces))
        single = {word.encode() for word in words if len(word.encode()) == 1}
        known = [character.encode() for character in _CHARACTERS]
        # What may stand where: the base logit of a token outside a character, and after each part of one.
        self._base = [0.0 if index > 257 or surface in single else -30.0 for index, surface in enumerate(surfaces)]
        for character in known:
            self._base[character[0]] = 1.0
        self._base[self.end_id] = ends
        self._parts: dict[bytes, set[int]] = {}
        for character in known:
            for cut in range(1, len(character)):
                self._parts.setdefault(character[:cut], set()).add(character[cut])
        self._hashed = lru_cache(maxsize=4096)(self._hashed_logprobs)

    # --- text and tokens ---------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text`` by greedy longest match; special-token text becomes the special token."""
        data = text.encode()
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in range(min(self._longest, len(data) - at), 0, -1):
                found = self._ids.get(data[at : at + length])
                if found is not None:
                    ids.append(found)
                    at += length
                    break
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of a token sequence."""
        return b"".join(self.vocabulary[token] for token in ids)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of a token sequence; part of a character shows as U+FFFD."""
        kept = (token for token in ids if not skip_special or token not in (self.start_id, self.end_id))
        return self.decode_bytes(kept).decode(errors="replace")

    def render(self, messages: Sequence[Mapping[str, Any]], *, generate: bool = True, go_on: bool = False) -> str:
        """The ChatML prompt of ``messages``.

        ``generate``: open the assistant's turn at the end. ``go_on``: leave the last message's turn open.
        """
        text = ""
        for index, message in enumerate(messages):
            text += f"{START}{message.get('role', 'user')}\n{plain(message.get('content'))}"
            if not (go_on and index == len(messages) - 1):
                text += f"{END}\n"
        return text + (f"{START}assistant\n" if generate else "")

    # --- the distribution --------------------------------------------------------------------

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Natural-log probabilities of the next token after ``ids``, one an id of the vocabulary."""
        pinned = self._pinned(ids)
        free = self._hashed(tuple(ids[-_CONTEXT:]), self._open_character(ids))
        if pinned is None:
            return list(free)
        # The rest of the mass keeps the hash's order, so a second choice exists everywhere.
        others = sum(math.exp(value) for token, value in enumerate(free) if token != pinned)
        rest = math.log1p(-math.exp(_PINNED)) - math.log(others)
        mixed = [value + rest for value in free]
        mixed[pinned] = _PINNED
        return mixed

    def next(self, ids: Sequence[int]) -> int:
        """The likeliest next token."""
        values = self.logprobs(ids)
        return max(range(len(values)), key=values.__getitem__)

    def greedy(self, ids: Sequence[int], max_tokens: int) -> list[int]:
        """At most ``max_tokens`` tokens after ``ids``, the likeliest each time; the end token is the last one."""
        context = list(ids)
        written: list[int] = []
        while len(written) < max_tokens:
            written.append(self.next(context))
            context.append(written[-1])
            if written[-1] == self.end_id:
                break
        return written

    def twin(self, alpha: float, *, seed: int = 1) -> ToyModel:
        """A draft model with this vocabulary that agrees greedily with probability ``alpha`` a token."""
        return _Twin(self, alpha, seed)

    # --- inside ------------------------------------------------------------------------------

    def _hashed_logprobs(self, context: tuple[int, ...], part: bytes) -> list[float]:
        size = len(self.vocabulary)
        key = b"%d|%s" % (self.seed, ",".join(map(str, context)).encode())
        noise = hashlib.shake_128(key).digest(2 * size)
        allowed = self._parts.get(part)
        logits: list[float] = []
        for token, base in enumerate(self._base):
            level = int.from_bytes(noise[2 * token : 2 * token + 2], "big") / 65536
            if allowed is not None:
                base = 0.0 if token in allowed else -30.0
            logits.append(base + 9.0 * level**3 + token * 1e-9)  # the last term rules out exact ties
        top = max(logits)
        total = top + math.log(sum(math.exp(value - top) for value in logits))
        return [value - total for value in logits]

    def _open_character(self, ids: Sequence[int]) -> bytes:
        """The bytes of a character that the context ends inside of, or nothing."""
        tail = self.decode_bytes(ids[-3:])[-3:]
        for length in range(min(3, len(tail)), 0, -1):
            if tail[-length:] in self._parts:
                return tail[-length:]
        return b""

    def _pinned(self, ids: Sequence[int]) -> int | None:
        """The next token of the pinned reply that the context is an open beginning of."""
        if not self.replies:
            return None
        prompt, written = self._split(ids)
        reply = self.replies.get(prompt) if prompt is not None else None
        if reply is None:
            return None
        if callable(reply):
            reply = reply(written.decode(errors="ignore"))
        whole = reply.encode()
        if not whole.startswith(written):
            return None
        if len(whole) == len(written):
            return self.end_id
        return self._first(whole[len(written) :])

    def _first(self, data: bytes) -> int:
        """The first token of some bytes, which may begin inside a character."""
        for length in range(min(self._longest, len(data)), 1, -1):
            if data[:length] in self._ids:
                return self._ids[data[:length]]
        return data[0]

    def _split(self, ids: Sequence[int]) -> tuple[str | None, bytes]:
        """The prompt that ``replies`` is keyed by, and the bytes of the reply so far."""
        opening = -1
        for index in range(len(ids) - 1, -1, -1):
            if ids[index] == self.start_id:
                opening = index
                break
        if opening < 0:  # a text completion: the longest pinned prompt that the text begins with
            data = self.decode_bytes(ids)
            found = [prompt for prompt in self.replies if data.startswith(prompt.encode())]
            best = max(found, key=len, default=None)
            return (best, data[len(best.encode()) :]) if best is not None else (None, b"")
        turn = self.decode_bytes(ids[opening + 1 :])
        head = b"assistant\n"
        if not turn.startswith(head) or self.end_id in ids[opening:]:
            return None, b""
        asked = self.decode(ids[:opening]).split(f"{START}user\n")
        return asked[-1].split(END)[0] if len(asked) > 1 else None, turn[len(head) :]


class _Twin(ToyModel):
    def __init__(self, base: ToyModel, alpha: float, seed: int) -> None:
        self.__dict__.update(base.__dict__)
        self._base_model = base
        self._alpha = alpha
        self._twin_seed = seed

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        values = self._base_model.logprobs(ids)
        key = b"twin|%d|%d|%s" % (self._twin_seed, self.seed, ",".join(map(str, ids[-12:])).encode())
        level = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2**64
        if level < self._alpha or self._open_character(ids):
            return values
        first, second = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:2]
        values[first], values[second] = values[second], values[first]
        return values


def plain(content: Any) -> str:
    """A message's content as text: a string, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in cast("list[dict[str, Any]]", content or []))
