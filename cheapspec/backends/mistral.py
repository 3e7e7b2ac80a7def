"""Mistral's own API (``https://api.mistral.ai/v1``) as target.

Facts, of the models of its SDK, ``mistralai`` 3.7.0 (PyPI, November 2026), unless marked:

* ``/chat/completions`` takes ``prompt_logprobs: true`` and ``top_prompt_logprobs: k``; the numbers stand in
  ``choices[0].prompt_logprobs.content[]``: ``{token, logprob, bytes, token_id, top_logprobs: [{token, logprob, bytes,
  token_id}] | null}``. ``logprobs: true`` gives ``choices[0].logprobs.content[]`` of the same shape for what was
  generated. Its public documentation of August 2026 has neither.
* A last assistant message with ``prefix: true`` is gone on from. The reply *contains* that beginning (long so; the
  probe looks), and it is taken off.
* ``random_seed``, not ``seed``; no raw completions but for fill-in-the-middle. Greedy sampling wants ``top_p`` 1.
* Cached input is reported as ``usage.prompt_tokens_details.cached_tokens`` and needs ``prompt_cache_key``, which is
  the caller's to set.
* Not known without a key: limits of k, whether the first entry is null, whether scoring reads the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cheapspec.backends.fireworks import chat_positions
from cheapspec.backends.openai_wire import id_of
from cheapspec.backends.text_target import LISTED, Scored, TextTarget, items
from cheapspec.core.effects import Usage
from cheapspec.core.ports import Context, NextToken
from cheapspec.core.received import first_choice
from cheapspec.core.request import Request
from cheapspec.core.untyped import as_mapping, is_number

__all__ = ["MistralTarget"]


class MistralTarget(TextTarget):
    """Mistral, on the chat route."""

    name = "mistral"
    message: ClassVar[Mapping[str, Any]] = {"prefix": True}
    neutral: ClassVar[Mapping[str, Any]] = {
        "temperature": 0,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "n": 1,
    }
    kinds = frozenset({"chat"})

    def __init__(self, *, end_ids: tuple[int, ...] = (), says_again: bool | None = True) -> None:
        super().__init__(end_ids=end_ids, says_again=says_again)

    def question(self, request: Request, context: Context, sent: str) -> Mapping[str, Any]:
        return {"prompt_logprobs": True, "top_prompt_logprobs": LISTED, "logprobs": True, "top_logprobs": 1}

    def scored(self, body: Mapping[str, Any], asked: Mapping[str, Any], sent: str, usage: Usage) -> Scored | str:
        choice = first_choice(body)
        entries = items(as_mapping(choice.get("prompt_logprobs")).get("content"))
        if len(entries) < 2:
            return "the reply has no log-probabilities of the prompt"
        whole = not is_number(entries[0].get("logprob")) or len(entries) >= usage.input_tokens
        return Scored(chat_positions(entries, whole=whole), _following(choice))

    def usage_in_stream(self, request: Request) -> Mapping[str, Any]:
        """The last chunk tells it unasked; only a caller's own option is passed on."""
        told: object = request.body.get("stream_options")
        return {} if told is None else {"stream_options": told}


def _following(choice: Mapping[str, Any]) -> NextToken | None:
    generated = items(as_mapping(choice.get("logprobs")).get("content"))
    token_id = id_of(generated[0]) if generated else None
    if choice.get("finish_reason") == "stop":
        return NextToken(None, token_id, ends_turn=True)
    text: object = generated[0].get("token") if generated else None
    usable = isinstance(text, str) and text and "�" not in text and choice.get("finish_reason") == "length"
    return NextToken(text, token_id) if usable and isinstance(text, str) else None
