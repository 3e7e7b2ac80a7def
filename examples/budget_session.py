"""Sessions with budgets: what is asked inside counts in one cap, and the report says where it went.

    python examples/budget_session.py

runs a draft and a target model on this machine (`pip install 'cheapspec[embedded]'`, no key; the bill is simulated).
With a target of your own, whose prices cheapspec must know (`cheapspec prices NAME` says whether it does):

    python examples/budget_session.py --base-url http://host:8000/v1 --model NAME --draft qwen2.5:3b

OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL and CHEAPSPEC_DRAFT say the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import openai

import cheapspec

WORDS = ("vowels", "digits", "words", "lines", "spaces")
BUDGETS = {"roomy": "0.02", "tight": "0.0002"}
"""Dollars a session. A request reserves the most that it can cost; where that leaves no room for a speculation it goes
direct, and where there is no room for that either it is refused, before anything is sent."""


def main() -> None:
    with endpoint() as (options, speculation):
        client = cheapspec.OpenAI(speculation=speculation, **options)
        for name, usd in BUDGETS.items():
            # The cap holds for threads, tasks and processes: what they reserve together never exceeds it.
            with client.session(name, budget=cheapspec.Budget(usd=usd)) as session, ThreadPoolExecutor(2) as pool:
                print(f"session {name}, at most ${usd}")
                for word, answer in zip(WORDS, pool.map(lambda word: ask(client, word), WORDS), strict=True):
                    print(f"  {word:8}  {answer}")
            print()
            print(session.report())
            print()


def ask(client: cheapspec.OpenAI, word: str) -> str:
    """One request; a refusal is an error like any other, and was sent to nobody."""
    try:
        reply = client.chat.completions.create(
            model=arguments.model,
            messages=[{"role": "user", "content": f"Write a Python function that counts the {word} in a string."}],
            temperature=0,
            max_tokens=arguments.max_tokens,  # what is reserved: without a limit it would be the model's own
        )
    except openai.RateLimitError as error:
        if error.code != "budget_exceeded":
            raise
        return f"refused, {error.message.removeprefix('Error code: 429 - cheapspec: ')}"
    told = cheapspec.info(reply)
    assert told is not None
    return f"{told.decision}, {'price unknown' if told.paid_usd is None else f'${told.paid_usd}'}"


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description="Sessions with budgets.")
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--max-tokens", type=int, default=60)
arguments = parser.parse_args()


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], cheapspec.Speculation]]:
    """What the client is made with: the endpoint that was named, else two llama.cpp servers of our own."""
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
            ledger="memory",  # simulated dollars stay out of your books
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    main()
