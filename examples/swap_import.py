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
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import openai
from openai.types.chat import ChatCompletion

import cheapspec

QUESTION = "Write a Python function that counts the vowels in a string."


def program(client: openai.OpenAI) -> ChatCompletion:
    """The rest of your program, which stays as it is. At temperature 0 the answer is the target's own."""
    return client.chat.completions.create(
        model=arguments.model,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=arguments.max_tokens,
    )


def main() -> None:
    with endpoint() as (options, speculation):
        before = program(openai.OpenAI(**options))
        # One name changes; settings may also come from the environment or cheapspec.toml.
        after = program(cheapspec.OpenAI(speculation=speculation, **options))
    text = after.choices[0].message.content
    print(text, end="\n\n")

    told = cheapspec.info(after)
    assert told is not None
    print(f"decision      {told.decision}{f' ({told.reason})' if told.reason else ''}")
    print(f"same text     {'yes' if text == before.choices[0].message.content else 'NO'}")
    if told.decision == "speculate":
        print(f"rounds        {told.rounds}")
        print(f"draft tokens  {told.accepted_tokens} of {told.drafted_tokens} accepted")
        print(f"target calls  {told.target_calls}")
        print(f"paid          ${told.paid_usd}{' (simulated)' if told.simulated else ''}")
        print(f"target alone  ${told.baseline_usd}")


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description=QUESTION)
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--max-tokens", type=int, default=120)
arguments = parser.parse_args()


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], cheapspec.Speculation]]:
    """What the clients are made with: the endpoint that was named, else two llama.cpp servers of our own."""
    if arguments.base_url:
        yield {"base_url": arguments.base_url}, cheapspec.Speculation(draft=arguments.draft)
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
            ledger="memory",  # simulated dollars stay out of your books
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    main()
