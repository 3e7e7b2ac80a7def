"""Change one import: the same program, the same answer, a smaller bill.

    python examples/swap_import.py

runs a draft and a target model on this machine (`pip install 'cheapspec[embedded]'`, no key). With a target that can
score text (a vLLM server, say) and an Ollama on this machine:

    python examples/swap_import.py --base-url http://host:8000/v1 --model NAME --draft qwen2.5:3b

OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL and CHEAPSPEC_DRAFT say the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cheapspec

QUESTION = "Write a Python function that counts the vowels in a string."


def before(**options: Any) -> str:
    from openai import OpenAI

    client = OpenAI(**options)
    reply = client.chat.completions.create(**ask())
    return reply.choices[0].message.content or ""


def after(speculation: cheapspec.Speculation, **options: Any) -> str:
    from cheapspec import OpenAI  # <- the change

    client = OpenAI(**options, speculation=speculation)  # settings may also come from the environment or cheapspec.toml
    reply = client.chat.completions.create(**ask())

    told = cheapspec.info(reply)
    assert told is not None
    print(f"decision      {told.decision}{f' ({told.reason})' if told.reason else ''}")
    print(f"rounds        {told.rounds}")
    print(f"draft tokens  {told.accepted_tokens} of {told.drafted_tokens} accepted")
    print(f"target calls  {told.target_calls}")
    print(f"paid          ${told.paid_usd}{' (simulated)' if told.simulated else ''}")
    print(f"target alone  ${told.baseline_usd}")
    return reply.choices[0].message.content or ""


def ask() -> dict[str, Any]:
    """Temperature 0: the answer that speculation keeps is the target's own, token by token."""
    message = {"role": "user", "content": QUESTION}
    return {"model": MODEL, "messages": [message], "temperature": 0, "max_tokens": arguments.max_tokens}


def main() -> None:
    with endpoint() as (options, speculation):
        new = after(speculation, **options)
        old = before(**options)
    print(f"same text     {'yes' if new == old else 'NO'}", end="\n\n")
    print(new)


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description=QUESTION)
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--max-tokens", type=int, default=120)
arguments = parser.parse_args()
MODEL = arguments.model


@contextmanager
def endpoint() -> Iterator[tuple[dict[str, Any], cheapspec.Speculation]]:
    """What the clients are made with: the endpoint that was named, else two llama.cpp servers of our own."""
    if arguments.base_url:
        yield {"base_url": arguments.base_url}, cheapspec.Speculation(draft=arguments.draft)
        return
    from cheapspec.cli.embedded_pair import PRICES
    from cheapspec.embedded import EmbeddedServer, fetch

    with EmbeddedServer(fetch("smollm2-135m-f16")) as target, EmbeddedServer(fetch("smollm2-135m-q4_1")) as draft:
        speculation = cheapspec.Speculation(
            draft=f"llamacpp:{draft.url}",
            target_backend="llamacpp",
            prices=PRICES,
            simulate_scoring=True,  # llama.cpp cannot score: it is forced, and the bill is that of a target that can
            draft_timeout=120,
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    main()
