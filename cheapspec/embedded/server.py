"""llama.cpp's own HTTP server in this process, on a free port of the loopback interface.

It is the unmodified server (``/completion``, ``/v1/chat/completions``, ``/tokenize`` …) from the
prebuilt wheel ``xllamacpp`` (build 11549, 2026-10); its threads run outside the interpreter's lock.
Several in one process work.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import TracebackType
from typing import Any

from cheapspec.errors import CheapspecError

__all__ = ["EmbeddedServer"]

_ERRORS_ONLY = 1


class EmbeddedServer:
    """Runs from construction to :meth:`close`; a context manager too.

    ``path``: a GGUF file. ``n_ctx``: the window in tokens *of each slot*. ``threads``: of the
    computation. ``parallel``: slots, that is requests computed at a time (others wait); only one
    slot makes greedy results independent of what else is asked meanwhile. ``alias``: the model's
    name in replies (the file's name without its ending by default). ``verbosity``: llama.cpp's own
    log on standard error, 1 errors to 4 everything.

    :raises CheapspecError: the extra is not installed, the file is missing or cannot be loaded.
    """

    url: str
    """Root of the server, ``http://127.0.0.1:PORT``; stays readable after :meth:`close`."""
    model: str
    """The model's name in ``/v1/models`` and in replies."""

    def __init__(
        self,
        path: str | Path,
        *,
        n_ctx: int = 2048,
        threads: int = 2,
        parallel: int = 1,
        alias: str | None = None,
        verbosity: int = _ERRORS_ONLY,
    ) -> None:
        try:
            library: Any = importlib.import_module("xllamacpp")
        except ImportError as missing:
            raise CheapspecError("The embedded engine needs `pip install 'cheapspec[embedded]'`.") from missing
        path = Path(path)
        if not path.is_file():
            raise CheapspecError(f"There is no model file {path}.")
        self.model = alias or path.stem
        params = library.CommonParams()
        params.model.path = str(path)
        params.model_alias = {self.model}
        params.n_ctx = n_ctx * parallel  # llama.cpp divides it among the slots
        params.n_parallel = parallel
        params.port = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.verbosity = verbosity
        params.ui = False
        try:
            self._server: Any = library.Server(params)
        except Exception as failed:
            raise CheapspecError(f"llama.cpp cannot load {path}: {failed}") from failed
        self.url = str(self._server.listening_address)

    def close(self) -> None:
        """Stop the server and free its memory. Closing twice is harmless."""
        self._server = None  # the library stops it when the object goes

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
