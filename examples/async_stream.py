"""A streamed reply with ``AsyncOpenAI``: the caller reads the target's own text; each chunk says who wrote it.

    python examples/async_stream.py

runs a draft and a target model on this machine (`pip install 'cheapspec[embedded]'`, no key). Other models:
`--base-url`, `--model`, `--draft`, or OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL and CHEAPSPEC_DRAFT.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from cheapspec import AsyncOpenAI, Speculation, info

QUESTION = "Write a Python function that reverses a string."


async def talk(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=arguments.model,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=arguments.max_tokens,
        stream=True,
    )
    written = {"draft": 0, "target": 0}
    async for chunk in stream:
        extra: dict[str, Any] = getattr(chunk, "cheapspec", None) or {}
        for choice in chunk.choices:
            text = choice.delta.content or ""
            print(text, end="", flush=True)
            if text:
                written[extra.get("source", "target")] += len(text)
    told = info(stream)  # after the last chunk
    assert told is not None
    print(f"\n\ndecision        {told.decision}{f' ({told.reason})' if told.reason else ''}")
    print(f"characters      {written['draft']} drafted here and accepted, {written['target']} by the target")
    if told.decision == "speculate":
        print(f"paid            ${told.paid_usd}{' (simulated)' if told.simulated else ''}")
        print(f"target alone    ${told.baseline_usd}")


async def main() -> None:
    with endpoint() as (options, speculation):
        async with AsyncOpenAI(speculation=speculation, **options) as client:
            await talk(client)


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description=QUESTION)
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--max-tokens", type=int, default=80)
arguments = parser.parse_args()


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], Speculation]]:
    """What the client is made with: the endpoint that was named, else two llama.cpp servers of our own."""
    if arguments.base_url:
        yield {"base_url": arguments.base_url}, Speculation(draft=arguments.draft)
        return
    from cheapspec.cli.embedded_pair import PRICES
    from cheapspec.embedded import EmbeddedServer, fetch

    with (
        EmbeddedServer(fetch("smollm2-135m-f16"), threads=1) as target,
        EmbeddedServer(fetch("smollm2-135m-q4_1"), threads=1) as draft,
    ):
        speculation = Speculation(
            draft=f"llamacpp:{draft.url}",
            target_backend="llamacpp",
            prices=PRICES,
            simulate_scoring=True,  # llama.cpp cannot score: it is forced, and the bill is that of a target that can
            draft_timeout=120,
            ledger="memory",  # simulated dollars stay out of your books
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    asyncio.run(main())
