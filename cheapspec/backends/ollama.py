"""Ollama as a drafter: the native API, written against 0.24.0 and 0.33.0-rc2 (recorded 2026-11-29).

Rules
-----
* A draft never makes Ollama load a model again: the loaded window is asked for first and repeated
  exactly (:mod:`cheapspec.backends.ollama_window`), ``shift`` is never sent, and on a model with a
  draft layer ``draft_num_predict`` is left as it is (its log-probabilities then mean nothing).
* A draft never comes from a cut prompt: ``truncate: false`` makes an overflow an error, the error
  leads to one more try with a window that fits.
* Drafting from nothing goes to ``/api/chat``. Going on from a prefix goes to ``/api/generate`` with
  ``raw: true`` and the prompt as the model's own template renders it, prefix appended, because what a
  trailing assistant message does depends on the template (four behaviours were recorded) and a
  reply does not show which it was. A host that cannot render is used for continuations only when a
  control prompt has proven what its template does.
* White space at the end of the prefix stays off the wire (it changes the tokens of what follows); the
  reply must then begin with it, and it is not repeated in the draft.
* Thinking is switched off. A model that thinks all the same is not asked again.
* Sampling is greedy and explicit, since a Modelfile's parameters apply otherwise. ``num_predict: 0``
  means "no limit" to Ollama, so nothing is asked when nothing is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cheapspec.backends.ollama_json import error_text, models
from cheapspec.backends.ollama_model import ModelFacts, read_show, without_bos
from cheapspec.backends.ollama_names import find_model, model_key
from cheapspec.backends.ollama_prefill import CONTROL, as_message, read_control, read_rendered, split_prefix
from cheapspec.backends.ollama_stream import OllamaDecoder, Reading
from cheapspec.backends.ollama_window import Window, choose_window, estimate_tokens, grow, read_overflow
from cheapspec.core.acceptance import DraftToken
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import DraftPiece, NoDraft, Streaming
from cheapspec.core.request import Request

__all__ = ["OllamaDrafter"]

_GREEDY: Mapping[str, Any] = {"temperature": 0, "top_k": 1, "repeat_penalty": 1, "seed": 0}
_NAMES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class _Ask:
    """What the calls of one draft have in common."""

    facts: ModelFacts
    window: Window
    stops: tuple[str, ...]
    low: int  # fewest tokens the prompt can have


class OllamaDrafter:
    """A :class:`~cheapspec.core.ports.Drafter` on an Ollama host.

    ``model``: as Ollama names it, sent as given (``"qwen2.5:3b"``, ``"hf.co/org/m:Q4_K_M"``).
    ``base_url``: the host's root (:func:`~cheapspec.backends.ollama_names.normalise_host`).
    ``keep_alive``: how long the model stays loaded after a draft, as Ollama takes it (``"10m"``,
    seconds, -1 for ever); ``None`` leaves it to the host.

    Remembers between requests what it learnt about the model; a 404 makes it ask again.
    """

    def __init__(self, model: str, base_url: str, *, keep_alive: str | int | float | None = None) -> None:
        self._model = model.strip()
        self._base_url = base_url.rstrip("/")
        self._keep_alive = keep_alive
        self._facts: ModelFacts | None = None
        self._renders: bool | None = None
        self._continues: str | None = None  # proven by the control prompt: "appends", "echoes" or "no"
        self._reached: int | None = None  # the largest window asked for

    @property
    def name(self) -> str:
        return f"ollama:{self._model}"

    @property
    def base_url(self) -> str:
        return self._base_url

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...] | None:
        return None

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        if max_tokens < 1:
            return NoDraft("no_draft", "nothing was asked for")
        messages = [as_message(message) for message in request.messages]
        if request.kind == "chat":
            if not messages or messages[-1]["role"] == "assistant":
                return NoDraft("no_draft", "the conversation does not end with a question to answer")
        elif not request.prompt or request.body.get("suffix"):
            return NoDraft("no_draft", "no prompt to continue" if not request.prompt else "a suffix was given")
        ask = yield from self._prepare(request, messages, prefix, max_tokens)
        if isinstance(ask, NoDraft):
            return ask
        if request.kind != "chat":
            return self._raw(request.prompt or "", prefix, ask)
        if not prefix:
            body = {"messages": messages, **self._thinking(ask.facts)}
            return self._streaming("/api/chat", body, ask, Reading())
        return (yield from self._continue(messages, prefix, ask))

    # --- before the draft ---------------------------------------------------------------------

    def _prepare(
        self, request: Request, messages: list[dict[str, str]], prefix: str, max_tokens: int
    ) -> Op[_Ask | NoDraft]:
        loaded = yield from self._loaded()
        if isinstance(loaded, NoDraft):
            return loaded
        facts = self._facts or (yield from self._learn())
        if isinstance(facts, NoDraft):
            return facts
        if facts.obstacle:
            return NoDraft("no_draft", f"{self.name}: {facts.obstacle}")
        text = "\n".join([*(message["content"] for message in messages), request.prompt or "", prefix])
        estimate = estimate_tokens(text, len(messages))
        window = choose_window(estimate, max_tokens, loaded or None, self._reached, facts.train_context)
        if window is None:
            return NoDraft("draft_context", f"{self.name} reads {facts.train_context} tokens at most")
        if window.num_ctx is not None and window.num_ctx > loaded:
            self._reached = window.num_ctx
        stops = (*request.stops, *facts.stops)
        return _Ask(facts, window, stops if request.stops else (), estimate.low)

    def _loaded(self) -> Op[int | NoDraft]:
        """The loaded window in tokens; 0 when the model is not loaded or the host does not say."""
        reply = yield self._call("/api/ps", None, method="GET")
        if reply is None or reply.status >= 500:
            return self._refused(reply)
        key = model_key(self._model)
        for entry in models(reply):
            if key in {model_key(str(entry.get(field, ""))) for field in ("name", "model")}:
                size = entry.get("context_length")
                return size if isinstance(size, int) and size > 0 else 0
        return 0

    def _learn(self) -> Op[ModelFacts | NoDraft]:
        reply = yield self._call("/api/show", {"model": self._model})
        if reply is None or reply.status >= 500:
            return self._refused(reply)
        if reply.status == 200:
            self._facts = read_show(reply.json())
            return self._facts
        tags = yield self._call("/api/tags", None, method="GET")
        names = [str(entry.get("name") or entry.get("model") or "") for entry in models(tags)]
        if find_model(self._model, names) or not (names or error_text(reply)):
            return ModelFacts()  # a host without /api/show; the draft itself will tell
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        return NoDraft("no_draft", f"{self._base_url} has no model {self._model!r}; it has {shown or 'none'}", True)

    # --- the draft ----------------------------------------------------------------------------

    def _continue(self, messages: list[dict[str, str]], prefix: str, ask: _Ask) -> Op[Streaming[DraftPiece] | NoDraft]:
        if self._renders is not False:
            rendered = yield from self._render(messages, ask)
            if isinstance(rendered, NoDraft):
                return rendered
            if rendered is not None:
                return self._raw(without_bos(rendered, ask.facts), prefix, ask)
        if self._continues is None:
            proven = yield from self._prove(ask)
            if isinstance(proven, NoDraft):
                return proven
            self._continues = proven
        head, tail = split_prefix(prefix)
        if self._continues == "no" or not head:
            return NoDraft("no_draft", f"{self.name} cannot be made to continue a text")
        body = {"messages": [*messages, {"role": "assistant", "content": head}], **self._thinking(ask.facts)}
        echo = head if self._continues == "echoes" else ""
        return self._streaming("/api/chat", body, ask, Reading(echo=echo, tail=tail))

    def _render(self, messages: list[dict[str, str]], ask: _Ask) -> Op[str | NoDraft | None]:
        """The prompt as the model's template writes it; ``None``: this host does not render.

        The call carries the draft's own window because Ollama loads the model for it, and a limit of one
        token because a host that does not know the field answers with text.
        """
        body = {
            "messages": messages,
            "stream": False,
            "truncate": False,
            "_debug_render_only": True,
            "options": self._options(replace(ask.window, num_predict=1), ask),
            **self._thinking(ask.facts),
        }
        reply = yield self._call("/api/chat", body)
        if reply is None or reply.status >= 300:
            return self._refused(reply)
        rendered = read_rendered(reply)
        if rendered is None:
            self._renders = False
            return None
        self._renders = True
        if rendered.rstrip().endswith("<think>"):
            return self._thinks_anyway()
        return rendered

    def _prove(self, ask: _Ask) -> Op[str | NoDraft]:
        """What the template does with a trailing assistant message, by a control prompt."""
        body = {
            "messages": list(CONTROL),
            "stream": False,
            "truncate": False,
            "logprobs": True,
            "options": self._options(replace(ask.window, num_predict=4), ask),
            **self._thinking(ask.facts),
        }
        reply = yield self._call("/api/chat", body)
        if reply is None or reply.status >= 300:
            return self._refused(reply)
        return read_control(reply)

    def _raw(self, prompt: str, prefix: str, ask: _Ask) -> Streaming[DraftPiece]:
        head, tail = split_prefix(prefix)
        return self._streaming("/api/generate", {"prompt": prompt + head, "raw": True}, ask, Reading(tail=tail))

    def _streaming(
        self, path: str, body: Mapping[str, Any], ask: _Ask, reading: Reading, *, retry: bool = True
    ) -> Streaming[DraftPiece]:
        logprobs = {} if ask.facts.draft_layer else {"logprobs": True}
        options = self._options(ask.window, ask)
        whole = {**body, "stream": True, "truncate": False, **logprobs, "options": options}
        reading = replace(
            reading,
            window=ask.window.size,
            low=ask.low,
            stops=ask.stops or ask.facts.stops,
            logprobs=not ask.facts.draft_layer,
            on_thoughts=self._thinks_anyway,
        )

        def on_error(reply: HttpReply) -> Streaming[DraftPiece] | NoDraft:
            overflow = read_overflow(error_text(reply)) if reply.status in (400, 413, 500) else None
            if overflow is None:
                return self._refused(reply)
            window = grow(ask.window, overflow, ask.facts.train_context)
            if window is None or not retry:
                return NoDraft("draft_context", f"{self.name}: the prompt does not fit ({error_text(reply)[:200]})")
            self._reached = max(window.num_ctx or 0, self._reached or 0)
            return self._streaming(path, body, replace(ask, window=window), reading, retry=False)

        return Streaming(self._call(path, whole, stream=True), OllamaDecoder(reading), on_error)

    # --- requests and refusals ----------------------------------------------------------------

    def _call(
        self, path: str, body: Mapping[str, Any] | None, *, method: str = "POST", stream: bool = False
    ) -> HttpRequest:
        if body is not None:
            keep = {} if self._keep_alive is None or path == "/api/show" else {"keep_alive": self._keep_alive}
            body = {"model": self._model, **body, **keep}
        return HttpRequest(purpose="draft", path=path, body=body, method=method, stream=stream)

    def _options(self, window: Window, ask: _Ask) -> dict[str, Any]:
        options: dict[str, Any] = {**_GREEDY, "num_predict": window.num_predict}
        if window.num_ctx is not None:
            options["num_ctx"] = window.num_ctx
        if not ask.facts.draft_layer:
            options["draft_num_predict"] = 0
        if ask.stops:
            options["stop"] = list(ask.stops)
        return options

    def _thinking(self, facts: ModelFacts) -> dict[str, bool]:
        return {} if facts.thinking is False else {"think": False}

    def _thinks_anyway(self) -> NoDraft:
        obstacle = "the model thinks although told not to"
        self._facts = replace(self._facts or ModelFacts(), obstacle=obstacle)
        return NoDraft("no_draft", f"{self.name}: {obstacle}")

    def _refused(self, reply: HttpReply | None) -> NoDraft:
        if reply is None:
            return NoDraft("no_draft", f"{self._base_url} did not answer", True)
        detail = f"{self.name}: HTTP {reply.status} {error_text(reply)[:200]}".rstrip()
        if reply.status == 503:
            return NoDraft("draft_busy", detail, True)
        if reply.status == 404:
            self._facts = self._renders = self._continues = None
        return NoDraft("no_draft", detail, reply.status != 400)
