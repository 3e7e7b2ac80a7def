"""Asking a stream for its usage: the one field that is added to a caller's own request, so that its cost is known.

Rules
-----
* Only of chat and text completions that are streamed, where ledger or budgets want to know (``ask_usage``), never
  when everything is switched off, and not of a caller who asked already.
* The caller's bytes stay as they are; the field is put at their end. Only a body that has ``stream_options`` already
  is written anew.
* A server that refuses the field is asked again without it, once, and not again as long as this process lives. A
  refusal may be meant for the field if it names it, or speaks of some unknown field, or says nothing that can be
  read; whatever else is wrong with a request is not asked twice.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import httpx2

from cheapspec.core.untyped import as_mapping
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.urls import streams, written

__all__ = ["asking", "refuses"]

_OPTIONS = "stream_options"
_EXPLAINED = ("error", "detail", "message", "errors")  # OpenAI's, FastAPI's and plain shapes of an error
_ADDED = b',"stream_options":{"include_usage":true}}'
_NAMED = re.compile(rb"stream.?options|include.?usage", re.IGNORECASE)
_UNKNOWN_FIELD = re.compile(
    rb"(unknown|unrecogni[sz]ed|unexpected|unsupported|extra|additional|invalid|unpermitted|not.(allowed|permitted)).{0,20}"
    rb"(field|argument|parameter|param\b|input|propert|key|option|keyword)"
    rb"|(field|argument|parameter|param|input|propert\w*|key|option|keyword)s?.{0,40}"
    rb"(unknown|not.(allowed|permitted|supported|recogni[sz]ed|known)|unsupported)",
    re.IGNORECASE | re.DOTALL,
)


def asking(runtime: Runtime, passed: Passed) -> httpx2.Request | None:
    """The request with the question in it, ``None`` where it is not to be asked."""
    if not passed.settings.ask_usage or not passed.kind or passed.reason == "disabled":
        return None
    if not (passed.parsed.stream if passed.parsed is not None else streams(passed.request)):
        return None
    content = _content(passed.request)
    if content is None or runtime.endpoint(passed).refuses_usage:
        return None
    asked = _asked(content)
    if asked is None:
        return None
    kept = [(name, value) for name, value in passed.request.headers.raw if name.lower() != b"content-length"]
    return httpx2.Request(
        passed.request.method,
        passed.request.url,
        headers=kept,
        content=asked,
        extensions=dict(passed.request.extensions),
    )


def refuses(status: int, body: bytes) -> bool:
    """Whether an error may be meant for the field that was added."""
    if status not in (400, 422):
        return False
    if _NAMED.search(body) is not None:
        return True
    try:
        told = as_mapping(json.loads(body))
    except (ValueError, RecursionError):
        return True
    if not any(told.get(name) for name in _EXPLAINED):
        return True
    param = as_mapping(told.get("error")).get("param")
    return not param and _UNKNOWN_FIELD.search(body) is not None


def _content(request: httpx2.Request) -> bytes | None:
    try:
        return request.content
    except httpx2.RequestNotRead:
        return None


def _asked(content: bytes) -> bytes | None:
    """The body with the question, ``None`` if it is there already, or where this is no JSON object."""
    body = content.rstrip()
    if _OPTIONS.encode() not in body:
        return body[:-1] + _ADDED if body[:1] == b"{" and body[-1:] == b"}" else None
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    fields = cast(dict[str, Any], told)
    options = as_mapping(fields.get(_OPTIONS))
    if options.get("include_usage") is True:
        return None
    return written({**fields, _OPTIONS: {**options, "include_usage": True}})
