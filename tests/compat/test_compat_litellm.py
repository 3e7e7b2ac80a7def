"""LiteLLM's ``completion``, unmodified, with our client in ``client=``.

(LiteLLM's own proxy server takes no client: it would have to speak to a proxy of ours.)
"""

from __future__ import annotations

from typing import Any

import litellm
import pytest
from compat_pair import CITY, CITY_SCHEMA, LIMIT, QUESTION, Pair

import cheapspec

litellm.telemetry = False
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def asked(pair: Pair, content: str = QUESTION, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    given = {"model": f"openai/{pair.model}", "messages": messages, "temperature": 0, "max_tokens": LIMIT}
    return {**given, "num_retries": 0, "max_retries": 0, **more}


def test_plain(pair: Pair) -> None:
    """``completion`` gives the target's own text and usage, and the reply's facts are found by its id."""
    reply: Any = litellm.completion(**asked(pair), client=pair.client())
    assert reply.choices[0].message.content == pair.alone()
    assert reply.usage.completion_tokens == LIMIT
    told = pair.must_have_speculated()
    found = cheapspec.info(reply)
    assert found is not None
    assert found.request_id == told["request_id"]


def test_streamed(pair: Pair) -> None:
    """So does a stream, in more than one piece."""
    chunks: list[Any] = list(litellm.completion(**asked(pair, stream=True), client=pair.client()))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == pair.alone()
    assert sum(map(bool, pieces)) > 1
    pair.must_have_speculated()


async def test_async(pair: Pair) -> None:
    """So does ``acompletion``, streamed or not."""
    client = pair.async_client()
    reply: Any = await litellm.acompletion(**asked(pair), client=client)
    assert reply.choices[0].message.content == pair.alone()
    pair.must_have_speculated()
    stream: Any = await litellm.acompletion(**asked(pair, stream=True), client=client)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(pieces) == pair.alone()
    pair.must_have_speculated()


def test_structured_output(pair: Pair) -> None:
    """A JSON schema is the target's own to obey."""
    schema = {"name": "city", "schema": CITY_SCHEMA, "strict": True}
    wanted = {"type": "json_schema", "json_schema": schema}
    given = asked(pair, CITY, response_format=wanted, max_tokens=60)
    reply: Any = litellm.completion(**given, client=pair.client())
    assert '"name"' in reply.choices[0].message.content
    pair.must_have_passed("response_format")


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_bypassed(stream: bool, pair: Pair) -> None:
    """The tool call arrives whole."""
    client = pair.client(base_url=pair.relay.base_url)
    given = asked(pair, "What is the weather in Paris?", tools=[WEATHER], stream=stream)
    reply: Any = litellm.completion(**given, client=client)
    if stream:
        reply = litellm.stream_chunk_builder(list(reply))
    [call] = reply.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert '"city"' in call.function.arguments
    assert pair.relay.bodies[0]["tools"] == [WEATHER]
    pair.must_have_passed("tools")
