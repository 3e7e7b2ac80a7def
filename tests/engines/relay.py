"""A gateway in front of an engine: it passes the OpenAI routes on and knows nothing else.

What most deployments of vLLM show of it: no ``/tokenize``, no ``/version``. Every call that it passes on is kept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cheapspec.testing.server import serve

__all__ = ["Gateway", "gateway"]


@dataclass
class Gateway:
    """A running gateway. ``passed``: paths that were passed on; ``refused``: paths that it does not serve."""

    url: str = ""
    passed: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])


@contextmanager
def gateway(upstream: str) -> Generator[Gateway]:
    """Serves ``/v1/…`` of ``upstream`` inside the block."""
    made = Gateway()
    clients: list[httpx2.AsyncClient] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with httpx2.AsyncClient(base_url=upstream, timeout=300, trust_env=False) as client:
            clients.append(client)
            yield

    async def pass_on(request: Request) -> Response:
        path = request.url.path
        if not path.startswith("/v1/"):
            made.refused.append(path)
            return JSONResponse({"error": {"message": "Not Found", "code": 404}}, 404)
        made.passed.append(path)
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        sent = clients[0].build_request(request.method, path, content=await request.body(), headers=headers)
        reply = await clients[0].send(sent, stream=True)
        kind = reply.headers.get("content-type")
        closing = BackgroundTask(reply.aclose)
        return StreamingResponse(reply.aiter_bytes(), reply.status_code, media_type=kind, background=closing)

    routes = [Route("/{path:path}", pass_on, methods=["GET", "POST"])]
    with serve(Starlette(routes=routes, lifespan=lifespan)) as server:
        made.url = server.url
        yield made
