"""What both executors do around a call, free of waiting."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import httpx2

from cheapspec.core.effects import GoDirect, HttpRequest, Side
from cheapspec.core.info import Info
from cheapspec.core.ports import CallRow
from cheapspec.drive.runtime import Admitted, Passed, Runtime, infos

__all__ = ["passed_info", "probe_request", "target_request"]


def target_request(
    runtime: Runtime, template: httpx2.Request, request: HttpRequest, idempotency_key: str
) -> httpx2.Request:
    """The caller's own request with another path and body: same headers, query, time-outs, auth."""
    url = runtime.target_url(template.url, request.path)
    headers = template.headers.copy()
    for name in ("content-length", "content-type", "transfer-encoding"):
        headers.pop(name, None)
    headers["idempotency-key"] = idempotency_key
    content = None
    if request.body is not None:
        content = json.dumps(request.body, separators=(",", ":")).encode()
        headers["content-type"] = "application/json"
    return httpx2.Request(request.method, url, headers=headers, content=content, extensions=dict(template.extensions))


def probe_request(runtime: Runtime, passed: Passed, request: HttpRequest) -> httpx2.Request:
    """A probe's call; a billed one is booked."""
    call_id = f"probe-{uuid.uuid4().hex[:12]}"
    row = CallRow(call_id, passed.request_id, Side.TARGET, "probe", request.billed, time.time())
    runtime.ledger.open_call(row)
    return target_request(runtime, passed.request, request, f"cheapspec-{call_id}")


def passed_info(
    runtime: Runtime,
    passed: Passed | Admitted,
    response: httpx2.Response,
    *,
    stream: bool,
    effect: GoDirect | None = None,
) -> Info:
    """The facts of a passed-through request, found again by request id and by the reply's own id."""
    if isinstance(passed, Passed):
        info = runtime.went_direct(passed.request_id, passed.decision, passed.reason, passed.detail)
    else:
        assert effect is not None
        info = runtime.went_direct(passed.request_id, "direct", effect.reason, effect.detail, passed)
    reply_id = None
    if (
        not stream
        and response.is_stream_consumed
        and response.headers.get("content-type", "").startswith("application/json")
    ):
        reply_id = _id_of(response)
    infos.put(info, reply_id)
    return info


def _id_of(response: httpx2.Response) -> str | None:
    try:
        body: Any = json.loads(response.content)
    except ValueError:
        return None
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None
