"""Wraps the stream of a response so that a meter sees what passes, and says when it is over.

Rules
-----
* Pieces go on as they came and when they came; a caller who reads raw bytes gets the raw bytes. Where something is
  taken out, they go on decoded (whoever wraps takes the header away).
* The wrapped stream is closed when this one is, and before the end is told. It ``ended``, ``broke`` (an exception
  came out of it), or was ``left``: closed, cancelled or forgotten before its end.
* What is decoded here is decoded by httpx2 itself. A body that is not encoded as it says goes on raw, unread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from cheapspec.core.meter import StreamMeter
from cheapspec.drive.local import hosts

__all__ = ["tapped"]


def tapped(
    stream: Any, meter: StreamMeter, over: Callable[[str], None], encoding: str, *, hide: bool
) -> httpx2.SyncByteStream | httpx2.AsyncByteStream:
    """The stream, sync or async as it is. ``over`` may be told more than once; the first word counts."""
    kind = _Async if isinstance(stream, httpx2.AsyncByteStream) else _Sync
    return kind(stream, meter, over, encoding, hide)


class _Tapped:
    def __init__(self, stream: Any, meter: StreamMeter, over: Callable[[str], None], encoding: str, hide: bool) -> None:
        self._stream = stream
        self._meter = meter
        self._over = over
        self._encoding = encoding
        self._hide = hide
        self._how = "left"
        self._closed = False
        self._raw: list[bytes] = []

    @property
    def elapsed(self) -> Any:
        """As the wrapped stream measured it."""
        return getattr(self._stream, "elapsed", None)

    def _decoding(self, raw: Any) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": self._encoding}, stream=raw)

    def _take(self, data: bytes) -> bytes:
        """What goes on, now that these (decoded) bytes are here."""
        told = self._meter.feed(data)
        if not self._encoding:
            return told
        raw = self._held()
        return told if self._hide else raw

    def _rest(self, how: str) -> bytes:
        self._how = how
        told = self._meter.close()
        return self._held() if self._encoding and not self._hide else told

    def _held(self) -> bytes:
        raw = b"".join(self._raw)
        self._raw.clear()
        return raw

    def _unreadable(self, error: httpx2.DecodingError) -> bytes:
        """The body is not encoded as it says: it goes on raw, where it was not to be decoded for the caller."""
        self._how = "broke"
        if self._hide:
            raise error
        return self._held()

    def __del__(self) -> None:
        if not self._closed:
            over, how = self._over, self._how
            hosts.soon(lambda: over(how))


class _Sync(_Tapped, httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        source = iter(self._stream)
        try:
            for data in self._decoding(_Shown(source, self._raw)).iter_bytes() if self._encoding else source:
                if told := self._take(data):
                    yield told
        except httpx2.DecodingError as error:
            yield self._unreadable(error)
            yield from source
            return
        except Exception:
            if told := self._rest("broke"):
                yield told
            raise
        if told := self._rest("ended"):
            yield told

    def close(self) -> None:
        self._closed = True
        try:
            self._stream.close()
        finally:
            self._over(self._how)


class _Async(_Tapped, httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        source = self._stream.__aiter__()
        pieces = self._pieces(source)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    async def _pieces(self, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        try:
            decoding = self._decoding(_ShownAsync(source, self._raw)) if self._encoding else None
            async for data in source if decoding is None else decoding.aiter_bytes():
                if told := self._take(data):
                    yield told
        except httpx2.DecodingError as error:
            yield self._unreadable(error)
            async for data in source:
                yield data
            return
        except Exception:
            if told := self._rest("broke"):
                yield told
            raise
        if told := self._rest("ended"):
            yield told

    async def aclose(self) -> None:
        self._closed = True
        try:
            await self._stream.aclose()
        finally:
            self._over(self._how)


class _Shown(httpx2.SyncByteStream):
    """Raw pieces, kept beside. Only lent: closing it closes nothing."""

    def __init__(self, source: Iterator[bytes], kept: list[bytes]) -> None:
        self._source = source
        self._kept = kept

    def __iter__(self) -> Iterator[bytes]:
        for data in self._source:
            self._kept.append(data)
            yield data


class _ShownAsync(httpx2.AsyncByteStream):
    def __init__(self, source: AsyncIterator[bytes], kept: list[bytes]) -> None:
        self._source = source
        self._kept = kept

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._source:
            self._kept.append(data)
            yield data
