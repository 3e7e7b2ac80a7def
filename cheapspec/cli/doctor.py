"""``cheapspec doctor``: is everything in place to save, and if not, what to do.

Rules
-----
* Nothing is spent without a yes: the probe of a target says first what it costs at most. What an earlier probe found
  is shown from the ledger while it counts, for nothing.
* No key is ever printed.
* Exit status: 0 all is well, 1 something is wrong, 2 the question or the settings cannot be read.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import typer
from rich.console import Console

from cheapspec.backends.facts import Facts
from cheapspec.backends.targets import target_for
from cheapspec.cli.doctor_checks import (
    DraftState,
    Problem,
    Target,
    chat_only,
    drafts,
    has_key,
    known,
    probe_price,
    probe_target,
    shown_draft,
    shown_url,
    target,
)
from cheapspec.cli.doctor_verdicts import Rule, verdict_rules
from cheapspec.cli.doctor_view import show
from cheapspec.cli.terminal import dollars
from cheapspec.core.acceptance import DraftToken
from cheapspec.core.money import Prices, format_usd
from cheapspec.core.planner import plan
from cheapspec.doors import Shared
from cheapspec.drive.contexts import context_prices
from cheapspec.drive.state import TargetFacts
from cheapspec.prices import PriceBook, Quote
from cheapspec.rules import Judge
from cheapspec.settings import Speculation, disabled
from cheapspec.settings.accepts import verdict_rules as verdicts_of

__all__ = ["Answer", "Rule", "run"]

_DEFAULT_BASE = "https://api.openai.com/v1"
_EXAMPLE = (500, 150, 0.95)
"""Prompt tokens, reply tokens, and the draft's probability a token, of which the expected saving is told."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that the doctor found. ``facts``: ``None`` when the target was not asked."""

    settings: dict[str, Any]
    drafts: list[DraftState]
    model: str | None
    base_url: str
    facts: Facts | None
    probed_at: float | None
    quote: Quote | None
    rules: list[Rule]
    problems: list[Problem]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``--json``."""
        facts = self.facts or Facts(reason="not_probed")
        return {
            "ok": not self.problems,
            "settings": self.settings,
            "draft": {"drafters": [_draft_json(one) for one in self.drafts]},
            "target": {
                "model": self.model,
                "base_url": self.base_url,
                "backend": facts.backend if self.facts else None,
                "probed_at": self.probed_at,
                **{name: getattr(facts, name) if self.facts else None for name in _FACTS},
                "reason": facts.reason or None,
                "evidence": list(facts.evidence),
            },
            "prices": _prices_json(self.quote),
            "rules": [
                {
                    "rule": one.rule,
                    "possible": one.possible,
                    "why": one.why,
                    "expected_saving_share": one.expected_saving_share,
                    "fix": one.fix,
                }
                for one in self.rules
            ],
            "problems": [{"what": one.what, "fix": one.fix} for one in self.problems],
        }


_FACTS = ("can_score", "can_force", "can_continue", "can_judge", "reports_cached_tokens", "qs", "qh")


def run(model: str | None, base_url: str | None, *, spend: bool, as_json: bool) -> int:
    """Returns the exit status.

    :raises SettingsError: the settings cannot be read.
    """
    given = Speculation()
    base = (base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_BASE).rstrip("/")
    console = Console(stderr=True, highlight=False)
    with console.status("asking the draft host"):
        found = drafts(given)
    shared = Shared(given.override({"draft": None}, "doctor"))
    quote = None if model is None else PriceBook(given.prices).quote(model, base)
    facts, at = (None, None) if model is None else _target(console, shared, model, base, quote, spend, as_json)
    problems = [problem for state in found for problem in state.problems]
    problems += _problems(given, model, base, facts, quote)
    prices = quote.prices if quote is not None else None
    rules = [*_rules(facts, prices, given), *verdict_rules(facts, model, base, prices, given.drafts)]
    answer = Answer(_settings(given), found, model, shown_url(base), facts, at, quote, rules, problems)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2, allow_nan=False))
    else:
        show(Console(highlight=False), answer.to_dict())
    return 1 if problems else 0


def _target(
    console: Console, shared: Shared, model: str, base: str, quote: Quote | None, spend: bool, as_json: bool
) -> tuple[Facts | None, float | None]:
    """What is known of the target, or is found out now."""
    endpoint = target(shared, model, base)
    earlier = known(shared, endpoint)
    if earlier is not None and not spend:
        return earlier
    why = chat_only(endpoint)
    if why is not None and not has_key():
        told = f"{why}; whether it can judge was not asked: there is no OPENAI_API_KEY"
        return Facts(reason="cannot_score", evidence=(told,)), None
    if not spend and not _agreed(endpoint, quote, as_json, verdicts=why is not None):
        return (
            (None, None)
            if why is None
            else (Facts(reason="cannot_score", evidence=(f"{why}; it was not asked",)), None)
        )
    with console.status("asking the target"):
        return probe_target(shared, endpoint, why), None


def _agreed(endpoint: Target, quote: Quote | None, as_json: bool, *, verdicts: bool) -> bool:
    """Whether the user says yes to what the probe costs; no without a terminal."""
    price = probe_price(quote.prices if quote is not None else None)
    told = "a price that nobody knows" if price is None else f"at most {dollars(price)}"
    if as_json or not sys.stdin.isatty():
        return False
    calls = "two" if verdicts else "some six"
    question = (
        f"A probe of {endpoint.model} at {shown_url(endpoint.base_url)} makes {calls} calls and costs {told}. Go on?"
    )
    return typer.confirm(question, err=True)


def _problems(
    given: Speculation, model: str | None, base: str, facts: Facts | None, quote: Quote | None
) -> list[Problem]:
    found: list[Problem] = []
    if disabled() or not given.enabled:
        found.append(Problem("cheapspec is switched off", "unset CHEAPSPEC_DISABLED, or set enabled = true"))
    if not given.drafts:
        fix = "set CHEAPSPEC_DRAFT=qwen2.5:3b (a model of your Ollama), or [speculation] draft in cheapspec.toml"
        found.append(Problem("no draft model is set, so every request goes direct", fix))
    if model is None:
        return found
    if quote is not None and quote.prices is None:
        fix = f'[prices."{model}"] input = … output = … in cheapspec.toml (dollars per million tokens)'
        found.append(Problem(f"nobody knows the price of {model}, so its requests go direct", fix))
    elif quote is not None and quote.prices is not None and quote.prices.output <= quote.prices.input:
        found.append(Problem(f"output of {model} costs no more than input: nothing to save", "use another target"))
    if facts is None:
        price = probe_price(quote.prices if quote is not None else None)
        told = "" if price is None else f" (at most {dollars(price)})"
        what = f"what {model} can do was not asked{told}"
        found.append(Problem(what, f"cheapspec doctor --model {model} --base-url {shown_url(base)} --yes-spend"))
    elif not (facts.can_score or facts.can_force):
        found += _unserved(facts, base, given)
    elif facts.can_force and not facts.can_score:
        what = "the target can be forced, not score: verifying costs output price and saves nothing"
        found.append(Problem(what, "use vLLM or SGLang for a target of your own"))
    return found


def _unserved(facts: Facts, base: str, given: Speculation) -> list[Problem]:
    """What is wrong where the target cannot score: nothing, if rules about whole drafts can serve instead."""
    rules = verdicts_of(given.accept)
    if not rules or facts.reason == "not_probed":
        return [_cannot(facts, base)]
    asked = any("draft it said" in one for one in facts.evidence)
    if asked and not facts.can_judge and all(isinstance(rule, Judge) and rule.base_url is None for rule in rules):
        fix = "a judge elsewhere, Judge(model=…, base_url=…, api_key=…), or another rule (docs/chat-only-apis.md)"
        return [Problem("the target does not tell a right draft from a wrong one", fix)]
    return []


def _cannot(facts: Facts, base: str) -> Problem:
    last = facts.evidence[-1] if facts.evidence else facts.reason
    if facts.reason == "not_probed":
        return Problem(
            f"the target did not answer the probe: {last}", f"see that {shown_url(base)} answers, then try again"
        )
    if facts.reason == "reasoning":
        return Problem("the target thinks before it answers", 'switch thinking off: reasoning_effort="none"')
    fix = (
        "set rules about whole drafts, such as accept=[Answer('last_number')] (docs/chat-only-apis.md), or use a "
        "target that scores: vLLM, SGLang, Fireworks, Together or Mistral (docs/backends.md)"
    )
    return Problem(f"the target does not score text: {last}", fix)


def _rules(facts: Facts | None, prices: Prices | None, given: Speculation) -> list[Rule]:
    scores = facts is not None and (facts.can_score or facts.can_force)
    if facts is None:
        why, fix = "the target was not asked", "name it with --model and --base-url"
    elif scores:
        only = ", of text completions only" if facts.backend == "llamacpp-python" else ""
        how = f"scores text{only}" if facts.can_score else "can be forced, at output price"
        why, fix = f"the target {how}", None
    else:
        why = facts.evidence[-1] if facts.evidence else facts.reason
        fix = "a target that scores text (docs/backends.md)"
    share = _expected(facts, prices, given) if facts is not None and scores else None
    exact = [Rule(name, scores, why, share if name == "exact" else None, fix) for name in ("exact", "lenient")]
    paid = "the target writes the whole reply, so it saves no money: for own targets and measurements"
    allowed = given.objective != "cost" or given.draft_tokens is not None
    way = None if allowed else 'objective="latency", or a fixed draft_tokens'
    return [*exact, Rule("text_match", allowed, paid, None, way)]


def _expected(facts: Facts, prices: Prices | None, given: Speculation) -> float | None:
    """Of a first turn of the example's size, with what was measured of caches."""
    if prices is None:
        return None
    prompt, reply, probability = _EXAMPLE
    measured = TargetFacts(target_for(facts.backend, facts), qs=facts.qs, qh=facts.qh)
    context = context_prices(prices, measured, 0.0)
    draft = [DraftToken("x", math.log(probability))] * reply
    made = plan(
        0,
        prices,
        prompt,
        context,
        draft,
        finished=True,
        can_score=facts.can_score,
        can_force=facts.can_force,
        simulate_scoring=given.simulate_scoring,
    )
    whole = (prompt * prices.input + reply * prices.output) / 1_000_000
    if made.action != "score" or made.expected_gain is None or not whole:
        return 0.0
    return round(float(Decimal(str(made.expected_gain)) / whole), 4)


def _settings(given: Speculation) -> dict[str, Any]:
    ledger = given.ledger if isinstance(given.ledger, str) else None if given.ledger is None else "an object"
    return {
        "draft": [shown_draft(spec) for spec in given.drafts],
        "draft_url": None if given.draft_url is None else shown_url(given.draft_url),
        "target_backend": given.target_backend,
        "accept": str(given.accept),
        "allowance": given.allowance,
        "ledger": "the default file" if ledger is None else shown_url(ledger) if "://" in ledger else ledger,
        "enabled": given.enabled and not disabled(),
    }


def _draft_json(state: DraftState) -> dict[str, Any]:
    return {
        "drafter": state.drafter,
        "host": state.host,
        "reachable": state.reachable,
        "has_model": state.has_model,
        "version": state.version,
        "models": list(state.models),
    }


def _prices_json(quote: Quote | None) -> dict[str, Any]:
    if quote is None:
        return {}
    told = {"source": quote.source, "why": quote.why}
    prices = quote.prices
    names = ("input", "cached_input", "cache_write", "output", "request")
    return told | {name: None if prices is None else format_usd(getattr(prices, name)) for name in names}
