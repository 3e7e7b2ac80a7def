"""Never run, only type-checked: what a user writes keeps openai's types."""

from __future__ import annotations

from typing import Any, assert_type

from openai import AsyncStream, Stream
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from pydantic import BaseModel

import cheapspec
from cheapspec import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, Info, OpenAI, Speculation, Transport


class City(BaseModel):
    name: str


def sync() -> None:
    client = OpenAI(api_key="k", base_url="http://h/v1", timeout=3.0, speculation=Speculation(draft="qwen2.5:3b"))
    assert_type(client, OpenAI)
    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Where?"}], temperature=0)
    assert_type(reply, ChatCompletion)
    assert_type(reply.choices[0].message.content, str | None)
    stream = client.chat.completions.create(model="m", messages=[], stream=True)
    assert_type(stream, Stream[ChatCompletionChunk])
    assert_type(client.completions.create(model="m", prompt="p"), Completion)
    assert_type(client.embeddings.create(model="m", input="x"), CreateEmbeddingResponse)
    parsed = client.chat.completions.parse(model="m", messages=[], response_format=City)
    assert_type(parsed, ParsedChatCompletion[City])
    assert_type(parsed.choices[0].message.parsed, City | None)
    assert_type(client.copy(speculation=Speculation(enabled=False), max_retries=1), OpenAI)
    assert_type(client.with_options(timeout=1), OpenAI)
    assert_type(cheapspec.info(reply), Info | None)
    with OpenAI() as entered:
        assert_type(entered, OpenAI)


async def asynchronous() -> None:
    client = AsyncOpenAI(speculation=None)
    reply = await client.chat.completions.create(model="m", messages=[])
    assert_type(reply, ChatCompletion)
    stream = await client.chat.completions.create(model="m", messages=[], stream=True)
    assert_type(stream, AsyncStream[ChatCompletionChunk])
    assert_type(client.copy(speculation=Speculation()), AsyncOpenAI)


def azure() -> None:
    made = AzureOpenAI(azure_endpoint="https://x", api_version="1", azure_deployment="d", speculation=Speculation())
    assert_type(made.with_options(api_version="2", speculation=None), AzureOpenAI)
    assert_type(AsyncAzureOpenAI(azure_endpoint="https://x").copy(timeout=3), AsyncAzureOpenAI)


def door() -> None:
    import httpx2

    http = httpx2.Client(transport=Transport(httpx2.Client(), speculation=Speculation()))
    assert_type(OpenAI(http_client=http), OpenAI)


def forwarded(error: Any) -> None:
    """``import cheapspec as openai``: openai's names have openai's types."""
    if isinstance(error, cheapspec.RateLimitError):
        assert_type(error.request_id, str | None)
    reply = cheapspec.chat.completions.create(model="m", messages=[])
    assert_type(reply, ChatCompletion)
    assert_type(cheapspec.OpenAI(), OpenAI)


def books(client: OpenAI) -> None:
    with client.session("nightly", budget=cheapspec.Budget(usd=5)) as session:
        assert_type(session, cheapspec.Session)
        assert_type(session.report(), cheapspec.Report)
    assert_type(client.report(), cheapspec.Report)


def misuse() -> None:
    OpenAI(api_kex="k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    OpenAI().copy(timeouts=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Speculation(alowance=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
