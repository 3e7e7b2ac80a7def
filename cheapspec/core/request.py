"""Reads a chat or text completion body, kept as the dict it came in, and says whether it is ours.

Rules
-----
* A request is ours only if every field in it is understood: honoured, or known to change nothing at
  temperature 0. Anything else is a :class:`Bypass` with a reason out of the project's one list, and the
  request goes to the target as it is. A field that a newer API adds is unknown until it is put in the
  tables of :mod:`cheapspec.core.fields`.
* ``null`` means absent, as every OpenAI-style server reads it.
* Admission does not judge sampling (:func:`sampling` does, later: a wrong guess there concerns some
  acceptance rules only), and it never refuses: what is malformed is the server's to say.
* The extra key ``cheapspec`` in a body is ours; it is taken out and never reaches a target.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cheapspec.core.fields import CHECKED, HARMLESS
from cheapspec.core.untyped import as_list, as_mapping, is_list, is_mapping, is_number

__all__ = ["Bypass", "Request", "Sampling", "admit", "sampling"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is ours to consider. ``body`` is the caller's own JSON, never altered.

    ``kind``: ``"chat"`` or ``"completion"``. ``messages``: chat messages with content parts joined to
    plain strings (roles as sent), empty for a completion. ``prompt``: the text of a completion,
    ``None`` for chat. ``stops``: stop strings. ``max_tokens``: the caller's limit on reply tokens
    (``max_completion_tokens`` or ``max_tokens``), ``None``: none given. ``prediction``: the text of
    OpenAI's predicted-outputs parameter, ``None`` when absent. ``options``: what stood under the body's
    extra key ``cheapspec``, which ``body`` no longer has. ``sampling``: how tokens are to be chosen, once that
    is settled. ``barred``: why no target may score drafts of it, though a rule about a whole draft may be tried.
    """

    kind: str
    body: Mapping[str, Any]
    model: str
    stream: bool
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None
    prediction: str | None = None
    include_usage: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sampling: Sampling | None = None
    barred: Bypass | None = None

    @property
    def formatted(self) -> bool:
        """Whether the reply must be JSON (``response_format``)."""
        return as_mapping(self.body.get("response_format")).get("type") in _FORMATS

    @property
    def seed(self) -> int | None:
        """The caller's seed: ``seed``, or Mistral's ``random_seed``."""
        given: Any = self.body.get("seed")
        told: Any = self.body.get("random_seed") if given is None else given
        return told if isinstance(told, int) and not isinstance(told, bool) else None

    @property
    def samples(self) -> bool:
        """Whether the target is to draw its tokens (temperature above 0), as far as that has been settled."""
        return self.sampling is not None and not self.sampling.greedy


@dataclass(frozen=True, slots=True)
class Bypass:
    """Not ours: the request goes to the target untouched. ``detail`` names the field or says what is wrong."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the caller wants tokens chosen. Temperature 0 is greedy; ``top_p`` means nothing there, above it is set."""

    temperature: float
    top_p: float | None = None

    @property
    def greedy(self) -> bool:
        """Whether the argmax is what the caller asked for."""
        return self.temperature == 0


_NO_FILTER: Mapping[str, tuple[float, ...]] = {"top_k": (0, -1), "min_p": (0,), "top_a": (0,)}
_DEFAULTED = ("top_k", "min_p", "repetition_penalty", "repeat_penalty")
"""What servers have defaults of, the penalty in either server's words. (top_p has a reason of its own.)"""

_MOVES_ARGMAX = frozenset(
    {
        "repetition_penalty",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "dry_multiplier",
        "typical_p",
        "xtc_probability",
    }
)
"""Defaults that can make another token than the likeliest the one that temperature 0 writes."""

_FORMATS = ("json_object", "json_schema")
"""Formats that a validator can check (OpenAI's API reference, ``response_format``, 2026-11)."""

_ONLY_CHAT = frozenset(["messages", "prediction"])
_ONLY_COMPLETION = frozenset(["prompt"])

_PARTS = {
    "image_url": "images",
    "image": "images",
    "input_image": "images",
    "input_audio": "audio",
    "audio_url": "audio",
}
_MESSAGE_KEYS = frozenset(
    ["role", "content", "name", "annotations", "reasoning", "reasoning_content", "thinking", "cache_control", "id"]
)


def admit(method: str, path: str, headers: Mapping[str, str], body: bytes, *, whole: bool = False) -> Request | Bypass:
    """Whether a request is ours to consider. Never raises.

    ``whole``: also where only a rule about a whole draft may be tried: thoughts that are not switched off, and a JSON
    format. The request then says what bars the others (``Request.barred``).

    ``path`` may carry any prefix (``/v1``, an Azure deployment) and a query. ``headers`` in any case;
    ``x-cheapspec-disable`` with any value but an empty one, ``0`` or ``false`` switches everything off.
    """
    kind = _route(method, path)
    if isinstance(kind, Bypass):
        return kind
    lowered = {name.lower(): value for name, value in headers.items()}
    if lowered.get("x-cheapspec-disable", "").strip().lower() not in ("", "0", "false"):
        return Bypass("disabled", "x-cheapspec-disable")
    try:
        told: object = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not is_mapping(told):
        return Bypass("unsupported_field", "the body is not a JSON object")
    return _read(kind, told, whole)


def _route(method: str, path: str) -> str | Bypass:
    route = "/" + path.partition("?")[0].strip("/")
    if method.upper() == "POST":
        if route.endswith("/chat/completions"):
            return "chat"
        if route.endswith("/completions") and not route.endswith("/fim/completions"):
            return "completion"
    if route.endswith("/responses") or "/responses/" in route:
        return Bypass("responses_api", route)
    return Bypass("other_route", route)


def _read(kind: str, told: dict[str, Any], whole: bool) -> Request | Bypass:
    options = told.pop("cheapspec", None)
    given = {name: value for name, value in told.items() if value is not None}
    foreign = _ONLY_COMPLETION if kind == "chat" else _ONLY_CHAT
    barred: Bypass | None = None
    for name, value in given.items():
        check, reason = CHECKED.get(name, (None, "unsupported_field"))
        if name in foreign or (not check(value) if check else name not in HARMLESS):
            if not (whole and name not in foreign and _only_scoring(name, value, reason)):
                return Bypass(reason, name)
            barred = barred or Bypass(reason, name)
    model, stream = given.get("model"), given.get("stream", False)
    if not isinstance(model, str) or not model:
        return Bypass("unsupported_field", "model")
    if not isinstance(stream, bool):
        return Bypass("unsupported_field", "stream")
    stops = _stops(given.get("stop"))
    if stops is None:
        return Bypass("unsupported_field", "stop")
    limit = given.get("max_completion_tokens", given.get("max_tokens"))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        return Bypass("unsupported_field", "max_tokens")
    prediction = _prediction(given.get("prediction"))
    if isinstance(prediction, Bypass):
        return prediction
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt = given.get("prompt")
    if kind == "chat":
        read = _messages(given.get("messages"))
        if isinstance(read, Bypass):
            return read
        messages = read
    elif not isinstance(prompt, str):
        return Bypass("unsupported_field", "prompt")
    elif limit is None:
        # The server's own default (16 at OpenAI and vLLM, none at llama.cpp) cannot be split over several calls.
        return Bypass("unsupported_field", "max_tokens is not given")
    return Request(
        kind=kind,
        body=told,
        model=model,
        stream=stream,
        messages=messages,
        prompt=prompt,
        stops=stops,
        max_tokens=limit,
        prediction=prediction,
        include_usage=bool(as_mapping(given.get("stream_options")).get("include_usage")),
        options=as_mapping(options),
        barred=barred,
    )


def _only_scoring(name: str, value: Any, reason: str) -> bool:
    """Whether a field stands in the way of scoring only, not of a rule about a whole draft."""
    if name == "response_format":
        return as_mapping(value).get("type") in _FORMATS
    return reason == "reasoning"


def _stops(value: Any) -> tuple[str, ...] | None:
    """The stop strings; ``None`` for what a server refuses (vLLM answers 400 to an empty one)."""
    if value is None:
        return ()
    told = [value] if isinstance(value, str) else value
    if not is_list(told) or not all(isinstance(stop, str) and stop for stop in told):
        return None
    return tuple(told)


def _prediction(value: Any) -> str | Bypass | None:
    if value is None:
        return None
    told = as_mapping(value)
    content = _content(told.get("content")) if told.get("type") == "content" else None
    return content if isinstance(content, str) else Bypass("unsupported_field", "prediction")


def _messages(value: Any) -> tuple[Mapping[str, Any], ...] | Bypass:
    messages: list[Mapping[str, Any]] = []
    for told in map(as_mapping, as_list(value)):
        role = told.get("role")
        if role in ("tool", "function"):
            return Bypass("tools", f"a message of role {role}")
        if role not in ("system", "developer", "user", "assistant"):
            return Bypass("unsupported_field", "messages.role")
        for key, item in told.items():
            if key in ("tool_calls", "function_call") and item:
                return Bypass("tools", f"messages.{key}")
            if key == "audio" and item:
                return Bypass("audio", "messages.audio")
            if key not in _MESSAGE_KEYS and item:
                return Bypass("unsupported_field", f"messages.{key}")
        content = _content(told.get("content"))
        if isinstance(content, Bypass):
            return content
        named = {"name": told["name"]} if told.get("name") else {}
        messages.append({"role": role, "content": content, **named})
    if not messages:
        return Bypass("unsupported_field", "messages")
    if messages[-1]["role"] == "assistant":
        return Bypass("unsupported_field", "messages: the last one is the assistant's own beginning")
    return tuple(messages)


def _content(value: Any) -> str | Bypass:
    """Plain text of a content. Text parts are joined by line ends, as vLLM's templates get them."""
    if value is None or isinstance(value, str):
        return value or ""
    texts: list[str] = []
    for part in map(as_mapping, value if is_list(value) else [value]):
        kind, text = part.get("type"), part.get("text")
        if kind != "text" or not isinstance(text, str):
            return Bypass(_PARTS.get(str(kind), "unsupported_field"), f"content part {kind}")
        texts.append(text)
    return "\n".join(texts)


def sampling(
    request: Request,
    assume_temperature: float | None = None,
    plain_defaults: bool | None = None,
    hidden_defaults: Collection[str] = (),
) -> Sampling | Bypass:
    """How the caller wants tokens chosen, or why the exact rule cannot serve it.

    ``assume_temperature``: what to take the endpoint's default for when the request names none; it says as well that
    the endpoint has no other defaults. ``plain_defaults``: whether the endpoint is known to change nothing where a
    request says nothing; ``None``: not known yet. ``hidden_defaults``: the fields of which it is known to have defaults
    that change the distribution, whatever is assumed.

    Servers take such defaults from a model's files (vLLM 0.32: ``generation_config.json``) or have their own
    (llama.cpp: top_k 40, top_p .95, min_p .05). Above temperature 0 they must be known, or ruled out by the
    request; at temperature 0 those that are known to move the argmax must be ruled out by it.
    """
    temperature = request.body.get("temperature")
    top_p = request.body.get("top_p")
    if temperature is None:
        if assume_temperature is None:
            return Bypass("temperature_unset")
        temperature = assume_temperature
    for name, value in (("temperature", temperature), ("top_p", 1.0 if top_p is None else top_p)):
        if not is_number(value) or not 0 <= value < math.inf:
            return Bypass("unsupported_field", name)
    hidden = [name for name in hidden_defaults if request.body.get(name) is None]
    if temperature == 0:
        hidden = [name for name in hidden if name in _MOVES_ARGMAX]
        return _of_its_own(hidden) if hidden else Sampling(0.0, top_p)
    if temperature > 1:
        return Bypass("sampling", f"temperature {temperature:g} is above 1")
    for name, neutral in _NO_FILTER.items():
        value = request.body.get(name)
        if value is not None and value not in neutral:
            return Bypass("sampling", f"{name} {value}")
    if assume_temperature is None and top_p is None:
        return Bypass("top_p_unset")
    if hidden:
        return _of_its_own(hidden)
    if assume_temperature is None and not plain_defaults and not hidden_defaults:
        unset = [name for name in _DEFAULTED if request.body.get(name) is None]
        if unset:
            reason = "not_probed" if plain_defaults is None else "sampling"
            return Bypass(reason, f"the endpoint's default of {' and '.join(unset)} is not known to be neutral")
    return Sampling(float(temperature), 1.0 if top_p is None else float(top_p))


def _of_its_own(names: Sequence[str]) -> Bypass:
    return Bypass("sampling", f"the endpoint has a default of its own for {' and '.join(names)}")
