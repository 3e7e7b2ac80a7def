"""LangChain's ``ChatOpenAI``, unmodified, through both Python doors: our transport in ``http_client=`` and
``http_async_client=``, and our clients in ``root_client=`` and ``root_async_client=``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compat_pair import CITY, CITY_SCHEMA, LIMIT, QUESTION, Pair
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import cheapspec

Make = Callable[..., ChatOpenAI]


@pytest.fixture(params=["transport", "client"])
def make(request: pytest.FixtureRequest, pair: Pair) -> Make:
    """Makes a chat model over this door."""

    def made(**more: Any) -> ChatOpenAI:
        options = {
            "base_url": pair.base_url,
            "api_key": "none",
            "model": pair.model,
            "temperature": 0,
            "max_retries": 0,
        }
        options |= {"max_tokens": LIMIT, "timeout": 120, **more}
        if request.param == "transport":
            doors = {"http_client": pair.http_client(), "http_async_client": pair.async_http_client()}
        else:
            client = pair.client(base_url=options["base_url"])
            twin = pair.async_client(base_url=options["base_url"])
            doors = {
                "root_client": client,
                "client": client.chat.completions,
                "root_async_client": twin,
                "async_client": twin.chat.completions,
            }
        return ChatOpenAI(**options, **doors)

    return made


def test_plain(make: Make, pair: Pair) -> None:
    """``invoke`` gives the target's own text and usage, and the reply's facts are found by its id."""
    message = make().invoke(QUESTION)
    assert message.text == pair.alone()
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == LIMIT
    told = pair.must_have_speculated()
    found = cheapspec.info(message)
    assert found is None or found.request_id == told["request_id"]  # LangChain may give its own id to a message


def test_streamed(make: Make, pair: Pair) -> None:
    """So does ``stream``, in more than one piece."""
    pieces = [piece.text for piece in make().stream(QUESTION)]
    assert "".join(pieces) == pair.alone()
    assert sum(map(bool, pieces)) > 1
    pair.must_have_speculated()


async def test_async(make: Make, pair: Pair) -> None:
    """So do ``ainvoke`` and ``astream``."""
    model = make()
    assert (await model.ainvoke(QUESTION)).text == pair.alone()
    pair.must_have_speculated()
    assert "".join([piece.text async for piece in model.astream(QUESTION)]) == pair.alone()
    pair.must_have_speculated()


def test_structured_output(make: Make, pair: Pair) -> None:
    """A JSON schema is the target's own to obey."""
    schema = {"title": "City", "description": "A city.", **CITY_SCHEMA}
    found = make(max_tokens=60).with_structured_output(schema, method="json_schema").invoke(CITY)
    assert isinstance(found, dict)
    assert found["name"]
    pair.must_have_passed("response_format")


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_bypassed(stream: bool, make: Make, pair: Pair) -> None:
    """The tool call arrives whole, can be run, and its result leads to the target's text."""
    model = make(base_url=pair.relay.base_url).bind_tools([weather])
    asked: list[Any] = [HumanMessage("What is the weather in Paris?")]
    if stream:
        first: Any = None
        for piece in model.stream(asked):
            first = piece if first is None else first + piece
    else:
        first = model.invoke(asked)
    assert isinstance(first, AIMessage)
    [call] = first.tool_calls
    assert call["name"] == "weather"
    assert call["args"]["city"]
    told = weather.invoke(call)
    assert isinstance(told, ToolMessage)
    assert model.invoke([*asked, first, told]).text
    pair.must_have_passed("tools", requests=2)
