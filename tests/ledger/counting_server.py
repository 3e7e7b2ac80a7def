"""A chat endpoint that counts what it is paid for: ``python counting_server.py`` prints its URL and serves.

A request counts as soon as its body is read, whether or not anybody waits for the answer. ``GET /count`` tells.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_lock = threading.Lock()
_count = 0

_USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
_REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_764_000_000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": _USAGE,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        global _count
        self.rfile.read(int(self.headers["content-length"]))
        with _lock:
            _count += 1
        self._answer(_REPLY)

    def do_GET(self) -> None:
        with _lock:
            self._answer({"count": _count})

    def _answer(self, told: object) -> None:
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client was killed
            super().handle()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
