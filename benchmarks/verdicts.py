"""``make bench-verdicts``: the verdict rules on two real models, through the client; writes docs/verdicts.md.

Rules
-----
* Target: Qwen2.5-Coder 1.5B behind a stand-in that only chats; draft: its 0.5B sister; for ``Agree`` SmolLM2 besides.
  Drafts, verdicts and replies are real, dollars are usage at stated prices (a million tokens: input, cached, output).
* Prompts are made by a generator with a fixed seed, so that each has a right answer: arithmetic in words, and a JSON
  object to be taken out of a sentence (with its schema in ``response_format``).
* Each prompt is first asked of the target alone. *Accepted* is the share of requests that went out on the rule's word.
  *Loss* is one-sided: accepted, wrong, and the target's own reply right, over the replies that the target has right.
  *False accepts* are accepted and wrong, over wrong drafts; *false rejects* not accepted and right, over right ones.
  A draft that no rule let out is known by what another rule let out; where none did it is left out of these two.
* Paid over baseline is the ledger's usage over that of the target alone, both at the same list; nothing counts as
  cached, since hosts cache no prompt as short as these (the engine here does). One run on one machine, with models far
  smaller than those that anybody pays for: it shows that the path works, and promises nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai

from cheapspec import Agree, Answer, Judge, OkOrAnswer, OpenAI, Patch, Speculation, Validator, info
from cheapspec.core.effects import Usage
from cheapspec.core.info import Info
from cheapspec.core.money import Prices, charge
from cheapspec.embedded import EmbeddedServer, weights
from cheapspec.ledger.memory import MemoryLedger
from cheapspec.rules.extract import LastNumber
from cheapspec.rules.structured import Fields
from cheapspec.testing.chat_host import FakeChatHost

__all__ = ["Asked", "main", "prompts", "render"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "verdicts.md"
LISTS = {
    "1 / .1 / 5": Prices(Decimal(1), Decimal(5), Decimal("0.1")),
    "1 / .25 / 4": Prices(Decimal(1), Decimal(4), Decimal("0.25")),
}
NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn")
CITIES = ("Lisbon", "Oslo", "Porto", "Turin", "Ghent", "Bern")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "city", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt. ``right``: its number, or the object that is to be taken out."""

    kind: str
    text: str
    right: Any

    @property
    def body(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "messages": [{"role": "user", "content": self.text}],
            "temperature": 0,
            "max_tokens": 90,
        }
        return told | ({"response_format": FORMAT} if self.kind == "json" else {})

    def good(self, text: str) -> bool:
        """Whether a reply has the right answer."""
        if self.kind == "json":
            try:
                return bool(json.loads(re.sub(r"^```(json)?|```$", "", text.strip())) == self.right)
            except ValueError:
                return False
        numbers = LastNumber()
        return numbers.same(numbers.draft(text), numbers.draft(str(self.right)))


def prompts(count: int, seed: int = 7) -> list[Asked]:
    """Half of each kind."""
    chance, made = random.Random(seed), list[Asked]()
    for number in range(count):
        name, city, a, b, c = chance.choice(NAMES), chance.choice(CITIES), *(chance.randint(3, 40) for _ in range(3))
        if number % 2:
            text = f"{name} is {a} years old and lives in {city}. Give the name, city and age as a JSON object."
            made.append(Asked("json", text, {"name": name, "city": city, "age": a}))
            continue
        text = (
            f"{name} buys {a} apples, {b} pears and {c} plums. How many fruits is that? "
            "Explain it step by step in three sentences, then end with the number."
        )
        made.append(Asked("number", text, a + b + c))
    return made


RULES: dict[str, dict[str, list[Any]]] = {
    "validator": {"json": [Validator(SCHEMA, sufficient=True)]},
    "agree": {"number": [Agree("last_number")]},
    "answer": {"number": [Answer("last_number")], "json": [Answer(Fields(("name", "city", "age")))]},
    "judge": {"number": [Judge(uncalibrated=True)], "json": [Judge(uncalibrated=True)]},
    "ok_or_answer": {"number": [OkOrAnswer()], "json": [OkOrAnswer()]},
    "patch": {"json": [Patch("json")]},
}


@dataclass(frozen=True, slots=True)
class Run:
    """One request under one rule. ``alone``: the target's own reply and usage; ``usages``: of every billed call."""

    rule: str
    asked: Asked
    text: str
    told: Info
    usages: tuple[Usage, ...]
    alone: tuple[str, Usage]


def ask(rule: str, rules: list[Any], asked: Asked, target: FakeChatHost, draft: str, alone: tuple[str, Usage]) -> Run:
    ledger = MemoryLedger()
    speculation = Speculation(
        draft=draft, accept=rules, target_backend="generic", draft_tokens=120, draft_timeout=300, ledger=ledger
    )
    options: dict[str, Any] = {"base_url": target.base_url, "api_key": "none", "timeout": 300, "max_retries": 0}
    with OpenAI(**options, speculation=speculation) as client:
        reply = client.chat.completions.create(model=target.name, **asked.body)
    told = info(reply)
    assert told is not None
    billed = [call for call in ledger.calls(told.request_id) if call.row.billed]
    usages = tuple(call.usage for call in billed if call.usage is not None)
    return Run(rule, asked, reply.choices[0].message.content or "", told, usages, alone)


def ask_alone(asked: Asked, target: FakeChatHost) -> tuple[str, Usage]:
    with openai.OpenAI(base_url=target.base_url, api_key="none", timeout=300, max_retries=0) as client:
        reply: Any = client.chat.completions.create(model=target.name, **asked.body)
    details = reply.usage.prompt_tokens_details
    usage = Usage(reply.usage.prompt_tokens, reply.usage.completion_tokens, details and details.cached_tokens)
    return reply.choices[0].message.content or "", usage


def render(runs: Sequence[Run], seconds: float) -> str:
    """The page."""
    drafts = {run.asked.text: run.asked.good(run.text) for run in runs if run.told.on_trust and run.rule != "patch"}
    heads = ["rule", "requests", "accepted", "loss", "false accepts", "false rejects", *LISTS]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    for rule in RULES:
        own = [run for run in runs if run.rule == rule]
        if not own:
            continue
        right = [run for run in own if run.asked.good(run.alone[0])]
        lost = [run for run in right if run.told.on_trust and not run.asked.good(run.text)]
        known = [(run, drafts[run.asked.text]) for run in own if run.asked.text in drafts]
        wrong, good = [run for run, fine in known if not fine], [run for run, fine in known if fine]
        cells = [
            f"`{rule}`",
            str(len(own)),
            _share([run for run in own if run.told.on_trust], own),
            _share(lost, right),
        ]
        cells += [_share([run for run in wrong if run.told.on_trust], wrong)]
        cells += [_share([run for run in good if not run.told.on_trust], good)]
        for prices in LISTS.values():
            paid = _dollars([usage for run in own for usage in run.usages], prices)
            base = _dollars([run.alone[1] for run in own], prices)
            cells.append(f"{paid / base:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    count = len({run.asked.text for run in runs})
    replies = {run.asked.text: run.asked.good(run.alone[0]) for run in runs}
    return (
        "# Verdicts on real models\n\nWritten by `make bench-verdicts`; do not edit."
        f"\n\n{(__doc__ or '').partition('-----')[2].strip()}\n\n"
        f"{count} prompts, of which the target alone has {sum(replies.values())} right; {seconds / 60:.0f} minutes. "
        "The last columns are paid over baseline at prices of input, cached input and output.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _dollars(usages: Sequence[Usage], prices: Prices) -> Decimal:
    cold = (charge(replace(usage, cached_tokens=0), prices).usd for usage in usages)
    return sum((usd or Decimal(0) for usd in cold), Decimal(0))


def _share(some: Sequence[object], of: Sequence[object]) -> str:
    return f"{len(some)} of {len(of)}" if of else "–"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, and write the page."""
    parser = argparse.ArgumentParser(description="Verdict rules on two real models.")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--out", default=str(PAGE), help="the page, or - for standard output")
    given = parser.parse_args(arguments)
    began, runs = time.monotonic(), list[Run]()
    pair = (weights(f"qwen2.5-coder-{size}b-q4_k_m") for size in ("1.5", "0.5"))
    with (
        EmbeddedServer(next(pair)) as engine,
        EmbeddedServer(next(pair)) as small,
        EmbeddedServer(weights("smollm2-135m-q4_1")) as other,
        FakeChatHost(upstream=f"{engine.url}/v1", engine_model=engine.model, name=engine.model) as target,
    ):
        for number, asked in enumerate(prompts(given.prompts), 1):
            alone = ask_alone(asked, target)
            for rule, kinds in RULES.items():
                draft = f"llamacpp:{small.url}" + (f",llamacpp:{other.url}" if rule == "agree" else "")
                if asked.kind in kinds:
                    runs.append(ask(rule, kinds[asked.kind], asked, target, draft, alone))
            print(f"{number} of {given.prompts}, {time.monotonic() - began:.0f} s", flush=True)
    page = render(runs, time.monotonic() - began)
    if given.out == "-":
        print(page)
    else:
        Path(given.out).write_text(page, "utf-8")


if __name__ == "__main__":
    main()
