"""Past requests with their replies, read from files of JSON lines.

Rules
-----
* A line is one of

  - OpenAI's batch input ``{"custom_id", "method", "url", "body"}`` or output
    ``{"custom_id", "response": {"status_code", "body"}, "error"}`` (its API reference, of 2026-11); both halves are
    joined by ``custom_id``, in whichever file and order they come;
  - a pair ``{"request": BODY, "response": COMPLETION}``;
  - a stored completion: a completion object that also has the request's ``messages``;
  - a conversation ``{"messages": […]}`` whose last message is the assistant's, as for fine-tuning.

* Any of them may have a ``label``: the right answer, where somebody knows it.
* Whatever else a line is, it is counted under a name and never ends the reading. So are halves without their other
  one, failed requests, replies without a choice, and other routes.
* What a line does not say is unknown: without ``usage`` tokens are estimated, and marked so.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cheapspec.core.counting import estimate, input_estimate
from cheapspec.core.effects import Usage
from cheapspec.core.received import content_text, error_of, first_choice, read_identity, read_usage
from cheapspec.core.shadows import fingerprint_of
from cheapspec.core.untyped import as_list, as_mapping, is_mapping
from cheapspec.errors import CheapspecError

__all__ = ["Logged", "Logs", "read_logs"]

# fmt: off
_ANSWERED = frozenset([
    "choices", "created", "id", "input_user", "label", "object", "request_id", "service_tier", "system_fingerprint",
    "usage",
])
# fmt: on
_ROUTES = {"chat": "/chat/completions", "completion": "/completions"}


@dataclass(frozen=True)
class Logged:
    """A request and its reply. ``body``: the request's; ``kind``: ``chat`` or ``completion``. ``text``: of the first
    choice, ``finish`` its finish reason. ``sizes``: bytes of each of its tokens, where the reply came with
    log-probabilities, else ``None``. ``label``: the right answer, ``None`` unknown; ``fingerprint``: who wrote the
    reply (:func:`cheapspec.core.shadows.fingerprint_of`).
    """

    id: str
    kind: str
    body: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)
    finish: str
    usage: Usage
    sizes: tuple[int, ...] | None = None
    label: str | None = field(default=None, repr=False)
    fingerprint: str | None = None

    @property
    def model(self) -> str:
        """The model that was asked for, empty where nobody says."""
        model = self.body.get("model")
        return model if isinstance(model, str) else ""


@dataclass(slots=True)
class Logs:
    """``requests`` in the order in which they were asked; ``odd``: what else the lines were, by name."""

    requests: list[Logged] = field(default_factory=list[Logged])
    odd: Counter[str] = field(default_factory=Counter[str])
    lines: int = 0


@dataclass(slots=True)
class _Half:
    """What is there of a batch's request so far. ``failed``: why its reply is none."""

    body: Mapping[str, Any] | None = None
    kind: str = "chat"
    reply: Mapping[str, Any] | None = None
    failed: str = ""


def read_logs(paths: Iterable[Path]) -> Logs:
    """All requests in these files; a name that ends in ``.gz`` is compressed.

    :raises CheapspecError: a file cannot be read. What is odd *in* a file is counted.
    """
    reader = _Reader()
    for path in paths:
        for line in _lines(path):
            reader.read(line)
    return reader.close()


def _lines(path: Path) -> Iterator[bytes]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as lines:
            for line in lines:
                if line.strip():
                    yield bytes(line)
    except (OSError, EOFError) as error:
        raise CheapspecError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None


class _Reader:
    def __init__(self) -> None:
        self._logs = Logs()
        self._halves: dict[str, _Half] = {}

    def read(self, line: bytes) -> None:
        self._logs.lines += 1
        try:
            told: object = json.loads(line)
        except (ValueError, RecursionError):
            return self._odd("not JSON")
        if not is_mapping(told):
            return self._odd("not a JSON object")
        request, response = as_mapping(told.get("request")), as_mapping(told.get("response"))
        if request:
            body = as_mapping(request.get("body")) or request
            url = request.get("url") or told.get("url")
            return self._add(told, _kind(url, body), body, as_mapping(response.get("body")) or response)
        if isinstance(told.get("custom_id"), str):
            return self._half(str(told["custom_id"]), told)
        if told.get("choices") and (told.get("messages") or told.get("prompt")):
            return self._add(told, _kind(None, told), _asked(told), told)
        if told.get("choices"):
            return self._odd("a reply without its request")
        return self._conversation(told)

    def close(self) -> Logs:
        for name, half in self._halves.items():
            if half.failed:
                self._odd(half.failed)
            elif half.body is None:
                self._odd("a reply without its request")
            elif half.reply is None:
                self._odd("a request without its reply")
            else:
                self._add({"id": name}, half.kind, half.body, half.reply)
        return self._logs

    def _odd(self, name: str) -> None:
        self._logs.odd[name] += 1

    def _half(self, name: str, told: Mapping[str, Any]) -> None:
        half = self._halves.setdefault(name, _Half())
        if is_mapping(told.get("body")):
            if half.body is not None:
                self._odd("a custom_id that was there before")
            half.body, half.kind = told["body"], _kind(told.get("url"), told["body"])
            return
        response = as_mapping(told.get("response"))
        if half.reply is not None or half.failed:
            self._odd("a custom_id that was there before")
        half.reply = as_mapping(response.get("body"))
        status = response.get("status_code")
        if error_of(told) is not None or not response:
            half.failed = "failed"
        elif isinstance(status, int) and status >= 300:
            half.failed = f"failed with status {status}"

    def _conversation(self, told: Mapping[str, Any]) -> None:
        messages = as_list(told.get("messages"))
        last = as_mapping(messages[-1] if messages else None)
        if last.get("role") != "assistant":
            name = "a request without its reply" if messages or told.get("prompt") else "no request and no reply"
            return self._odd(name)
        choice = {"index": 0, "message": last, "finish_reason": "stop"}
        reply = {"choices": [choice], "usage": told.get("usage")}
        return self._add(told, "chat", {**_asked(told), "messages": messages[:-1]}, reply)

    def _add(self, told: Mapping[str, Any], kind: str, body: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        if not kind:
            return self._odd("another route than chat or text completions")
        if error_of(reply) is not None:
            return self._odd("failed")
        choice = first_choice(reply)
        if not choice:
            return self._odd("a reply without a choice")
        message = as_mapping(choice.get("message"))
        text = content_text(message.get("content") if kind == "chat" else choice.get("text"))
        text = text.encode("utf-8", "replace").decode()  # halves of surrogate pairs have no bytes
        finish = "length" if choice.get("finish_reason") == "length" else "stop"
        usage = read_usage(reply.get("usage"), reply.get("service_tier"))
        if usage is None:
            said = text or json.dumps(message.get("tool_calls") or "")
            usage = Usage(input_estimate(body), estimate(len(said.encode())), estimated=True)
        if not body.get("model") and reply.get("model"):
            body = {**body, "model": reply["model"]}
        name = next((str(told[key]) for key in ("custom_id", "id") if told.get(key)), str(self._logs.lines))
        writer, label = read_identity(reply), told.get("label")
        logged = Logged(name, kind, body, text, finish, usage, _sizes(choice, text))
        known = None if label is None else label if isinstance(label, str) else json.dumps(label)
        signed = fingerprint_of(writer.model, writer.system_fingerprint)
        self._logs.requests.append(replace(logged, label=known, fingerprint=signed))
        return None


def _kind(url: object, body: Mapping[str, Any]) -> str:
    """Which route; empty for one that is none of ours."""
    if isinstance(url, str):
        route = url.partition("?")[0].rstrip("/")
        return next((kind for kind, tail in _ROUTES.items() if route.endswith(tail)), "")
    return "completion" if "prompt" in body and "messages" not in body else "chat"


def _asked(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request's part of a stored completion: what no reply has."""
    return {name: value for name, value in told.items() if name not in _ANSWERED}


def _sizes(choice: Mapping[str, Any], text: str) -> tuple[int, ...] | None:
    """Bytes of each token, if the reply's log-probabilities join to its text."""
    entries = as_list(as_mapping(choice.get("logprobs")).get("content"))
    sizes = tuple(len(as_list(as_mapping(entry).get("bytes"))) for entry in entries)
    size = len(text.encode())
    while sizes and sum(sizes) > size and sum(sizes[:-1]) == size:  # the end of the turn, by its name
        sizes = sizes[:-1]
    return sizes if sizes and sum(sizes) == size else None
