"""A Pydantic AI agent over cheapspec: its plain replies are drafted on this machine, its tool calls go to the target.

    pip install pydantic-ai-slim[openai]
    python examples/pydantic_ai_agent.py

runs a draft and a target model on this machine (`pip install 'cheapspec[embedded]'`, no key). With a target that can
score text (a vLLM server, say) and an Ollama on this machine:

    python examples/pydantic_ai_agent.py --base-url http://host:8000/v1 --model NAME --draft qwen2.5:3b

OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL and CHEAPSPEC_DRAFT say the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import cheapspec
from cheapspec.ledger.memory import MemoryLedger

QUESTION = "Write one sentence that says what a city is."
EXTRACT = "Paris is the capital of France. Answer with its name and its country."


class City(BaseModel):
    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


def main() -> None:
    ledger = MemoryLedger()
    with endpoint(ledger) as (options, speculation):
        # The one place that differs from an agent over openai: whose client the provider gets.
        client = cheapspec.AsyncOpenAI(speculation=speculation, **options)
        model = OpenAIChatModel(arguments.model, provider=OpenAIProvider(openai_client=client))
        settings: Any = {"temperature": 0, "max_tokens": arguments.max_tokens}
        print(Agent(model, model_settings=settings).run_sync(QUESTION).output, end="\n\n")
        found = Agent(model, output_type=NativeOutput(City), model_settings=settings).run_sync(EXTRACT).output
        print(f"{found.name}, {found.country}", end="\n\n")

    for number, request in enumerate(ledger.requests(), 1):
        told = request.info or {}
        reason = f" ({told['reason']})" if told["reason"] else ""
        drafted = f", {told['accepted_tokens']} of {told['drafted_tokens']} draft tokens accepted"
        print(f"request {number}  {told['decision']}{reason}{drafted if told['drafted_tokens'] else ''}")


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description=QUESTION)
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--max-tokens", type=int, default=60)
arguments = parser.parse_args()


@contextmanager
def endpoint(ledger: MemoryLedger) -> Generator[tuple[dict[str, Any], cheapspec.Speculation]]:
    """What the client is made with: the endpoint that was named, else two llama.cpp servers of our own."""
    if arguments.base_url:
        yield {"base_url": arguments.base_url}, cheapspec.Speculation(draft=arguments.draft, ledger=ledger)
        return
    from cheapspec.cli.embedded_pair import PRICES
    from cheapspec.embedded import EmbeddedServer, fetch

    with (
        EmbeddedServer(fetch("smollm2-135m-f16"), threads=1) as target,
        EmbeddedServer(fetch("smollm2-135m-q4_1"), threads=1) as draft,
    ):
        speculation = cheapspec.Speculation(
            draft=f"llamacpp:{draft.url}",
            target_backend="llamacpp",
            prices=PRICES,
            simulate_scoring=True,  # llama.cpp cannot score: it is forced, and the bill is that of a target that can
            draft_timeout=120,
            ledger=ledger,
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    main()
