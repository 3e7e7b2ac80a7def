"""openai-agents, unmodified, with our client in ``OpenAIChatCompletionsModel(openai_client=…)``."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from compat_pair import CITY, LIMIT, QUESTION, SYSTEM, Pair
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel, Field

set_tracing_disabled(True)  # its traces go to openai.com


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


def agent(pair: Pair, *, base_url: str | None = None, limit: int = LIMIT, **more: Any) -> Agent[Any]:
    client = pair.async_client(base_url=base_url or pair.base_url)
    return Agent(
        name="Helper",
        instructions=SYSTEM,
        model=OpenAIChatCompletionsModel(model=pair.model, openai_client=client),
        model_settings=ModelSettings(temperature=0, max_tokens=limit),
        **more,
    )


def test_plain(pair: Pair) -> None:
    """``run_sync`` gives the target's own text, drafted locally, and its usage."""
    result = Runner.run_sync(agent(pair), QUESTION)
    assert result.final_output == pair.alone(system=SYSTEM)
    assert result.context_wrapper.usage.output_tokens == LIMIT
    pair.must_have_speculated()


async def test_async(pair: Pair) -> None:
    """So does ``await run``."""
    result = await Runner.run(agent(pair), QUESTION)
    assert result.final_output == pair.alone(system=SYSTEM)
    pair.must_have_speculated()


async def test_streamed(pair: Pair) -> None:
    """So does ``run_streamed``, in more than one piece."""
    result = Runner.run_streamed(agent(pair), QUESTION)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    assert "".join(pieces) == result.final_output == pair.alone(system=SYSTEM)
    assert len(pieces) > 1
    pair.must_have_speculated()


async def test_structured_output(pair: Pair) -> None:
    """``output_type`` becomes a JSON schema, the target's own to obey."""
    result = await Runner.run(agent(pair, limit=60, output_type=City), CITY)
    assert isinstance(result.final_output, City)
    assert result.final_output.name
    pair.must_have_passed("response_format")


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_bypassed(stream: bool, pair: Pair) -> None:
    """The agent's tool is called with the target's arguments, and its result comes back into the text."""
    cities: list[str] = []

    @function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "sunny"

    helper = agent(pair, base_url=pair.relay.base_url, tools=[weather])
    if stream:
        streamed = Runner.run_streamed(helper, "What is the weather in Paris?")
        kinds = [event.type async for event in streamed.stream_events()]
        assert "run_item_stream_event" in kinds
        text = streamed.final_output
    else:
        text = (await Runner.run(helper, "What is the weather in Paris?")).final_output
    assert text
    assert len(cities) == 1
    assert cities[0]
    assert pair.relay.bodies[1]["messages"][-1]["content"] == "sunny"
    pair.must_have_passed("tools", requests=2)
