"""What a host's tokens mean, as far as replies have shown it: end-of-turn ids and exact texts.

A decoded alternative is exact except where the tokenizer *cleans up*: Hugging Face's
``clean_up_tokenization_spaces`` (on in Llama 3's configuration, for one) turns " ." into "." when a
token is decoded alone. So a correction that starts like a result of clean-up is in doubt until
its text has been tokenized back to its id; texts of scored draft tokens are known from their pieces.
"""

from __future__ import annotations

from cheapspec.core.acceptance import Alternative
from cheapspec.core.ports import NextToken
from cheapspec.core.text import looks_special

__all__ = ["TokenMemory"]

_CLEANED = (".", "?", "!", ",", "'", "n't")
"""What PreTrainedTokenizerBase.clean_up_tokenization leaves of a token that began with a space."""

_BOUND = 50_000

ALTERNATIVES = 20
"""Tokens that vLLM lists a position, unless it was started with another ``--max-logprobs`` (0.32: 20)."""


class TokenMemory:
    """Facts about one host's vocabulary. Only ever added to, so threads may share it. ``alternatives``: how many tokens
    a position lists.
    """

    def __init__(self, end_ids: tuple[int, ...] = ()) -> None:
        self.end_ids = set(end_ids)
        self.alternatives = ALTERNATIVES
        self._texts: dict[int, str] = {}

    def learn_end(self, token_id: int | None) -> None:
        """A generated token ended a turn."""
        if token_id is not None:
            self.end_ids.add(token_id)

    def learn_text(self, token_id: int, data: bytes | str) -> None:
        """The exact text of a token; parts of characters are not text."""
        if isinstance(data, bytes):
            try:
                data = data.decode()
            except UnicodeDecodeError:
                return
        if len(self._texts) < _BOUND:
            self._texts[token_id] = data

    def exact(self, token_id: int | None, text: str) -> str | None:
        """The certain text of a token whose decoded form is ``text``; ``None``: in doubt."""
        known = self._texts.get(token_id) if token_id is not None else None
        return known if known is not None else None if text.startswith(_CLEANED) else text

    def follow(self, correction: Alternative) -> NextToken | None:
        """See :meth:`cheapspec.core.ports.Target.follow`."""
        if correction.token_id is not None and correction.token_id in self.end_ids:
            return NextToken(None, correction.token_id, ends_turn=True)
        if not correction.text or "�" in correction.text or looks_special(correction.text):
            return None
        return NextToken(correction.text, correction.token_id)
