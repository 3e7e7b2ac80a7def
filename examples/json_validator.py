"""JSON without a call: a draft that fits the schema, and the caller's own check, is the reply.

    python examples/json_validator.py

asks stand-ins on this machine (`pip install 'cheapspec[testing]'`, no key). With OPENROUTER_API_KEY set, or with
`--base-url URL --model NAME`, a real one is asked, with a draft of your own Ollama.

A schema says that a reply is well formed, seldom that it is right. `sufficient=True` says that your check is enough:
here every value must stand in the text that it was taken from.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import cheapspec
from cheapspec import OpenAI, Speculation, Validator

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["name", "city", "year"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
TEXTS = (
    "Ada Park was born in Lisbon in 1984 and studied music.",
    "In 1990 Bo Lind moved with his parents to Oslo.",
    "The painter Cleo Marsh, born 1975, lives in Porto.",
)


def stands_in(text: str) -> Validator:
    """A check that knows the source: nothing in the draft may be made up."""

    def check(draft: str) -> bool:
        return all(str(value) in text for value in json.loads(draft).values())

    return Validator(check, sufficient=True)


def main() -> None:
    with endpoint() as (options, settings):
        for text in TEXTS:
            with OpenAI(speculation=Speculation(accept=stands_in(text), **settings), **options) as client:
                reply = client.chat.completions.create(
                    model=arguments.model,
                    messages=[{"role": "user", "content": f"Name, city and year as JSON.\n{text}"}],
                    response_format=FORMAT,
                    max_tokens=100,
                )
            told = cheapspec.info(reply)
            assert told is not None
            whose = "the draft, no call" if told.on_trust else f"the target ({told.reason})"
            print(f"{reply.choices[0].message.content}  by {whose}; paid ${told.paid_usd}")


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description="JSON drafts accepted by a check.")
parser.add_argument(
    "--base-url", default="https://openrouter.ai/api/v1" if "OPENROUTER_API_KEY" in os.environ else None
)
parser.add_argument("--model", default="openai/gpt-4o-mini")
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT", "qwen2.5:3b"))
arguments = parser.parse_args()


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], dict[str, Any]]]:
    """What the client and its settings are made with: the endpoint that was named, else stand-ins."""
    if arguments.base_url:
        key = os.environ.get("OPENROUTER_API_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
        yield {"base_url": arguments.base_url, "api_key": key}, {"draft": arguments.draft}
        return
    from cheapspec.testing.chat_host import FakeChatHost
    from cheapspec.testing.draft import FakeDraft
    from cheapspec.testing.toy import ToyModel

    with FakeChatHost(says=target_says) as target, FakeDraft(model=ToyModel(3)) as draft:
        for text, said in zip(TEXTS, DRAFTS, strict=True):
            draft.model.replies[f"Name, city and year as JSON.\n{text}"] = said
        settings: dict[str, Any] = {
            "draft": "ollama:toy:latest",
            "draft_url": draft.url,
            "prices": {"input": 1, "output": 10},
            "ledger": "memory",
        }
        yield {"base_url": target.base_url, "api_key": "none"}, settings


RIGHT = [
    {"name": "Ada Park", "city": "Lisbon", "year": 1984},
    {"name": "Bo Lind", "city": "Oslo", "year": 1990},
    {"name": "Cleo Marsh", "city": "Porto", "year": 1975},
]
DRAFTS = (json.dumps(RIGHT[0]), json.dumps({**RIGHT[1], "city": "Bergen"}), '{"name": "Cleo Marsh", "city": "Porto"}')
"""A good draft, one with a city that is not in the text, and one that lacks a field."""


def target_says(body: dict[str, Any]) -> str:
    """A target that reads well."""
    asked = str(body["messages"][-1]["content"])
    return json.dumps(next(right for text, right in zip(TEXTS, RIGHT, strict=True) if text in asked))


if __name__ == "__main__":
    main()
