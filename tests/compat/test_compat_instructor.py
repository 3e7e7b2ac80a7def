"""instructor, unmodified, with our client in ``instructor.from_openai(…)`` (on the openai version that it pins)."""

from __future__ import annotations

from typing import Any

import instructor
import pytest
from compat_pair import CITY, LIMIT, QUESTION, Pair
from pydantic import BaseModel, Field

import cheapspec

MESSAGES: Any = [{"role": "user", "content": CITY}]


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


def asked(pair: Pair, **more: Any) -> dict[str, Any]:
    return {"model": pair.model, "messages": MESSAGES, "temperature": 0, "max_tokens": 60, **more}


@pytest.mark.parametrize("stream", [False, True])
def test_plain_and_streamed(stream: bool, pair: Pair) -> None:
    """Without a response model instructor hands openai's own reply on: the target's text, drafted locally."""
    client = instructor.from_openai(pair.client(), mode=instructor.Mode.JSON_SCHEMA)
    messages: Any = [{"role": "user", "content": QUESTION}]
    given = asked(pair, messages=messages, max_tokens=LIMIT, stream=stream)
    reply: Any = client.chat.completions.create(response_model=None, **given)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
    else:
        text = reply.choices[0].message.content
    assert text == pair.alone()
    told = pair.must_have_speculated()
    found = cheapspec.info(reply)
    assert found is not None
    assert found.request_id == told["request_id"]


async def test_async(pair: Pair) -> None:
    """So it does with the asynchronous client."""
    client = instructor.from_openai(pair.async_client(), mode=instructor.Mode.JSON_SCHEMA)
    messages: Any = [{"role": "user", "content": QUESTION}]
    given = asked(pair, messages=messages, max_tokens=LIMIT)
    reply: Any = await client.chat.completions.create(response_model=None, **given)
    assert reply.choices[0].message.content == pair.alone()
    pair.must_have_speculated()


def test_structured_output(pair: Pair) -> None:
    """A response model by JSON schema is the target's own to obey, and the raw reply stays openai's."""
    client = instructor.from_openai(pair.client(), mode=instructor.Mode.JSON_SCHEMA)
    city, raw = client.chat.completions.create_with_completion(response_model=City, **asked(pair))
    assert isinstance(city, City)
    assert city.name
    assert raw.choices[0].message.content
    pair.must_have_passed("response_format")


async def test_structured_output_async(pair: Pair) -> None:
    """So it is with the asynchronous client."""
    client = instructor.from_openai(pair.async_client(), mode=instructor.Mode.JSON_SCHEMA)
    city = await client.chat.completions.create(response_model=City, **asked(pair))
    assert isinstance(city, City)
    pair.must_have_passed("response_format")


def test_partial_structured_stream(pair: Pair) -> None:
    """``create_partial`` gives growing instances, the last one whole."""
    client = instructor.from_openai(pair.client(), mode=instructor.Mode.JSON_SCHEMA)
    growing = list(client.chat.completions.create_partial(response_model=City, **asked(pair)))
    assert growing[-1].name
    assert growing[-1].country
    assert len({repr(one) for one in growing}) > 1
    pair.must_have_passed("response_format")


def test_tools_are_bypassed(pair: Pair) -> None:
    """instructor's default, a tool that stands for the class, goes to the target untouched and comes back called."""
    client = instructor.from_openai(pair.client(base_url=pair.relay.base_url), mode=instructor.Mode.TOOLS)
    city = client.chat.completions.create(response_model=City, **asked(pair))
    assert isinstance(city, City)
    assert city.name
    assert pair.relay.bodies[0]["tools"][0]["function"]["name"] == "City"
    pair.must_have_passed("tools")
