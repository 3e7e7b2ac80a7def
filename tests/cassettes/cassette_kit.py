"""How cassettes are made, and how they are searched.

A cassette is a YAML file of vcrpy (≥ 9.4: older ones let httpx2 pass and go live) under ``cassettes/ENGINE/``, with
metadata that says which server it came from. Rules:

* Of headers only those on a list are kept: a new header that carries a secret is left out, not forgotten.
* The host is replaced, so that a replay needs none; queries lose the values of all parameters.
* A body, compressed or not, loses the key that the recording used and whatever looks like a key (servers quote keys
  in their errors). Requests are matched on method, address and body after all that.
* :func:`faults_of` finds secrets and empty bodies, in any file, whoever wrote it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import vcr
import yaml
from vcr.request import Request
from vcr.serializers import yamlserializer

CASSETTES = Path(__file__).parents[2] / "cassettes"
HOST = "http://engine.test"
KEY = "sk-recording-Nothing0fValue"
"""What recordings are made with; it must not be found in any."""
MASK = "[MASKED]"
RECORD = bool(os.environ.get("CHEAPSPEC_TEST_RECORD"))

_KEPT_REQUEST = ("content-type", "accept-encoding")
_KEPT_RESPONSE = ("content-type", "content-encoding", "server", "x-ratelimit-remaining-requests", "retry-after")
_SECRETS = re.compile(
    rb"\b(?:sk|pk|rk|fw|gsk|xai|hf|ghp|AKIA|eyJ)[-_][A-Za-z0-9_\-*.]{8,}|\bBearer\s+[A-Za-z0-9_\-.]{8,}|\bAKIA[A-Z0-9]{12,}"
)
_SECRET_HEADER = re.compile(r"authori[sz]ation|api-?key|cookie|token|secret|credential|organization|project", re.I)


@dataclass(frozen=True)
class Engine:
    """``url``: its root, where nobody listens in a replay."""

    name: str
    url: str
    model: str
    metadata: dict[str, Any]


def cassette_machine(*, mode: str = "none", **more: Any) -> vcr.VCR:
    """A vcrpy that keeps the rules. ``mode``: ``none`` replays, ``all`` records."""
    return vcr.VCR(
        record_mode=mode,
        match_on=["method", "uri", "body"],
        before_record_request=_clean_request,
        before_record_response=_clean_response,
        **more,
    )


def _clean_request(request: Request) -> Request:
    parts = urlsplit(request.uri)
    query = urlencode([(name, MASK) for name, _ in parse_qsl(parts.query, keep_blank_values=True)], safe="[]")
    headers = {name: value for name, value in request.headers.items() if name.lower() in _KEPT_REQUEST}
    body = request.body
    return Request(
        request.method,
        HOST + parts.path + (f"?{query}" if query else ""),
        _masked(body) if isinstance(body, bytes) else body,
        headers,
    )


def _clean_response(response: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, list[str]] = response["headers"]
    body: bytes = response["body"]["string"]
    packed = _is_gzip(body)
    plain = gzip.decompress(body) if packed else body
    masked = _masked(plain)
    if masked != plain:
        body = gzip.compress(masked, mtime=0) if packed else masked
    kept = {name: values for name, values in headers.items() if name.lower() in _KEPT_RESPONSE}
    return {**response, "headers": kept, "body": {"string": body}}


def _masked(body: bytes) -> bytes:
    return _SECRETS.sub(MASK.encode(), body.replace(KEY.encode(), MASK.encode()))


def _is_gzip(body: bytes) -> bool:
    return body[:2] == b"\x1f\x8b"


# --- reading --------------------------------------------------------------------------------------


def cassette_files() -> list[Path]:
    """Every cassette of the project."""
    return sorted(CASSETTES.rglob("*.yaml"))


def read_cassette(path: Path) -> dict[str, Any]:
    """A cassette as data: ``interactions``, ``metadata``."""
    found: dict[str, Any] = yamlserializer.deserialize(path.read_text("utf-8"))
    return found


def write_cassette(path: Path, interactions: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
    """As vcrpy writes it."""
    data = {"version": 1, "interactions": interactions, "metadata": metadata}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yamlserializer.serialize(data), "utf-8")


def body_of(response: dict[str, Any]) -> bytes:
    """The body of a recorded response as the client's code sees it: unpacked."""
    body = response["body"]["string"]
    raw = body.encode() if isinstance(body, str) else body or b""
    return gzip.decompress(raw) if _is_gzip(raw) else bytes(raw)


def faults_of(text: str) -> list[str]:
    """What is wrong with a cassette's text: secrets anywhere, empty bodies, streams without an event."""
    found = [f"a secret: {match[0][:6].decode()}…" for match in _SECRETS.finditer(text.encode())]
    found += ["the recording's key"] * (KEY in text)
    try:
        interactions = yamlserializer.deserialize(text)["interactions"]
    except (yaml.YAMLError, KeyError, TypeError):
        return [*found, "not a cassette"]
    if not interactions:
        found.append("no interaction")
    for interaction in interactions:
        found += _faults(interaction["request"], interaction["response"])
    return found


def _faults(request: dict[str, Any], response: dict[str, Any]) -> Iterator[str]:
    where = urlsplit(request["uri"])
    for name, value in parse_qsl(where.query, keep_blank_values=True):
        if value != MASK:
            yield f"a query's value: {name}"
    for name in [*request["headers"], *response["headers"]]:
        if _SECRET_HEADER.search(name):
            yield f"a header: {name}"
    asked = request["body"] or b""
    try:
        answered = body_of(response)
    except (OSError, EOFError, zlib.error):
        yield f"a broken body: {where.path}"
        return
    for side in (asked.encode() if isinstance(asked, str) else asked, answered):
        if _SECRETS.search(side) or KEY.encode() in side:
            yield f"a secret in a body: {where.path}"
    code: int = response["status"]["code"]
    if code not in (204, 304) and not answered.strip():
        yield f"an empty body: {where.path}"
    elif "text/event-stream" in str(response["headers"]).lower() and not _events(answered):
        yield f"a stream without an event: {where.path}"


def _events(body: bytes) -> list[Any]:
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: ") and line != b"data: [DONE]"]
    return [json.loads(line) for line in lines]
