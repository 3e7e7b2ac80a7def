"""Any OpenAI-compatible server as *draft* host (vLLM, SGLang, LM Studio, llama.cpp, a gateway).

Rules
-----
1. An empty prefix is an ordinary chat. A prefix is continued only where the host is *known* to continue:
   vLLM and SGLang take ``continue_final_message``, llama.cpp continues a trailing assistant message by
   itself. Elsewhere a reply cannot show whether it continued or began a new answer, so there is no
   draft. Which host it is, is asked once (``/version``, ``/model_info``, ``/props``).
2. No stop strings are sent: a reply does not say which one it met, and the verified text is searched for
   them anyway.
3. Thoughts are not a draft. Thinking is switched off where the host is known to have the switch; a reply
   that thinks all the same is not used.
4. A host that refuses log-probabilities is asked once more without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cheapspec.backends.llamacpp_draft import Lead, refused
from cheapspec.backends.openai_wire import error_message, ids_of, route_missing
from cheapspec.core.acceptance import DraftToken, usable
from cheapspec.core.alignment import align_draft
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming
from cheapspec.core.received import first_choice
from cheapspec.core.request import Request
from cheapspec.core.sse import SSEDecoder
from cheapspec.core.untyped import as_list, as_mapping, is_number

__all__ = ["OpenAIDraftReader", "OpenAIDrafter"]

_FLAGS = {"continue_final_message": True, "add_generation_prompt": False}
_HOSTS = (("/version", "version"), ("/model_info", "model_path"), ("/props", "default_generation_settings"))


class OpenAIDrafter:
    """Drafts with ``model`` of the server whose API base is ``base_url`` (``http://host:port/v1``)."""

    def __init__(self, model: str, base_url: str, *, name: str | None = None) -> None:
        self._model = model
        self._base_url = base_url.rstrip("/")
        self._name = name or f"openai:{model}@{urlsplit(self._base_url).netloc.rpartition('@')[2] or self._base_url}"
        self._host: str | None = None
        self._logprobs = True

    @property
    def name(self) -> str:
        return self._name

    @property
    def base_url(self) -> str:
        return self._base_url

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...] | None:
        return None

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        """Find out once what host this is, then one streamed call."""
        if max_tokens < 1:
            return NoDraft("no_draft", "no room for a draft")
        if self._host is None:
            yield from self._ask_host()
        sent = prefix.rstrip()
        chat = request.kind == "chat"
        body: dict[str, Any] = {"model": self._model, "temperature": 0, "max_tokens": max_tokens, "stream": True}
        if chat:
            body["messages"] = [dict(message) for message in request.messages]
            if self._host:
                body["chat_template_kwargs"] = {"enable_thinking": False}
            if sent:
                if not self._host:
                    return NoDraft("no_draft", f"{self.name} is not known to continue a reply")
                body["messages"].append({"role": "assistant", "content": sent})
                body |= _FLAGS
        else:
            body["prompt"] = (request.prompt or "") + sent
        return self._call(body, prefix[len(sent) :], chat)

    def _ask_host(self) -> Op[None]:
        for path, key in _HOSTS:
            reply = yield HttpRequest("draft", path, method="GET")
            if reply is None:
                return
            if reply.status < 300 and key in as_mapping(reply.json()):
                self._host = path
                return
            if not (route_missing(reply) or reply.status < 500):
                return
        self._host = ""

    def _call(self, body: dict[str, Any], space: str, chat: bool) -> Streaming[DraftPiece]:
        def on_error(reply: HttpReply) -> Streaming[DraftPiece] | NoDraft:
            if self._logprobs and reply.status in (400, 422) and "logprobs" in error_message(reply.json()):
                self._logprobs = False
                return self._call(body, space, chat)
            return refused(reply, self.name)

        asked: dict[str, Any] = {"logprobs": True if chat else 1} if self._logprobs else {}
        path = "chat/completions" if chat else "completions"
        call = HttpRequest("draft", path, {**body, **asked}, stream=True)
        return Streaming(call, OpenAIDraftReader(space), on_error)


class OpenAIDraftReader:
    """Decodes a streamed chat or text completion, with its log-probabilities, into :class:`DraftPiece`.

    A choice's ``logprobs`` are read in chat shape (``content``) and in the old completion shape (``tokens``,
    ``token_logprobs``). What they say is believed only where it fits the text.
    """

    def __init__(self, space: str = "") -> None:
        self._decoder = SSEDecoder()
        self._lead = Lead(space)
        self._ended = False
        self._begun = ""
        self._thought = False

    def feed(self, data: bytes) -> list[DraftPiece]:
        """Pieces of the events that are complete."""
        return self._read(self._decoder.feed(data))

    def close(self) -> list[DraftPiece]:
        """The body is over; one without a finish reason is ``cut``."""
        pieces = self._read(self._decoder.close())
        return pieces if self._ended else [*pieces, DraftPiece(end="cut")]

    def _read(self, events: list[Any]) -> list[DraftPiece]:
        return [
            piece
            for event in events
            if not self._ended and event.data != "[DONE]" and (piece := self._event(event.data)) is not None
        ]

    def _event(self, data: str) -> DraftPiece | None:
        try:
            told = as_mapping(json.loads(data))
        except ValueError:
            return self._problem("the draft host sent something that is not JSON")
        if told.get("error"):
            return self._problem(error_message(told)[:200] or "the draft host reported an error")
        choice = first_choice(told)
        delta = as_mapping(choice.get("delta"))
        content: object = delta.get("content") if delta else choice.get("text")
        text = content if isinstance(content, str) else ""
        self._thought = self._thought or bool(delta.get("reasoning_content") or delta.get("reasoning"))
        if len(self._begun) < 16:
            self._begun = (self._begun + text).lstrip()[:16]
            if self._begun.startswith("<think>"):
                return self._problem("the draft model thinks aloud", broken=False)
        finish: object = choice.get("finish_reason")
        end = None if finish is None else {"stop": "stop", "length": "length"}.get(str(finish), "cut")
        tokens = self._lead.strip(align_draft(_entries(as_mapping(choice.get("logprobs"))), text))
        if tokens is None:
            return self._problem("the draft does not take up the prefix's white space", broken=False)
        if end is not None and self._thought and not self._begun:
            return self._problem("the draft model only thought", broken=False)
        self._ended = end is not None
        return DraftPiece(tokens, end) if tokens or end is not None else None

    def _problem(self, detail: str, *, broken: bool = True) -> DraftPiece:
        self._ended = True
        return DraftPiece(problem=NoDraft("no_draft", detail, broken))


def _entries(told: Mapping[str, Any]) -> list[tuple[str, bytes | None, float | None]]:
    found: list[tuple[str, bytes | None, float | None]] = []
    for one in as_list(told.get("content")):
        entry = as_mapping(one)
        data = ids_of(entry.get("bytes"))
        exact = bytes(data) if data is not None and all(0 <= item < 256 for item in data) else None
        found.append((str(entry.get("token") or ""), exact, _number(entry.get("logprob"))))
    if not found:
        numbers = as_list(told.get("token_logprobs"))
        for index, token in enumerate(as_list(told.get("tokens"))):
            found.append((str(token), None, _number(numbers[index] if index < len(numbers) else None)))
    return found


def _number(value: object) -> float | None:
    return float(value) if is_number(value) and usable(value) else None
