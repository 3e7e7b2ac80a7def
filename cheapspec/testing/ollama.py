"""A stand-in for Ollama: its wire format over a real llama.cpp server.

No package index carries a working Ollama, so tests of the Ollama dialect need this. It is held to
recordings of two real servers (0.24.0, the last with Ollama's own runners, and 0.33.0-rc2) by a test
that replays them.

Rules
-----
* Texts and log-probabilities come from llama.cpp (:mod:`cheapspec.testing.ollama_engine`); templates
  are rendered here (:mod:`cheapspec.testing.ollama_models`), because llama.cpp's chat routes add
  default system prompts of their own.
* Loading is book-keeping with Ollama's own rules: any other ``num_ctx`` than the loaded one, leaving
  it out included, loads again; so does, on ≥ 0.30, another ``shift``, and on a model with a draft
  layer another ``draft_num_predict``. ``loads`` counts. A client that hangs up while the model
  loads aborts the load.
* A prompt longer than the window is cut without a word unless ``truncate`` is false; then it is a 400
  of the version's own shape.
* Faults are switches: ``busy``, ``die_after``, ``cold_seconds``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cheapspec.testing.ollama_engine import Chunk, End, EngineRefused, LlamaCpp, Sampling
from cheapspec.testing.ollama_models import SMOLLM2, StandInModel
from cheapspec.testing.ollama_wire import Job, Refusal, Wire, read_job, refuse_overflow
from cheapspec.testing.server import Server, serve

__all__ = ["SMOLLM2", "StandInModel", "StandInOllama"]

_REPEAT_LIMIT = 30  # "arbitrary max token repeat limit" in both versions: the 32nd equal token ends the reply
_POLL = 0.02


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a running model was started with."""

    window: int
    shift: bool
    draft_num_predict: int | None


class StandInOllama:
    """A context manager; serves at :attr:`url` inside the block.

    ``engine_url``: a llama.cpp server whose model all ``models`` stand for. ``version``: ``"0.24.0"``
    or ``"0.33.0-rc2"``. ``default_context``: the window of a model loaded without ``num_ctx``, tokens.
    ``cold_seconds``: how long a load takes.
    """

    def __init__(
        self,
        engine_url: str,
        *,
        version: str = "0.33.0-rc2",
        models: Iterable[StandInModel] = (SMOLLM2,),
        default_context: int = 4096,
        cold_seconds: float = 0.0,
        renders: bool = True,
    ) -> None:
        self.version = version
        self.default_context = default_context
        self.cold_seconds = cold_seconds
        self.renders = renders  # false: a host that does not know _debug_render_only
        self.busy = False
        """Answer every generating call with 503."""
        self.die_after: int | None = None
        """The next reply breaks off with an error line after so many chunks; then the model is unloaded."""
        self.loads = 0
        """How often a model was loaded, reloads included."""
        self.aborted_loads = 0
        """How often a client hung up while its model was loading."""
        self.requests: list[tuple[str, Any]] = []
        """Path and JSON body of every call, in order."""
        self.url = ""
        self._engine_url = engine_url
        self._models = {model.name.casefold(): model for model in models}
        self._loaded: dict[str, _Loaded] = {}
        self._loading = asyncio.Lock()
        self._engine: LlamaCpp | None = None
        self._stack = contextlib.ExitStack()

    @property
    def modern(self) -> bool:
        """Whether it runs llama.cpp's server inside (≥ 0.30)."""
        return tuple(int(part) for part in self.version.split("-")[0].split(".")[:2]) >= (0, 30)

    def __enter__(self) -> StandInOllama:
        server: Server = self._stack.enter_context(serve(self._app()))
        self.url = server.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def _app(self) -> Starlette:
        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
            self._engine = LlamaCpp(self._engine_url)
            try:
                yield
            finally:
                await self._engine.close()

        routes = [
            Route("/api/version", self._version),
            Route("/api/tags", self._tags),
            Route("/api/ps", self._ps),
            Route("/api/show", self._show, methods=["POST"]),
            Route("/api/chat", self._generate, methods=["POST"]),
            Route("/api/generate", self._generate, methods=["POST"]),
            Route("/v1/chat/completions", self._generate, methods=["POST"]),
            Route("/v1/models", self._v1_models),
        ]
        missing = {404: _page_not_found, 405: _page_not_found}
        return Starlette(routes=routes, exception_handlers=missing, lifespan=lifespan)

    # --- listings -----------------------------------------------------------------------------

    async def _version(self, request: Request) -> Response:
        return _json({"version": self.version})

    async def _tags(self, request: Request) -> Response:
        self.requests.append((request.url.path, None))
        return _json({"models": [model.listing(modern=self.modern) for model in self._models.values()]})

    async def _v1_models(self, request: Request) -> Response:
        listed = [
            {"id": model.name, "object": "model", "created": 1795981419, "owned_by": "library"}
            for model in self._models.values()
        ]
        return JSONResponse({"object": "list", "data": listed})

    async def _ps(self, request: Request) -> Response:
        self.requests.append((request.url.path, None))
        running: list[dict[str, Any]] = []
        for name, loaded in self._loaded.items():
            entry = self._models[name].listing(modern=False)
            del entry["modified_at"]
            running.append(
                {**entry, "expires_at": "2026-11-29T20:24:00Z", "size_vram": 0, "context_length": loaded.window}
            )
        return _json({"models": running})

    async def _show(self, request: Request) -> Response:
        body: Any = json.loads(await request.body())
        self.requests.append((request.url.path, body))
        try:
            return _json(self._model(str(body.get("model", ""))).shown())
        except Refusal as refusal:
            return refusal.response()

    def _model(self, name: str) -> StandInModel:
        key = name.casefold()
        found = self._models.get(key if ":" in key.rpartition("/")[2] else f"{key}:latest")
        if found is None:
            raise Refusal(404, f"model '{name}' not found")
        return found

    # --- generating ---------------------------------------------------------------------------

    async def _generate(self, request: Request) -> Response:
        path = request.url.path
        wire = Wire(path, modern=self.modern)
        try:
            raw: Any = json.loads(await request.body())
            self.requests.append((path, raw))
            if self.busy:
                raise Refusal(503, "server busy, please try again.  maximum pending requests exceeded")
            job = read_job(wire, raw, self._model)
            if job.unload:
                self._loaded.pop(job.model.name.casefold(), None)
                return _json(wire.idle(job, "unload"))
            window = await self._load(job, request)
            if job.only_load:
                return _json(wire.idle(job, "load"))
            if job.render_only and self.renders:
                return _json(wire.rendered(job))
            return await self._reply(wire, job, window)
        except Refusal as refusal:
            return refusal.response(wire)

    async def _load(self, job: Job, request: Request) -> int:
        """Make the model run with what the job asks for; returns its window in tokens."""
        name = job.model.name.casefold()
        wanted = _Loaded(
            min(int(job.options.get("num_ctx", self.default_context)), job.model.train_context),
            job.shift if self.modern else True,
            job.options.get("draft_num_predict", 4) if job.model.draft_layer else None,
        )
        async with self._loading:
            if self._loaded.get(name) != wanted:
                self._loaded.pop(name, None)
                waited = 0.0
                while waited < self.cold_seconds:
                    if await request.is_disconnected():
                        self.aborted_loads += 1
                        raise Refusal(499, "client closed request")
                    await asyncio.sleep(_POLL)
                    waited += _POLL
                self._loaded[name] = wanted
                self.loads += 1
        return wanted.window

    async def _reply(self, wire: Wire, job: Job, window: int) -> Response:
        assert self._engine is not None
        prompt = await self._engine.tokenize(job.prompt)
        if len(prompt) > window:
            if not job.truncate:
                raise refuse_overflow(len(prompt), window, modern=self.modern)
            # Kept are, on 0.24, as many of the last tokens as fit, on 0.33 about half a window of them.
            prompt = prompt[-(window // 2 + 2 if self.modern else window) :]
        limit = job.limit
        if not job.shift:
            room = window - len(prompt) + (0 if self.modern else 1)
            limit = min(limit, room) if limit > 0 else room
        sampling = Sampling(job.options, job.stops, limit, job.top, job.schema)
        replies = self._replies(wire, job, prompt, sampling)
        if job.stream:
            return StreamingResponse(wire.encode(job, replies), media_type=wire.media_type)
        return JSONResponse(await wire.join(replies), media_type=wire.plain_type)

    async def _replies(
        self, wire: Wire, job: Job, prompt: list[int], sampling: Sampling
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The lines of a streamed reply."""
        assert self._engine is not None
        dies_after, self.die_after = self.die_after, None
        said, last, repeats, text = 0, "", 0, ""
        run = self._engine.generate(prompt, sampling, merged=self.modern)
        try:
            async for piece in run:
                if isinstance(piece, End):
                    ids = await self._engine.tokenize(job.prompt + text) if job.wants_context else None
                    yield wire.final(job, piece, len(prompt), ids)
                    return
                repeats = repeats + 1 if piece.text.strip() == last else 0
                last = piece.text.strip()
                if repeats > _REPEAT_LIMIT:
                    return
                if said == dies_after:
                    self._loaded.pop(job.model.name.casefold(), None)
                    yield {"error": "an error was encountered while running the model: unexpected EOF"}
                    return
                text += piece.text
                yield wire.piece(job, Chunk(job.echo + piece.text, piece.entries) if not said else piece)
                said += 1
        except EngineRefused as refused:
            yield {"error": str(refused)}
        finally:
            await run.aclose()


def _json(value: Mapping[str, Any]) -> JSONResponse:
    return JSONResponse(value, media_type="application/json; charset=utf-8")


async def _page_not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("404 page not found", 404, media_type="text/plain")
