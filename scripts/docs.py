"""Fill the generated blocks of README.md and docs/*.md, or check that they are up to date (``--check``).

Output in the documents is never typed. A block names what it shows, and the script writes what is inside::

    <!-- generated: cheapspec prices --help -->
    <!-- end -->

* ``cheapspec …``: the output of that command, run with an empty environment in an empty folder; it must
  exit with status 0 and be the same every time. A command on ``sample.db`` finds the ledger of
  ``scripts/sample_ledger.py`` there, one on ``requests.jsonl`` the files of ``examples/batch``.
* ``settings``: the table of the keywords of ``Speculation``, from its code.
* ``agreement``: the planner's table of how often a draft token is accepted; ``plans``: what it decides about
  the same draft in several situations.
* ``dialects``: what each target's dialect can do, from its class; ``dialect facts``: what its module says of the API.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from sample_ledger import write as write_sample

from cheapspec.backends.chat_hosts import ANY as ANY_CHAT_HOST
from cheapspec.backends.chat_hosts import HOSTS as CHAT_HOSTS
from cheapspec.backends.chat_models import KINDS, PLAIN
from cheapspec.backends.facts import Facts
from cheapspec.backends.targets import HOSTS, NAMES, REAL, target_for
from cheapspec.core.acceptance import DraftToken
from cheapspec.core.estimate import AGREEMENT, AGREEMENT_CAP
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, plan
from cheapspec.core.ports import SamplingTarget
from cheapspec.embedded import cache_folder
from cheapspec.settings import Speculation

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- generated: (?P<what>[^\n]+?) -->\n)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)


def settings() -> str:
    """One row a keyword: its default and what its docstring says."""
    text = inspect.cleandoc(Speculation.__doc__ or "")
    said = {
        name: " ".join(meaning.split())
        for name, meaning in re.findall(r":param (\w+): (.*?)(?=\n:param|\n:raises|\Z)", text, re.DOTALL)
    }
    # Two keywords that belong together may share a paragraph: "… ``draft_tokens``: a fixed number …".
    for name, meaning in list(said.items()):
        for other in Speculation.model_fields.keys() - said.keys():
            if (mark := f"``{other}``: ") in meaning:
                said[name], said[other] = meaning.split(mark, 1)
    rows = ["| keyword | default | meaning |", "| --- | --- | --- |"]
    for name, field in Speculation.model_fields.items():
        meaning = re.sub(r":\w+:`([^`]+)`", r"`\1`", said[name].strip()).replace("``", "`").replace("|", "\\|")
        rows.append(f"| `{name}` | `{field.default!r}` | {meaning} |")
    return "\n".join(rows) + "\n"


def agreement() -> str:
    """One column a class of draft probability."""
    edges = [f"{edge:g}" for edge, _ in AGREEMENT]
    heads = [f"{low} to {high}" for low, high in zip(edges, [*edges[1:], "1"], strict=True)]
    shares = [f"{min(share, AGREEMENT_CAP):g}" for _, share in AGREEMENT]
    rows = [["probability in the draft", *heads], ["---"] * (len(heads) + 1), ["accepted", *shares]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def plans() -> str:
    """The planner before round one, on a draft of 64 tokens that ends its turn."""
    prices = Prices(Decimal("0.40"), Decimal("3.00"), Decimal("0.04"))
    flat = Prices(Decimal("0.40"), Decimal("0.40"), Decimal("0.04"))
    sure, unsure = [DraftToken("x", math.log(0.99))] * 64, [DraftToken("x", math.log(0.65))] * 64
    first, later = "first turn", "later turn, cached for direct"
    cold, reads, anew = ContextPrices(1.0, 1.0, 0.1), ContextPrices(0.1, 0.1, 0.1), ContextPrices(0.1, 1.0, 0.1)
    cases = [
        (100, first, "0.99", sure, "", cold, prices),
        (2000, first, "0.99", sure, "", cold, prices),
        (2000, later, "0.99", sure, "reads the cache", reads, prices),
        (2000, later, "0.99", sure, "computes the prompt anew", anew, prices),
        (100, first, "0.65", unsure, "", cold, prices),
        (100, f"{first}, output as dear as input", "0.99", sure, "", cold, flat),
    ]
    lines = ["| prompt | draft's probability a token | scoring | decision |", "| --- | --- | --- | --- |"]
    for tokens, turn, probability, draft, scoring, context, list_ in cases:
        made = plan(0, list_, tokens, context, draft, finished=True)
        decided = f"score {made.draft_tokens} tokens" if made.action == "score" else "go direct"
        expected = (
            ""
            if made.expected_gain is None
            else f", expected gain {made.expected_gain:+.7f}".replace("+", "+$").replace("-", "−$")
        )
        lines.append(f"| {tokens:,} tokens, {turn} | {probability} | {scoring} | {decided}{expected} |")
    return "\n".join(lines) + "\n"


def _dialects() -> dict[str, Any]:
    """The targets that give evidence about text, by name."""
    made = {name: target_for(name, Facts(shift=1)) for name in NAMES}
    return {name: target for name, target in made.items() if target.can_score or target.can_force}


def dialects() -> str:
    """One row a dialect, from its class."""
    heads = ["`target_backend`", "evidence", "requests", "temperature above 0", "found by", "run against"]
    rows = [heads, ["---"] * len(heads)]
    hosts: dict[str, list[str]] = {}
    for host, name in HOSTS.items():
        hosts.setdefault(name, []).append(f"`{host}`")
    for name, target in _dialects().items():
        evidence = "scores, at input price" if target.can_score else "forced, at output price"
        kinds = getattr(target, "kinds", None) or {"chat", "completion"}
        served = "chat, text completions" if len(kinds) == 2 else "chat" if "chat" in kinds else "text completions"
        found = f"its host, {' or '.join(hosts[name])}" if name in hosts else "its replies"
        draws = "yes" if isinstance(target, SamplingTarget) else "direct"
        rows.append([f"`{name}`", evidence, served, draws, found, REAL.get(name, "*experimental*")])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def dialect_facts() -> str:
    """What each dialect's module says of its API, and where that comes from."""
    parts: list[str] = []
    for name, target in _dialects().items():
        module = type(target).__module__.removesuffix("_target")
        text = inspect.cleandoc(importlib.import_module(module).__doc__ or "")
        found = re.search(r"^Facts[:,].*?(?=\n\n(?!\* )|\Z)", text, re.DOTALL | re.MULTILINE)
        facts = found[0] if found else sys.exit(f"{module} does not say where its facts come from.")
        rules = re.search(r"^Rules\n-+\n(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
        if "\n* " not in facts and rules:
            facts = f"{facts}\n\n{rules[1]}"
        facts = re.sub(r":\w+:`([^`]+)`", r"`\1`", facts.replace("``", "`"))
        parts.append(f"**`{name}`.** {facts}\n")
    return "\n".join(parts)


def chat_hosts() -> str:
    """One row a family of hosts that a verdict may be asked of."""
    heads = ["host", "limit of output", "log-probabilities", "what else is done there", "source", "unverified"]
    rows = [heads, ["---"] * len(heads)]
    for host in (*CHAT_HOSTS, ANY_CHAT_HOST):
        listed = f"{host.alternatives} alternatives" if host.alternatives else "none: a digit is asked for"
        names = ", ".join(f"`{'*' if one.startswith('.') else ''}{one}`" for one in host.hosts)
        shown = f"{host.family}{': ' + names if names else ''}"
        rows.append([shown, f"`{host.limit_field}`", listed, host.notes, host.source, host.unverified])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def chat_models() -> str:
    """One row a kind of models that think."""
    heads = ["kind of model", "`reasoning_effort` sent", "room for thinking, tokens", "log-probabilities", "source"]
    rows = [heads, ["---"] * len(heads)]
    for kind in (*KINDS, PLAIN):
        source = kind.source + (" *(unverified)*" if kind.unverified else "")
        effort = "nothing" if kind.effort is None else f"`{kind.effort}`"
        listed = "yes" if kind.logprobs else "not asked for"
        rows.append([kind.name, effort, f"{kind.thinking:,}", listed, source])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def output(command: str) -> str:
    """What a command of ours prints, as a fenced block."""
    executable, *arguments = command.split()
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as folder:
        if "sample.db" in command:
            write_sample(Path(folder, "sample.db"))
        if "requests.jsonl" in command:
            shutil.copytree(ROOT / "examples" / "batch", folder, dirs_exist_ok=True)
        environment |= {"HOME": folder, "CHEAPSPEC_CACHE": str(cache_folder())}
        done = subprocess.run(
            [str(Path(sys.executable).with_name(executable)), *arguments],
            capture_output=True, text=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"`{command}` failed with status {done.returncode}:\n{done.stderr}")
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"^`{3,}", "\n".join(lines), re.MULTILINE))])
    return "\n".join([f"{fence}text", f"$ {command}", *lines, fence]) + "\n"


TABLES = {
    "settings": settings,
    "agreement": agreement,
    "plans": plans,
    "dialects": dialects,
    "dialect facts": dialect_facts,
    "chat hosts": chat_hosts,
    "chat models": chat_models,
}


def generated(what: str) -> str:
    """The inside of the block that names ``what``."""
    if what in TABLES:
        return TABLES[what]()
    if what.split()[0] == "cheapspec":
        return output(what)
    sys.exit(f"No generated block is called {what!r}; see scripts/docs.py.")


def main(check: bool) -> int:
    """Write the blocks (0), or compare (1 when one is out of date)."""
    stale: list[str] = []
    blocks = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        before = page.read_text("utf-8") if page.exists() else ""
        after = BLOCK.sub(lambda found: found[1] + generated(found["what"]) + found[4], before)
        blocks += len(BLOCK.findall(before))
        if before == after:
            continue
        stale.append(str(page.relative_to(ROOT)))
        if not check:
            page.write_text(after, "utf-8")
    if check and stale:
        print(f"Out of date: {', '.join(stale)}. Run `make docs` and commit the result.", file=sys.stderr)
        return 1
    print(f"{blocks} generated blocks, {len(stale)} pages {'stale' if check else 'rewritten'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] == ["--check"]))
