"""Pydantic AI, unmodified, with our client in ``OpenAIProvider(openai_client=…)``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compat_pair import CITY, LIMIT, QUESTION, Pair
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS: Any = {"temperature": 0, "max_tokens": LIMIT}


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


def model(pair: Pair, **more: Any) -> OpenAIChatModel:
    return OpenAIChatModel(pair.model, provider=OpenAIProvider(openai_client=pair.async_client(**more)))


def test_plain(pair: Pair) -> None:
    """``run_sync`` gives the target's own text, drafted locally, and its usage."""
    result = Agent(model(pair), model_settings=SETTINGS).run_sync(QUESTION)
    assert result.output == pair.alone()
    told = pair.must_have_speculated()
    assert result.usage.output_tokens == LIMIT
    assert told["accepted_tokens"] + told["corrected_tokens"] + told["handoff_tokens"] == LIMIT


async def test_async(pair: Pair) -> None:
    """So does ``await run``."""
    result = await Agent(model(pair), model_settings=SETTINGS).run(QUESTION)
    assert result.output == pair.alone()
    pair.must_have_speculated()


async def test_streamed(pair: Pair) -> None:
    """So does ``run_stream``, in more than one piece."""
    async with Agent(model(pair), model_settings=SETTINGS).run_stream(QUESTION) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == pair.alone()
    assert len(pieces) > 1
    pair.must_have_speculated()


async def test_structured_output(pair: Pair) -> None:
    """A JSON schema is the target's own to obey: the reply is an instance of the class."""
    agent = Agent(model(pair), output_type=NativeOutput(City), model_settings={**SETTINGS, "max_tokens": 60})
    result = await agent.run(CITY)
    assert isinstance(result.output, City)
    assert result.output.name
    pair.must_have_passed("response_format")


async def test_structured_output_by_a_tool(pair: Pair) -> None:
    """Pydantic AI's default, a call of a tool that stands for the class, goes to the target untouched."""
    agent = Agent(model(pair, base_url=pair.relay.base_url), output_type=City, model_settings=SETTINGS)
    result = await agent.run(CITY)
    assert isinstance(result.output, City)
    assert result.output.name
    pair.must_have_passed("tools")


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_bypassed(stream: bool, pair: Pair) -> None:
    """The agent's tool is called with the target's arguments, and its result comes back into the text."""
    agent = Agent(model(pair, base_url=pair.relay.base_url), model_settings=SETTINGS)
    cities: list[str] = []

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "sunny"

    if stream:
        async with agent.run_stream("What is the weather in Paris?") as result:
            text = await result.get_output()
    else:
        text = (await agent.run("What is the weather in Paris?")).output
    assert text
    assert len(cities) == 1
    assert cities[0]
    assert "sunny" in str(pair.relay.bodies[1]["messages"][-1])
    pair.must_have_passed("tools", requests=2)


def test_the_example_runs() -> None:
    """``examples/pydantic_ai_agent.py``: the plain reply is drafted, the structured one is the target's own."""
    example = Path(__file__).parents[2] / "examples" / "pydantic_ai_agent.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    text, city, told = done.stdout.rstrip("\n").split("\n\n")[-3:]
    assert text.strip()
    assert re.fullmatch(r".+, .+", city)
    assert re.fullmatch(
        r"request 1  speculate, [1-9]\d* of \d+ draft tokens accepted\n"
        r"request 2  (bypass|direct) \(response_format\)",
        told,
    )
