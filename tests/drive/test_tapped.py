"""A stream that is metered on its way is still the stream that came: raw, compressed, broken, or never on a wire."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
import pytest

import cheapspec
from cheapspec.core.meter import StreamMeter
from cheapspec.drive.tapped import tapped

EVENTS = [b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]
EXTRA = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'


class Pieces(httpx2.SyncByteStream):
    """Bytes in these pieces, then perhaps an error."""

    def __init__(self, pieces: list[bytes], error: Exception | None = None) -> None:
        self.pieces, self.error, self.closed = pieces, error, 0

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed += 1


class AsyncPieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes], error: Exception | None = None) -> None:
        self.pieces, self.error, self.closed = pieces, error, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        self.closed += 1


def read(
    door: str,
    pieces: list[bytes],
    *,
    encoding: str = "",
    hide: bool = False,
    error: Exception | None = None,
    most: int = 99,
) -> tuple[list[bytes], Exception | None, list[str], StreamMeter, Any]:
    """What comes out (``most`` pieces of it), the error, how it was over, the meter, and the stream underneath."""
    meter, over, out = StreamMeter("chat", hide=hide), list[str](), list[bytes]()
    source: Any = (AsyncPieces if door == "async" else Pieces)(pieces, error)
    stream: Any = tapped(source, meter, over.append, encoding, hide=hide)

    async def asynchronous() -> None:
        try:
            iterator = stream.__aiter__()
            async for piece in iterator:
                out.append(piece)
                if len(out) == most:
                    break
            await iterator.aclose()
        finally:
            await stream.aclose()

    try:
        if door == "async":
            asyncio.run(asynchronous())
        else:
            try:
                for piece in stream:
                    out.append(piece)
                    if len(out) == most:
                        break
            finally:
                stream.close()
    except httpx2.HTTPError as raised:
        return out, raised, over, meter, source
    return out, None, over, meter, source


def test_pieces_go_on_one_by_one(door: str) -> None:
    """As they came, and the end is told after the stream underneath was closed."""
    out, raised, over, meter, source = read(door, [*EVENTS, EXTRA])
    assert (out, raised, over, source.closed) == ([*EVENTS, EXTRA], None, ["ended"], 1)
    assert meter.metered().usage is not None


def test_a_compressed_stream_that_is_only_watched_stays_compressed(door: str) -> None:
    """The raw bytes are the raw bytes; what they say is known all the same."""
    packed = gzip.compress(b"".join([*EVENTS, EXTRA]))
    out, _, over, meter, _ = read(door, [packed[:20], packed[20:]], encoding="gzip")
    assert b"".join(out) == packed
    assert over == ["ended"]
    assert meter.metered().usage is not None


def test_a_compressed_stream_that_something_is_taken_out_of_goes_on_decoded(door: str) -> None:
    """Without the chunk."""
    packed = gzip.compress(b"".join([EVENTS[0], EXTRA, EVENTS[1]]))
    out, _, over, _, _ = read(door, [packed[:20], packed[20:]], encoding="gzip", hide=True)
    assert (b"".join(out), over) == (b"".join(EVENTS), ["ended"])


def test_a_stream_that_is_not_encoded_as_it_says(door: str) -> None:
    """Watched, it goes on raw; where it was to be decoded, the error is the one that decoding gives."""
    out, raised, over, _, _ = read(door, [b"no gzip ", b"at all"], encoding="gzip")
    assert (b"".join(out), raised, over) == (b"no gzip at all", None, ["broke"])
    out, raised, over, _, _ = read(door, [b"no gzip ", b"at all"], encoding="gzip", hide=True)
    assert (out, over) == ([], ["broke"])
    assert isinstance(raised, httpx2.DecodingError)


@pytest.mark.parametrize("hide", [False, True])
def test_a_stream_that_breaks_off_gives_what_it_had(hide: bool, door: str) -> None:
    """Then the error; nothing that was held back is lost."""
    error = httpx2.ReadError("gone")
    out, raised, over, _, source = read(door, [EVENTS[0], b"data: {half"], hide=hide, error=error)
    assert b"".join(out) == EVENTS[0] + b"data: {half"
    assert (raised, over, source.closed) == (error, ["broke"], 1)


def test_a_stream_that_is_left(door: str) -> None:
    """Closed before its end."""
    out, _, over, _, source = read(door, [*EVENTS, EXTRA], most=1)
    assert (out, over, source.closed) == ([EVENTS[0]], ["left"], 1)


def test_a_stream_that_is_forgotten(door: str) -> None:
    """Nobody holds it any more: that is told too, and once it was closed nothing more is."""
    over: list[str] = []
    source: Any = (AsyncPieces if door == "async" else Pieces)(EVENTS)
    stream: Any = tapped(source, StreamMeter("chat"), over.append, "", hide=False)
    assert stream.elapsed is None
    del stream
    for _ in range(200):
        if over:
            break
        asyncio.run(asyncio.sleep(0.01))
    assert over == ["left"]


@pytest.mark.parametrize("asked", [False, True])
def test_a_response_that_was_never_on_a_wire(asked: bool, door: str) -> None:
    """A mock's: its content is there at once, and the chunk that nobody asked for is taken out of it."""
    body = b"".join([EVENTS[0], EXTRA, EVENTS[1]])
    seen: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.content)
        return httpx2.Response(200, headers={"content-type": "text/event-stream", "x-kept": "1"}, content=body)

    options = {"stream_options": {"include_usage": True}} if asked else {}
    more: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "?"}], "stream": True, **options}
    given: dict[str, Any] = {"api_key": "k", "base_url": "http://toy.test/v1"}
    given["speculation"] = cheapspec.Speculation(ledger="memory", prices={"input": 1, "output": 10})
    transport = httpx2.MockTransport(answer)

    async def asynchronous() -> tuple[list[Any], Any]:
        http = openai.DefaultAsyncHttpxClient(transport=transport)
        async with cheapspec.AsyncOpenAI(**given, http_client=http) as client:
            stream: Any = await client.chat.completions.create(**more)
            return [chunk async for chunk in stream], stream

    if door == "async":
        chunks, stream = asyncio.run(asynchronous())
    else:
        with cheapspec.OpenAI(**given, http_client=openai.DefaultHttpxClient(transport=transport)) as client:
            stream = client.chat.completions.create(**more)
            chunks = list(stream)
    assert len(chunks) == 1 + asked
    assert b"include_usage" in seen[0]
    told = cheapspec.info(stream)
    assert told is not None
    assert (told.input_tokens, told.output_tokens, str(told.paid_usd)) == (3, 1, "0.000013")
    assert stream.response.headers["x-kept"] == "1"
