"""The second Python door: an HTTP transport, for code that takes only an ``http_client``.

It wraps an inner *client*, not a bare transport, so that environment proxies, mounts and certificates of
that client stay in force. What the client door can and this one cannot: it does not see the openai
client's ``max_retries``, so the budget of attempts is its own; and a final failure is a response (502 or
504, marked ``x-should-retry: false``), since an exception raised here would be repeated. The unstreamed reply
to a chat or text completion is read here, so that its facts are known.
"""

from __future__ import annotations

import json

import httpx2

from cheapspec.doors import Shared
from cheapspec.drive import aio, sync
from cheapspec.drive.outcome import TargetFailed
from cheapspec.settings import Speculation
from cheapspec.unsent import hold

__all__ = ["AsyncTransport", "Transport"]


def _failed(failed: TargetFailed, request: httpx2.Request) -> httpx2.Response:
    status = 504 if failed.kind == "timeout" else 502
    error = {"message": f"the target did not answer: {failed}", "type": "upstream_error", "param": None, "code": None}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return httpx2.Response(status, headers=headers, content=json.dumps({"error": error}).encode(), request=request)


class Transport(httpx2.BaseTransport):
    """``openai.OpenAI(http_client=httpx2.Client(transport=cheapspec.Transport(…)))``.

    ``client``: the client that really sends (a new one by default); it is closed with the transport.
    ``max_retries``: attempts of one request after the first, over everything it sends to the target.
    """

    def __init__(
        self,
        client: httpx2.Client | None = None,
        *,
        speculation: Speculation | Shared | None = None,
        max_retries: int = 2,
    ) -> None:
        self._shared = speculation if isinstance(speculation, Shared) else Shared(speculation)
        self._client = client or httpx2.Client(timeout=httpx2.Timeout(600.0, connect=5.0))
        self._max_retries = max_retries

    @classmethod
    def under(cls, http_client: httpx2.Client | None, shared: Shared, max_retries: int) -> Transport:
        """For a client of ours that cannot do without: over its ``http_client``, or what is inside of that."""
        inside = getattr(http_client, "_transport", None)
        inner = inside._client if isinstance(inside, cls) else http_client
        return cls(inner, speculation=shared, max_retries=max_retries)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request (httpx2 calls this)."""
        hold(request)
        runtime = self._shared.runtime
        try:
            return sync.handle(runtime, request, self._send, stream=None, max_retries=self._max_retries)
        except TargetFailed as failed:
            return _failed(failed, request)

    def _send(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        return self._client.send(request, stream=stream, follow_redirects=False)

    def close(self) -> None:
        """Close the inner client."""
        self._client.close()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """The asynchronous twin of :class:`Transport`, for ``httpx2.AsyncClient``."""

    def __init__(
        self,
        client: httpx2.AsyncClient | None = None,
        *,
        speculation: Speculation | Shared | None = None,
        max_retries: int = 2,
    ) -> None:
        self._shared = speculation if isinstance(speculation, Shared) else Shared(speculation)
        self._client = client or httpx2.AsyncClient(timeout=httpx2.Timeout(600.0, connect=5.0))
        self._max_retries = max_retries

    @classmethod
    def under(cls, http_client: httpx2.AsyncClient | None, shared: Shared, max_retries: int) -> AsyncTransport:
        """For a client of ours that cannot do without: over its ``http_client``, or what is inside of that."""
        inside = getattr(http_client, "_transport", None)
        inner = inside._client if isinstance(inside, cls) else http_client
        return cls(inner, speculation=shared, max_retries=max_retries)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request (httpx2 calls this)."""
        hold(request)
        runtime = self._shared.runtime
        try:
            return await aio.handle(runtime, request, self._send, stream=None, max_retries=self._max_retries)
        except TargetFailed as failed:
            return _failed(failed, request)

    async def _send(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        return await self._client.send(request, stream=stream, follow_redirects=False)

    async def aclose(self) -> None:
        """Close the inner client."""
        await self._client.aclose()
