"""OpenRouter pays for short answers: a draft goes out where the paid model's own short answer says the same.

    python examples/openrouter_answer.py

asks stand-ins on this machine (`pip install 'cheapspec[testing]'`, no key): the texts are scripted, the path is real.
With OPENROUTER_API_KEY set, or with `--model NAME`, the real one is asked, with a draft of your own Ollama:

    OPENROUTER_API_KEY=… python examples/openrouter_answer.py --model openai/gpt-4o-mini --draft qwen2.5:3b

What is risked: the reasoning around an accepted answer is the draft model's, and nobody checked it. If you need the
number alone, ask for that and no draft is needed.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import openai

import cheapspec
from cheapspec import Answer, OpenAI, Speculation, Validator

URL = "https://openrouter.ai/api/v1"
QUESTIONS = {
    "A box holds 12 eggs. How many eggs do 4 boxes hold?": "48",
    "A train leaves at 9 and arrives at 14. How many hours does it take?": "5",
    "A shirt costs 20 dollars, a cap 7. What do 3 shirts and 2 caps cost?": "74",
}


def shows_its_work(text: str) -> bool:
    """A check that costs nothing: there is a calculation, and a number at the end."""
    return bool(re.search(r"\d\s*[-+*/×]\s*\d", text)) and bool(re.search(r"\d\D*$", text))


def main() -> None:
    with endpoint() as (options, speculation), OpenAI(speculation=speculation, **options) as client:
        for question in QUESTIONS:
            reply = client.chat.completions.create(
                model=arguments.model,
                messages=[{"role": "user", "content": f"{question} Show your work, then give the number."}],
                max_tokens=400,
            )
            told = cheapspec.info(reply)
            assert told is not None
            whose = f"the draft, on the word of `{told.rule}`" if told.on_trust else f"the target ({told.reason})"
            print(question)
            print(f"  {reply.choices[0].message.content}")
            print(f"  written by {whose}; paid ${told.paid_usd}, the target alone ${told.baseline_usd}")
        print()
        print(client.report())


# --- where the models are --------------------------------------------------------------------------

parser = argparse.ArgumentParser(description="Drafts accepted by the paid model's own short answer.")
parser.add_argument("--model", default="openai/gpt-4o-mini" if "OPENROUTER_API_KEY" in os.environ else None)
parser.add_argument("--draft", default=os.environ.get("CHEAPSPEC_DRAFT", "qwen2.5:3b"))
arguments = parser.parse_args()
RULES: list[Any] = [Validator(shows_its_work), Answer("last_number")]


@contextmanager
def endpoint() -> Generator[tuple[dict[str, Any], Speculation]]:
    """What the client is made with: OpenRouter with your key, else stand-ins."""
    if arguments.model:
        key = os.environ["OPENROUTER_API_KEY"]
        yield {"base_url": URL, "api_key": key}, Speculation(draft=arguments.draft, accept=RULES)
        return
    arguments.model = "openai/gpt-4o-mini"
    from cheapspec.testing.draft import FakeDraft
    from cheapspec.testing.openrouter import FakeOpenRouter
    from cheapspec.testing.reroute import Reroute
    from cheapspec.testing.toy import ToyModel

    with FakeOpenRouter(says=target_says) as target, FakeDraft(model=ToyModel(3)) as draft:
        for question, text in DRAFTS.items():
            draft.model.replies[f"{question} Show your work, then give the number."] = text
        speculation = Speculation(
            draft="ollama:toy:latest",
            draft_url=draft.url,
            draft_tokens=400,  # stand-ins: nothing is weighed, so that each rule is seen at work
            accept=RULES,
            prices={"input": 1, "cached_input": 0.5, "output": 10},
            ledger="memory",
        )
        # The client believes that it talks to openrouter.ai; its calls go to the stand-in.
        http = openai.DefaultHttpxClient(verify=False, transport=Reroute("openrouter.ai", target.url))
        yield {"base_url": URL, "api_key": "none", "http_client": http}, speculation


DRAFTS = dict(
    zip(
        QUESTIONS,
        ("4 * 12 = 48. The answer is 48.", "It takes five hours.", "20 + 7 = 27. The answer is 27."),
        strict=True,
    )
)
"""A good draft, one without a calculation, and a wrong one."""


def target_says(body: dict[str, Any]) -> str:
    """A target that knows the answers, in short and in full."""
    asked = str(body["messages"][-1]["content"])
    number = next(answer for question, answer in QUESTIONS.items() if question in asked)
    return number if "Give only the final answer" in asked else f"Step by step, the result is {number}."


if __name__ == "__main__":
    main()
