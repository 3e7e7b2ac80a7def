"""HTTP clients that reach a stand-in server under the real host's name, so that what a URL says is part of a test.

Only the connection goes elsewhere: the request that a client makes, and everything that reads its URL, sees the real
name. Whatever is asked of any other host is refused.
"""

from __future__ import annotations

import httpx2

__all__ = ["AsyncReroute", "Reroute"]


def _there(request: httpx2.Request, host: str, root: str) -> httpx2.Request:
    if request.url.host != host:
        raise httpx2.ConnectError(f"{request.url.host} is not played here", request=request)
    url = httpx2.URL(root)
    rerouted = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
    return httpx2.Request(
        request.method, rerouted, headers=request.headers, stream=request.stream, extensions=request.extensions
    )


class Reroute(httpx2.HTTPTransport):
    """``host``: the name that is played; ``root``: the stand-in's URL."""

    def __init__(self, host: str, root: str) -> None:
        super().__init__(verify=False)
        self._host, self._root = host, root

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return super().handle_request(_there(request, self._host, self._root))


class AsyncReroute(httpx2.AsyncHTTPTransport):
    """``host``: the name that is played; ``root``: the stand-in's URL."""

    def __init__(self, host: str, root: str) -> None:
        super().__init__(verify=False)
        self._host, self._root = host, root

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await super().handle_async_request(_there(request, self._host, self._root))
