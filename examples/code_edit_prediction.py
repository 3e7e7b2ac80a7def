"""Code edits: most lines stay, so the old file is the draft, and no draft model is needed.

OpenAI's `prediction` parameter says what the reply will mostly be. Here the target scores it as input: the lines
that stay are paid at input price instead of output price, only the changed ones are written.

    python examples/code_edit_prediction.py

runs a small target model on this machine (`pip install 'cheapspec[embedded]'`, no key). Other targets, as long as
they can score text (a vLLM server, say): `--base-url` and `--model`, or OPENAI_BASE_URL, OPENAI_API_KEY and
OPENAI_MODEL; `--draft` adds a draft model for the rest.

Here `draft_tokens` says how many pieces of the old file to score at a time, so that a small example shows something.
Without it the planner decides; with it nothing stops a prediction that has gone astray: long insertions cost more than
they save.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from cheapspec import OpenAI, Speculation, info

FILE = """```python
TITLE = "Shop"
MAX_ITEMS = 20
LANGUAGE = "en"
CURRENCY = "EUR"
LOG_LEVEL = "info"
COLOR = "red"
```"""

EXAMPLE = """```python
NAME = "alpha"
SIZE = 3
COLOR = "red"
```"""


def conversation() -> list[Any]:
    """One edit that was made, so that a small model sees how it is done, and the one that is asked for."""
    return [
        {"role": "user", "content": f"Remove the line with `SIZE`:\n\n{EXAMPLE}"},
        {"role": "assistant", "content": EXAMPLE.replace("SIZE = 3\n", "")},
        {"role": "user", "content": f"Remove the line with `LOG_LEVEL`:\n\n{FILE}"},
    ]


def main() -> None:
    with endpoint() as (options, speculation), OpenAI(speculation=speculation, **options) as client:
        reply = client.chat.completions.create(
            model=arguments.model,
            messages=conversation(),
            prediction={"type": "content", "content": FILE},
            temperature=0,
            max_tokens=arguments.max_tokens,
        )
    print(reply.choices[0].message.content, end="\n\n")
    told = info(reply)
    assert told is not None
    print(f"decision        {told.decision}{f' ({told.reason})' if told.reason else ''}, draft: {told.drafter}")
    if told.decision == "speculate":
        tokens = told.accepted_tokens + told.corrected_tokens + told.handoff_tokens
        share = told.accepted_tokens / tokens if tokens else 0.0
        print(f"reply           {tokens} tokens, {told.accepted_tokens} of them ({share:.0%}) kept from the old file")
        print(f"at input price  {told.drafted_tokens} draft tokens, in {told.rounds} rounds")
        print(f"paid            ${told.paid_usd}{' (simulated)' if told.simulated else ''}")
        print(f"target alone    ${told.baseline_usd}")


# --- where the model is ----------------------------------------------------------------------------

parser = argparse.ArgumentParser(description="Edit a file with the old one as prediction.")
parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "smollm2-135m-f16"))
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT"))
parser.add_argument("--draft-tokens", type=int, default=64, help="pieces of the old file to score at a time")
parser.add_argument("--max-tokens", type=int, default=120)
arguments = parser.parse_args()


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], Speculation]]:
    """What the client is made with: the endpoint that was named, else a llama.cpp server of our own."""
    fixed = arguments.draft_tokens
    if arguments.base_url:
        yield {"base_url": arguments.base_url}, Speculation(draft=arguments.draft, draft_tokens=fixed)
        return
    from cheapspec.cli.embedded_pair import PRICES
    from cheapspec.embedded import EmbeddedServer, fetch

    with EmbeddedServer(fetch("smollm2-135m-f16"), threads=1) as target:
        speculation = Speculation(
            target_backend="llamacpp",
            prices=PRICES,
            draft_tokens=fixed,
            simulate_scoring=True,  # llama.cpp cannot score: it is forced, and the bill is that of a target that can
            ledger="memory",  # simulated dollars stay out of your books
        )
        yield {"base_url": f"{target.url}/v1", "api_key": "none"}, speculation


if __name__ == "__main__":
    main()
